//! Tables for the plan of a job.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::plan::{Backoff, Observed, Plan, plan};
use super::pod::{INDEX, TRACKING};
use crate::pods::testing::pod;

fn job(mut spec: serde_json::Value) -> Job {
    spec["template"] = json!({"spec": {"containers": []}});
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "ns", "uid": "j"}, "spec": spec})).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// A tracked pod; `index` as in `name-3`, if the name has one.
fn tracked(name: &str, phase: &str) -> Arc<Pod> {
    let mut p = pod(name, phase);
    p.metadata.finalizers = Some(vec![TRACKING.to_owned()]);
    if let Some((_, index)) = name.split_once('-') {
        p.metadata.annotations = Some([(INDEX.to_owned(), index.to_owned())].into());
    }
    Arc::new(p)
}

fn freed(pod: &Arc<Pod>) -> Arc<Pod> {
    let mut p = (**pod).clone();
    p.metadata.finalizers = None;
    Arc::new(p)
}

fn pass(job: &mut Job, pods: &[Arc<Pod>], now: i64) -> Plan {
    let plan = plan(&Observed { job, pods, settled: true, backoff: Backoff::default(), now: at(now) });
    job.status = Some(plan.status.clone());
    plan
}

fn conditions(job: &Job) -> Vec<(String, String)> {
    let all = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
    all.map(|c| (c.type_.clone(), c.reason.clone().unwrap())).collect()
}

#[test]
fn runs_to_completion() {
    let mut j = job(json!({"completions": 2, "parallelism": 1}));
    let first = pass(&mut j, &[], 0);
    assert_eq!((first.create.len(), first.status.active), (1, Some(1)));
    let a = tracked("a", "Succeeded");
    let counting = pass(&mut j, std::slice::from_ref(&a), 1);
    assert_eq!(counting.release.len(), 1);
    assert_eq!(counting.create.len(), 1);
    let uids = counting.status.uncounted_terminated_pods.unwrap().succeeded.unwrap();
    assert_eq!((uids, counting.status.succeeded), (vec!["a".to_owned()], None));
    let (a, b) = (freed(&a), tracked("b", "Succeeded"));
    let second = pass(&mut j, &[a.clone(), b.clone()], 2);
    assert_eq!(second.status.succeeded, Some(1));
    assert_eq!(conditions(&j), [("SuccessCriteriaMet".into(), "CompletionsReached".into())]);
    let last = pass(&mut j, &[a, freed(&b)], 3);
    assert_eq!((last.status.succeeded, last.status.active), (Some(2), None));
    assert_eq!(conditions(&j)[1], ("Complete".into(), "CompletionsReached".into()));
    assert!(last.status.completion_time.is_some());
    assert_eq!((last.tell[0].reason.as_str(), last.tell[0].message.as_str()), ("Completed", "Job completed"));
}

#[test]
fn parallelism_is_kept() {
    for (completions, parallelism, running, created, deleted) in [
        (Some(5), 3, 0, 3, 0),
        (Some(5), 3, 2, 1, 0),
        (Some(2), 3, 0, 2, 0),
        (None, 4, 1, 3, 0),
        (Some(5), 1, 3, 0, 2),
        (Some(5), 0, 2, 0, 2),
    ] {
        let mut j = job(json!({"completions": completions, "parallelism": parallelism}));
        let pods: Vec<_> = (0..running).map(|i| tracked(&format!("p{i}"), "Running")).collect();
        let plan = pass(&mut j, &pods, 0);
        assert_eq!(
            (plan.create.len(), plan.delete.len()),
            (created, deleted),
            "{completions:?} {parallelism} {running}"
        );
    }
}

