//! Whether the node takes a pod that was bound to it. Pure.

mod ports;
mod sysctls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pintle_api::nodes;

use crate::container::resources::pod_sum;
use crate::pods::spec;
use crate::quantity;

/// Resources that every node has, in the order in which upstream looks at them. Others count only if the node has them.
const ORDINARY: [&str; 4] = ["pods", "cpu", "memory", "ephemeral-storage"];
/// The label of the operating system.
const OS_LABEL: &str = "kubernetes.io/os";
const OS: &str = "linux";

/// What the decision depends on besides the pod.
pub struct Node<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The node's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The node's taints.
    pub taints: &'a [Taint],
    /// What pods may use, by resource; CPU in thousandths.
    pub allocatable: &'a BTreeMap<String, i64>,
    /// Pods that were admitted and have not ended.
    pub active: &'a [Arc<Pod>],
}

/// The node's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Reason in one word.
    pub reason: String,
    /// Upstream's words.
    pub message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }

    /// Upstream's name and words of a failed predicate.
    fn predicate(name: &str, description: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {description}"))
    }
}

/// A resource that the node is short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub name: String,
    /// What the pod asks for.
    pub requested: i64,
    /// What the others have.
    pub used: i64,
    /// What there is.
    pub capacity: i64,
}

/// The first reason not to take the pod.
pub fn reject(pod: &Pod, node: &Node<'_>) -> Option<Rejection> {
    if let Some(refusal) = wrong_os(pod, node) {
        return Some(refusal);
    }
    if let Some(message) = sysctls::forbidden(pod) {
        return Some(Rejection::new("SysctlForbidden", message));
    }
    if let Some(Shortage { name, requested, used, capacity }) = shortage(pod, node) {
        let figures = format!("requested: {requested}, used: {used}, capacity: {capacity}");
        let message = format!("Node didn't have enough resource: {name}, {figures}");
        return Some(Rejection::new(&format!("OutOf{name}"), message));
    }
    if !nodes::selected(spec::spec(pod), node.name, node.labels) {
        return Some(Rejection::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if node.active.iter().any(|other| ports::conflict(pod, other)) {
        let text = "node(s) didn't have free ports for the requested pod ports";
        return Some(Rejection::predicate("NodePorts", text));
    }
    if node.taints.iter().any(|t| t.effect == "NoExecute" && !tolerated(pod, t)) {
        return Some(Rejection::predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    None
}

fn wrong_os(pod: &Pod, node: &Node<'_>) -> Option<Rejection> {
    let s = spec::spec(pod);
    let own = node.labels.get(OS_LABEL).map_or(OS, String::as_str);
    if s.node_selector.as_ref().and_then(|l| l.get(OS_LABEL)).is_some_and(|wanted| wanted != own) {
        let text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", text));
    }
    let wrong = s.os.as_ref().is_some_and(|os| os.name != OS);
    let text = "Failed to admit pod as the OS field doesn't match node OS";
    wrong.then(|| Rejection::new("PodOSNotSupported", text))
}

/// The first resource that the pod asks for and the node has not enough of.
pub fn shortage(pod: &Pod, node: &Node<'_>) -> Option<Shortage> {
    let others: BTreeSet<String> = requested(pod).into_iter().filter(|n| !ORDINARY.contains(&n.as_str())).collect();
    for name in ORDINARY.iter().map(|n| (*n).to_owned()).chain(others) {
        // What the node does not know is nothing that this node gives out.
        let Some(capacity) = node.allocatable.get(&name).copied() else { continue };
        let wanted = request(pod, &name);
        let used = node.active.iter().map(|p| request(p, &name)).sum::<i64>();
        if wanted > 0 && used + wanted > capacity {
            return Some(Shortage { name, requested: wanted, used, capacity });
        }
    }
    None
}

/// Names of all resources that the pod asks for.
fn requested(pod: &Pod) -> BTreeSet<String> {
    let s = spec::spec(pod);
    let containers = spec::init_containers(pod).iter().chain(&s.containers).map(|c| c.resources.as_ref());
    let all = containers.chain([s.resources.as_ref()]).flatten().filter_map(|r| r.requests.as_ref());
    all.flat_map(|map| map.keys().cloned()).collect()
}

/// The pod's request: CPU in thousandths, everything else in whole units.
pub fn request(pod: &Pod, name: &str) -> i64 {
    if name == "pods" {
        return 1;
    }
    let read: fn(&Quantity) -> i64 = if name == "cpu" { quantity::milli } else { quantity::value };
    let of = |r: Option<&ResourceRequirements>| r.and_then(|r| r.requests.as_ref()?.get(name)).map(read);
    let s = spec::spec(pod);
    let overhead = s.overhead.as_ref().and_then(|o| o.get(name)).map_or(0, read);
    of(s.resources.as_ref())
        .unwrap_or_else(|| pod_sum(pod, |c: &Container| of(c.resources.as_ref()).unwrap_or(0), overhead))
}

fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    spec::spec(pod).tolerations.iter().flatten().any(|toleration| nodes::covers(toleration, taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn uses(resource: &str, amount: &str) -> serde_json::Value {
        json!({"containers": [{"name": "a", "resources": {"requests": {resource: amount}}}]})
    }

    #[test]
    fn rejections() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let mut other = pod(uses("cpu", "1500m"));
        other.spec.as_mut().unwrap().containers[0].ports =
            serde_json::from_value(json!([{"containerPort": 1, "hostPort": 80}])).unwrap();
        let active = [Arc::new(other)];
        let taints: Vec<Taint> =
            serde_json::from_value(json!([{"key": "t", "value": "v", "effect": "NoExecute"}])).unwrap();
        let sizes = [("pods", 2), ("cpu", 2000), ("memory", 100), ("example.com/gpu", 1)];
        let allocatable = sizes.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        let node = Node { name: "n", labels: &labels, taints: &[], allocatable: &allocatable, active: &active };
        let term = |operator: &str| {
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]}]}}}})
        };
        let port = json!({"containers": [{"name": "a", "ports": [{"containerPort": 2, "hostPort": 80}]}]});
        let cases = [
            (uses("cpu", "500m"), None),
            (uses("cpu", "600m"), Some("OutOfcpu")),
            (uses("example.com/gpu", "2"), Some("OutOfexample.com/gpu")),
            (uses("example.com/unknown", "2"), None),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), Some("NodeAffinity")),
            (json!({"containers": [], "nodeSelector": {"zone": "a"}}), None),
            (
                json!({"containers": [], "nodeSelector": {"kubernetes.io/os": "windows"}}),
                Some("PodOSSelectorNodeLabelDoesNotMatch"),
            ),
            (json!({"containers": [], "os": {"name": "windows"}}), Some("PodOSNotSupported")),
            (
                json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
                Some("SysctlForbidden"),
            ),
            (term("In"), None),
            (term("NotIn"), Some("NodeAffinity")),
            (port, Some("NodePorts")),
        ];
        for (spec, want) in cases {
            let got = reject(&pod(spec.clone()), &node).map(|r| r.reason);
            assert_eq!(got.as_deref(), want, "{spec}");
        }
        let tainted = Node { taints: &taints, active: &[], ..node };
        let plain = json!({"containers": []});
        assert_eq!(reject(&pod(plain), &tainted).unwrap().reason, "TaintToleration");
        let number = Taint { value: Some("5".into()), ..taints[0].clone() };
        let numbered = Node { taints: &[number], ..tainted };
        let above =
            |bound: &str| json!({"containers": [], "tolerations": [{"key": "t", "operator": "Gt", "value": bound}]});
        assert_eq!(reject(&pod(above("4")), &numbered), None);
        assert!(reject(&pod(above("5")), &numbered).is_some());
        for toleration in [json!({"operator": "Exists"}), json!({"key": "t", "operator": "Equal", "value": "v"})] {
            assert_eq!(reject(&pod(json!({"containers": [], "tolerations": [toleration]})), &tainted), None);
        }
    }

    #[test]
    fn words_are_upstreams() {
        let active = [Arc::new(pod(json!({"containers": []})))];
        let allocatable = BTreeMap::from([("pods".to_owned(), 1)]);
        let none = BTreeMap::new();
        let node = Node { name: "n", labels: &none, taints: &[], allocatable: &allocatable, active: &active };
        assert_eq!(
            reject(&pod(json!({"containers": []})), &node).unwrap().message,
            "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
        );
        let elsewhere = Node { active: &[], ..node };
        assert_eq!(
            reject(&pod(json!({"containers": [], "nodeSelector": {"a": "b"}})), &elsewhere).unwrap().message,
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        );
    }
}
