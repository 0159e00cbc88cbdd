//! The decisions of one pass over a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::pod::{Wanted, index_of};
use super::policy;
use super::tracking::{self, Counted};
use crate::{meta, pods};

/// Wait after the first failure; doubled by each further one.
const BACKOFF: Duration = Duration::from_secs(10);
/// Longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(600);
/// Most pods that one pass makes or deletes.
const BURST: usize = 500;

/// Failures in a row, kept between passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// How many since the last success.
    pub failures: u32,
    /// When the last one happened.
    pub last: Option<Timestamp>,
}

/// What one pass looks at.
pub struct Observed<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
    /// False while the cache lags behind our own writes: pods are neither made nor deleted then.
    pub settled: bool,
    /// Failures in a row so far.
    pub backoff: Backoff,
    /// The time of the pass.
    pub now: Timestamp,
}

/// An event to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// True for a warning.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// Everything that one pass does.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Pods to make.
    pub create: Vec<Wanted>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// The status, written before any pod is released.
    pub status: JobStatus,
    /// Pods to be freed of their finalizer.
    pub release: Vec<Arc<Pod>>,
    /// Events.
    pub tell: Vec<Tell>,
    /// Failures in a row, to be kept.
    pub backoff: Backoff,
    /// When to look again without a change.
    pub requeue: Option<Duration>,
}

/// True if the job is over.
pub fn is_finished(job: &Job) -> bool {
    finished_at(job).is_some()
}

/// When and how the job ended.
pub fn finished_at(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.into_iter().find(|c| (c.type_ == "Complete" || c.type_ == "Failed") && c.status == "True")
}

/// Works out one pass over a job that is not over.
pub fn plan(o: &Observed<'_>) -> Plan {
    let default = JobSpec::default();
    let spec = o.job.spec.as_ref().unwrap_or(&default);
    let mut status = o.job.status.clone().unwrap_or_default();
    let suspended = spec.suspend == Some(true);
    let mut plan = Plan::default();
    if status.start_time.is_none() && !suspended {
        status.start_time = Some(Time(o.now));
    }
    let active: Vec<_> = o.pods.iter().filter(|p| pods::is_active(p)).cloned().collect();
    let terminating = o.pods.iter().filter(|p| pods::is_terminating(p)).count();
    let target = condition(&status, "FailureTarget").or_else(|| condition(&status, "SuccessCriteriaMet")).cloned();
    let counted = tracking::count(o.job, o.pods, target.is_some(), &mut status);
    plan.backoff = backoff(o.backoff, &counted, o.now);
    let target = target.or_else(|| target_of(o, spec, &counted, &active, &status));
    let mut left = active.len();
    if let Some(target) = target {
        set(&mut status, target.clone());
        if o.settled {
            left = 0;
            plan.delete = active.clone();
        }
        if active.is_empty() && terminating == 0 && counted.settled {
            finish(&mut plan, &mut status, &target, o.now);
        }
    } else if suspended || !meta::is_deleting(&o.job.metadata) {
        if suspended {
            if o.settled {
                plan.delete = active.clone();
                left = 0;
            }
        } else if o.settled {
            manage(&mut plan, o, spec, &counted, &active, terminating);
            left = active.len() + plan.create.len() - plan.delete.len();
        }
        note_suspension(&mut plan, &mut status, suspended, o.now);
    }
    plan.requeue = plan.requeue.into_iter().chain(until_deadline(spec, &status, o.now)).min();
    let going = terminating + plan.delete.len();
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    status.active = Some(number(left)).filter(|n| *n > 0);
    status.ready = Some(number(active.iter().filter(|p| pods::is_ready(p) && !plan.delete.contains(p)).count()));
    status.terminating = Some(number(going));
    plan.release = counted.release;
    plan.status = status;
    plan
}

