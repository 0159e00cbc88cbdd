//! How many pods may be disrupted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::deployment::resolve;
use crate::{meta, pods};

/// How long an eviction that was allowed may take to show.
const DISRUPTION_TIMEOUT: Duration = Duration::from_secs(120);

/// The status, and when to look again because an allowed eviction did not happen. `scale` is the number of pods that
/// the pods' controllers ask for, or why that is not known.
pub fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scale: Result<i32, String>,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let old = budget.status.clone().unwrap_or_default();
    let spec = budget.spec.clone().unwrap_or_default();
    let (disrupted, requeue) = disrupted(&old, pods, now);
    let is_healthy = |p: &Arc<Pod>| {
        pods::is_ready(p) && !meta::is_deleting(&p.metadata) && !disrupted.contains_key(meta::name(&p.metadata))
    };
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let healthy = number(pods.iter().filter(|p| is_healthy(p)).count());
    let counted = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => scale.map(|n| (n, (n - resolve(Some(most), n, true)).max(0))),
        (None, Some(IntOrString::Int(least))) => Ok((number(pods.len()), *least)),
        (None, Some(least)) => scale.map(|n| (n, resolve(Some(least), n, true))),
        (None, None) => Ok((number(pods.len()), 0)),
    };
    let mut status = PodDisruptionBudgetStatus {
        disrupted_pods: Some(disrupted).filter(|d| !d.is_empty()),
        observed_generation: budget.metadata.generation,
        ..old.clone()
    };
    let (state, reason, message) = match counted {
        Ok((expected, desired)) => {
            let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
            status.current_healthy = Some(healthy);
            status.desired_healthy = Some(desired);
            status.expected_pods = Some(expected);
            status.disruptions_allowed = Some(allowed);
            if allowed > 0 {
                ("True", "SufficientPods", String::new())
            } else {
                ("False", "InsufficientPods", String::new())
            }
        }
        Err(why) => {
            status.disruptions_allowed = Some(0);
            ("False", "SyncFailed", why)
        }
    };
    let mut fresh = Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: state.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: budget.metadata.generation,
        last_transition_time: Time(now),
    };
    let conditions = status.conditions.get_or_insert_default();
    if let Some(present) = conditions.iter().find(|c| c.type_ == fresh.type_ && c.status == fresh.status) {
        fresh.last_transition_time = present.last_transition_time.clone();
    }
    conditions.retain(|c| c.type_ != fresh.type_);
    conditions.push(fresh);
    (status, requeue)
}

/// Evictions that were allowed and are still to be seen.
fn disrupted(
    old: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut left = BTreeMap::new();
    let mut requeue = None;
    for (name, since) in old.disrupted_pods.iter().flatten() {
        let there = pods.iter().any(|p| meta::name(&p.metadata) == name && !meta::is_deleting(&p.metadata));
        let end = since.0.checked_add(DISRUPTION_TIMEOUT).unwrap_or(now);
        if there && end > now {
            let wait = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            requeue = Some(requeue.map_or(wait, |r: Duration| r.min(wait)));
            left.insert(name.clone(), since.clone());
        }
    }
    (left, requeue)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn budget(spec: serde_json::Value, status: serde_json::Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": spec, "status": status})).unwrap()
    }

    fn pods(ready: usize, other: usize) -> Vec<Arc<Pod>> {
        let ready = (0..ready).map(|i| pods::testing::ready(&format!("r{i}"), "n", Timestamp::UNIX_EPOCH));
        let other = (0..other).map(|i| pods::testing::pod(&format!("o{i}"), "Pending"));
        ready.chain(other).map(Arc::new).collect()
    }

    #[test]
    fn allowance() {
        let now = Timestamp::from_second(1000).unwrap();
        for (spec, ready, other, scale, expected) in [
            (json!({"minAvailable": 2}), 3, 0, 3, (3, 2, 3, 1)),
            (json!({"minAvailable": 2}), 1, 2, 3, (1, 2, 3, 0)),
            (json!({"minAvailable": "50%"}), 3, 0, 5, (3, 3, 5, 0)),
            (json!({"maxUnavailable": 1}), 3, 0, 3, (3, 2, 3, 1)),
            (json!({"maxUnavailable": "34%"}), 3, 0, 3, (3, 1, 3, 2)),
            (json!({"minAvailable": 0}), 0, 0, 0, (0, 0, 0, 0)),
        ] {
            let budget = budget(spec.clone(), json!(null));
            let (s, _) = status(&budget, &pods(ready, other), Ok(scale), now);
            let counts = [s.current_healthy, s.desired_healthy, s.expected_pods, s.disruptions_allowed];
            assert_eq!(counts, <[i32; 4]>::from(expected).map(Some), "{spec}");
        }
    }

    #[test]
    fn allowed_evictions_count_until_they_time_out() {
        let since = Timestamp::from_second(1000).unwrap();
        let status_with = json!({
            "disruptedPods": {"r0": since, "gone": since},
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        });
        let budget = budget(json!({"minAvailable": 1}), status_with);
        let (soon, wait) = status(&budget, &pods(2, 0), Ok(2), Timestamp::from_second(1060).unwrap());
        assert_eq!((soon.current_healthy, wait), (Some(1), Some(Duration::from_secs(60))));
        let (later, _) = status(&budget, &pods(2, 0), Ok(2), Timestamp::from_second(1121).unwrap());
        assert_eq!((later.current_healthy, later.disrupted_pods), (Some(2), None));
    }

    #[test]
    fn unknown_scale_allows_nothing() {
        let budget = budget(json!({"maxUnavailable": 1}), json!(null));
        let (s, _) = status(&budget, &pods(3, 0), Err("no controller".into()), Timestamp::UNIX_EPOCH);
        assert_eq!((s.disruptions_allowed, s.conditions.unwrap()[0].reason.as_str()), (Some(0), "SyncFailed"));
    }
}
