//! Errors of ConfigMaps, Secrets and the cluster's own kinds.

use std::collections::HashSet;

use pintle_machinery::codec::scalar::decode_base64;
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::addresses::range_fault;
use super::{IMMUTABLE, one_of, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, entries, has, items, text};

/// The most bytes that a ConfigMap or Secret holds.
const LIMIT: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

fn decoded(value: &Value) -> Vec<u8> {
    decode_base64(value.as_str().unwrap_or_default()).unwrap_or_default()
}

/// ConfigMap.
pub fn config_map(_context: &Context<'_>, map: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut size = 0;
    for (key, value) in entries(map, "data") {
        let path = Path::new("data").key(key);
        errors.invalid_each(&path, key, names::config_key(key));
        if at(map, "binaryData").get(key).is_some() {
            errors.invalid(&path, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(map, "binaryData") {
        errors.invalid_each(&Path::new("binaryData").key(key), key, names::config_key(key));
        size += decoded(value).len();
    }
    if size > LIMIT {
        errors.too_long(&Path::root(), LIMIT);
    }
    errors
}

/// An update of a ConfigMap.
pub fn config_map_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    frozen(&mut errors, new, old, &["data", "binaryData"]);
    errors.extend(config_map(context, new));
    errors
}

fn frozen(errors: &mut ErrorList, new: &Value, old: &Value, fields: &[&str]) {
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.forbidden(&Path::new("immutable"), FROZEN);
    }
    for field in fields.iter().filter(|field| at(new, field) != at(old, field)) {
        errors.forbidden(&Path::new(field), FROZEN);
    }
}

/// Secret.
pub fn secret(_context: &Context<'_>, secret: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in entries(secret, "data") {
        errors.invalid_each(&path.key(key), key, names::config_key(key));
        size += decoded(value).len();
    }
    if size > LIMIT {
        errors.too_long(&path, LIMIT);
    }
    let data = at(secret, "data");
    let required: &[&str] = match text(secret, "type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required {
        match data.get(*key) {
            None => errors.required(&path.key(key), ""),
            Some(value) if key.starts_with(".docker") => {
                let bytes = decoded(value);
                if serde_json::from_slice::<Value>(&bytes).is_err() {
                    let detail = json_fault(&bytes);
                    errors.invalid(&path.key(key), "<secret contents redacted>", detail);
                }
            }
            Some(value) if *key == "ssh-privatekey" && decoded(value).is_empty() => errors.required(&path.key(key), ""),
            Some(_) => {}
        }
    }
    match text(secret, "type") {
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            errors.required(&path.key("username"), "");
            errors.required(&path.key("password"), "");
        }
        "kubernetes.io/service-account-token" => {
            let annotations = at(secret, "metadata.annotations");
            let key = "kubernetes.io/service-account.name";
            if annotations.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.required(&Path::new("metadata").child("annotations").key(key), "");
            }
        }
        _ => {}
    }
    errors
}

/// An update of a Secret.
pub fn secret_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if text(new, "type") != text(old, "type") {
        errors.invalid(&Path::new("type"), text(new, "type"), IMMUTABLE);
    }
    frozen(&mut errors, new, old, &["data"]);
    errors.extend(secret(context, new));
    errors
}

/// Node.
pub fn node(_context: &Context<'_>, node: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, taint) in items(node, "spec.taints").iter().enumerate() {
        let path = Path::new("metadata").child("taints").index(index);
        let key = text(taint, "key");
        errors.invalid_each(&path.child("key"), key, names::label_key(key));
        let value = text(taint, "value");
        errors.invalid_each(&path.child("value"), value, names::label_value(value));
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        match text(taint, "effect") {
            "" => errors.required(&path.child("effect"), ""),
            effect => one_of(&mut errors, &path.child("effect"), effect, &effects),
        }
    }
    node_status(&mut errors, at(node, "status"));
    pod_ranges(&mut errors, items(node, "spec.podCIDRs"), &Path::new("spec").child("podCIDRs"));
    errors
}

/// One range, or one of each family.
fn pod_ranges(errors: &mut ErrorList, ranges: &[Value], path: &Path) {
    let texts: Vec<&str> = ranges.iter().map(|range| range.as_str().unwrap_or_default()).collect();
    for (index, text) in texts.iter().enumerate() {
        if let Some(fault) = range_fault(text) {
            errors.invalid(&path.index(index), *text, fault);
        }
    }
    if ranges.len() < 2 {
        return;
    }
    let nets: Vec<Option<ipnet::IpNet>> = texts.iter().map(|text| text.parse().ok()).collect();
    if let Some(index) = nets.iter().position(Option::is_none) {
        let text = texts[index];
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {text})"
        );
        errors.push(FieldError::new(Fault::Internal, path, Value::Null, detail));
    }
    let families: HashSet<Option<bool>> = nets.iter().map(|net| net.map(|net| net.addr().is_ipv4())).collect();
    if ranges.len() > 2 || families.len() != 2 || families.contains(&None) {
        errors.invalid(path, ranges.to_vec(), "may specify no more than one CIDR for each IP family");
    }
}