/// The end that the job is heading for, if it is.
fn target_of(
    o: &Observed<'_>,
    spec: &JobSpec,
    counted: &Counted,
    active: &[Arc<Pod>],
    status: &JobStatus,
) -> Option<JobCondition> {
    let fail = |reason: &str, message: &str| Some(make("FailureTarget", "True", reason, message, o.now));
    if let Some(why) = &counted.fails_job {
        return fail("PodFailurePolicy", why);
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    if counted.failed > limit || restarts_exceed(spec, limit, active) {
        return fail("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if until_deadline(spec, status, o.now).is_some_and(|left| left.is_zero()) && spec.suspend != Some(true) {
        return fail("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let failed_indexes = i32::try_from(counted.failed_indexes.len()).unwrap_or(i32::MAX);
    if spec.max_failed_indexes.is_some_and(|most| failed_indexes > most) {
        return fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
    }
    let all_done = spec.completions.is_some_and(|n| counted.succeeded + failed_indexes >= n);
    if spec.backoff_limit_per_index.is_some() && failed_indexes > 0 && all_done {
        return fail("FailedIndexes", "Job has failed indexes");
    }
    if let Some(why) = policy::success(o.job, &counted.completed) {
        return Some(make("SuccessCriteriaMet", "True", "SuccessPolicy", &why, o.now));
    }
    let complete = match spec.completions {
        // A queue of work is done when one pod says so and the others have ended.
        None => counted.succeeded > 0 && active.is_empty(),
        Some(completions) => counted.succeeded >= completions && active.is_empty(),
    };
    let text = "Reached expected number of succeeded pods";
    complete.then(|| make("SuccessCriteriaMet", "True", "CompletionsReached", text, o.now))
}

/// True if containers that are restarted in place failed too often.
fn restarts_exceed(spec: &JobSpec, limit: i32, active: &[Arc<Pod>]) -> bool {
    let policy = spec.template.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let of = |pod: &Arc<Pod>| {
        let status = pod.status.as_ref();
        let all = status.into_iter().flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses));
        all.flatten().map(|c| c.restart_count).sum::<i32>()
    };
    let restarts: i32 = active.iter().map(of).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// Time left until the active deadline.
fn until_deadline(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let start = status.start_time.as_ref()?.0;
    let end = start.checked_add(SignedDuration::from_secs(spec.active_deadline_seconds?)).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or_default())
}

fn backoff(before: Backoff, counted: &Counted, now: Timestamp) -> Backoff {
    let ended = |pod: &Arc<Pod>| finish_time(pod).unwrap_or(now);
    let last_success = counted.new_successes.iter().map(ended).max();
    let mut failures: Vec<Timestamp> = counted.new_failures.iter().map(ended).collect();
    failures.sort_unstable();
    match last_success {
        None => Backoff {
            failures: before.failures.saturating_add(u32::try_from(failures.len()).unwrap_or(u32::MAX)),
            last: failures.last().copied().or(before.last),
        },
        Some(success) => {
            failures.retain(|at| *at > success);
            let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
            Backoff { failures: count, last: failures.last().copied() }
        }
    }
}

/// When the pod's last container ended.
fn finish_time(pod: &Pod) -> Option<Timestamp> {
    let all = pod.status.as_ref()?.container_statuses.iter().flatten();
    let ends = all.filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|t| t.0));
    ends.max()
}

fn wait(backoff: Backoff, now: Timestamp) -> Option<Duration> {
    let last = backoff.last.filter(|_| backoff.failures > 0)?;
    let doubled = 2u32.checked_pow(backoff.failures - 1).and_then(|n| BACKOFF.checked_mul(n));
    let until = last.checked_add(doubled.unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX)).ok()?;
    Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// Makes the number of active pods what it should be.
fn manage(
    plan: &mut Plan,
    o: &Observed<'_>,
    spec: &JobSpec,
    counted: &Counted,
    active: &[Arc<Pod>],
    terminating: usize,
) {
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let wanted = match spec.completions {
        None if counted.succeeded > 0 => active.len(),
        None => parallelism,
        Some(n) => {
            let failed = i32::try_from(counted.failed_indexes.len()).unwrap_or(i32::MAX);
            let left = usize::try_from(n - counted.succeeded - failed).unwrap_or(0);
            left.min(parallelism)
        }
    };
    let (keep, mut surplus) =
        if tracking::is_indexed(o.job) { unique(o.job, counted, active) } else { (active.to_vec(), Vec::new()) };
    if keep.len() > wanted {
        let mut ranked = keep.clone();
        ranked.sort_by(|a, b| pods::compare_for_deletion((a, 0), (b, 0), o.now));
        surplus.extend(ranked.into_iter().take(keep.len() - wanted));
    }
    surplus.truncate(BURST);
    if !surplus.is_empty() {
        plan.delete = surplus;
        return;
    }
    let held_back = if tracking::replaces_only_failed(o.job) { terminating } else { 0 };
    let missing = wanted.saturating_sub(active.len() + held_back).min(BURST);
    if missing == 0 {
        return;
    }
    if let Some(wait) = wait(plan.backoff, o.now) {
        plan.requeue = Some(wait);
        return;
    }
    plan.create = if tracking::is_indexed(o.job) {
        free_indexes(o, spec, counted, active, missing)
    } else {
        vec![Wanted { index: None, failures: None }; missing]
    };
}

