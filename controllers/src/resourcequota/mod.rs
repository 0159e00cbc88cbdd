//! resourcequota-controller: keeps what quotas say is used.
//!
//! The API server charges a quota before it lets an object in; this controller gives back what was deleted, counts what
//! was there before the quota, and puts right a status that somebody else wrote. It never lowers what is used while
//! charges come in: they may be for objects that are not there yet. So a quota is counted once its status has been
//! still for [`QUIET`], and the result is written only if it still is.

mod census;
mod plan;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use pintle_api::quota::{Amounts, Evaluator};
use pintle_client::cache::{Cache, Cached, Change};
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::{Value, json};

use crate::context::Context;
use crate::key::Key;
use crate::retry::gone_is_fine;
use census::Census;

/// A quota is counted when nobody has written it for so long.
const QUIET: Duration = Duration::from_millis(400);
/// A quota that is written all the time is counted nevertheless.
const PATIENCE: Duration = Duration::from_secs(5);
/// The last resort.
const RESYNC: Duration = Duration::from_secs(300);

/// When a quota was written: for the first time since it was last counted, and for the last time.
#[derive(Clone, Copy)]
struct Writes {
    first: Instant,
    last: Instant,
}

struct Controller {
    ctx: Context,
    quotas: Cache<ResourceQuota>,
    pods: Cache<Pod>,
    services: Cache<Service>,
    claims: Cache<PersistentVolumeClaim>,
    census: Census,
    writes: Mutex<HashMap<Key, Writes>>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let queue: Queue<Key> = ctx.queue("resourcequota_primary");
    let quotas: Cache<ResourceQuota> = ctx.cache();
    let wake = {
        let (quotas, queue) = (quotas.clone(), queue.clone());
        move |namespace: &str| quotas.list_in(namespace).iter().for_each(|quota| queue.add(Key::of(&**quota)))
    };
    let controller = Arc::new(Controller {
        pods: ctx.cache(),
        services: ctx.cache(),
        claims: ctx.cache(),
        census: Census::new(ctx.clone(), Arc::new(wake)),
        quotas: quotas.clone(),
        writes: Mutex::default(),
        ctx: ctx.clone(),
    });
    quotas.synced().await;
    controller.pods.synced().await;
    controller.services.synced().await;
    controller.claims.synced().await;
    follow(&ctx, &controller.pods, Evaluator::Pods, &quotas, &queue);
    follow(&ctx, &controller.services, Evaluator::Services, &quotas, &queue);
    follow(&ctx, &controller.claims, Evaluator::Claims, &quotas, &queue);
    let (keys, noted) = (queue.clone(), controller.clone());
    quotas.on_change(ctx.shutdown.clone(), move |change| {
        let key = Key::of(&**change.object());
        noted.note(&key, matches!(change, Change::Deleted(_)));
        keys.add(key);
    });
    let all = queue.clone();
    let work = reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    });
    let resync = async {
        loop {
            tokio::time::sleep(RESYNC).await;
            quotas.list().iter().for_each(|quota| all.add(Key::of(&**quota)));
        }
    };
    tokio::select! {
        () = work => {}
        () = resync => {}
    }
    Ok(())
}

/// Wakes the quotas to which an object that has changed counts otherwise than before.
fn follow<K: Cached + serde::Serialize>(
    ctx: &Context,
    cache: &Cache<K>,
    evaluator: Evaluator,
    quotas: &Cache<ResourceQuota>,
    queue: &Queue<Key>,
) {
    let (quotas, queue) = (quotas.clone(), queue.clone());
    cache.on_change(ctx.shutdown.clone(), move |change| {
        let namespace = change.object().meta().namespace.clone().unwrap_or_default();
        let concerned = quotas.list_in(&namespace);
        if concerned.is_empty() {
            return;
        }
        let (old, new) = match &change {
            Change::Added(object) => (None, Some(value(&**object))),
            Change::Updated { old, new } => (Some(value(&**old)), Some(value(&**new))),
            Change::Deleted(object) => (Some(value(&**object)), None),
        };
        let now = Timestamp::now();
        for quota in concerned {
            let share = |object: &Option<Value>| plan::share(&evaluator, &value(&quota.spec), object.as_ref(), now);
            if share(&old) != share(&new) {
                queue.add(Key::of(&*quota));
            }
        }
    });
}