fn node_status(errors: &mut ErrorList, status: &Value) {
    let path = Path::new("status");
    for list in ["capacity", "allocatable"] {
        for (name, amount) in entries(status, list) {
            // With a dot, as upstream has it here.
            super::resources::Name(name).check_amount(errors, &path.child(list).child(name), amount);
        }
    }
    let features = items(status, "declaredFeatures");
    let mut before: Option<&str> = None;
    for (index, feature) in features.iter().map(|feature| feature.as_str().unwrap_or_default()).enumerate() {
        let path = path.child("declaredFeatures").index(index);
        match before {
            Some(before) if before == feature => errors.duplicate(&path, feature),
            Some(before) if before > feature => errors.invalid(&path, feature, "list must be sorted alphabetically"),
            _ => {}
        }
        if !is_feature(feature) {
            let detail = format!(
                "invalid feature name \"{feature}\": must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
                 and slashes"
            );
            errors.invalid(&path, feature, detail);
        }
        before = Some(feature);
    }
}

/// `MyFeature/mySubFeature`.
fn is_feature(name: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(word)
}

/// An update of a Node: its ranges and provider are settled once.
pub fn node_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = node(context, new);
    let path = Path::new("spec");
    let before = at(old, "spec.podCIDRs");
    if !before.is_null() && at(new, "spec.podCIDRs") != before {
        errors.forbidden(&path.child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
    }
    let before = text(old, "spec.providerID");
    let now = text(new, "spec.providerID");
    if !before.is_empty() && now != before {
        let detail =
            if now.is_empty() { "field cannot be cleared once set" } else { "field cannot be modified once set" };
        errors.invalid(&path.child("providerID"), Value::Null, detail);
    }
    if text(new, "spec.externalID") != text(old, "spec.externalID") {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
    errors
}

/// PodTemplate.
pub fn pod_template(_context: &Context<'_>, template: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    super::pod::template(&mut errors, at(template, "template"), &Path::new("template"));
    errors
}

/// An update of a PodTemplate.
pub fn pod_template_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    pod_template(context, new)
}

/// ControllerRevision.
pub fn revision(_context: &Context<'_>, revision: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    super::not_negative(&mut errors, revision, &Path::root(), &["revision"]);
    match at(revision, "data") {
        Value::Null => errors.required(&Path::new("data"), "data is mandatory"),
        Value::Object(_) => {}
        _ => errors.required(&Path::new("data"), "data must be a valid JSON object"),
    }
    errors
}

/// An update of a ControllerRevision: what it keeps stays.
pub fn revision_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    super::not_negative(&mut errors, new, &Path::root(), &["revision"]);
    unchanged(&mut errors, &Path::new("data"), at(new, "data"), at(old, "data"));
    errors
}

/// An update of a Namespace: it terminates when it is deleted, not before.
pub fn namespace_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let phase = text(new, "status.phase");
    if context.subresource == Some("status") {
        let (deleted, terminating) = (has(new, "metadata.deletionTimestamp"), phase == "Terminating");
        let detail = match (deleted, terminating) {
            (false, true) => "may only be 'Active' if `deletionTimestamp` is empty",
            (true, false) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
            _ => return errors,
        };
        // The capital is upstream's.
        errors.invalid(&Path::new("status").child("Phase"), phase, detail);
    }
    errors
}

/// Lease.
pub fn lease(_context: &Context<'_>, lease: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(lease, "spec");
    if let Some(seconds) = at(spec, "leaseDurationSeconds").as_i64().filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    super::not_negative(&mut errors, spec, &path, &["leaseTransitions"]);
    errors
}

/// An update of a Lease.
pub fn lease_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    lease(context, new)
}

/// PriorityClass.
pub fn priority_class(_context: &Context<'_>, class: &Value) -> ErrorList {
    const HIGHEST: i64 = 1_000_000_000;
    const SYSTEM: [(&str, i64); 2] =
        [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
    let mut errors = ErrorList::new();
    let name = text(class, "metadata.name");
    let value = class["value"].as_i64().unwrap_or_default();
    if name.starts_with("system-") {
        let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, expected)) if *expected != value => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let detail =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.forbidden(&Path::new("metadata").child("name"), detail);
        }
    } else if value > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.forbidden(&Path::new("value"), detail);
    }
    let policy = text(class, "preemptionPolicy");
    match policy {
        "" => errors.required(&Path::new("preemptionPolicy"), ""),
        policy => one_of(&mut errors, &Path::new("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]),
    }
    errors
}

/// An update of a PriorityClass: what it stands for stays.
pub fn priority_class_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if new["value"] != old["value"] {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    unchanged(&mut errors, &Path::new("preemptionPolicy"), &new["preemptionPolicy"], &old["preemptionPolicy"]);
    errors
}

/// What Go says of text that is no JSON, as far as its first character tells.
fn json_fault(bytes: &[u8]) -> String {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(byte) => format!("invalid character '{}' looking for beginning of value", char::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes() {
        for (status, expected) in [
            (json!({"declaredFeatures": ["A", "B/c"], "capacity": {"cpu": "1"}}), ""),
            (
                json!({"declaredFeatures": ["B", "A"]}),
                "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
            ),
            (json!({"declaredFeatures": ["A", "A"]}), "status.declaredFeatures[1]: Duplicate value: \"A\""),
            (
                json!({"capacity": {"cpu": "-1"}}),
                "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
        ] {
            assert_eq!(node(&Context::ANY, &json!({"status": status})).to_string(), expected, "{status}");
        }
        let external = |id: &str| json!({"spec": {"externalID": id}});
        assert_eq!(
            node_update(&Context::ANY, &external("a"), &external("b")).to_string(),
            "spec.externalID: Forbidden: may not be updated"
        );
    }
}
