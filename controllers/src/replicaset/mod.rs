//! replicaset-controller and replicationcontroller-controller: keep a number of equal pods.

mod plan;
pub mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::PostParams;
use kube::core::SelectorExt;
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::pod_control::PodControl;
use crate::retry::{is_namespace_terminating, message};
use crate::{claim, meta, pod_feed, pods, template};
use plan::{Observed, Step};
use workload::Workload;

/// Runs replicaset-controller.
pub async fn replicasets(ctx: Context) -> anyhow::Result<()> {
    run::<ReplicaSet>(ctx).await
}

/// Runs replicationcontroller-controller.
pub async fn replication_controllers(ctx: Context) -> anyhow::Result<()> {
    run::<ReplicationController>(ctx).await
}

struct Controller<W> {
    ctx: Context,
    sets: Cache<W>,
    pods: Cache<Pod>,
    expectations: Expectations<String>,
    control: PodControl,
}

async fn run<W: Workload>(ctx: Context) -> anyhow::Result<()> {
    let controller = Controller::<W> {
        sets: ctx.cache(),
        pods: ctx.cache(),
        expectations: Expectations::default(),
        control: PodControl::new(ctx.client.clone(), ctx.recorder(W::COMPONENT)),
        ctx: ctx.clone(),
    };
    controller.sets.synced().await;
    controller.pods.synced().await;
    let queue = ctx.queue(W::COMPONENT);
    controller.feed(&queue);
    let controller = Arc::new(controller);
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl<W: Workload> Controller<W> {
    fn feed(&self, queue: &Queue<Key>) {
        let keys = queue.clone();
        self.sets.on_change(self.ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
        let sets = self.sets.clone();
        pod_feed::follow(&self.ctx, W::KIND, self.expectations.clone(), queue.clone(), move |pod| {
            let labels = meta::labels(&pod.metadata);
            let matching = sets.list_in(meta::namespace(&pod.metadata)).into_iter();
            matching.filter(|s| s.selector().is_some_and(|x| x.matches(labels))).map(|s| Key::of(&*s)).collect()
        });
    }

    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(set) = self.sets.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let Some(selector) = set.selector() else { return Ok(Action::Done) };
        // Asked before the pods are read: what was seen by then is in the list below.
        let settled = self.expectations.satisfied(&meta::uid(set.meta()).to_owned());
        let matches = |p: &Pod| selector.matches(meta::labels(&p.metadata));
        let (finished, live): (Vec<_>, Vec<_>) =
            self.pods.list_in(&key.ns).into_iter().partition(|p| pods::is_finished(p));
        drop(finished);
        let owned = claim::execute(&self.ctx.client, &*set, claim::classify(set.meta(), live, matches)).await?;
        let (active, going): (Vec<_>, Vec<_>) = owned.into_iter().partition(|p| pods::is_active(p));
        let failure = if settled && !meta::is_deleting(set.meta()) { self.manage(&set, &active).await } else { None };
        self.write_status(&set, &active, going.len(), failure.as_ref().map(|(r, e)| (*r, message(e)))).await?;
        if let Some((_, error)) = failure.filter(|(_, error)| !is_namespace_terminating(error)) {
            return Err(error.into());
        }
        Ok(plan::next_look(&active, set.min_ready_seconds(), Timestamp::now())
            .map_or(Action::Done, Action::RequeueAfter))
    }

    /// Creates or deletes what the plan says; tells what failed first and under which reason.
    async fn manage(&self, set: &W, active: &[Arc<Pod>]) -> Option<(&'static str, kube::Error)> {
        let uid = meta::uid(set.meta()).to_owned();
        let owner = set.object_ref(&());
        match plan::step(set.replicas(), active, || self.related(set), Timestamp::now()) {
            Step::Nothing => None,
            Step::Create(count) => {
                let mut pod =
                    template::instantiate(set.template()?, meta::namespace(set.meta()), meta::controller_ref(set));
                pod.metadata.generate_name = Some(format!("{}-", meta::name(set.meta())));
                self.expectations.expect_creations(&uid, count);
                let created = |ok: bool| {
                    if !ok {
                        self.expectations.saw_creation(&uid)
                    }
                };
                let error = self.control.create_all(&owner, &vec![pod; count], created).await;
                error.map(|e| ("FailedCreate", e))
            }
            Step::Delete(surplus) => {
                for pod in &surplus {
                    self.expectations.expect_deletion(&uid, meta::uid(&pod.metadata));
                }
                let failed = |pod: &Pod| self.expectations.saw_deletion(&uid, meta::uid(&pod.metadata));
                let error = self.control.delete_all(&owner, surplus.iter().map(|p| &**p), failed).await;
                error.map(|e| ("FailedDelete", e))
            }
        }
    }

    /// The pods of this set and of its siblings: the sets with the same controller.
    fn related(&self, set: &W) -> Vec<Arc<Pod>> {
        let controller = meta::controller_of(set.meta()).map(|r| r.uid.as_str());
        let ns = meta::namespace(set.meta());
        let sibling = |other: &W| {
            meta::uid(other.meta()) == meta::uid(set.meta())
                || (controller.is_some() && meta::controller_of(other.meta()).map(|r| r.uid.as_str()) == controller)
        };
        let sets: Vec<_> = self.sets.list_in(ns).into_iter().filter(|s| sibling(s)).collect();
        let ours = |pod: &Pod| sets.iter().any(|s| meta::is_controlled_by(&pod.metadata, meta::uid(s.meta())));
        self.pods.list_in(ns).into_iter().filter(|p| ours(p)).collect()
    }

    async fn write_status(
        &self,
        set: &W,
        active: &[Arc<Pod>],
        going: usize,
        failure: Option<(&'static str, String)>,
    ) -> anyhow::Result<()> {
        let template = set.template().and_then(|t| t.metadata.clone()).unwrap_or_default();
        let observed = Observed {
            active,
            terminating: W::COUNTS_TERMINATING.then_some(going),
            template_labels: meta::labels(&template),
            min_ready_seconds: set.min_ready_seconds(),
            generation: set.meta().generation,
            failure,
        };
        let old = set.status();
        let new = plan::status(&old, &observed, Timestamp::now());
        if new == old {
            return Ok(());
        }
        let name = meta::name(set.meta());
        let api = self.ctx.api::<W>(meta::namespace(set.meta()));
        api.replace_status(name, &PostParams::default(), &set.with_status(new)).await?;
        Ok(())
    }
}
