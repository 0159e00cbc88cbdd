//! Which nodes a pod may be on, and which nodes a volume can be reached from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// True if the toleration is about the taint.
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (key, effect, own, theirs) =
        (text(&toleration.key), text(&toleration.effect), text(&toleration.value), text(&taint.value));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    let numbers = || Some((theirs.parse::<i64>().ok()?, own.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => own == theirs,
        "Exists" => true,
        "Gt" => numbers().is_some_and(|(taint, bound)| taint > bound),
        "Lt" => numbers().is_some_and(|(taint, bound)| taint < bound),
        _ => false,
    }
}

/// True if node selector and required node affinity accept a node of that name with those labels.
pub fn selected(spec: &PodSpec, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|required| matches(&required.node_selector_terms, name, labels))
}

/// True if one of the terms accepts a node of that name with those labels.
pub fn matches(terms: &[NodeSelectorTerm], name: &str, labels: &BTreeMap<String, String>) -> bool {
    let field = |r: &NodeSelectorRequirement| meets(r, (r.key == "metadata.name").then_some(name));
    terms.iter().any(|term| {
        let by_label = term.match_expressions.as_deref().unwrap_or_default();
        let by_field = term.match_fields.as_deref().unwrap_or_default();
        !(by_label.is_empty() && by_field.is_empty())
            && by_label.iter().all(|r| meets(r, labels.get(&r.key).map(String::as_str)))
            && by_field.iter().all(field)
    })
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    matches_value(&requirement.operator, requirement.values.as_deref().unwrap_or_default(), value)
}

/// True if a label with this value, or without one, is as the operator and its values want it.
pub(crate) fn matches_value(operator: &str, values: &[String], value: Option<&str>) -> bool {
    let among = |value: &str| values.iter().any(|wanted| wanted == value);
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match operator {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(a, b)| a > b),
        "Lt" => numbers().is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tolerations() {
        let taint = Taint { key: "k".into(), value: Some("5".into()), effect: "NoSchedule".into(), time_added: None };
        for (toleration, want) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "5"}), true),
            (json!({"key": "k", "value": "6"}), false),
            (json!({"key": "k", "value": "5", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Gt", "value": "4"}), true),
            (json!({"key": "k", "operator": "Gt", "value": "5"}), false),
            (json!({"key": "k", "operator": "Lt", "value": "6"}), true),
            (json!({"key": "k", "operator": "Lt", "value": "4"}), false),
            (json!({"key": "k", "operator": "Lt", "value": "x"}), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(covers(&parsed, &taint), want, "{toleration}");
        }
    }

    fn required(term: Value) -> PodSpec {
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
        serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity": terms}})).expect("a spec")
    }

    #[test]
    fn affinities() {
        let labels = BTreeMap::from([("a".to_owned(), "5".to_owned())]);
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
            let spec = required(json!({kind: [{"key": key, "operator": operator, "values": values}]}));
            assert_eq!(selected(&spec, "n", &labels), expected, "{key} {operator} {values:?}");
        }
        assert!(!selected(&required(json!({})), "n", &labels), "an empty term accepts nothing");
        let spec = PodSpec { node_selector: Some([("a".into(), "6".into())].into()), ..PodSpec::default() };
        assert!(!selected(&spec, "n", &labels));
    }
}
