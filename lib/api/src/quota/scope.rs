//! Scopes: which objects a quota is about.

use serde_json::{Value, json};

/// The quota's scopes in the form of selector requirements; a plain scope is one that must exist.
pub fn requirements(spec: &Value) -> Vec<Value> {
    let plain = spec["scopes"].as_array().into_iter().flatten();
    let plain = plain.map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().cloned();
    plain.chain(selected).collect()
}

/// True if a pod is in a scope.
pub fn pod_in(requirement: &Value, pod: &Value) -> bool {
    match requirement["scopeName"].as_str().unwrap_or_default() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
            // Nothing more is asked of a plain scope than to be there.
            selects(requirement, &[class].into_iter().filter(|class| !class.is_empty()).collect::<Vec<_>>())
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

/// True if a claim is in a scope.
pub fn claim_in(requirement: &Value, claim: &Value) -> bool {
    if requirement["scopeName"] != "VolumeAttributesClass" {
        return false;
    }
    let named = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let named: Vec<&str> = named.iter().filter_map(|name| name.as_str()).filter(|name| !name.is_empty()).collect();
    selects(requirement, &named)
}

fn selects(requirement: &Value, named: &[&str]) -> bool {
    let values = requirement["values"].as_array();
    let listed = |name: &&str| values.into_iter().flatten().any(|value| value == name);
    match requirement["operator"].as_str().unwrap_or_default() {
        "Exists" => !named.is_empty(),
        "DoesNotExist" => named.is_empty(),
        "In" => named.iter().any(listed),
        "NotIn" => !named.iter().any(listed),
        _ => false,
    }
}

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    super::qos::class(pod) == "BestEffort"
}

fn crosses_namespaces(pod: &Value) -> bool {
    let other = |term: &Value| {
        !term["namespaceSelector"].is_null() || term["namespaces"].as_array().is_some_and(|list| !list.is_empty())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &pod["spec"]["affinity"][*kind];
        let list = |field: &str| affinity[field].as_array().cloned().unwrap_or_default();
        list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(other)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|term| other(&term["podAffinityTerm"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str) -> Value {
        json!({"scopeName": name, "operator": "Exists"})
    }

    #[test]
    fn pods_are_in_scopes() {
        let limited = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]});
        let affine = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"namespaces": ["other"]}]}}});
        let cases = [
            (json!({"activeDeadlineSeconds": 5}), "Terminating", true),
            (json!({}), "Terminating", false),
            (json!({}), "NotTerminating", true),
            (json!({}), "BestEffort", true),
            (limited.clone(), "BestEffort", false),
            (limited, "NotBestEffort", true),
            (json!({"priorityClassName": "a"}), "PriorityClass", true),
            (json!({}), "PriorityClass", false),
            (affine, "CrossNamespacePodAffinity", true),
            (json!({"affinity": {"podAffinity": {}}}), "CrossNamespacePodAffinity", false),
            (json!({}), "VolumeAttributesClass", false),
        ];
        for (spec, name, expected) in cases {
            assert_eq!(pod_in(&scope(name), &json!({"spec": spec})), expected, "{name} {spec}");
        }
    }

    #[test]
    fn selectors_look_at_values() {
        let pod = json!({"spec": {"priorityClassName": "high"}});
        for (operator, values, expected) in [
            ("In", json!(["high", "low"]), true),
            ("In", json!(["low"]), false),
            ("NotIn", json!(["low"]), true),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
        ] {
            let requirement = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            assert_eq!(pod_in(&requirement, &pod), expected, "{operator}");
        }
        let claim =
            json!({"spec": {"volumeAttributesClassName": "a"}, "status": {"currentVolumeAttributesClassName": "b"}});
        let requirement = json!({"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["b"]});
        assert!(claim_in(&requirement, &claim));
    }

    #[test]
    fn both_forms_count() {
        let spec = json!({"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [scope("Terminating")]}});
        assert_eq!(requirements(&spec), [scope("BestEffort"), scope("Terminating")]);
    }
}
