//! Whether a node suits a pod: selector, required affinity, taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

use crate::meta;

/// True if node selector and required node affinity accept the node.
pub fn affinity(spec: &PodSpec, node: &Node) -> bool {
    let labels = meta::labels(&node.metadata);
    let selected = spec.node_selector.iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|r| r.node_selector_terms.iter().any(|t| term(t, node)))
}

fn term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    if labels.clone().count() + fields.clone().count() == 0 {
        return false;
    }
    let own = BTreeMap::from([("metadata.name".to_owned(), meta::name(&node.metadata).to_owned())]);
    labels.into_iter().all(|r| requirement(r, meta::labels(&node.metadata)))
        && fields.into_iter().all(|r| requirement(r, &own))
}

fn requirement(wanted: &NodeSelectorRequirement, has: &BTreeMap<String, String>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let value = has.get(&wanted.key);
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(|v| values.contains(v)),
        "NotIn" => value.is_none_or(|v| !values.contains(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(a, b)| a > b),
        "Lt" => numbers().is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

/// True if the toleration is about the taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let empty = |s: &Option<String>| s.as_deref().unwrap_or_default().is_empty();
    if !empty(&toleration.effect) && toleration.effect.as_deref() != Some(taint.effect.as_str()) {
        return false;
    }
    if !empty(&toleration.key) && toleration.key.as_deref() != Some(taint.key.as_str()) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" | "" => {
            !empty(&toleration.key)
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// True if every taint with one of the effects is tolerated.
pub fn tolerates_all(tolerations: &[Toleration], node: &Node, effects: &[&str]) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    let relevant = taints.into_iter().flatten().filter(|t| effects.contains(&t.effect.as_str()));
    relevant.into_iter().all(|taint| tolerations.iter().any(|t| tolerates(t, taint)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn affinities() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"a": "5"}}})).unwrap();
        let by = |kind: &str, key: &str, operator: &str, values: &[&str]| -> bool {
            let spec: PodSpec = serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {kind: [{"key": key, "operator": operator, "values": values}]},
                ]},
            }}}))
            .unwrap();
            affinity(&spec, &node)
        };
        for (kind, key, operator, values, expected) in [
            ("matchExpressions", "a", "In", vec!["4", "5"], true),
            ("matchExpressions", "a", "NotIn", vec!["5"], false),
            ("matchExpressions", "b", "NotIn", vec!["5"], true),
            ("matchExpressions", "a", "Gt", vec!["4"], true),
            ("matchExpressions", "a", "Lt", vec!["4"], false),
            ("matchExpressions", "b", "Exists", vec![], false),
            ("matchFields", "metadata.name", "In", vec!["n"], true),
            ("matchFields", "metadata.name", "In", vec!["m"], false),
        ] {
            assert_eq!(by(kind, key, operator, &values), expected, "{key} {operator} {values:?}");
        }
    }
}
