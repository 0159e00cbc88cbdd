//! Counts ended pods exactly once: first their uids go into the status, then the pods lose their finalizer, then the
//! counters take the uids' place.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::policy::{self, Failure};
use super::{indexes, pod};
use crate::{meta, pods};

/// Most pods that one pass counts: the status must not grow without bound.
const PER_PASS: usize = 500;

/// The outcome of counting.
#[derive(Debug, Default, PartialEq)]
pub struct Counted {
    /// Pods that succeeded, settled or not; for indexed jobs the indexes that did.
    pub succeeded: i32,
    /// Pods that failed, settled or not.
    pub failed: i32,
    /// Indexes that succeeded.
    pub completed: BTreeSet<i32>,
    /// Indexes that failed for good.
    pub failed_indexes: BTreeSet<i32>,
    /// Pods that may go once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// Pods that failed since the last pass.
    pub new_failures: Vec<Arc<Pod>>,
    /// Pods that succeeded since the last pass.
    pub new_successes: Vec<Arc<Pod>>,
    /// Why a rule fails the job.
    pub fails_job: Option<String>,
    /// True if nothing is left to be settled.
    pub settled: bool,
}

/// True if the job has indexes.
pub fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.completion_mode.as_deref()) == Some("Indexed")
}

/// True if only pods that have ended are replaced.
pub fn replaces_only_failed(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    let policy = spec.and_then(|s| s.pod_replacement_policy.as_deref());
    policy == Some("Failed") || spec.is_some_and(|s| s.pod_failure_policy.is_some())
}

/// True if the pod counts as failed.
fn has_failed(job: &Job, pod: &Pod) -> bool {
    match pods::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => meta::is_deleting(&pod.metadata) && !replaces_only_failed(job),
    }
}

/// Counts; `status` gets the new counters and uids. `finishing` pods that are on their way count as failed.
pub fn count(job: &Job, owned: &[Arc<Pod>], finishing: bool, status: &mut JobStatus) -> Counted {
    let indexed = is_indexed(job);
    let mut counted = Counted {
        completed: indexes::parse(status.completed_indexes.as_deref().unwrap_or_default()),
        failed_indexes: indexes::parse(status.failed_indexes.as_deref().unwrap_or_default()),
        ..Counted::default()
    };
    let held: HashSet<&str> = owned
        .iter()
        .filter(|p| meta::has_finalizer(&p.metadata, pod::TRACKING))
        .map(|p| meta::uid(&p.metadata))
        .collect();
    settle(&held, status);
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let known: HashSet<String> = uncounted.succeeded.iter().chain(&uncounted.failed).flatten().cloned().collect();
    for pod in owned.iter().filter(|p| held.contains(meta::uid(&p.metadata))) {
        if counted.release.len() >= PER_PASS {
            break;
        }
        let uid = meta::uid(&pod.metadata);
        if known.contains(uid) {
            counted.release.push(pod.clone());
        } else if pods::phase(pod) == "Succeeded" {
            counted.new_successes.push(pod.clone());
            if !indexed {
                uncounted.succeeded.get_or_insert_default().push(uid.to_owned());
            } else if let Some(index) = index_in_range(job, pod) {
                counted.completed.insert(index);
            }
            counted.release.push(pod.clone());
        } else if has_failed(job, pod) || (finishing && meta::is_deleting(&pod.metadata)) {
            if judge(job, pod, &mut counted) {
                uncounted.failed.get_or_insert_default().push(uid.to_owned());
            }
            counted.release.push(pod.clone());
        }
    }
    counted.settled = counted.release.is_empty() && held.is_empty();
    let len = |list: &Option<Vec<String>>| list.as_ref().map_or(0, |l| i32::try_from(l.len()).unwrap_or(i32::MAX));
    counted.succeeded = status.succeeded.unwrap_or(0) + len(&uncounted.succeeded);
    counted.failed = status.failed.unwrap_or(0) + len(&uncounted.failed);
    counted.settled &= len(&uncounted.succeeded) + len(&uncounted.failed) == 0;
    if indexed {
        counted.succeeded = i32::try_from(counted.completed.len()).unwrap_or(i32::MAX);
        status.succeeded = Some(counted.succeeded).filter(|n| *n > 0);
        status.completed_indexes = Some(indexes::format(&counted.completed)).filter(|t| !t.is_empty());
        let limited = job.spec.as_ref().is_some_and(|s| s.backoff_limit_per_index.is_some());
        status.failed_indexes = limited.then(|| indexes::format(&counted.failed_indexes));
    }
    status.uncounted_terminated_pods = Some(uncounted);
    counted
}

/// Moves the uids of pods that are not held any more into the counters.
fn settle(held: &HashSet<&str>, status: &mut JobStatus) {
    let Some(uncounted) = &mut status.uncounted_terminated_pods else { return };
    for (list, counter) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let Some(uids) = list else { continue };
        let before = uids.len();
        uids.retain(|uid| held.contains(uid.as_str()));
        let settled = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
        if settled > 0 {
            *counter = Some(counter.unwrap_or(0) + settled);
        }
        if uids.is_empty() {
            *list = None;
        }
    }
}

/// Judges a failed pod; true if it counts.
fn judge(job: &Job, pod: &Arc<Pod>, counted: &mut Counted) -> bool {
    counted.new_failures.push(pod.clone());
    let judgement = policy::judge(job, pod);
    let limit = job.spec.as_ref().and_then(|s| s.backoff_limit_per_index);
    if let (Some(limit), Some(index)) = (limit, index_in_range(job, pod)) {
        let exhausted = judgement == Failure::Counts && failures_before(pod) >= limit;
        if exhausted || judgement == Failure::FailsIndex {
            counted.failed_indexes.insert(index);
        }
    }
    match judgement {
        Failure::Ignored => false,
        Failure::Counts | Failure::FailsIndex => true,
        Failure::FailsJob(why) => {
            counted.fails_job.get_or_insert(why);
            true
        }
    }
}

/// How often the pod's index failed before it.
pub fn failures_before(pod: &Pod) -> i32 {
    meta::annotation(&pod.metadata, pod::INDEX_FAILURES).and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// The pod's index if the job has so many.
pub fn index_in_range(job: &Job, pod: &Pod) -> Option<i32> {
    let completions = job.spec.as_ref()?.completions?;
    pod::index_of(pod).filter(|i| *i < completions)
}