/// One pod for each index that is still needed; the rest is surplus.
fn unique(job: &Job, counted: &Counted, active: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut seen = BTreeSet::new();
    active.iter().cloned().partition(|pod| {
        let index = tracking::index_in_range(job, pod);
        index.is_some_and(|i| !counted.completed.contains(&i) && !counted.failed_indexes.contains(&i) && seen.insert(i))
    })
}

fn free_indexes(o: &Observed<'_>, spec: &JobSpec, counted: &Counted, active: &[Arc<Pod>], count: usize) -> Vec<Wanted> {
    let mut taken: BTreeSet<i32> = active.iter().filter_map(|p| index_of(p)).collect();
    if tracking::replaces_only_failed(o.job) {
        taken.extend(o.pods.iter().filter(|p| pods::is_terminating(p)).filter_map(|p| index_of(p)));
    }
    let limited = spec.backoff_limit_per_index.is_some();
    let mut failures: BTreeMap<i32, i32> = BTreeMap::new();
    for pod in o.pods.iter().filter(|p| limited && pods::phase(p) == "Failed") {
        if let Some(index) = index_of(pod) {
            let ignored = policy::judge(o.job, pod) == policy::Failure::Ignored;
            let now = tracking::failures_before(pod) + i32::from(!ignored);
            let most = failures.entry(index).or_default();
            *most = now.max(*most);
        }
    }
    let free = |i: &i32| !taken.contains(i) && !counted.completed.contains(i) && !counted.failed_indexes.contains(i);
    let indexes = (0..spec.completions.unwrap_or(0)).filter(free).take(count);
    indexes
        .map(|i| Wanted { index: Some(i), failures: limited.then(|| failures.get(&i).copied().unwrap_or(0)) })
        .collect()
}

fn note_suspension(plan: &mut Plan, status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let noted = condition(status, "Suspended").map(|c| c.status == "True");
    let (state, reason, message) = match (suspended, noted) {
        (true, None | Some(false)) => ("True", "JobSuspended", "Job suspended"),
        (false, Some(true)) => ("False", "JobResumed", "Job resumed"),
        _ => return,
    };
    set(status, make("Suspended", state, reason, message, now));
    status.start_time = (!suspended).then_some(Time(now));
    let event = if suspended { "Suspended" } else { "Resumed" };
    plan.tell.push(Tell { warning: false, reason: event.to_owned(), message: message.to_owned() });
}

fn finish(plan: &mut Plan, status: &mut JobStatus, target: &JobCondition, now: Timestamp) {
    let (reason, message) = (target.reason.clone().unwrap_or_default(), target.message.clone().unwrap_or_default());
    if target.type_ == "FailureTarget" {
        set(status, make("Failed", "True", &reason, &message, now));
        plan.tell.push(Tell { warning: true, reason, message });
    } else {
        set(status, make("Complete", "True", &reason, &message, now));
        status.completion_time = Some(Time(now));
        plan.tell.push(Tell { warning: false, reason: "Completed".to_owned(), message: "Job completed".to_owned() });
    }
}

fn make(kind: &str, state: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: state.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind)
}

fn set(status: &mut JobStatus, fresh: JobCondition) {
    let all = status.conditions.get_or_insert_default();
    match all.iter_mut().find(|c| c.type_ == fresh.type_) {
        Some(present) if present.status == fresh.status && present.reason == fresh.reason => {}
        Some(present) => *present = fresh,
        None => all.push(fresh),
    }
}
