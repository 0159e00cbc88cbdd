//! Routes to the pods of other nodes. What was set is kept in a file: after a restart what is not wanted any more is
//! removed, and so is all of it, and nothing else, when the node goes.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use pintle_host::file;
use pintle_host::process::run;

/// Marks the routes that are ours; a number that rtnetlink leaves to everybody.
const PROTOCOL: &str = "212";

/// Pod addresses, and the address of their node.
pub type Table = BTreeMap<IpNet, IpAddr>;

/// A change of one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// These addresses are reached through that node. Both must share a link.
    Set(IpNet, IpAddr),
    /// No longer.
    Remove(IpNet),
}

/// The routes that are set, as far as is known.
pub struct Routes {
    file: PathBuf,
    /// By this process, or an earlier one: a link that went took its routes along.
    noted: Table,
    /// By this process.
    set: Table,
}

/// The routes to all nodes but one.
pub fn wanted(nodes: &[Arc<Node>], own: &str) -> Table {
    let route = |node: &Arc<Node>| {
        let cidr = node.spec.as_ref()?.pod_cidr.as_ref()?.parse().ok()?;
        let addresses = node.status.as_ref()?.addresses.as_ref()?;
        let ip = addresses.iter().find(|a| a.type_ == "InternalIP")?.address.parse::<Ipv4Addr>().ok()?;
        Some((cidr, IpAddr::V4(ip)))
    };
    nodes.iter().filter(|node| node.name_any() != own).filter_map(route).collect()
}

impl Routes {
    /// As an earlier run left them. What can't be read may name routes that nobody else knows of.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let noted = match std::fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Table::new(),
            read => read
                .map_err(anyhow::Error::from)
                .and_then(|text| Ok(serde_json::from_slice(&text)?))
                .with_context(|| format!("reading the routes of an earlier run in {}", file.display()))?,
        };
        Ok(Self { file: file.to_owned(), noted, set: Table::new() })
    }

    /// Makes them as wanted. A step that fails keeps no other one from being made; false: try again.
    pub async fn bring<F>(&mut self, wanted: &Table, make: impl Fn(Step) -> F) -> bool
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let mut good = true;
        for step in self.steps(wanted) {
            if let Err(error) = self.take(step, &make).await {
                tracing::warn!(error = format!("{error:#}"), ?step, "route not changed, trying again");
                good = false;
            }
        }
        good
    }

    fn steps(&self, wanted: &Table) -> Vec<Step> {
        let gone = self.noted.keys().filter(|range| !wanted.contains_key(*range)).map(|range| Step::Remove(*range));
        let new = wanted.iter().filter(|(range, node)| self.set.get(*range) != Some(*node));
        gone.chain(new.map(|(range, node)| Step::Set(*range, *node))).collect()
    }

    /// A route is on file before it is set, and until it is removed.
    async fn take<F>(&mut self, step: Step, make: impl Fn(Step) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        match step {
            Step::Set(range, node) => {
                self.noted.insert(range, node);
                self.write()?;
                make(step).await?;
                self.set.insert(range, node);
            }
            Step::Remove(range) => {
                make(step).await?;
                self.noted.remove(&range);
                self.set.remove(&range);
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&self) -> anyhow::Result<()> {
        file::replace(&self.file, &serde_json::to_vec(&self.noted)?, 0o644)
    }
}

/// Makes a step in this process's network namespace.
pub async fn make(step: Step) -> anyhow::Result<()> {
    match step {
        Step::Set(range, node) => {
            let (range, node) = (range.to_string(), node.to_string());
            run("ip", &["route", "replace", &range, "via", &node, "proto", PROTOCOL]).await?;
        }
        Step::Remove(range) => {
            let removed = run("ip", &["route", "del", &range.to_string(), "proto", PROTOCOL]).await;
            // It may have gone with its link, or with the machine's last run.
            if let Err(error) = removed
                && !format!("{error:#}").contains("No such process")
            {
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use serde_json::json;

    use super::*;

    fn node(name: &str, cidr: &str, ip: &str) -> Arc<Node> {
        let value = json!({"metadata": {"name": name}, "spec": {"podCIDR": cidr},
            "status": {"addresses": [{"type": "InternalIP", "address": ip}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[tokio::test]
    async fn what_failed_is_made_again_and_what_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routes.json");
        let made = RefCell::new(Vec::new());
        let fails = Cell::new(true);
        let make = |step: Step| {
            made.borrow_mut().push(step);
            let broken = fails.get() && matches!(step, Step::Set(range, _) if range.to_string() == "10.42.1.0/24");
            std::future::ready(if broken { Err(anyhow::anyhow!("network is unreachable")) } else { Ok(()) })
        };
        let nodes = [
            node("own", "10.42.0.0/24", "10.0.0.1"),
            node("a", "10.42.1.0/24", "10.0.0.2"),
            node("b", "10.42.2.0/24", "10.0.0.3"),
        ];
        let table = wanted(&nodes, "own");
        let (first, second) = (*table.keys().next().unwrap(), *table.keys().nth(1).unwrap());
        let mut routes = Routes::read(&file).unwrap();
        assert!(!routes.bring(&table, &make).await, "one has failed");
        assert_eq!(made.take(), [Step::Set(first, table[&first]), Step::Set(second, table[&second])]);
        fails.set(false);
        assert!(routes.bring(&table, &make).await);
        assert_eq!(made.take(), [Step::Set(first, table[&first])], "the one that failed");
        assert!(routes.bring(&table, &make).await && made.take().is_empty());
        // Another process, after a node has gone and one has moved.
        let moved = wanted(&[node("b", "10.42.2.0/24", "10.0.0.9")], "own");
        assert!(Routes::read(&file).unwrap().bring(&moved, &make).await);
        assert_eq!(made.take(), [Step::Remove(first), Step::Set(second, moved[&second])]);
        assert!(Routes::read(&file).unwrap().bring(&Table::new(), &make).await);
        assert_eq!(made.take(), [Step::Remove(second)]);
        assert!(Routes::read(&file).unwrap().noted.is_empty());
        std::fs::write(&file, "{\"10.").unwrap();
        assert!(Routes::read(&file).is_err(), "not the same as no routes");
    }
}
