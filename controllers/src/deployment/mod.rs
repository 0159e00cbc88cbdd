//! deployment-controller: replaces the pods of one template by those of another, step by step.

mod plan;
mod scale;
mod sets;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{DeleteParams, PostParams};
use kube::core::SelectorExt;
use pintle_client::cache::{Cache, Change};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::retry::{gone_is_fine, is_already_exists, is_namespace_terminating, message};
use crate::{claim, meta, pods, template};
use plan::{Observed, Write};
pub use sets::resolve;

struct Controller {
    ctx: Context,
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
    recorder: Recorder,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        deployments: ctx.cache(),
        sets: ctx.cache(),
        pods: ctx.cache(),
        recorder: ctx.recorder("deployment-controller"),
        ctx: ctx.clone(),
    });
    controller.deployments.synced().await;
    controller.sets.synced().await;
    controller.pods.synced().await;
    let queue = ctx.queue("deployment");
    controller.feed(&queue);
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl Controller {
    fn feed(&self, queue: &Queue<Key>) {
        let shutdown = &self.ctx.shutdown;
        let keys = queue.clone();
        self.deployments.on_change(shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));

        let (keys, deployments) = (queue.clone(), self.deployments.clone());
        self.sets.on_change(shutdown.clone(), move |change| {
            let mut owners: Vec<Key> = owner(&change.object().metadata, "Deployment").into_iter().collect();
            if let Change::Updated { old, .. } = &change {
                owners.extend(owner(&old.metadata, "Deployment"));
            }
            if owners.is_empty() {
                let labels = meta::labels(&change.object().metadata);
                let near = deployments.list_in(meta::namespace(&change.object().metadata)).into_iter();
                owners.extend(near.filter(|d| selects(d, labels)).map(|d| Key::of(&*d)));
            }
            owners.into_iter().for_each(|key| keys.add(key));
        });

        // A recreating roll-out goes on when the last old pod has ended or is gone.
        let (keys, deployments, sets) = (queue.clone(), self.deployments.clone(), self.sets.clone());
        self.pods.on_change(shutdown.clone(), move |change| {
            let pod = change.object();
            if !matches!(change, Change::Deleted(_)) && !pods::is_finished(pod) {
                return;
            }
            let Some(set) = owner(&pod.metadata, "ReplicaSet").and_then(|k| sets.get(k.ns(), &k.name)) else { return };
            let Some(key) = owner(&set.metadata, "Deployment") else { return };
            if deployments.get(key.ns(), &key.name).is_some_and(|d| !sets::rolls(&d)) {
                keys.add(key);
            }
        });
    }

    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(d) = self.deployments.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let selector = meta::selector(&d.spec.selector);
        let Some(selector) = selector.filter(|s| !s.selects_all()) else {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(&d.object_ref(&()), "SelectingAll", text);
            return Ok(Action::Done);
        };
        let matches = |s: &ReplicaSet| selector.matches(meta::labels(&s.metadata));
        let claim = claim::classify(&d.metadata, self.sets.list_in(&key.ns), matches);
        let sets = claim::execute(&self.ctx.client, &*d, claim).await?;
        let old_pods_running = !sets::rolls(&d) && self.old_pods_running(&d, &sets);
        let plan = plan::plan(Observed { deployment: &d, sets, old_pods_running, now: Timestamp::now() });
        let mut status = plan.status;
        for write in plan.writes {
            if let Err(error) = self.execute(&d, write, &mut status).await {
                // Failures are told in the status, and tried again.
                self.write_status(&d, status, None).await?;
                return Err(error);
            }
        }
        self.write_status(&d, status, plan.revision).await?;
        Ok(plan.requeue.map_or(Action::Done, Action::RequeueAfter))
    }

    /// True while a pod of a set other than the new one has not ended.
    fn old_pods_running(&self, d: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
        let (_, old) = sets::split(d, sets.to_vec());
        let of_old = |p: &Pod| old.iter().any(|s| meta::is_controlled_by(&p.metadata, meta::uid(&s.metadata)));
        self.pods.list_in(meta::namespace(&d.metadata)).iter().any(|p| !pods::is_finished(p) && of_old(p))
    }

    async fn execute(&self, d: &Deployment, write: Write, status: &mut DeploymentStatus) -> anyhow::Result<()> {
        let api = self.ctx.api::<ReplicaSet>(meta::namespace(&d.metadata));
        match write {
            Write::Create(set) => self.create(d, &set, status).await,
            Write::Update { set, scaled_from } => {
                api.replace(meta::name(&set.metadata), &PostParams::default(), &set).await?;
                if let Some(from) = scaled_from {
                    self.tell_scaled(d, &set, from);
                }
                Ok(())
            }
            Write::Delete(name) => {
                gone_is_fine(api.delete(&name, &DeleteParams::background()).await)?;
                Ok(())
            }
        }
    }

    fn tell_scaled(&self, d: &Deployment, set: &ReplicaSet, from: i32) {
        let to = sets::replicas(set);
        let way = if to > from { "up" } else { "down" };
        let text = format!("Scaled {way} replica set {} from {from} to {to}", meta::name(&set.metadata));
        self.recorder.normal(&d.object_ref(&()), "ScalingReplicaSet", text);
    }

    async fn create(&self, d: &Deployment, set: &ReplicaSet, status: &mut DeploymentStatus) -> anyhow::Result<()> {
        let api = self.ctx.api::<ReplicaSet>(meta::namespace(&d.metadata));
        let name = meta::name(&set.metadata);
        match api.create(&PostParams::default(), set).await {
            Ok(_) => {
                if sets::replicas(set) > 0 {
                    self.tell_scaled(d, set, 0);
                }
                Ok(())
            }
            Err(error) if is_already_exists(&error) => {
                let present = api.get(name).await?;
                let same = present.spec.template.as_ref().is_some_and(|has| template::same(has, &d.spec.template));
                let is_ours = meta::is_controlled_by(&present.metadata, meta::uid(&d.metadata));
                if is_ours && same {
                    return Ok(());
                }
                status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
                Err(error.into())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let text = format!("Failed to create new replica set \"{name}\": {}", message(&error));
                let failed = status::condition(
                    status::PROGRESSING,
                    "False",
                    "ReplicaSetCreateError",
                    text.clone(),
                    Timestamp::now(),
                );
                status::set(status, failed);
                self.recorder.warning(&d.object_ref(&()), "ReplicaSetCreateError", text);
                Err(error.into())
            }
        }
    }

    /// Writes the status, and with it the revision if it is a new one: as an annotation of the object itself it would make a
    /// new generation.
    async fn write_status(
        &self,
        d: &Deployment,
        status: DeploymentStatus,
        revision: Option<String>,
    ) -> anyhow::Result<()> {
        if d.status.as_ref() == Some(&status) && revision.is_none() {
            return Ok(());
        }
        let mut changed = Deployment { status: Some(status), ..d.clone() };
        let annotations = changed.metadata.annotations.get_or_insert_default();
        annotations.extend(revision.map(|revision| (sets::REVISION.to_owned(), revision)));
        let api = self.ctx.api::<Deployment>(meta::namespace(&d.metadata));
        api.replace_status(meta::name(&d.metadata), &PostParams::default(), &changed).await?;
        Ok(())
    }
}

fn owner(object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta, kind: &str) -> Option<Key> {
    meta::controller_of_kind(object, kind).map(|r| Key::new(meta::namespace(object), &r.name))
}

fn selects(d: &Deployment, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let selector = meta::selector(&d.spec.selector);
    selector.is_some_and(|s| !s.selects_all() && s.matches(labels))
}