fn value(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

impl Controller {
    fn note(&self, key: &Key, deleted: bool) {
        let mut writes = self.writes.lock();
        let now = Instant::now();
        match writes.get_mut(key) {
            Some(_) if deleted => drop(writes.remove(key)),
            Some(known) => known.last = now,
            None if deleted => {}
            None => drop(writes.insert(key.clone(), Writes { first: now, last: now })),
        }
    }

    /// How long to wait until the quota can be counted.
    fn pause(&self, key: &Key) -> Option<Duration> {
        let writes = self.writes.lock();
        let known = writes.get(key)?;
        let left = QUIET.checked_sub(known.last.elapsed())?;
        (known.first.elapsed() < PATIENCE).then_some(left)
    }

    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(quota) = self.quotas.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let quota = value(&*quota);
        // Nothing is charged to a quota that has not been counted yet.
        let charged = quota["status"]["hard"].as_object().is_some_and(|hard| !hard.is_empty());
        if let Some(pause) = self.pause(key).filter(|_| charged) {
            return Ok(Action::RequeueAfter(pause));
        }
        let (counted, next) = self.observe(&quota["spec"], &key.ns).await?;
        let status = plan::status(&quota, &counted);
        self.writes.lock().remove(key);
        if let Some(status) = status {
            self.execute(key, &quota, &status).await?;
        }
        Ok(next.map_or(Action::Done, Action::RequeueAfter))
    }

    /// What there is; and when time alone will change it.
    async fn observe(&self, spec: &Value, ns: &str) -> anyhow::Result<(BTreeMap<String, Amounts>, Option<Duration>)> {
        let now = Timestamp::now();
        let mut counted = BTreeMap::new();
        let mut next: Option<Duration> = None;
        for evaluator in plan::evaluators(spec) {
            let usage = match &evaluator {
                Evaluator::Pods => {
                    let pods = self.pods.list_in(ns);
                    next = pods.iter().filter_map(|pod| expiry(pod, now)).chain(next).min();
                    plan::sum(&evaluator, spec, pods.iter().map(|pod| value(&**pod)), now)
                }
                Evaluator::Services => plan::sum(&evaluator, spec, values(&self.services, ns), now),
                Evaluator::Claims => plan::sum(&evaluator, spec, values(&self.claims, ns), now),
                Evaluator::ResourceClaims => {
                    let claims: Cache<ResourceClaim> = self.ctx.cache();
                    claims.synced().await;
                    plan::sum(&evaluator, spec, values(&claims, ns), now)
                }
                Evaluator::Objects { group, resource } => match self.census.count(group, resource, ns).await? {
                    None => {
                        next = Some(next.map_or(census::DISCOVERY_PERIOD, |at| at.min(census::DISCOVERY_PERIOD)));
                        continue;
                    }
                    Some(_) if !evaluator.in_scope(spec, &Value::Null) => Amounts::new(),
                    Some(count) => evaluator.count(count),
                },
            };
            counted.insert(plan::key(&evaluator), usage);
        }
        Ok((counted, next))
    }

    async fn execute(&self, key: &Key, quota: &Value, status: &Value) -> anyhow::Result<()> {
        let api = self.ctx.api::<ResourceQuota>(&key.ns);
        let seen = json!({"uid": quota["metadata"]["uid"], "resourceVersion": quota["metadata"]["resourceVersion"]});
        // A merge patch leaves names that are gone where they are, so it says what goes.
        let mut status = status.clone();
        for field in ["hard", "used"] {
            for (name, _) in quota["status"][field].as_object().into_iter().flatten() {
                if status[field].get(name).is_none() {
                    status[field][name] = Value::Null;
                }
            }
        }
        let patch = Patch::Merge(json!({"metadata": seen, "status": status}));
        gone_is_fine(api.patch_status(&key.name, &PatchParams::default(), &patch).await)?;
        Ok(())
    }
}

fn values<'a, K: Cached + serde::Serialize>(cache: &Cache<K>, ns: &str) -> impl Iterator<Item = Value> + use<'a, K> {
    cache.list_in(ns).into_iter().map(|object| value(&*object))
}

/// When a pod that is being deleted stops to count.
fn expiry(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let at = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = jiff::SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
    let left = (at + grace).duration_since(now);
    Duration::try_from(left).ok().map(|left| left + Duration::from_millis(100))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    #[test]
    fn pods_on_their_way_out_stop_to_count_in_time() {
        let pod = |deleted: Option<i64>| Pod {
            metadata: ObjectMeta {
                deletion_timestamp: deleted.map(|s| Time(Timestamp::from_second(s).expect("valid"))),
                deletion_grace_period_seconds: deleted.map(|_| 30),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        };
        let now = Timestamp::from_second(100).expect("valid");
        assert_eq!(expiry(&pod(None), now), None);
        assert_eq!(expiry(&pod(Some(90)), now), Some(Duration::from_millis(20_100)));
        assert_eq!(expiry(&pod(Some(10)), now), None);
    }
}
