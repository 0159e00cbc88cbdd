//! statefulset-controller: numbered pods with names and claims of their own, in order.

mod plan;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::SelectorExt;
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::retry::{gone_is_fine, is_already_exists, is_namespace_terminating, message};
use crate::revisions::{self, REVISION_LABEL};
use crate::{claim, meta, pod_feed, pods};
use plan::{Observed, Revision};

/// Label of a revision with its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

struct Controller {
    ctx: Context,
    sets: Cache<StatefulSet>,
    pods: Cache<Pod>,
    revisions: Cache<ControllerRevision>,
    recorder: Recorder,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        sets: ctx.cache(),
        pods: ctx.cache(),
        revisions: ctx.cache(),
        recorder: ctx.recorder("statefulset-controller"),
        ctx: ctx.clone(),
    });
    controller.sets.synced().await;
    controller.pods.synced().await;
    controller.revisions.synced().await;
    let queue = ctx.queue("statefulset");
    let keys = queue.clone();
    controller.sets.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let sets = controller.sets.clone();
    // Names are fixed, so that nothing is made twice: no expectations are kept.
    pod_feed::follow(&ctx, "StatefulSet", Expectations::default(), queue.clone(), move |pod| {
        let near = sets.list_in(meta::namespace(&pod.metadata)).into_iter();
        near.filter(|s| owns(s, pod)).map(|s| Key::of(&*s)).collect()
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

/// True if labels and name are those of the set's pods.
fn owns(set: &StatefulSet, pod: &Pod) -> bool {
    let selector = meta::selector(&set.spec.selector);
    selector.is_some_and(|s| !s.selects_all() && s.matches(meta::labels(&pod.metadata)))
        && plan::ordinal(set, pod).is_some()
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(set) = self.sets.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let client = &self.ctx.client;
        let claim = claim::classify(&set.metadata, self.pods.list_in(&key.ns), |p: &Pod| owns(&set, p));
        let owned = claim::execute(client, &*set, claim).await?;
        let uid = meta::uid(&set.metadata);
        let of_set = |r: &ControllerRevision| meta::is_controlled_by(&r.metadata, uid);
        let history: Vec<_> = self.revisions.list_in(&key.ns).into_iter().filter(|r| of_set(r)).collect();
        let collisions = set.status.as_ref().and_then(|s| s.collision_count);
        let newest = revisions::current(client, &*set, &set.spec.template, collisions, HASH_LABEL, &history).await?;
        let Some(newest) = newest else { return self.note_collision(&set).await };
        let named = set.status.as_ref().and_then(|s| s.current_revision.as_deref()).unwrap_or_default();
        let before = history.iter().find(|r| meta::name(&r.metadata) == named).unwrap_or(&newest);
        let before_template = revisions::template(before).unwrap_or_else(|| set.spec.template.clone());
        let now = Timestamp::now();
        let plan = plan::plan(&Observed {
            set: &set,
            pods: &owned,
            current: Revision { name: meta::name(&before.metadata), template: &before_template },
            update: Revision { name: meta::name(&newest.metadata), template: &set.spec.template },
            now,
        });
        if set.status.as_ref() != Some(&plan.status) {
            let changed = StatefulSet { status: Some(plan.status), ..(*set).clone() };
            let api = self.ctx.api::<StatefulSet>(&key.ns);
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        for (pod, claims) in &plan.create {
            self.create(&set, pod, claims).await?;
        }
        for pod in &plan.delete {
            self.delete(&set, pod).await?;
        }
        let used = |r: &ControllerRevision| {
            let name = meta::name(&r.metadata);
            r.metadata.uid == newest.metadata.uid
                || r.metadata.uid == before.metadata.uid
                || owned.iter().any(|p| meta::labels(&p.metadata).get(REVISION_LABEL).is_some_and(|l| l == name))
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        revisions::clean_up(client, &key.ns, &history, used, limit).await?;
        let min_ready = set.spec.min_ready_seconds.unwrap_or(0);
        let upcoming = owned.iter().filter_map(|p| pods::available_at(p, min_ready)).filter(|at| *at > now).min();
        let wait = upcoming.map(|at| std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default());
        Ok(wait.map_or(Action::Done, Action::RequeueAfter))
    }

    async fn note_collision(&self, set: &StatefulSet) -> anyhow::Result<Action> {
        let mut changed = set.clone();
        let status = changed.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        let api = self.ctx.api::<StatefulSet>(meta::namespace(&set.metadata));
        api.replace_status(meta::name(&set.metadata), &PostParams::default(), &changed).await?;
        Ok(Action::Done)
    }

    async fn create(&self, set: &StatefulSet, pod: &Pod, claims: &[PersistentVolumeClaim]) -> anyhow::Result<()> {
        let (ns, owner) = (meta::namespace(&set.metadata), set.object_ref(&()));
        let (set_name, pod_name) = (meta::name(&set.metadata), meta::name(&pod.metadata));
        for claim in claims {
            let name = meta::name(&claim.metadata);
            let api = self.ctx.api::<PersistentVolumeClaim>(ns);
            match api.create(&PostParams::default(), claim).await {
                Ok(_) => {
                    let text = format!("create Claim {name} Pod {pod_name} in StatefulSet {set_name} success");
                    self.recorder.normal(&owner, "SuccessfulCreate", text);
                }
                Err(error) if is_already_exists(&error) => {}
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    let why = message(&error);
                    let text =
                        format!("create Claim {name} for Pod {pod_name} in StatefulSet {set_name} failed error: {why}");
                    self.recorder.warning(&owner, "FailedCreate", text);
                    return Err(error.into());
                }
            }
        }
        match self.ctx.api::<Pod>(ns).create(&PostParams::default(), pod).await {
            Ok(_) => {
                let text = format!("create Pod {pod_name} in StatefulSet {set_name} successful");
                self.recorder.normal(&owner, "SuccessfulCreate", text);
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            // Either the cache is late, or another's pod has the name: the next pass tells.
            Err(error) if is_already_exists(&error) => Err(error.into()),
            Err(error) => {
                let text = format!("create Pod {pod_name} in StatefulSet {set_name} failed error: {}", message(&error));
                self.recorder.warning(&owner, "FailedCreate", text);
                Err(error.into())
            }
        }
    }

    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> anyhow::Result<()> {
        let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let name = meta::name(&pod.metadata);
        let api = self.ctx.api::<Pod>(meta::namespace(&pod.metadata));
        gone_is_fine(api.delete(name, &DeleteParams::default().preconditions(same)).await.map(|_| ()))?;
        let text = format!("delete Pod {name} in StatefulSet {} successful", meta::name(&set.metadata));
        self.recorder.normal(&set.object_ref(&()), "SuccessfulDelete", text);
        Ok(())
    }
}
