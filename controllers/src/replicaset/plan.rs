//! The decisions: how many pods to make, which to delete, what the status says.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::workload::{Condition, Status};
use crate::{meta, pods};

/// Most pods that one pass creates or deletes.
const BURST: usize = 500;
/// The condition that tells about pods that could not be made or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What one pass does to the pods.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// As many as asked for.
    Nothing,
    /// Too few.
    Create(usize),
    /// Too many: these go.
    Delete(Vec<Arc<Pod>>),
}

/// Compares what is with what is asked for. `related` are the pods of all siblings under the same owner: pods on nodes
/// with many of them go first.
pub fn step(desired: i32, active: &[Arc<Pod>], related: impl FnOnce() -> Vec<Arc<Pod>>, now: Timestamp) -> Step {
    let desired = usize::try_from(desired).unwrap_or(0);
    if active.len() < desired {
        return Step::Create((desired - active.len()).min(BURST));
    }
    let surplus = (active.len() - desired).min(BURST);
    if surplus == 0 {
        return Step::Nothing;
    }
    let mut ranked = active.to_vec();
    if surplus < active.len() {
        let crowd = crowd(&related());
        let on = |pod: &Pod| crowd.get(pods::node_name(pod)).copied().unwrap_or(0);
        ranked.sort_by(|a, b| pods::compare_for_deletion((a, on(a)), (b, on(b)), now));
    }
    ranked.truncate(surplus);
    Step::Delete(ranked)
}

fn crowd(related: &[Arc<Pod>]) -> HashMap<String, usize> {
    let mut count = HashMap::new();
    for pod in related.iter().filter(|p| pods::is_active(p)) {
        *count.entry(pods::node_name(pod).to_owned()).or_default() += 1;
    }
    count
}

/// What the status is made from.
pub struct Observed<'a> {
    /// Pods that count.
    pub active: &'a [Arc<Pod>],
    /// Pods that are going; `None` for kinds that do not tell.
    pub terminating: Option<usize>,
    /// Labels of the template.
    pub template_labels: &'a BTreeMap<String, String>,
    /// How long a pod must be ready.
    pub min_ready_seconds: i32,
    /// The generation that was looked at.
    pub generation: Option<i64>,
    /// What went wrong with the step: reason and message.
    pub failure: Option<(&'static str, String)>,
}

/// The status that follows from the observation; conditions keep their times where nothing changed.
pub fn status(old: &Status, observed: &Observed<'_>, now: Timestamp) -> Status {
    let count = |wanted: &dyn Fn(&Pod) -> bool| saturate(observed.active.iter().filter(|p| wanted(p)).count());
    let labeled = |pod: &Pod| {
        let labels = meta::labels(&pod.metadata);
        observed.template_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
    };
    Status {
        replicas: saturate(observed.active.len()),
        fully_labeled: count(&labeled),
        ready: count(&|p| pods::is_ready(p)),
        available: count(&|p| pods::is_available(p, observed.min_ready_seconds, now)),
        terminating: observed.terminating.map(saturate),
        observed_generation: observed.generation,
        conditions: conditions(&old.conditions, observed.failure.as_ref(), now),
    }
}

fn saturate(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn conditions(old: &[Condition], failure: Option<&(&'static str, String)>, now: Timestamp) -> Vec<Condition> {
    let mut conditions = old.to_vec();
    match failure {
        None => conditions.retain(|c| c.type_ != REPLICA_FAILURE),
        Some((reason, message)) if !conditions.iter().any(|c| c.type_ == REPLICA_FAILURE) => {
            conditions.push(Condition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()),
                last_transition_time: Some(Time(now)),
            });
        }
        Some(_) => {}
    }
    conditions
}

/// When to look again because a pod will have been ready for long enough.
pub fn next_look(active: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let upcoming = active.iter().filter_map(|p| pods::available_at(p, min_ready_seconds)).filter(|at| *at > now);
    upcoming.min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::testing::{pod, ready};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn some(count: usize) -> Vec<Arc<Pod>> {
        (0..count).map(|i| Arc::new(pod(&format!("p{i}"), "Running"))).collect()
    }

    #[test]
    fn counts() {
        for (desired, present, expected) in [
            (3, 0, Step::Create(3)),
            (3, 3, Step::Nothing),
            (900, 1, Step::Create(500)),
            (0, 0, Step::Nothing),
            (-1, 0, Step::Nothing),
        ] {
            assert_eq!(step(desired, &some(present), Vec::new, at(0)), expected, "{desired} of {present}");
        }
        assert!(matches!(step(1, &some(3), Vec::new, at(0)), Step::Delete(d) if d.len() == 2));
        assert!(matches!(step(0, &some(600), Vec::new, at(0)), Step::Delete(d) if d.len() == 500));
    }

    #[test]
    fn crowded_nodes_are_thinned_out() {
        let active = vec![
            Arc::new(ready("a", "n1", at(0))),
            Arc::new(ready("b", "n2", at(0))),
            Arc::new(ready("c", "n1", at(0))),
        ];
        let mut related = active.clone();
        related.push(Arc::new(ready("sibling", "n2", at(0))));
        related.push(Arc::new(ready("sibling2", "n2", at(0))));
        let Step::Delete(gone) = step(2, &active, || related, at(10)) else { panic!("nothing deleted") };
        assert_eq!(gone[0].metadata.name.as_deref(), Some("b"));
    }

    #[test]
    fn status_counts_and_failure() {
        let active =
            vec![Arc::new(ready("a", "n", at(0))), Arc::new(ready("b", "n", at(95))), Arc::new(pod("c", "Pending"))];
        let no_labels = BTreeMap::new();
        let observed = |failure| Observed {
            active: &active,
            terminating: Some(1),
            template_labels: &no_labels,
            min_ready_seconds: 10,
            generation: Some(4),
            failure,
        };
        let failed = status(&Status::default(), &observed(Some(("FailedCreate", "quota".into()))), at(100));
        assert_eq!((failed.replicas, failed.fully_labeled, failed.ready, failed.available), (3, 3, 2, 1));
        assert_eq!(failed.terminating, Some(1));
        assert_eq!(failed.conditions[0].reason.as_deref(), Some("FailedCreate"));
        let again = status(&failed, &observed(Some(("FailedCreate", "other".into()))), at(200));
        assert_eq!(again.conditions, failed.conditions);
        assert!(status(&failed, &observed(None), at(200)).conditions.is_empty());
        assert_eq!(next_look(&active, 10, at(100)), Some(Duration::from_secs(5)));
        assert_eq!(next_look(&active, 0, at(100)), None);
    }
}
