//! Whether the node takes a pod that was bound to it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::container::field::Allocatable;
use crate::container::resources::pod_sum;
use crate::pods::spec;
use crate::quantity;

/// What the decision depends on besides the pod.
pub struct Node<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The node's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// What pods may use.
    pub allocatable: Allocatable,
    /// Most pods.
    pub max_pods: u32,
    /// Pods that were admitted and have not ended.
    pub active: &'a [Arc<Pod>],
}

/// Reason and message of the rejection, if the pod is rejected.
pub fn reject(pod: &Pod, node: &Node<'_>) -> Option<(String, String)> {
    if !selected(pod, node) {
        let message =
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Some(("NodeAffinity".to_owned(), message.to_owned()));
    }
    let capacity =
        [("pods", i64::from(node.max_pods)), ("cpu", node.allocatable.cpu_milli), ("memory", node.allocatable.memory)];
    for (name, capacity) in capacity {
        let of = |pod: &Pod| if name == "pods" { 1 } else { request(pod, name) };
        let (requested, used) = (of(pod), node.active.iter().map(|p| of(p)).sum::<i64>());
        if requested > 0 && used + requested > capacity {
            let message = format!(
                "Pod was rejected: Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            return Some((format!("OutOf{name}"), message));
        }
    }
    None
}

/// The pod's request: CPU in thousandths, memory in bytes.
fn request(pod: &Pod, name: &str) -> i64 {
    let read: fn(&Quantity) -> i64 = if name == "cpu" { quantity::milli } else { quantity::value };
    let of = |r: Option<&ResourceRequirements>| r.and_then(|r| r.requests.as_ref()?.get(name)).map(read);
    let s = spec::spec(pod);
    let overhead = s.overhead.as_ref().and_then(|o| o.get(name)).map_or(0, read);
    of(s.resources.as_ref())
        .unwrap_or_else(|| pod_sum(pod, |c: &Container| of(c.resources.as_ref()).unwrap_or(0), overhead))
}

fn selected(pod: &Pod, node: &Node<'_>) -> bool {
    let s = spec::spec(pod);
    let wanted = s.node_selector.iter().flatten();
    if !wanted.into_iter().all(|(k, v)| node.labels.get(k) == Some(v)) {
        return false;
    }
    let required = s.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    match required.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()) {
        Some(selector) => selector.node_selector_terms.iter().any(|term| matches(term, node)),
        None => true,
    }
}

fn matches(term: &NodeSelectorTerm, node: &Node<'_>) -> bool {
    let by_label = term.match_expressions.as_deref().unwrap_or_default();
    let by_field = term.match_fields.as_deref().unwrap_or_default();
    let name = node.name.to_owned();
    let field = |r: &NodeSelectorRequirement| meets(r, (r.key == "metadata.name").then_some(&name));
    !(by_label.is_empty() && by_field.is_empty())
        && by_label.iter().all(|r| meets(r, node.labels.get(&r.key)))
        && by_field.iter().all(field)
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|v| values.contains(v)),
        "NotIn" => value.is_none_or(|v| !values.contains(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(a, b)| a > b),
        "Lt" => numbers().is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejections() {
        let pod = |spec| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let uses = |cpu: &str| json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]});
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let active = [Arc::new(pod(uses("1500m")))];
        let node = Node {
            name: "n",
            labels: &labels,
            allocatable: Allocatable { cpu_milli: 2000, memory: 100, ephemeral_storage: 0 },
            max_pods: 2,
            active: &active,
        };
        let term = |operator: &str| {
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]}]}}}})
        };
        let cases = [
            (uses("500m"), None),
            (uses("600m"), Some("OutOfcpu")),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), Some("NodeAffinity")),
            (json!({"containers": [], "nodeSelector": {"zone": "a"}}), None),
            (term("In"), None),
            (term("NotIn"), Some("NodeAffinity")),
        ];
        for (spec, want) in cases {
            let got = reject(&pod(spec.clone()), &node).map(|(reason, _)| reason);
            assert_eq!(got.as_deref(), want, "{spec}");
        }
        let full = Node { max_pods: 1, ..node };
        assert_eq!(
            reject(&pod(json!({"containers": []})), &full).unwrap().1,
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
        );
    }
}
