//! node-lifecycle-controller: notices nodes that went silent, and taints nodes by their conditions.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::meta;
use crate::pods;
use crate::retry::gone_is_fine;
use plan::Heard;

const LEASES: &str = "kube-node-lease";

struct Controller {
    ctx: Context,
    nodes: Cache<Node>,
    leases: Cache<Lease>,
    pods: Cache<Pod>,
    recorder: Recorder,
    heard: Mutex<HashMap<String, Heard>>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        nodes: ctx.cache(),
        leases: ctx.cache(),
        pods: ctx.cache(),
        recorder: ctx.recorder("node-controller"),
        heard: Mutex::default(),
        ctx: ctx.clone(),
    });
    controller.nodes.synced().await;
    controller.leases.synced().await;
    controller.pods.synced().await;
    let queue: Queue<String> = ctx.queue("node_lifecycle_controller");
    let (keys, recorder) = (queue.clone(), controller.recorder.clone());
    controller.nodes.on_change(ctx.shutdown.clone(), move |change| {
        let node = change.object();
        let name = node.name_any();
        let tell = |reason: &str, verb: &str, side: &str| {
            let text = format!("Node {name} event: {verb} Node {name} {side} Controller");
            recorder.normal(&reference(node), reason, text);
        };
        match &change {
            Change::Added(_) => tell("RegisteredNode", "Registered", "in"),
            Change::Deleted(_) => tell("RemovingNode", "Removing", "from"),
            Change::Updated { .. } => {}
        }
        keys.add(name);
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |name| {
        let controller = controller.clone();
        async move { controller.reconcile(&name).await }
    })
    .await;
    Ok(())
}

/// Events about nodes carry the node's name as uid, as the kubelet's do: `kubectl describe node` finds both.
fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

impl Controller {
    async fn reconcile(&self, name: &str) -> anyhow::Result<Action> {
        let Some(mut node) = self.nodes.get(None, name) else {
            self.heard.lock().remove(name);
            return Ok(Action::Done);
        };
        let now = Timestamp::now();
        let config = &self.ctx.config;
        if plan::is_silent(&self.listen(&node, now), config.node_monitor_grace_period, now)
            && let Some(conditions) = plan::unknown_conditions(&node, now)
        {
            let mut changed = (*node).clone();
            changed.status.get_or_insert_default().conditions = Some(conditions);
            let api = self.ctx.api_all::<Node>();
            let written = api.replace_status(name, &PostParams::default(), &changed).await;
            let Some(written) = gone_is_fine(written)? else { return Ok(Action::Done) };
            node = Arc::new(written);
        }
        let ready = plan::condition(&node, "Ready").map(|c| c.status.as_str());
        if let Some(taints) = plan::taints(&node, now) {
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": if taints.is_empty() { json!(null) } else { json!(taints) }},
            });
            let api = self.ctx.api_all::<Node>();
            gone_is_fine(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
            if ready.is_some_and(|r| r != "True") && taints.iter().any(|t| t.effect == "NoExecute") {
                let text = format!("Node {name} status is now: NodeNotReady");
                self.recorder.normal(&reference(&node), "NodeNotReady", text);
            }
        }
        if ready.is_some_and(|r| r != "True") {
            self.mark_pods(name).await?;
        }
        Ok(Action::RequeueAfter(config.node_monitor_period))
    }

    fn listen(&self, node: &Node, now: Timestamp) -> Heard {
        let name = node.name_any();
        let lease = self.leases.get(Some(LEASES), &name);
        let renewed = lease.and_then(|l| l.spec.as_ref()?.renew_time.as_ref().map(|t| t.0));
        let beat = plan::condition(node, "Ready").and_then(|c| c.last_heartbeat_time.as_ref().map(|t| t.0));
        let mut all = self.heard.lock();
        let heard = plan::listen(all.get(&name), (renewed, beat), now);
        all.insert(name, heard.clone());
        heard
    }

    /// Nobody can tell whether the pods of such a node are ready: Services must not count on them.
    async fn mark_pods(&self, node: &str) -> anyhow::Result<()> {
        for pod in self.pods.list().iter().filter(|p| pods::node_name(p) == node && pods::is_ready(p)) {
            let patch = json!({
                "metadata": {"uid": meta::uid(&pod.metadata)},
                "status": {"conditions": [
                    {"type": "Ready", "status": "False", "lastTransitionTime": Timestamp::now()},
                ]},
            });
            let api = self.ctx.api::<Pod>(meta::namespace(&pod.metadata));
            let name = meta::name(&pod.metadata);
            gone_is_fine(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await)?;
            self.recorder.warning(&kube::Resource::object_ref(&**pod, &()), "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }
}