#[test]
fn failures_back_off_then_fail() {
    let mut j = job(json!({"completions": 1, "backoffLimit": 1}));
    let a = tracked("a", "Failed");
    let waiting = pass(&mut j, std::slice::from_ref(&a), 0);
    assert_eq!((waiting.create.len(), waiting.requeue), (0, Some(Duration::from_secs(10))));
    assert_eq!(waiting.backoff.failures, 1);
    let observed = |j, pods, backoff, now| Observed { job: j, pods, settled: true, backoff, now: at(now) };
    let pods = [freed(&a)];
    let again = plan(&observed(&j, &pods, waiting.backoff, 10));
    assert_eq!(again.create.len(), 1);
    j.status = Some(again.status);
    let pods = [freed(&a), tracked("b", "Failed"), tracked("c", "Running")];
    let over = pass(&mut j, &pods, 20);
    assert_eq!(conditions(&j), [("FailureTarget".into(), "BackoffLimitExceeded".into())]);
    assert_eq!(over.delete.len(), 1);
    let pods = [freed(&a), freed(&pods[1])];
    let last = pass(&mut j, &pods, 21);
    assert_eq!(last.status.failed, Some(2));
    assert_eq!(conditions(&j)[1], ("Failed".into(), "BackoffLimitExceeded".into()));
    assert!(last.tell[0].warning);
}

#[test]
fn indexes_are_handed_out_once() {
    let mut j = job(json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"}));
    let plan = pass(&mut j, &[tracked("p-1", "Running"), tracked("p-0", "Succeeded")], 0);
    let indexes: Vec<_> = plan.create.iter().map(|w| w.index.unwrap()).collect();
    assert_eq!(indexes, [2, 3]);
    assert_eq!((plan.status.completed_indexes.as_deref(), plan.status.succeeded), (Some("0"), Some(1)));
    let twice = [tracked("p-1", "Running"), tracked("q-1", "Running"), tracked("p-2", "Running")];
    assert_eq!(pass(&mut j, &twice, 1).delete.len(), 1);
}

#[test]
fn index_limits() {
    let mut j = job(json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "backoffLimit": i32::MAX,
    }));
    let pods = [tracked("p-0", "Failed"), tracked("p-1", "Running")];
    let plan = pass(&mut j, &pods, 0);
    assert_eq!((plan.status.failed_indexes.as_deref(), plan.create.len()), (Some("0"), 0));
    let pods = [freed(&pods[0]), tracked("p-1", "Succeeded")];
    pass(&mut j, &pods, 1);
    assert_eq!(conditions(&j), [("FailureTarget".into(), "FailedIndexes".into())]);
}

#[test]
fn suspended_jobs_have_no_pods() {
    let mut j = job(json!({"completions": 1, "suspend": true}));
    let plan = pass(&mut j, &[tracked("a", "Running")], 0);
    assert_eq!((plan.delete.len(), plan.status.start_time.is_none()), (1, true));
    assert_eq!(conditions(&j), [("Suspended".into(), "JobSuspended".into())]);
    j.spec.as_mut().unwrap().suspend = Some(false);
    let resumed = pass(&mut j, &[], 5);
    assert_eq!((resumed.create.len(), resumed.tell[0].reason.as_str()), (1, "Resumed"));
    assert_eq!(resumed.status.start_time.unwrap().0, at(5));
}

#[test]
fn deadline() {
    let mut j = job(json!({"completions": 1, "activeDeadlineSeconds": 30}));
    assert_eq!(pass(&mut j, &[], 0).requeue, Some(Duration::from_secs(30)));
    let late = pass(&mut j, &[tracked("a", "Running")], 30);
    assert_eq!(late.delete.len(), 1);
    assert_eq!(conditions(&j), [("FailureTarget".into(), "DeadlineExceeded".into())]);
}

#[test]
fn stale_caches_stop_writes() {
    let j = job(json!({"completions": 3, "parallelism": 3}));
    let observed = Observed { job: &j, pods: &[], settled: false, backoff: Backoff::default(), now: at(0) };
    assert!(plan(&observed).create.is_empty());
}
