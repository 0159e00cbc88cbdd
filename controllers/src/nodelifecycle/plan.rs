//! What a node's silence means: conditions and taints.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Taint of a node that says that it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint of a node that says nothing.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Conditions that only the node itself can know.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Taints that keep pods away, by condition and its state.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// When a node was heard of last, by our own clock: the node's clock is not trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it said then: renewal of its lease and heartbeat of its Ready condition.
    pub sign: (Option<Timestamp>, Option<Timestamp>),
    /// When we saw that.
    pub at: Timestamp,
}

/// Takes note of a sign of life.
pub fn listen(before: Option<&Heard>, sign: (Option<Timestamp>, Option<Timestamp>), now: Timestamp) -> Heard {
    match before {
        Some(heard) if heard.sign == sign => heard.clone(),
        _ => Heard { sign, at: now },
    }
}

/// A condition of a node.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

/// True if the node was silent for too long.
pub fn is_silent(heard: &Heard, grace: Duration, now: Timestamp) -> bool {
    heard.at.checked_add(grace).is_ok_and(|end| end < now)
}

/// The conditions of a silent node; `None` if they say so already.
pub fn unknown_conditions(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let mut conditions = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let mut changed = false;
    for kind in REPORTED {
        let fresh = |reason: &str, message: &str, beat: Option<Time>| NodeCondition {
            type_: kind.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: beat,
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|c| c.type_ == kind) {
            None => {
                let beat = node.metadata.creation_timestamp.clone();
                conditions.push(fresh("NodeStatusNeverUpdated", "Kubelet never posted node status.", beat));
                changed = true;
            }
            Some(present) if present.status != "Unknown" => {
                let beat = present.last_heartbeat_time.clone();
                *present = fresh("NodeStatusUnknown", "Kubelet stopped posting node status.", beat);
                changed = true;
            }
            Some(_) => {}
        }
    }
    changed.then_some(conditions)
}

/// The taints that the node should have; `None` if it has them.
pub fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let present = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    let unschedulable = node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    let state = |kind: &str| condition(node, kind).map(|c| c.status.as_str());
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, status, key) in BY_CONDITION {
        if state(kind) == Some(status) {
            wanted.push((key, "NoSchedule"));
            if kind == "Ready" {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    // A node that never said anything about itself is not ready.
    if state("Ready").is_none() {
        wanted.push((NOT_READY, "NoSchedule"));
    }
    if unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_ours = |t: &Taint| {
        let by_condition = BY_CONDITION.iter().any(|(_, _, key)| *key == t.key) || t.key == UNSCHEDULABLE;
        let executes = t.effect == "NoExecute" && (t.key == NOT_READY || t.key == UNREACHABLE);
        (t.effect == "NoSchedule" && by_condition) || executes
    };
    let fits = |t: &Taint, w: &(&str, &str)| t.key == w.0 && t.effect == w.1;
    let mut taints: Vec<Taint> =
        present.iter().filter(|t| !is_ours(t) || wanted.iter().any(|w| fits(t, w))).cloned().collect();
    for want in &wanted {
        if !taints.iter().any(|t| fits(t, want)) {
            taints.push(Taint {
                key: want.0.to_owned(),
                effect: want.1.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (taints != present).then_some(taints)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn node(ready: &str, extra: serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"}, "spec": extra,
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn silence_is_measured_by_our_clock() {
        let first = listen(None, (Some(at(5)), None), at(1000));
        let same = listen(Some(&first), (Some(at(5)), None), at(1040));
        assert_eq!(same.at, at(1000));
        assert!(!is_silent(&same, Duration::from_secs(50), at(1050)));
        assert!(is_silent(&same, Duration::from_secs(50), at(1051)));
        let alive = listen(Some(&same), (Some(at(6)), None), at(1052));
        assert!(!is_silent(&alive, Duration::from_secs(50), at(1100)));
    }

    #[test]
    fn silent_nodes_are_unknown() {
        let conditions = unknown_conditions(&node("True", json!({})), at(9)).unwrap();
        let reasons: Vec<_> = conditions.iter().map(|c| c.reason.clone().unwrap()).collect();
        assert_eq!(reasons[0], "NodeStatusUnknown");
        assert_eq!(reasons[1..], ["NodeStatusNeverUpdated"; 3]);
        let mut silent = node("True", json!({}));
        silent.status.as_mut().unwrap().conditions = Some(conditions);
        assert_eq!(unknown_conditions(&silent, at(10)), None);
    }

    #[test]
    fn taints_follow_conditions() {
        let user = json!({"key": "mine", "effect": "NoExecute"});
        let gone = json!({"key": UNREACHABLE, "effect": "NoExecute"});
        for (ready, spec, expected) in [
            ("True", json!({}), None),
            ("True", json!({"taints": [user, gone]}), Some(vec!["mine:NoExecute"])),
            ("True", json!({"unschedulable": true}), Some(vec!["node.kubernetes.io/unschedulable:NoSchedule"])),
            (
                "Unknown",
                json!({"taints": [user, gone]}),
                Some(vec![
                    "mine:NoExecute",
                    "node.kubernetes.io/unreachable:NoExecute",
                    "node.kubernetes.io/unreachable:NoSchedule",
                ]),
            ),
            (
                "False",
                json!({}),
                Some(vec!["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"]),
            ),
        ] {
            let taints = taints(&node(ready, spec.clone()), at(0));
            let view = taints.map(|all| all.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect::<Vec<_>>());
            assert_eq!(view, expected.map(|e| e.into_iter().map(str::to_owned).collect()), "{ready} {spec}");
        }
    }
}
