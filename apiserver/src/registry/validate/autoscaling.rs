//! Errors of HorizontalPodAutoscalers (in the stored version, v2).

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{NOT_NEGATIVE, one_of};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, number, text};
use pintle_api::quota::amounts::quantity;

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// The same in the order in which they are looked for.
const LOOKED_AT: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
/// The longest window and the longest period of a policy, in seconds.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

/// HorizontalPodAutoscaler.
pub fn autoscaler(_context: &Context<'_>, autoscaler: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(autoscaler, "spec");
    let (min, max) = (number(spec, "minReplicas"), int(spec, "maxReplicas"));
    if min.is_some_and(|min| max < min) {
        errors.invalid(&path.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    reference(&mut errors, at(spec, "scaleTargetRef"), &path.child("scaleTargetRef"), true);
    metrics(&mut errors, spec, &path.child("metrics"));
    for direction in ["scaleUp", "scaleDown"] {
        let rules = at(spec, "behavior").get(direction).filter(|rules| !rules.is_null());
        if let Some(rules) = rules {
            scaling(&mut errors, rules, &path.child("behavior").child(direction));
        }
    }
    if let Some(min) = min.filter(|min| *min < 0) {
        errors.invalid(&path.child("minReplicas"), min, NOT_NEGATIVE);
    }
    match max {
        0 => errors.required(&path.child("maxReplicas"), ""),
        max if max < 0 => errors.invalid(&path.child("maxReplicas"), max, "must be greater than or equal to 1"),
        _ => {}
    }
    errors
}

/// An update of a HorizontalPodAutoscaler.
pub fn autoscaler_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_none() {
        return autoscaler(context, new);
    }
    let mut errors = ErrorList::new();
    super::not_negative(&mut errors, at(new, "status"), &Path::new("status"), &["currentReplicas", "desiredReplicas"]);
    errors
}

fn reference(errors: &mut ErrorList, reference: &Value, path: &Path, target: bool) {
    for field in ["kind", "name"] {
        match text(reference, field) {
            "" => errors.required(&path.child(field), ""),
            value => errors.invalid_each(&path.child(field), value, names::path_segment(value)),
        }
    }
    let version = text(reference, "apiVersion");
    let slashes = version.matches('/').count();
    if slashes > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.invalid(&path.child("apiVersion"), version, detail);
    } else if target && slashes == 0 && text(reference, "kind") != "ReplicationController" {
        errors.invalid(&path.child("apiVersion"), version, "apiVersion must specify API group");
    }
}

