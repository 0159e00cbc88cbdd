//! node-ipam-controller: every node gets a range of pod addresses of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::meta;
use crate::retry::gone_is_fine;

/// A cluster range and the size of its pieces.
#[derive(Clone, Copy, Debug)]
struct Pool {
    range: IpNet,
    piece: u8,
}

struct Controller {
    ctx: Context,
    pools: Vec<Pool>,
    nodes: Cache<Node>,
    recorder: Recorder,
    /// Ranges given out that the cache may not show yet, by node.
    given: Mutex<HashMap<String, Vec<IpNet>>>,
}

/// Runs the controller; without ranges to give out it has nothing to do.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    if ctx.config.cluster_cidrs.is_empty() {
        return Ok(());
    }
    let pools = pools(&ctx)?;
    let controller = Arc::new(Controller {
        pools,
        nodes: ctx.cache(),
        recorder: ctx.recorder("cidrAllocator"),
        given: Mutex::default(),
        ctx: ctx.clone(),
    });
    controller.nodes.synced().await;
    let queue: Queue<String> = ctx.queue("nodeipam");
    let keys = queue.clone();
    controller.nodes.on_change(ctx.shutdown.clone(), move |change| keys.add(change.object().name_any()));
    // One worker: no range is given out twice.
    reconcile::run(queue, 1, ctx.shutdown, |name| {
        let controller = controller.clone();
        async move { controller.reconcile(&name).await }
    })
    .await;
    Ok(())
}

fn pools(ctx: &Context) -> anyhow::Result<Vec<Pool>> {
    let one = |text: &String| {
        let range: IpNet = text.parse()?;
        let piece =
            if range.addr().is_ipv6() { ctx.config.node_cidr_mask_ipv6 } else { ctx.config.node_cidr_mask_ipv4 };
        anyhow::ensure!(piece >= range.prefix_len(), "a node's range (/{piece}) must fit into {range}");
        Ok(Pool { range: range.trunc(), piece })
    };
    ctx.config.cluster_cidrs.iter().map(one).collect()
}

/// The first free piece of each pool; `None` if one of them is used up.
fn allocate(pools: &[Pool], used: &HashSet<IpNet>) -> Option<Vec<IpNet>> {
    let free = |pool: &Pool| {
        let overlaps =
            |piece: &IpNet| used.contains(piece) || used.iter().any(|u| u.contains(piece) || piece.contains(u));
        pool.range.subnets(pool.piece).ok()?.find(|piece| !overlaps(piece))
    };
    pools.iter().map(free).collect()
}

/// The ranges that a node has.
fn ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let many: Vec<IpNet> = spec.pod_cidrs.iter().flatten().filter_map(|c| c.parse().ok()).collect();
    if many.is_empty() { spec.pod_cidr.iter().filter_map(|c| c.parse().ok()).collect() } else { many }
}

impl Controller {
    async fn reconcile(&self, name: &str) -> anyhow::Result<Action> {
        let Some(node) = self.nodes.get(None, name) else {
            self.given.lock().remove(name);
            return Ok(Action::Done);
        };
        if !ranges(&node).is_empty() || meta::is_deleting(&node.metadata) {
            self.given.lock().remove(name);
            return Ok(Action::Done);
        }
        let mut used: HashSet<IpNet> = self.nodes.list().iter().flat_map(|n| ranges(n)).collect();
        used.extend(self.given.lock().iter().filter(|(n, _)| *n != name).flat_map(|(_, given)| given.clone()));
        let Some(given) = allocate(&self.pools, &used) else {
            let object = ObjectReference { resource_version: None, ..node.object_ref(&()) };
            let text = format!("Node {name} status is now: CIDRNotAvailable");
            self.recorder.normal(&object, "CIDRNotAvailable", text);
            anyhow::bail!("no range left for node {name}");
        };
        self.given.lock().insert(name.to_owned(), given.clone());
        let cidrs: Vec<String> = given.iter().map(ToString::to_string).collect();
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs},
        });
        let api = self.ctx.api_all::<Node>();
        gone_is_fine(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_given_out_once() {
        let pools = [
            Pool { range: "10.244.0.0/22".parse().unwrap(), piece: 24 },
            Pool { range: "fd00::/56".parse().unwrap(), piece: 64 },
        ];
        let mut used = HashSet::new();
        let mut seen = Vec::new();
        while let Some(given) = allocate(&pools, &used) {
            seen.push(given[0].to_string());
            used.extend(given);
        }
        assert_eq!(seen, ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"]);
        let larger = HashSet::from(["10.244.0.0/23".parse().unwrap()]);
        assert_eq!(allocate(&pools, &larger).unwrap()[0].to_string(), "10.244.2.0/24");
    }
}
