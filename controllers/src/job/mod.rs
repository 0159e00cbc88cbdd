//! job-controller: runs pods until enough of them succeeded.

mod indexes;
mod plan;
mod pod;
mod policy;
#[cfg(test)]
mod tests;
mod tracking;

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::SelectorExt;
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::pod_control::PodControl;
use crate::retry::{gone_is_fine, is_namespace_terminating};
use crate::{claim, meta, pod_feed};
use plan::{Backoff, Observed};
pub use plan::{finished_at, is_finished};

/// Finalizers that are removed side by side.
const PARALLEL: usize = 16;

struct Controller {
    ctx: Context,
    jobs: Cache<Job>,
    pods: Cache<Pod>,
    expectations: Expectations<String>,
    control: PodControl,
    recorder: Recorder,
    backoff: Mutex<HashMap<String, Backoff>>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let recorder = ctx.recorder("job-controller");
    let controller = Arc::new(Controller {
        jobs: ctx.cache(),
        pods: ctx.cache(),
        expectations: Expectations::default(),
        control: PodControl::new(ctx.client.clone(), recorder.clone()),
        recorder,
        backoff: Mutex::default(),
        ctx: ctx.clone(),
    });
    controller.jobs.synced().await;
    controller.pods.synced().await;
    let queue = ctx.queue("job");
    let orphans: Queue<Key> = ctx.queue("job_orphan_pod");
    controller.feed(&queue, &orphans);
    let work = reconcile::run(queue, ctx.config.workers, ctx.shutdown.clone(), |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    });
    let free = reconcile::run(orphans, 1, ctx.shutdown.clone(), |key| {
        let controller = controller.clone();
        async move { controller.free_orphan(&key).await }
    });
    tokio::join!(work, free);
    Ok(())
}

fn selects(job: &Job, pod: &Pod) -> bool {
    let selector = job.spec.as_ref().and_then(|s| s.selector.as_ref()).and_then(meta::selector);
    selector.is_some_and(|s| !s.selects_all() && s.matches(meta::labels(&pod.metadata)))
}

impl Controller {
    fn feed(&self, queue: &Queue<Key>, orphans: &Queue<Key>) {
        let (keys, pods, freed) = (queue.clone(), self.pods.clone(), orphans.clone());
        self.jobs.on_change(self.ctx.shutdown.clone(), move |change| {
            keys.add(Key::of(&**change.object()));
            if let Change::Deleted(job) = &change {
                let of_job = |p: &Arc<Pod>| meta::is_controlled_by(&p.metadata, meta::uid(&job.metadata));
                let left = pods.list_in(meta::namespace(&job.metadata)).into_iter().filter(of_job);
                left.for_each(|p| freed.add(Key::of(&*p)));
            }
        });
        let jobs = self.jobs.clone();
        pod_feed::follow(&self.ctx, "Job", self.expectations.clone(), queue.clone(), move |pod| {
            let near = jobs.list_in(meta::namespace(&pod.metadata)).into_iter();
            near.filter(|j| selects(j, pod)).map(|j| Key::of(&*j)).collect()
        });
        let (jobs, freed) = (self.jobs.clone(), orphans.clone());
        self.pods.on_change(self.ctx.shutdown.clone(), move |change| {
            let pod = change.object();
            if meta::has_finalizer(&pod.metadata, pod::TRACKING) && !has_job(&jobs, pod) {
                freed.add(Key::of(&**pod));
            }
        });
    }

