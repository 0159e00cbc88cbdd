//! What is due, what runs, what is history.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::schedule::Schedule;
use crate::job::finished_at;
use crate::meta;

/// Annotation of a job with the time that it was due.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// So many missed runs are a sign of a clock that went wrong.
const TOO_MANY: usize = 100;

/// An event to be told: warning, reason, message.
pub type Tell = (bool, &'static str, String);

/// What one pass does.
#[derive(Debug, Default)]
pub struct Plan {
    /// The status.
    pub status: CronJobStatus,
    /// Jobs that make place for the next one.
    pub replace: Vec<Arc<Job>>,
    /// Jobs that are history.
    pub forget: Vec<Arc<Job>>,
    /// The job that is due, and the time.
    pub start: Option<(Job, Timestamp)>,
    /// Events.
    pub tell: Vec<Tell>,
    /// When to look again.
    pub requeue: Option<Duration>,
}

/// Works out one pass.
pub fn plan(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Plan {
    let mut plan = Plan { status: cron.status.clone().unwrap_or_default(), ..Plan::default() };
    track(jobs, &mut plan);
    plan.forget = history(cron, jobs);
    if meta::is_deleting(&cron.metadata) || cron.spec.suspend == Some(true) {
        return plan;
    }
    let zone = match cron.spec.time_zone.as_deref().map_or(Ok(TimeZone::UTC), TimeZone::get) {
        Ok(zone) => zone,
        Err(_) => {
            let text = format!("invalid timeZone: {}", cron.spec.time_zone.as_deref().unwrap_or_default());
            plan.tell.push((true, "UnknownTimeZone", text));
            return plan;
        }
    };
    let schedule = match Schedule::parse(&cron.spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => {
            let text = format!("unparseable schedule: {} : {error}", cron.spec.schedule);
            plan.tell.push((true, "UnparseableSchedule", text));
            return plan;
        }
    };
    let next = schedule.next(now, &zone);
    plan.requeue =
        next.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default() + Duration::from_millis(100));
    let Some(due) = due(cron, &schedule, &zone, now, &mut plan) else { return plan };
    if cron.spec.starting_deadline_seconds.is_some_and(|s| due + SignedDuration::from_secs(s) < now) {
        let at = due.strftime("%a, %d %b %Y %H:%M:%S %z");
        plan.tell.push((true, "MissSchedule", format!("Missed scheduled time to start a job: {at}")));
        return plan;
    }
    let active = plan.status.active.iter().flatten().count();
    match cron.spec.concurrency_policy.as_deref() {
        Some("Forbid") if active > 0 => {
            let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.tell.push((false, "JobAlreadyActive", text.to_owned()));
            return plan;
        }
        Some("Replace") => {
            let refs = plan.status.active.take().unwrap_or_default();
            let is_active = |j: &&Arc<Job>| refs.iter().any(|r| r.uid == j.metadata.uid);
            plan.replace = jobs.iter().filter(is_active).cloned().collect();
        }
        _ => {}
    }
    plan.start = Some((job(cron, due, &zone), due));
    plan
}

/// Jobs that ended leave the list of active ones; jobs of ours that are not in it come in.
fn track(jobs: &[Arc<Job>], plan: &mut Plan) {
    let mut active = plan.status.active.take().unwrap_or_default();
    for job in jobs {
        let listed = active.iter().any(|r| r.uid == job.metadata.uid);
        let name = meta::name(&job.metadata);
        match finished_at(job) {
            Some(end) if listed => {
                active.retain(|r| r.uid != job.metadata.uid);
                plan.tell.push((
                    false,
                    "SawCompletedJob",
                    format!("Saw completed job: {name}, condition: {}", end.type_),
                ));
            }
            None if !listed && !meta::is_deleting(&job.metadata) => active.push(reference(job)),
            _ => {}
        }
        let completed = job.status.as_ref().and_then(|s| s.completion_time.clone());
        if let Some(at) = completed {
            let last = plan.status.last_successful_time.as_ref();
            if last.is_none_or(|l| l.0 < at.0) {
                plan.status.last_successful_time = Some(at);
            }
        }
    }
    active.retain(|r| {
        let there = jobs.iter().any(|j| j.metadata.uid == r.uid);
        if !there {
            let name = r.name.as_deref().unwrap_or_default();
            plan.tell.push((false, "MissingJob", format!("Active job went missing: {name}")));
        }
        there
    });
    plan.status.active = Some(active).filter(|a| !a.is_empty());
}

/// A job in the list of active ones.
pub fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The latest time at which a run was due and that has not been run.
fn due(cron: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp, plan: &mut Plan) -> Option<Timestamp> {
    let last = cron.status.as_ref().and_then(|s| s.last_schedule_time.as_ref()).map(|t| t.0);
    let mut from = last.unwrap_or_else(|| meta::created(&cron.metadata));
    if let Some(seconds) = cron.spec.starting_deadline_seconds {
        from = from.max(now.checked_sub(SignedDuration::from_secs(seconds)).ok()?);
    }
    let mut latest = None;
    let mut missed = 0;
    let mut at = schedule.next(from, zone)?;
    while at <= now {
        latest = Some(at);
        missed += 1;
        if missed > TOO_MANY {
            // Far behind: only what is due about now is of interest.
            let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            plan.tell.push((true, "TooManyMissedTimes", text.to_owned()));
            return recent(schedule, zone, now).or(latest);
        }
        at = schedule.next(at, zone)?;
    }
    latest
}

/// The last time before now, found by looking back in growing steps.
fn recent(schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let mut back = 3600;
    while back < 400 * 24 * 3600 {
        let from = now.checked_sub(SignedDuration::from_secs(back)).ok()?;
        let mut latest = None;
        let mut at = schedule.next(from, zone)?;
        while at <= now {
            latest = Some(at);
            at = schedule.next(at, zone)?;
        }
        if latest.is_some() {
            return latest;
        }
        back *= 24;
    }
    None
}

fn job(cron: &CronJob, due: Timestamp, zone: &TimeZone) -> Job {
    let template = cron.spec.job_template.clone();
    let from = template.metadata.unwrap_or_default();
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), due.display_with_offset(zone.to_offset(due)).to_string());
    Job {
        metadata: ObjectMeta {
            // One job a minute at most: the name keeps a run from being started twice.
            name: Some(format!("{}-{}", meta::name(&cron.metadata), due.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: from.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![meta::controller_ref(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Finished jobs beyond the limits, the oldest first.
fn history(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let mut surplus = Vec::new();
    let limits = [
        ("Complete", cron.spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", cron.spec.failed_jobs_history_limit.unwrap_or(1)),
    ];
    for (kind, limit) in limits {
        let ended = |j: &&Arc<Job>| finished_at(j).is_some_and(|c| c.type_ == kind) && !meta::is_deleting(&j.metadata);
        let mut ended: Vec<_> = jobs.iter().filter(ended).cloned().collect();
        ended.sort_by_key(|j| {
            let start = j.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
            (start, meta::name(&j.metadata).to_owned())
        });
        let count = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        surplus.extend(ended.into_iter().take(count));
    }
    surplus
}

/// Notes a run that was started.
pub fn note_start(status: &mut CronJobStatus, job: &Job, due: Timestamp) {
    let active = status.active.get_or_insert_default();
    if !active.iter().any(|r| r.uid == job.metadata.uid) {
        active.push(reference(job));
    }
    status.last_schedule_time = Some(Time(due));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cron(spec: serde_json::Value) -> CronJob {
        let mut spec = spec;
        spec["jobTemplate"] = json!({"spec": {"template": {}}});
        if spec["schedule"].is_null() {
            spec["schedule"] = json!("*/10 * * * *");
        }
        let meta = json!({"name": "c", "namespace": "ns", "uid": "c", "creationTimestamp": "2026-01-01T00:00:01Z"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn run(name: &str, ended: Option<&str>, start: &str) -> Arc<Job> {
        let conditions: Vec<_> = ended.iter().map(|k| json!({"type": k, "status": "True"})).collect();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name}, "spec": {"template": {}},
                "status": {"conditions": conditions, "startTime": start},
            }))
            .unwrap(),
        )
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn starts_what_is_due() {
        let early = plan(&cron(json!({})), &[], at("2026-01-01T00:09:00Z"));
        assert!(early.start.is_none());
        assert_eq!(early.requeue, Some(Duration::from_millis(60_100)));
        let due = plan(&cron(json!({})), &[], at("2026-01-01T00:31:00Z"));
        let (job, time) = due.start.unwrap();
        assert_eq!(time, at("2026-01-01T00:30:00Z"));
        assert_eq!(job.metadata.name.as_deref(), Some("c-29453790"));
        assert_eq!(job.metadata.annotations.unwrap()[SCHEDULED], "2026-01-01T00:30:00+00:00");
    }

    #[test]
    fn concurrency() {
        let now = at("2026-01-01T00:10:01Z");
        let active = [run("a", None, "2026-01-01T00:00:00Z")];
        let by = |policy: &str| plan(&cron(json!({"concurrencyPolicy": policy})), &active, now);
        assert!(by("Allow").start.is_some());
        let forbidden = by("Forbid");
        assert!(forbidden.start.is_none());
        assert_eq!(forbidden.tell[0].1, "JobAlreadyActive");
        let replaced = by("Replace");
        assert_eq!((replaced.replace.len(), replaced.start.is_some()), (1, true));
    }

    #[test]
    fn suspended_late_and_wrong() {
        let now = at("2026-01-01T00:15:00Z");
        assert!(plan(&cron(json!({"suspend": true})), &[], now).start.is_none());
        assert!(plan(&cron(json!({"startingDeadlineSeconds": 60})), &[], now).start.is_none());
        assert_eq!(plan(&cron(json!({"schedule": "x"})), &[], now).tell[0].1, "UnparseableSchedule");
        assert_eq!(plan(&cron(json!({"timeZone": "No/Where"})), &[], now).tell[0].1, "UnknownTimeZone");
        let old = at("2026-06-01T00:15:00Z");
        let missed = plan(&cron(json!({})), &[], old);
        assert_eq!(missed.start.unwrap().1, at("2026-06-01T00:10:00Z"));
    }

    #[test]
    fn history_is_limited() {
        let jobs: Vec<_> =
            (0..5).map(|i| run(&format!("j{i}"), Some("Complete"), &format!("2026-01-01T00:0{i}:00Z"))).collect();
        let forgotten = plan(&cron(json!({})), &jobs, at("2026-01-01T00:05:00Z")).forget;
        let names: Vec<_> = forgotten.iter().map(|j| meta::name(&j.metadata)).collect();
        assert_eq!(names, ["j0", "j1"]);
    }
}
