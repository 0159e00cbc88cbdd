//! daemonset-controller: one pod on every node that suits.

mod plan;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;
use kube::api::PostParams;
use kube::core::SelectorExt;
use pintle_client::cache::{Cache, Change};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::pod_control::PodControl;
use crate::retry::is_namespace_terminating;
use crate::revisions::{self, REVISION_LABEL};
use crate::{claim, meta, pod_feed, pods};
use plan::Observed;

struct Controller {
    ctx: Context,
    sets: Cache<DaemonSet>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    revisions: Cache<ControllerRevision>,
    expectations: Expectations<String>,
    control: PodControl,
    recorder: Recorder,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let recorder = ctx.recorder("daemonset-controller");
    let controller = Arc::new(Controller {
        sets: ctx.cache(),
        pods: ctx.cache(),
        nodes: ctx.cache(),
        revisions: ctx.cache(),
        expectations: Expectations::default(),
        control: PodControl::new(ctx.client.clone(), recorder.clone()),
        recorder,
        ctx: ctx.clone(),
    });
    controller.sets.synced().await;
    controller.pods.synced().await;
    controller.nodes.synced().await;
    controller.revisions.synced().await;
    let queue = ctx.queue("daemonset");
    controller.feed(&queue);
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

fn selects(set: &DaemonSet, pod: &Pod) -> bool {
    let selector = meta::selector(&set.spec.selector);
    selector.is_some_and(|s| !s.selects_all() && s.matches(meta::labels(&pod.metadata)))
}

impl Controller {
    fn feed(&self, queue: &Queue<Key>) {
        let keys = queue.clone();
        self.sets.on_change(self.ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
        let sets = self.sets.clone();
        pod_feed::follow(&self.ctx, "DaemonSet", self.expectations.clone(), queue.clone(), move |pod| {
            let near = sets.list_in(meta::namespace(&pod.metadata)).into_iter();
            near.filter(|s| selects(s, pod)).map(|s| Key::of(&*s)).collect()
        });
        let (keys, sets) = (queue.clone(), self.sets.clone());
        self.nodes.on_change(self.ctx.shutdown.clone(), move |change| {
            let matters = match &change {
                Change::Updated { old, new } => {
                    let taints = |n: &Node| n.spec.as_ref().and_then(|s| s.taints.clone());
                    old.metadata.labels != new.metadata.labels || taints(old) != taints(new)
                }
                _ => true,
            };
            if matters {
                sets.list().iter().for_each(|s| keys.add(Key::of(&**s)));
            }
        });
    }

    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(set) = self.sets.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        if meta::is_deleting(&set.metadata) {
            return Ok(Action::Done);
        }
        let uid = meta::uid(&set.metadata).to_owned();
        let settled = self.expectations.satisfied(&uid);
        let of_set = |r: &ControllerRevision| meta::is_controlled_by(&r.metadata, &uid);
        let history: Vec<_> = self.revisions.list_in(&key.ns).into_iter().filter(|r| of_set(r)).collect();
        let collisions = set.status.as_ref().and_then(|s| s.collision_count);
        let client = &self.ctx.client;
        let revision =
            revisions::current(client, &*set, &set.spec.template, collisions, REVISION_LABEL, &history).await?;
        let Some(revision) = revision else { return self.note_collision(&set).await };
        let hash = meta::labels(&revision.metadata).get(REVISION_LABEL).cloned().unwrap_or_default();
        let claim = claim::classify(&set.metadata, self.pods.list_in(&key.ns), |p: &Pod| selects(&set, p));
        let owned = claim::execute(client, &*set, claim).await?;
        let now = Timestamp::now();
        let nodes = self.nodes.list();
        let plan = plan::plan(&Observed { set: &set, nodes: &nodes, pods: &owned, hash: &hash, now });
        let failure = if settled { self.write_pods(&set, &hash, &plan).await } else { None };
        if set.status.as_ref() != Some(&plan.status) {
            let changed = DaemonSet { status: Some(plan.status), ..(*set).clone() };
            let api = self.ctx.api::<DaemonSet>(&key.ns);
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        if let Some(error) = failure.filter(|e| !is_namespace_terminating(e)) {
            return Err(error.into());
        }
        let used = |r: &ControllerRevision| {
            let own = meta::labels(&r.metadata).get(REVISION_LABEL);
            r.metadata.uid == revision.metadata.uid
                || owned.iter().any(|p| meta::labels(&p.metadata).get(REVISION_LABEL) == own)
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        revisions::clean_up(client, &key.ns, &history, used, limit).await?;
        let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
        let upcoming = owned.iter().filter_map(|p| pods::available_at(p, min_ready)).filter(|at| *at > now).min();
        let wait = upcoming.map(|at| std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default());
        Ok(wait.map_or(Action::Done, Action::RequeueAfter))
    }

    async fn note_collision(&self, set: &DaemonSet) -> anyhow::Result<Action> {
        let mut changed = set.clone();
        let status = changed.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        let api = self.ctx.api::<DaemonSet>(meta::namespace(&set.metadata));
        api.replace_status(meta::name(&set.metadata), &PostParams::default(), &changed).await?;
        Ok(Action::Done)
    }

    async fn write_pods(&self, set: &DaemonSet, hash: &str, plan: &plan::Plan) -> Option<kube::Error> {
        let (uid, owner) = (meta::uid(&set.metadata).to_owned(), set.object_ref(&()));
        for (pod, reason) in &plan.ended {
            let how = if *reason == "FailedDaemonPod" { "failed" } else { "succeeded" };
            let what = if how == "failed" { "will try to kill it" } else { "will try to delete it" };
            let (name, node) = (meta::name(&pod.metadata), pods::node_name(pod));
            let text =
                format!("Found {how} daemon pod {}/{name} on node {node}, {what}", meta::namespace(&pod.metadata));
            match how {
                "failed" => self.recorder.warning(&owner, reason, text),
                _ => self.recorder.normal(&owner, reason, text),
            }
        }
        for pod in &plan.delete {
            self.expectations.expect_deletion(&uid, meta::uid(&pod.metadata));
        }
        let pods: Vec<Pod> = plan.create.iter().map(|node| plan::pod(set, hash, node)).collect();
        if !pods.is_empty() {
            self.expectations.expect_creations(&uid, pods.len());
        }
        let created = |ok: bool| {
            if !ok {
                self.expectations.saw_creation(&uid)
            }
        };
        let created = self.control.create_all(&owner, &pods, created).await;
        let failed = |pod: &Pod| self.expectations.saw_deletion(&uid, meta::uid(&pod.metadata));
        let deleted = self.control.delete_all(&owner, plan.delete.iter().map(|p| &**p), failed).await;
        created.or(deleted)
    }
}
