//! ttl-after-finished-controller: jobs that are over go after the time that they name.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions};
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::job::finished_at;
use crate::key::Key;
use crate::meta;
use crate::retry::gone_is_fine;

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let jobs: Cache<Job> = ctx.cache();
    jobs.synced().await;
    let queue: Queue<Key> = ctx.queue("ttl_jobs_to_delete");
    let keys = queue.clone();
    jobs.on_change(ctx.shutdown.clone(), move |change| {
        if expiry(change.object()).is_some() {
            keys.add(Key::of(&**change.object()));
        }
    });
    let shared = Arc::new((ctx.clone(), jobs));
    reconcile::run(queue, 1, ctx.shutdown, |key| {
        let shared = shared.clone();
        async move { reconcile(&shared.0, &shared.1, &key).await }
    })
    .await;
    Ok(())
}

/// When the job goes, if it does.
fn expiry(job: &Job) -> Option<Timestamp> {
    if meta::is_deleting(&job.metadata) {
        return None;
    }
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ended = finished_at(job)?.last_transition_time.as_ref()?.0;
    ended.checked_add(SignedDuration::from_secs(i64::from(ttl))).ok()
}

async fn reconcile(ctx: &Context, jobs: &Cache<Job>, key: &Key) -> anyhow::Result<Action> {
    let left = |job: &Job| {
        let until = expiry(job)?.duration_since(Timestamp::now());
        Some(Duration::try_from(until).unwrap_or_default())
    };
    let Some(wait) = jobs.get(key.ns(), &key.name).and_then(|j| left(&j)) else { return Ok(Action::Done) };
    if !wait.is_zero() {
        return Ok(Action::RequeueAfter(wait));
    }
    // The cache may be late: the time may have been changed.
    let api = ctx.api::<Job>(&key.ns);
    let Some(fresh) = gone_is_fine(api.get(&key.name).await)? else { return Ok(Action::Done) };
    match left(&fresh) {
        None => return Ok(Action::Done),
        Some(wait) if !wait.is_zero() => return Ok(Action::RequeueAfter(wait)),
        Some(_) => {}
    }
    let same = Preconditions { uid: fresh.metadata.uid, resource_version: fresh.metadata.resource_version };
    gone_is_fine(api.delete(&key.name, &DeleteParams::foreground().preconditions(same)).await.map(|_| ()))?;
    Ok(Action::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_after_the_end() {
        let job = |ttl: Option<i32>, kind: &str| -> Job {
            serde_json::from_value(serde_json::json!({
                "metadata": {}, "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
                "status": {"conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]},
            }))
            .unwrap()
        };
        let at = expiry(&job(Some(90), "Complete")).unwrap();
        assert_eq!(at.to_string(), "2026-01-01T00:01:30Z");
        assert!(expiry(&job(None, "Complete")).is_none());
        assert!(expiry(&job(Some(90), "FailureTarget")).is_none());
    }
}
