//! The link between a lab's machines: a bridge in a network namespace of its own, and a namespace for each machine with
//! one end on that bridge. There is no way out.

use std::net::Ipv4Addr;

use anyhow::Context;
use pintle_host::netns;
use pintle_host::process::run;

/// The network of one lab.
#[derive(Clone, Debug)]
pub struct Network {
    tag: String,
}

impl Network {
    /// The network whose namespaces have names that begin with `tag`.
    pub fn new(tag: &str) -> Self {
        Self { tag: tag.to_owned() }
    }

    /// Name of a machine's namespace.
    pub fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.tag)
    }

    /// Makes the bridge.
    pub async fn create(&self) -> anyhow::Result<()> {
        let switch = self.namespace("sw");
        run("ip", &["netns", "add", &switch]).await.context("iproute2 is needed")?;
        run("ip", &["-n", &switch, "link", "add", "br0", "type", "bridge"]).await?;
        run("ip", &["-n", &switch, "link", "set", "br0", "up"]).await?;
        Ok(())
    }

    /// Makes a machine's namespace, with a default route through `gateway` if there is one.
    pub async fn attach(&self, machine: &str, ip: Ipv4Addr, gateway: Option<Ipv4Addr>) -> anyhow::Result<()> {
        let (switch, own) = (self.namespace("sw"), self.namespace(machine));
        let port = format!("p{machine}");
        let address = format!("{ip}/24");
        run("ip", &["netns", "add", &own]).await?;
        run("ip", &["-n", &own, "link", "set", "lo", "up"]).await?;
        let link = ["link", "add", "eth0", "netns", &own, "type", "veth", "peer", "name", &port, "netns", &switch];
        run("ip", &link).await?;
        run("ip", &["-n", &switch, "link", "set", &port, "master", "br0", "up"]).await?;
        run("ip", &["-n", &own, "addr", "add", &address, "dev", "eth0"]).await?;
        run("ip", &["-n", &own, "link", "set", "eth0", "up"]).await?;
        if let Some(gateway) = gateway {
            run("ip", &["-n", &own, "route", "add", "default", "via", &gateway.to_string()]).await?;
        }
        Ok(())
    }

    /// Routes addresses through a machine, in another one's namespace.
    pub async fn route(&self, machine: &str, cidr: &str, via: Ipv4Addr) -> anyhow::Result<()> {
        let own = self.namespace(machine);
        run("ip", &["-n", &own, "route", "replace", cidr, "via", &via.to_string()]).await?;
        Ok(())
    }

    /// Removes the namespaces, whichever there are, also those that somebody was still making or removes as well.
    pub async fn remove(&self) -> anyhow::Result<()> {
        loop {
            let names = namespaces(&self.namespace(""));
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                let removed = run("ip", &["netns", "del", &name]).await;
                if netns::file(&name).exists() {
                    removed?;
                }
            }
        }
    }
}

/// Names of the network namespaces that begin so.
pub fn namespaces(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(netns::NAMED) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Runs something on a thread in a network namespace; what it opens, it opens there.
pub async fn within<T, F>(namespace: &str, work: impl FnOnce() -> F + Send + 'static) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
    T: Send + 'static,
{
    let file = netns::file(namespace);
    let (done, outcome) = tokio::sync::oneshot::channel();
    let enter = move || {
        netns::enter(&file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    };
    std::thread::spawn(move || {
        // Nobody waits any more: then nobody wants to know.
        let _ = done.send(enter());
    });
    outcome.await.context("the thread in the network namespace ended")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn machines_reach_each_other_and_nothing_else_and_nothing_stays() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let network = Network::new(&format!("labtest{}", std::process::id()));
        let (a, b) = (Ipv4Addr::new(172, 31, 79, 1), Ipv4Addr::new(172, 31, 79, 2));
        network.create().await.unwrap();
        network.attach("a", a, None).await.unwrap();
        network.attach("b", b, Some(a)).await.unwrap();
        let (ours, theirs) = (network.namespace("a"), network.namespace("b"));
        let listener = within(&ours, move || async move { Ok(std::net::TcpListener::bind((a, 7000))?) }).await.unwrap();
        within(&theirs, move || async move {
            tokio::net::TcpStream::connect((a, 7000)).await?;
            Ok(())
        })
        .await
        .unwrap();
        let outside = std::net::SocketAddr::from(([192, 0, 2, 1], 9));
        within(&theirs, move || async move {
            let wait = std::time::Duration::from_millis(300);
            anyhow::ensure!(std::net::TcpStream::connect_timeout(&outside, wait).is_err(), "there is a way out");
            Ok(())
        })
        .await
        .unwrap();
        drop(listener);
        network.remove().await.unwrap();
        assert!(namespaces(&network.namespace("")).is_empty());
    }
}
