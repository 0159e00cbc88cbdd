//! Errors of what a pod says about the nodes that it may run on.

use std::collections::{HashMap, HashSet};

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::volumes::{node_term, node_terms};
use super::{label_selector, one_of};
use crate::registry::value::{at, has, int, items, number, text};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Tolerations, wherever they are.
pub fn tolerations_at(errors: &mut ErrorList, tolerations: &[Value], path: &Path) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            errors.invalid_each(&path.child("key"), key, names::label_key(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), operator, detail);
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, detail);
        }
        let value = text(toleration, "value");
        match operator {
            "" | "Equal" => errors.invalid_each(&path.child("operator"), value, names::label_value(value)),
            "Exists" if !value.is_empty() => {
                errors.invalid(&path.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            // Known, but behind a gate.
            "Gt" | "Lt" => {
                errors.not_supported(&path.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            one_of(errors, &path.child("effect"), effect, &known);
        }
    }
}

/// Tolerations that a list has twice.
pub fn duplicate_tolerations(errors: &mut ErrorList, tolerations: &[Value], path: &Path) {
    let mut seen = HashSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(toleration.to_string()) {
            let part = |field| Value::String(text(toleration, field).to_owned());
            let shown = format!(
                "{{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{}}}",
                part("key"),
                part("operator"),
                part("value"),
                part("effect"),
                at(toleration, "tolerationSeconds")
            );
            let error = FieldError::new(Fault::Duplicate, &path.index(index), Value::Null, "");
            errors.push(error.shown_as(shown));
        }
    }
}

/// Affinity to nodes and to other pods.
pub fn affinity(errors: &mut ErrorList, affinity: &Value, path: &Path) {
    let (node, of_node) = (at(affinity, "nodeAffinity"), path.child("nodeAffinity"));
    if has(node, REQUIRED) {
        node_terms(errors, at(node, REQUIRED), &of_node.child(REQUIRED));
    }
    for (index, preferred) in items(node, PREFERRED).iter().enumerate() {
        let path = of_node.child(PREFERRED).index(index);
        weight(errors, preferred, &path);
        node_term(errors, at(preferred, "preference"), &path.child("preference"));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pods, path) = (at(affinity, kind), path.child(kind));
        for (index, term) in items(pods, REQUIRED).iter().enumerate() {
            pod_term(errors, term, &path.child(REQUIRED).index(index));
        }
        for (index, preferred) in items(pods, PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(index);
            weight(errors, preferred, &path);
            pod_term(errors, at(preferred, "podAffinityTerm"), &path.child("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut ErrorList, preferred: &Value, path: &Path) {
    let weight = int(preferred, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn pod_term(errors: &mut ErrorList, term: &Value, path: &Path) {
    label_selector(errors, &path.child("labelSelector"), at(term, "labelSelector"));
    label_selector(errors, &path.child("namespaceSelector"), at(term, "namespaceSelector"));
    for namespace in items(term, "namespaces").iter().map(|namespace| namespace.as_str().unwrap_or_default()) {
        errors.invalid_each(&path.child("namespace"), namespace, names::dns1123_label(namespace));
    }
    let (wanted, unwanted) = (items(term, "matchLabelKeys"), items(term, "mismatchLabelKeys"));
    for (index, key) in wanted.iter().enumerate().filter(|(_, key)| unwanted.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(&path.child("matchLabelKeys").index(index), key.clone(), detail);
    }
    for (field, keys) in [("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)] {
        if !keys.is_empty() && !has(term, "labelSelector") {
            errors.forbidden(&path.child(field), "must not be specified when labelSelector is not set");
        }
        for (index, key) in keys.iter().enumerate() {
            let key = key.as_str().unwrap_or_default();
            errors.invalid_each(&path.child(field).index(index), key, names::label_key(key));
        }
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    errors.invalid_each(&path.child("topologyKey"), key, names::label_key(key));
}

/// How pods spread over the nodes.
pub fn spread(errors: &mut ErrorList, constraints: &[Value], path: &Path) {
    let pair = |constraint: &'_ Value| {
        (text(constraint, "topologyKey").to_owned(), text(constraint, "whenUnsatisfiable").to_owned())
    };
    let mut left: HashMap<(String, String), usize> = HashMap::new();
    constraints.iter().for_each(|constraint| *left.entry(pair(constraint)).or_default() += 1);
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = int(constraint, "maxSkew");
        if skew <= 0 {
            errors.invalid(&path.child("maxSkew"), skew, "must be greater than zero");
        }
        let (key, otherwise) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        } else {
            errors.invalid_each(&path.child("topologyKey"), key, names::label_key(key));
        }
        one_of(errors, &path.child("whenUnsatisfiable"), otherwise, &["DoNotSchedule", "ScheduleAnyway"]);
        // Upstream names a pair where it stands, for each that follows.
        let later = left.entry(pair(constraint)).or_default();
        *later = later.saturating_sub(1);
        if *later > 0 {
            let place = path.child("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&place, format!("{{{key}, {otherwise}}}"));
        }
        if let Some(domains) = number(constraint, "minDomains") {
            let path = path.child("minDomains");
            if domains <= 0 {
                errors.invalid(&path, domains, "must be greater than zero");
            }
            if otherwise != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {otherwise}");
                errors.invalid(&path, domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"].into_iter().filter(|field| has(constraint, field)) {
            one_of(errors, &path.child(field), text(constraint, field), &["Honor", "Ignore"]);
        }
        let keys = items(constraint, "matchLabelKeys");
        if !keys.is_empty() && !has(constraint, "labelSelector") {
            errors.forbidden(&path.child("matchLabelKeys"), "must not be specified when labelSelector is not set");
        } else {
            for (index, key) in keys.iter().enumerate() {
                let key = key.as_str().unwrap_or_default();
                errors.invalid_each(&path.child("matchLabelKeys").index(index), key, names::label_key(key));
            }
        }
        label_selector(errors, &path.child("labelSelector"), at(constraint, "labelSelector"));
    }
}

/// What a pod waits for before it may be scheduled.
pub fn gates(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let gates = items(spec, "schedulingGates");
    let mut known = HashSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.child("schedulingGates").index(index);
        let name = text(gate, "name");
        errors.invalid_each(&path, name, names::qualified(name));
        if !known.insert(name) {
            errors.duplicate(&path, name);
        }
    }
}

/// The nodes of a pod that waits may be narrowed down, not widened.
pub fn narrowed(errors: &mut ErrorList, new: &Value, old: &Value, path: &Path) {
    let before = at(old, "spec.nodeSelector").as_object();
    let kept = |(key, value): (&String, &Value)| at(new, "spec.nodeSelector").get(key) == Some(value);
    if !before.into_iter().flatten().all(kept) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.child("nodeSelector"), at(new, "spec.nodeSelector").clone(), detail);
    }
    let terms =
        |pod| items(at(pod, "spec.affinity.nodeAffinity").get(REQUIRED).unwrap_or(&Value::Null), "nodeSelectorTerms");
    let (terms, before) = (terms(new), terms(old));
    let path = path.child("affinity").child("nodeAffinity").child(REQUIRED).child("nodeSelectorTerms");
    if !before.is_empty() && terms.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = if terms.is_empty() { Value::Null } else { terms.to_vec().into() };
        return errors.invalid(&path, shown, detail);
    }
    for (index, (term, before)) in terms.iter().zip(before).enumerate() {
        let starts = |list| items(term, list).starts_with(items(before, list));
        if !starts("matchExpressions") || !starts("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(index), term.clone(), detail);
        }
    }
}

/// A pod's spec without what says which nodes are good for it.
pub fn without_nodes(spec: &mut Value) {
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec["affinity"] = Value::Null;
        }
    }
    if spec["affinity"].is_null() {
        crate::registry::value::remove(spec, "affinity");
    }
}

/// What waits has no node.
pub fn gated_node(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if !items(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spreading() {
        let constraint = |otherwise: &str| json!({"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": otherwise});
        let mut errors = ErrorList::new();
        spread(&mut errors, &[constraint("DoNotSchedule"), constraint("ScheduleAnyway")], &Path::new("s"));
        assert_eq!(errors.to_string(), "");
        spread(&mut errors, &[constraint("DoNotSchedule"), constraint("DoNotSchedule")], &Path::new("s"));
        assert_eq!(
            errors.to_string(),
            "s[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{a, DoNotSchedule}\""
        );
    }

    #[test]
    fn weights() {
        let mut errors = ErrorList::new();
        let given = json!({"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}});
        affinity(&mut errors, &given, &Path::new("a"));
        assert_eq!(
            errors.to_string(),
            format!("a.nodeAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100")
        );
    }
}
