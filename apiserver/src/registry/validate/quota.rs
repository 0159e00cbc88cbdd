//! Errors of ResourceQuotas.

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::IMMUTABLE;
use super::resources::Name;
use crate::registry::Context;
use crate::registry::value::{at, entries, items, text};

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
/// Scopes that exclude each other.
const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
/// Amounts of pods that a scope may be applied to.
const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                           ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                           ResourceQuotaScopeCrossNamespacePodAffinity";

/// ResourceQuota.
pub fn quota(_context: &Context<'_>, quota: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(&mut errors, at(quota, "spec"));
    amounts(&mut errors, at(quota, "status"), "hard", &Path::new("status"));
    amounts(&mut errors, at(quota, "status"), "used", &Path::new("status"));
    errors
}

/// An update of a ResourceQuota: its scopes stay.
pub fn quota_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_none() {
        spec(&mut errors, at(new, "spec"));
        let scopes = |quota: &Value| {
            let mut scopes = items(quota, "spec.scopes").to_vec();
            scopes.sort_by_key(|scope| scope.as_str().map(str::to_owned));
            scopes.dedup();
            scopes
        };
        if scopes(new) != scopes(old) {
            errors.invalid(&Path::new("spec").child("scopes"), at(new, "spec.scopes").clone(), IMMUTABLE);
        }
    }
    for list in ["hard", "used"] {
        amounts(&mut errors, at(new, "status"), list, &Path::new("status"));
    }
    errors
}

fn amounts(errors: &mut ErrorList, holder: &Value, list: &str, path: &Path) {
    for (name, amount) in entries(holder, list) {
        let path = path.child(list).key(name);
        Name(name).check_quota(errors, &path);
        Name(name).check_amount(errors, &path, amount);
    }
}

fn spec(errors: &mut ErrorList, spec: &Value) {
    let path = Path::new("spec");
    amounts(errors, spec, "hard", &path);
    scopes(errors, spec, &path.child("scopes"));
    selector(errors, spec, &path.child("scopeSelector").child("matchExpressions"));
}

/// Scopes are about the resources that the server itself knows.
fn suits(scope: &str, resource: &str) -> bool {
    match scope {
        _ if !Name(resource).is_quota_standard() => true,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => resource == "pods" || COMPUTE.contains(&resource),
    }
}

fn conflicting(given: &[&str]) -> bool {
    CONFLICTS.iter().any(|pair| pair.iter().all(|scope| given.contains(scope)))
}

fn scopes(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let given: Vec<&str> = items(spec, "scopes").iter().filter_map(Value::as_str).collect();
    let shown = at(spec, "scopes").clone();
    for scope in &given {
        if !SCOPES.contains(scope) {
            errors.invalid(path, shown.clone(), "unsupported scope");
        }
        for _ in entries(spec, "hard").filter(|(name, _)| SCOPES.contains(scope) && !suits(scope, name)) {
            errors.invalid(path, shown.clone(), "unsupported scope applied to resource");
        }
    }
    if conflicting(&given) {
        errors.invalid(path, shown, "conflicting scopes");
    }
}

fn selector(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let expressions = items(spec, "scopeSelector.matchExpressions");
    for expression in expressions {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in entries(spec, "hard").filter(|(name, _)| SCOPES.contains(&scope) && !suits(scope, name)) {
            errors.invalid(path, at(spec, "scopeSelector").clone(), "unsupported scope applied to resource");
        }
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            errors.invalid(&path.child("operator"), operator, EXISTS_ONLY);
        }
        let values = items(expression, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.child("values"), at(expression, "values").clone(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
    }
    let given: Vec<&str> = expressions.iter().map(|expression| text(expression, "scopeName")).collect();
    if conflicting(&given) {
        errors.invalid(path, at(spec, "scopeSelector").clone(), "conflicting scopes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults() {
        let cases = [
            (json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]}), ""),
            (
                json!({"hard": {"cpu": "5"}, "scopes": ["BestEffort"]}),
                "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
            ),
            (
                json!({"scopes": ["Terminating", "NotTerminating"]}),
                "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
            ),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is \
                 'In' or 'NotIn' for scope selector",
            ),
        ];
        for (given, expected) in cases {
            let mut errors = ErrorList::new();
            spec(&mut errors, &given);
            assert_eq!(errors.to_string(), expected, "{given}");
        }
    }
}
