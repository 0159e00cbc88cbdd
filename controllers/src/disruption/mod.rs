//! disruption-controller: keeps the status of PodDisruptionBudgets, which evictions go by.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::PostParams;
use kube::core::SelectorExt;
use pintle_client::cache::{Cache, Change};
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::{meta, pods};

struct Controller {
    ctx: Context,
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    sets: Cache<ReplicaSet>,
    deployments: Cache<Deployment>,
    stateful: Cache<StatefulSet>,
    replication: Cache<ReplicationController>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        budgets: ctx.cache(),
        pods: ctx.cache(),
        sets: ctx.cache(),
        deployments: ctx.cache(),
        stateful: ctx.cache(),
        replication: ctx.cache(),
        ctx: ctx.clone(),
    });
    controller.budgets.synced().await;
    controller.pods.synced().await;
    controller.sets.synced().await;
    controller.deployments.synced().await;
    controller.stateful.synced().await;
    controller.replication.synced().await;
    let queue = ctx.queue("disruption");
    let keys = queue.clone();
    controller.budgets.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let (keys, budgets) = (queue.clone(), controller.budgets.clone());
    controller.pods.on_change(ctx.shutdown.clone(), move |change| {
        let pod = change.object();
        for budget in budgets.list_in(meta::namespace(&pod.metadata)) {
            let before = matches!(&change, Change::Updated { old, .. } if selects(&budget, old));
            if before || selects(&budget, pod) {
                keys.add(Key::of(&*budget));
            }
        }
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

/// True if the pod is one that the budget is about; an empty selector means all, a missing one none.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref()).and_then(meta::selector);
    selector.is_some_and(|s| s.matches(meta::labels(&pod.metadata)))
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(budget) = self.budgets.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let wanted = |p: &Arc<Pod>| !pods::is_finished(p) && selects(&budget, p);
        let pods: Vec<_> = self.pods.list_in(&key.ns).into_iter().filter(wanted).collect();
        let (status, requeue) = plan::status(&budget, &pods, self.scale(&pods), Timestamp::now());
        if budget.status.as_ref() != Some(&status) {
            let changed = PodDisruptionBudget { status: Some(status), ..(*budget).clone() };
            let api = self.ctx.api::<PodDisruptionBudget>(&key.ns);
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(requeue.map_or(Action::Done, Action::RequeueAfter))
    }

    /// How many pods the controllers of these pods ask for.
    fn scale(&self, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut by_controller: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let name = meta::name(&pod.metadata);
            let Some(owner) = meta::controller_of(&pod.metadata) else {
                return Err(format!("found no controllers for pod {name:?}"));
            };
            if by_controller.contains_key(&owner.uid) {
                continue;
            }
            let ns = Some(meta::namespace(&pod.metadata));
            let found = match owner.kind.as_str() {
                "ReplicaSet" => self.sets.get(ns, &owner.name).map(|s| self.scale_of_set(&s)),
                "StatefulSet" => {
                    self.stateful.get(ns, &owner.name).map(|s| (owner.uid.clone(), s.spec.replicas.unwrap_or(1)))
                }
                "ReplicationController" => {
                    let found = self.replication.get(ns, &owner.name);
                    found.map(|r| (owner.uid.clone(), r.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)))
                }
                _ => None,
            };
            let Some((uid, replicas)) = found else {
                return Err(format!("found no controllers for pod {name:?}"));
            };
            by_controller.insert(uid, replicas);
        }
        Ok(by_controller.values().sum())
    }

    /// A set of a deployment counts as the deployment.
    fn scale_of_set(&self, set: &ReplicaSet) -> (String, i32) {
        let deployment = meta::controller_of_kind(&set.metadata, "Deployment")
            .and_then(|r| self.deployments.get(Some(meta::namespace(&set.metadata)), &r.name));
        match deployment {
            Some(d) => (meta::uid(&d.metadata).to_owned(), d.spec.replicas.unwrap_or(1)),
            None => (meta::uid(&set.metadata).to_owned(), set.spec.replicas.unwrap_or(1)),
        }
    }
}
