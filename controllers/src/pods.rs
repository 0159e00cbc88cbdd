//! Questions about pods that several controllers ask.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::meta;

/// Annotation with a pod's cost of deletion: the cheaper go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pod's phase, `Pending` as long as nobody set one.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

/// True if the pod ended, well or not.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// True if the pod counts as a replica: neither ended nor going.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !meta::is_deleting(&pod.metadata)
}

/// True if the pod is going but has not ended.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && meta::is_deleting(&pod.metadata)
}

/// A condition of the pod by its type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

/// True if the pod reports that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// When the pod became ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    condition(pod, "Ready").filter(|c| c.status == "True")?.last_transition_time.as_ref().map(|t| t.0)
}

/// When the pod becomes available: ready for `min_ready_seconds`. `None` while it is not ready.
pub fn available_at(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Timestamp::UNIX_EPOCH);
    }
    ready_since(pod)?.checked_add(Duration::from_secs(u64::from(min_ready_seconds.unsigned_abs()))).ok()
}

/// True if the pod has been ready for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_at(pod, min_ready_seconds).is_some_and(|at| at <= now)
}

/// The node that runs the pod, empty if none does.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
}

fn deletion_cost(pod: &Pod) -> i32 {
    meta::annotation(&pod.metadata, DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Most restarts of any container: of sidecars only if no ordinary container restarted more.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let most = |list: &Option<Vec<_>>| {
        let statuses: &Option<Vec<k8s_openapi::api::core::v1::ContainerStatus>> = list;
        statuses.iter().flatten().map(|c| c.restart_count).max().unwrap_or(0)
    };
    (most(&status.container_statuses), most(&status.init_container_statuses))
}

/// Orders pods by who is to be deleted first (`Less`). `crowd` is the number of related pods on the pod's node.
pub fn compare_for_deletion(a: (&Pod, usize), b: (&Pod, usize), now: Timestamp) -> Ordering {
    let ((a, crowd_a), (b, crowd_b)) = (a, b);
    let assigned = |p: &Pod| !node_name(p).is_empty();
    let phase_rank = |p: &Pod| match phase(p) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| crowd_b.cmp(&crowd_a))
        .then_with(|| younger_first(ready_since(a), ready_since(b), now))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| younger_first(Some(meta::created(&a.metadata)), Some(meta::created(&b.metadata)), now))
        .then_with(|| meta::uid(&a.metadata).cmp(meta::uid(&b.metadata)))
}

/// The younger goes first, but ages of the same order of magnitude count as equal.
fn younger_first(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    let rank = |t: Option<Timestamp>| {
        let seconds = t.map_or(0, |t| now.as_second().saturating_sub(t.as_second()));
        if seconds <= 0 { -1 } else { i64::from(seconds.ilog2()) }
    };
    rank(a).cmp(&rank(b))
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pods for the tests of the plans.

    use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    /// A pod of the namespace `ns` in a phase; its uid is its name.
    pub fn pod(name: &str, phase: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("ns".into()),
                uid: Some(name.into()),
                ..Default::default()
            },
            spec: Some(PodSpec::default()),
            status: Some(PodStatus { phase: Some(phase.into()), ..Default::default() }),
        }
    }

    /// A running pod on `node` that is ready since `since`.
    pub fn ready(name: &str, node: &str, since: Timestamp) -> Pod {
        let mut pod = pod(name, "Running");
        pod.spec.as_mut().unwrap().node_name = Some(node.into());
        pod.status.as_mut().unwrap().conditions = Some(vec![PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(Time(since)),
            ..Default::default()
        }]);
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{pod, ready};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn availability_waits_for_min_ready() {
        let p = ready("a", "n", at(100));
        assert!(is_available(&p, 0, at(0)));
        assert!(!is_available(&p, 10, at(109)));
        assert!(is_available(&p, 10, at(110)));
        assert!(!is_available(&pod("b", "Running"), 0, at(110)));
    }

    #[test]
    fn deletion_order() {
        let now = at(100_000);
        let mut cheap = ready("cheap", "n", at(10));
        cheap.metadata.annotations = Some([(DELETION_COST.to_owned(), "-5".to_owned())].into());
        let first: [(Pod, usize, Pod, usize); 6] = [
            (pod("unassigned", "Pending"), 0, ready("x", "n", at(10)), 9),
            (ready("young", "n", at(99_000)), 1, ready("old", "n", at(10)), 1),
            (ready("crowded", "n", at(10)), 3, ready("lonely", "m", at(99_000)), 1),
            (cheap, 1, ready("dear", "n", at(99_999)), 1),
            (ready("b", "n", at(99_990)), 1, ready("a", "n", at(99_000)), 1),
            (ready("a", "n", at(10)), 1, ready("b", "n", at(10)), 1),
        ];
        for (a, crowd_a, b, crowd_b) in &first {
            let order = compare_for_deletion((a, *crowd_a), (b, *crowd_b), now);
            assert_eq!(order, Ordering::Less, "{:?} before {:?}", a.metadata.name, b.metadata.name);
        }
    }
}