    /// A pod whose job is gone is counted by nobody: it must not wait.
    async fn free_orphan(&self, key: &Key) -> anyhow::Result<Action> {
        if let Some(pod) = self.pods.get(key.ns(), &key.name)
            && meta::has_finalizer(&pod.metadata, pod::TRACKING)
            && !has_job(&self.jobs, &pod)
        {
            self.release(&pod).await?;
        }
        Ok(Action::Done)
    }

    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(job) = self.jobs.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let uid = meta::uid(&job.metadata).to_owned();
        let managed_elsewhere = job.spec.as_ref().and_then(|s| s.managed_by.as_deref());
        if managed_elsewhere.is_some_and(|m| m != "kubernetes.io/job-controller") {
            return Ok(Action::Done);
        }
        if is_finished(&job) {
            self.backoff.lock().remove(&uid);
            self.expectations.forget(&uid);
            return Ok(Action::Done);
        }
        let settled = self.expectations.satisfied(&uid);
        let claim = claim::classify(&job.metadata, self.pods.list_in(&key.ns), |p: &Pod| selects(&job, p));
        let owned = claim::execute(&self.ctx.client, &*job, claim).await?;
        let backoff = self.backoff.lock().get(&uid).copied().unwrap_or_default();
        let now = Timestamp::now();
        let plan = plan::plan(&Observed { job: &job, pods: &owned, settled, backoff, now });
        let failure = self.write_pods(&job, &plan).await;
        let mut status = plan.status;
        if failure.is_some() {
            // What was not done is not told: the next pass counts again.
            status.active = job.status.as_ref().and_then(|s| s.active);
            status.terminating = job.status.as_ref().and_then(|s| s.terminating);
        }
        if job.status.as_ref() != Some(&status) {
            let changed = Job { status: Some(status), ..(*job).clone() };
            let api = self.ctx.api::<Job>(&key.ns);
            if gone_is_fine(api.replace_status(&key.name, &PostParams::default(), &changed).await)?.is_none() {
                return Ok(Action::Done);
            }
        }
        self.backoff.lock().insert(uid, plan.backoff);
        for tell in plan.tell {
            let object = job.object_ref(&());
            match tell.warning {
                true => self.recorder.warning(&object, &tell.reason, tell.message),
                false => self.recorder.normal(&object, &tell.reason, tell.message),
            }
        }
        self.release_all(&plan.release).await?;
        if let Some(error) = failure.filter(|e| !is_namespace_terminating(e)) {
            return Err(error.into());
        }
        Ok(plan.requeue.map_or(Action::Done, Action::RequeueAfter))
    }

    /// Makes and deletes pods as planned; the first error.
    async fn write_pods(&self, job: &Job, plan: &plan::Plan) -> Option<kube::Error> {
        let owner: ObjectReference = job.object_ref(&());
        let uid = meta::uid(&job.metadata).to_owned();
        for pod in &plan.delete {
            self.expectations.expect_deletion(&uid, meta::uid(&pod.metadata));
        }
        let failed = |pod: &Pod| self.expectations.saw_deletion(&uid, meta::uid(&pod.metadata));
        let deleted = self.control.delete_all(&owner, plan.delete.iter().map(|p| &**p), failed).await;
        let pods: Vec<Pod> = plan.create.iter().filter_map(|w| pod::build(job, w)).collect();
        if !pods.is_empty() {
            self.expectations.expect_creations(&uid, pods.len());
        }
        let created = |ok: bool| {
            if !ok {
                self.expectations.saw_creation(&uid)
            }
        };
        let created = self.control.create_all(&owner, &pods, created).await;
        deleted.or(created)
    }

    async fn release_all(&self, pods: &[Arc<Pod>]) -> anyhow::Result<()> {
        let attempts: Vec<_> = pods.iter().map(|pod| self.release(pod).boxed()).collect();
        let results: Vec<_> = stream::iter(attempts).buffer_unordered(PARALLEL).collect().await;
        results.into_iter().collect::<Result<(), _>>().map_err(Into::into)
    }

    async fn release(&self, pod: &Pod) -> kube::Result<()> {
        let patch = json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": [pod::TRACKING],
            "uid": meta::uid(&pod.metadata),
        }});
        let api = self.ctx.api::<Pod>(meta::namespace(&pod.metadata));
        let patched =
            api.patch_metadata(meta::name(&pod.metadata), &PatchParams::default(), &Patch::Strategic(patch)).await;
        gone_is_fine(patched).map(|_| ())
    }
}

/// True if the job that controls the pod is there.
fn has_job(jobs: &Cache<Job>, pod: &Pod) -> bool {
    let Some(owner) = meta::controller_of_kind(&pod.metadata, "Job") else { return false };
    let job = jobs.get(Some(meta::namespace(&pod.metadata)), &owner.name);
    job.is_some_and(|j| meta::uid(&j.metadata) == owner.uid && !is_finished(&j))
}
