//! taint-eviction-controller: pods that do not tolerate a NoExecute taint of their node go.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use pintle_api::nodes::covers;
use pintle_client::cache::{Cache, Change};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::key::Key;
use crate::retry::gone_is_fine;
use crate::{meta, pods};

struct Controller {
    ctx: Context,
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    recorder: Recorder,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        nodes: ctx.cache(),
        pods: ctx.cache(),
        recorder: ctx.recorder("taint-eviction-controller"),
        ctx: ctx.clone(),
    });
    controller.nodes.synced().await;
    controller.pods.synced().await;
    let queue: Queue<Key> = ctx.queue("noexec_taint_pod");
    let (keys, pods) = (queue.clone(), controller.pods.clone());
    controller.nodes.on_change(ctx.shutdown.clone(), move |change| {
        let changed = match &change {
            Change::Updated { old, new } => no_execute(old) != no_execute(new),
            Change::Added(node) => !no_execute(node).is_empty(),
            Change::Deleted(_) => false,
        };
        if changed {
            let name = change.object().name_any();
            pods.list().iter().filter(|p| pods::node_name(p) == name).for_each(|p| keys.add(Key::of(&**p)));
        }
    });
    let (keys, nodes) = (queue.clone(), controller.nodes.clone());
    controller.pods.on_change(ctx.shutdown.clone(), move |change| {
        let pod = change.object();
        let moved = match &change {
            Change::Updated { old, new } => pods::node_name(old) != pods::node_name(new),
            Change::Added(_) => true,
            Change::Deleted(_) => false,
        };
        if moved && nodes.get(None, pods::node_name(pod)).is_some_and(|n| !no_execute(&n).is_empty()) {
            keys.add(Key::of(&**pod));
        }
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

fn no_execute(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    taints.into_iter().flatten().filter(|t| t.effect == "NoExecute").collect()
}

/// When the pod has to go: the epoch for at once, `None` for never.
fn deadline(pod: &Pod, taints: &[&Taint], now: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    let mut earliest = None;
    for taint in taints {
        let fitting: Vec<_> = tolerations.iter().filter(|t| covers(t, taint)).collect();
        if fitting.is_empty() {
            return Some(Timestamp::UNIX_EPOCH);
        }
        let Some(seconds) = fitting.iter().filter_map(|t| t.toleration_seconds).min() else { continue };
        let since = taint.time_added.as_ref().map_or(now, |t| t.0);
        let end = since.checked_add(SignedDuration::from_secs(seconds.max(0))).ok()?;
        earliest = Some(earliest.map_or(end, |e: Timestamp| e.min(end)));
    }
    earliest
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(pod) = self.pods.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let Some(node) = self.nodes.get(None, pods::node_name(&pod)) else { return Ok(Action::Done) };
        let now = Timestamp::now();
        let Some(end) = deadline(&pod, &no_execute(&node), now) else { return Ok(Action::Done) };
        if meta::is_deleting(&pod.metadata) || pods::is_finished(&pod) {
            return Ok(Action::Done);
        }
        let wait = Duration::try_from(end.duration_since(now)).unwrap_or_default();
        if !wait.is_zero() {
            return Ok(Action::RequeueAfter(wait));
        }
        let api = self.ctx.api::<Pod>(&key.ns);
        let patch = json!({
            "metadata": {"uid": meta::uid(&pod.metadata)},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": now,
            }]},
        });
        gone_is_fine(api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await)?;
        let text = format!("Marking for deletion Pod {}/{}", key.ns, key.name);
        self.recorder.normal(&pod.object_ref(&()), "TaintManagerEviction", text);
        let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        gone_is_fine(api.delete(&key.name, &DeleteParams::default().preconditions(same)).await.map(|_| ()))?;
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deadlines() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "effect": "NoExecute", "timeAdded": at(100)})).unwrap();
        let other: Taint = serde_json::from_value(json!({"key": "o", "effect": "NoExecute"})).unwrap();
        for (tolerations, taints, expected) in [
            (json!([]), vec![&taint], Some(Timestamp::UNIX_EPOCH)),
            (json!([]), vec![], None),
            (json!([{"operator": "Exists"}]), vec![&taint, &other], None),
            (json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]), vec![&taint], Some(at(130))),
            (
                json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
                vec![&taint],
                Some(Timestamp::UNIX_EPOCH),
            ),
            (json!([{"key": "k"}]), vec![&taint], None),
            (json!([{"key": "k", "value": "v"}]), vec![&taint], Some(Timestamp::UNIX_EPOCH)),
            (json!([{"key": "k"}]), vec![&taint, &other], Some(Timestamp::UNIX_EPOCH)),
        ] {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [], "tolerations": tolerations}}))
                    .unwrap();
            assert_eq!(deadline(&pod, &taints, at(200)), expected, "{tolerations}");
        }
    }
}