fn metrics(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let metrics = items(spec, "metrics");
    let mut outside = false;
    for (index, metric) in metrics.iter().enumerate() {
        outside |= matches!(text(metric, "type"), "Object" | "External");
        one_metric(errors, metric, &path.index(index));
    }
    if number(spec, "minReplicas") == Some(0) && !outside {
        errors
            .forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

fn one_metric(errors: &mut ErrorList, metric: &Value, path: &Path) {
    let ty = text(metric, "type");
    if ty.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    let own = SOURCES.iter().find(|(known, _)| *known == ty).map(|(_, own)| *own);
    if own.is_none() {
        errors.not_supported(&path.child("type"), ty, &SOURCES.map(|(known, _)| known));
    }
    // Only the first source is looked into, whatever the type says.
    let present: Vec<&str> = LOOKED_AT.into_iter().filter(|field| has(metric, field)).collect();
    if let Some(first) = present.first() {
        let (source, path) = (at(metric, first), path.child(first));
        match *first {
            "object" => object_source(errors, source, &path),
            "external" => external_source(errors, source, &path),
            "pods" => pods_source(errors, source, &path),
            field => resource_source(errors, source, &path, field == "containerResource"),
        }
    }
    if let Some(own) = own.filter(|own| !has(metric, own)) {
        errors.required(&path.child(own), "must populate information for the given metric source");
    }
    for other in present.iter().filter(|field| present.len() != 1 && Some(**field) != own) {
        errors.forbidden(&path.child(other), "must populate the given metric source only");
    }
}

fn identifier(errors: &mut ErrorList, source: &Value, path: &Path) {
    let path = path.child("metric").child("name");
    match text(source, "metric.name") {
        "" => errors.required(&path, "must specify a metric name"),
        name => errors.invalid_each(&path, name, names::path_segment(name)),
    }
}

fn target(errors: &mut ErrorList, target: &Value, path: &Path) {
    const TYPES: [&str; 3] = ["Utilization", "Value", "AverageValue"];
    let ty = text(target, "type");
    if ty.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !TYPES.contains(&ty) {
        errors.invalid(&path.child("type"), ty, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if let Some(amount) = quantity(at(target, field)).filter(|amount| amount.sign() <= 0) {
            errors.invalid(&path.child(field), amount.to_string(), "must be positive");
        }
    }
    if let Some(percent) = number(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn object_source(errors: &mut ErrorList, source: &Value, path: &Path) {
    reference(errors, at(source, "describedObject"), &path.child("describedObject"), false);
    identifier(errors, source, path);
    let path = path.child("target");
    target(errors, at(source, "target"), &path);
    if !has(source, "target.value") && !has(source, "target.averageValue") {
        errors.required(&path.child("averageValue"), "must set either a target value or averageValue");
    }
}

fn external_source(errors: &mut ErrorList, source: &Value, path: &Path) {
    identifier(errors, source, path);
    let path = path.child("target");
    target(errors, at(source, "target"), &path);
    match (has(source, "target.value"), has(source, "target.averageValue")) {
        (false, false) => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&path.child("averageValue"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.child("value"), detail);
        }
        _ => {}
    }
}

fn pods_source(errors: &mut ErrorList, source: &Value, path: &Path) {
    identifier(errors, source, path);
    let path = path.child("target");
    target(errors, at(source, "target"), &path);
    if quantity(at(source, "target.averageValue")).is_none() {
        errors.required(&path.child("averageValue"), "must specify a positive target averageValue");
    }
}

fn resource_source(errors: &mut ErrorList, source: &Value, path: &Path, of_container: bool) {
    match text(source, "name") {
        "" => errors.required(&path.child("name"), "must specify a resource name"),
        name if of_container => super::resources::Name(name).check_container(errors, &path.child("name")),
        _ => {}
    }
    if of_container {
        match text(source, "container") {
            "" => errors.required(&path.child("container"), "must specify a container"),
            name => errors.invalid_each(&path.child("container"), name, names::dns1123_label(name)),
        }
    }
    let path = path.child("target");
    target(errors, at(source, "target"), &path);
    match (has(source, "target.averageUtilization"), has(source, "target.averageValue")) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&path.child("averageUtilization"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.child("averageValue"), detail);
        }
        _ => {}
    }
}

fn scaling(errors: &mut ErrorList, rules: &Value, path: &Path) {
    let window = path.child("stabilizationWindowSeconds");
    match number(rules, "stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => errors.invalid(&window, seconds, "must be greater than or equal to zero"),
        Some(seconds) if seconds > LONGEST_WINDOW => {
            errors.invalid(&window, seconds, format!("must be less than or equal to {LONGEST_WINDOW}"));
        }
        _ => {}
    }
    if let Some(tolerance) = quantity(at(rules, "tolerance")).filter(|tolerance| tolerance.sign() < 0) {
        errors.invalid(&path.child("tolerance"), tolerance.to_string(), NOT_NEGATIVE);
    }
    if has(rules, "selectPolicy") {
        one_of(errors, &path.child("selectPolicy"), text(rules, "selectPolicy"), &["Disabled", "Max", "Min"]);
    }
    let policies = items(rules, "policies");
    if policies.is_empty() {
        errors.required(&path.child("policies"), "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = path.child("policies").index(index);
        one_of(errors, &path.child("type"), text(policy, "type"), &["Percent", "Pods"]);
        let value = int(policy, "value");
        if value <= 0 {
            errors.invalid(&path.child("value"), value, "must be greater than zero");
        }
        let seconds = int(policy, "periodSeconds");
        if seconds <= 0 {
            errors.invalid(&path.child("periodSeconds"), seconds, "must be greater than zero");
        }
        if seconds > LONGEST_PERIOD {
            let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
            errors.invalid(&path.child("periodSeconds"), seconds, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sources() {
        let cases = [
            (
                json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}}),
                "",
            ),
            (json!({"type": "Pods"}), "m.pods: Required value: must populate information for the given metric source"),
            (
                json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "-1"}}}),
                "m.resource.target.averageValue: Invalid value: \"-1\": must be positive",
            ),
            (
                json!({"type": "ContainerResource", "containerResource": {"container": "a.b", "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}}),
                "m.containerResource.container: Invalid value: \"a.b\": must not contain dots",
            ),
            (
                json!({"type": "x", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "0"}}}),
                "[m.type: Unsupported value: \"x\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\", m.pods.target.averageValue: Invalid value: \"0\": must be positive]",
            ),
            (
                json!({"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value"}}}),
                "m.external.target.averageValue: Required value: must set either a target value for metric or a per-pod target",
            ),
        ];
        for (metric, expected) in cases {
            let mut errors = ErrorList::new();
            one_metric(&mut errors, &metric, &Path::new("m"));
            assert_eq!(errors.to_string(), expected, "{metric}");
        }
    }
}
