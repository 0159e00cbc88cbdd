//! The node's place in the network: its address, its namespace when isolated, and the pod network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::Context;
use ipnet::IpNet;

use crate::paths::Paths;
use pintle_host::process::run;

/// Address of an isolated node: on a link that leads nowhere.
pub const ISOLATED_NODE_IP: Ipv4Addr = Ipv4Addr::new(172, 31, 240, 1);

/// The link that carries an isolated node's address, and its other end, which stays in the same namespace. (A dummy link
/// would do where the kernel has that type.)
const LINK: &str = "pintle0";
const LINK_END: &str = "pintle1";

/// The address from which this machine would reach others, or the loopback address if it has no route. Nothing is sent.
pub fn default_ip() -> IpAddr {
    // TEST-NET-1 (RFC 5737): connecting a datagram socket only looks up the route.
    let probe = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from(([192, 0, 2, 1], 9)))?;
        Ok(socket.local_addr()?.ip())
    };
    probe().ok().filter(|ip| !ip.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Makes the network namespace of an isolated node, if it is not there: loopback, and a link with the node's address and
/// the default route, without a peer. Service addresses need a route to be translated; packets for anywhere else end on
/// that link.
pub async fn ensure_namespace(paths: &Paths) -> anyhow::Result<()> {
    let name = paths.id();
    if namespace_exists(&name) {
        return Ok(());
    }
    run("ip", &["netns", "add", &name]).await.context("iproute2 is needed (Debian: apt-get install iproute2)")?;
    let ip = |arguments: &'static [&'static str]| {
        let name = name.clone();
        async move {
            let mut all = vec!["-n", name.as_str()];
            all.extend(arguments);
            run("ip", &all).await
        }
    };
    ip(&["link", "set", "lo", "up"]).await?;
    ip(&["link", "add", LINK, "type", "veth", "peer", "name", LINK_END]).await?;
    let address = format!("{ISOLATED_NODE_IP}/24");
    run("ip", &["-n", &name, "addr", "add", &address, "dev", LINK]).await?;
    ip(&["link", "set", LINK, "up"]).await?;
    ip(&["link", "set", LINK_END, "up"]).await?;
    ip(&["route", "add", "default", "dev", LINK]).await?;
    Ok(())
}

/// True if a named network namespace exists.
pub fn namespace_exists(name: &str) -> bool {
    std::path::Path::new("/run/netns").join(name).exists()
}

/// Removes the network namespace, if it is there.
pub async fn remove_namespace(paths: &Paths) -> anyhow::Result<()> {
    if namespace_exists(&paths.id()) {
        run("ip", &["netns", "del", &paths.id()]).await?;
    }
    Ok(())
}

/// Writes the pod network's CNI configuration for a node that got the given pod addresses: a routed link for each pod,
/// addresses from the node's range, host ports.
pub fn write_cni(paths: &Paths, pod_cidr: &IpNet) -> anyhow::Result<()> {
    let config = serde_json::json!({
        "cniVersion": "0.4.0", "name": "pintle",
        "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local", "dataDir": paths.cni_ipam(), "ranges": [[{"subnet": pod_cidr}]],
                "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
        ]
    });
    let file = paths.cni_conf().join("10-pintle.conflist");
    let text = serde_json::to_vec_pretty(&config)?;
    if std::fs::read(&file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    // Written in place: containerd 1.6 looks at writes in this directory, not at files that are moved into it.
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
}
