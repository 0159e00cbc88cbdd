//! Whether a node suits a pod: selector, required affinity, taints.

use k8s_openapi::api::core::v1::{Node, PodSpec, Toleration};
use pintle_api::nodes::{covers, selected};

use crate::meta;

/// True if node selector and required node affinity accept the node.
pub fn affinity(spec: &PodSpec, node: &Node) -> bool {
    selected(spec, meta::name(&node.metadata), meta::labels(&node.metadata))
}

/// True if every taint with one of the effects is tolerated.
pub fn tolerates_all(tolerations: &[Toleration], node: &Node, effects: &[&str]) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    let relevant = taints.into_iter().flatten().filter(|t| effects.contains(&t.effect.as_str()));
    relevant.into_iter().all(|taint| tolerations.iter().any(|t| covers(t, taint)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_are_compared_as_the_scheduler_does() {
        let taint = json!({"key": "k", "value": "5", "effect": "NoExecute"});
        let node: Node = serde_json::from_value(json!({"metadata": {}, "spec": {"taints": [taint]}})).unwrap();
        for (operator, value, wanted) in [("Gt", "4", true), ("Lt", "4", false), ("Equal", "5", true)] {
            let toleration = json!({"key": "k", "operator": operator, "value": value});
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates_all(&[toleration], &node, &["NoExecute"]), wanted, "{operator} {value}");
        }
    }
}
