//! Errors of the kinds that describe storage: classes, drivers, nodes' drivers, capacities.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IMMUTABLE, NOT_NEGATIVE, label_selector, one_of, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, entries, has, items, number, text};
use pintle_api::quota::amounts::quantity;

/// So many parameters with so many bytes in all.
const PARAMETERS: usize = 512;
const PARAMETER_BYTES: usize = 256 * 1024;
/// Longest name of a driver and longest name that a driver has for a node.
const DRIVER_NAME: usize = 63;
const NODE_ID: usize = 256;
/// Seconds.
const SHORTEST_TOKEN: i64 = 600;
const LONGEST_TOKEN: i64 = 1 << 32;
const SHORTEST_PERIOD: i64 = 10;

/// StorageClass.
pub fn storage_class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let unnamed = text(class, "provisioner").is_empty();
    if !unnamed {
        qualified_lowercase(&mut errors, &Path::new("provisioner"), text(class, "provisioner"));
    }
    parameters(&mut errors, class, true);
    let policies = ["Delete", "Retain"];
    one_of(&mut errors, &Path::new("reclaimPolicy"), text(class, "reclaimPolicy"), &policies);
    let mode = Path::new("volumeBindingMode");
    if !has(class, "volumeBindingMode") {
        errors.required(&mode, "");
    } else {
        one_of(&mut errors, &mode, text(class, "volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
    }
    topologies(&mut errors, class);
    if unnamed {
        errors.required(&Path::new("provisioner"), "");
    }
    errors
}

/// An update of a StorageClass: how volumes are made stays.
pub fn storage_class_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = storage_class(context, new);
    for field in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
        if at(new, field) != at(old, field) {
            // Shown as nothing, whatever it is.
            let fault = FieldError::new(Fault::Invalid, &Path::new(field), Value::Null, IMMUTABLE);
            errors.push(fault.shown_as("null"));
        }
    }
    errors
}

/// VolumeAttributesClass.
pub fn attributes_class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    qualified_lowercase(&mut errors, &Path::new("driverName"), text(class, "driverName"));
    parameters(&mut errors, class, false);
    errors
}

/// An update of a VolumeAttributesClass: nothing but metadata changes.
pub fn attributes_class_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for field in ["driverName", "parameters"] {
        if at(new, field) != at(old, field) {
            errors.forbidden(&Path::new(field), format!("updates to {field} are forbidden."));
        }
    }
    errors.extend(attributes_class(context, new));
    errors
}

fn qualified_lowercase(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.to_lowercase();
    errors.invalid_each(path, &name, names::qualified(&name));
}

fn parameters(errors: &mut ErrorList, class: &Value, may_be_empty: bool) {
    let path = Path::new("parameters");
    let count = entries(class, "parameters").count();
    if count > PARAMETERS {
        errors.too_long(&path, PARAMETERS);
        return;
    }
    if count == 0 && !may_be_empty {
        errors.required(&path, "must contain at least one key/value pair");
    }
    let mut bytes = 0;
    for (key, value) in entries(class, "parameters") {
        if key.is_empty() {
            errors.invalid(&path, key.as_str(), "field can not be empty.");
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > PARAMETER_BYTES {
        errors.too_long(&path, PARAMETER_BYTES);
    }
}

fn topologies(errors: &mut ErrorList, class: &Value) {
    let mut known: Vec<Vec<(String, Vec<String>)>> = Vec::new();
    for (index, term) in items(class, "allowedTopologies").iter().enumerate() {
        let path = Path::new("allowedTopologies").index(index).child("matchLabelExpressions");
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        for (index, expression) in items(term, "matchLabelExpressions").iter().enumerate() {
            let path = path.index(index);
            let key = text(expression, "key");
            let values = topology_values(errors, expression, &path.child("values"));
            if keys.iter().any(|(known, _)| known == key) {
                errors.duplicate(&path.child("key"), key);
            }
            errors.invalid_each(&path.child("key"), key, names::label_key(key));
            keys.push((key.to_owned(), values));
        }
        keys.sort();
        if keys.is_empty() || known.contains(&keys) {
            errors.duplicate(&path, "");
        }
        known.push(keys);
    }
}

fn topology_values(errors: &mut ErrorList, expression: &Value, path: &Path) -> Vec<String> {
    let values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
    if values.is_empty() {
        errors.required(path, "");
    }
    let mut known = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        if !known.insert(*value) {
            errors.duplicate(&path.index(index), *value);
        }
    }
    let mut values: Vec<String> = known.into_iter().map(str::to_owned).collect();
    values.sort();
    values
}

/// The name of a driver where something refers to it.
pub fn driver_name(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > DRIVER_NAME {
        errors.too_long(path, DRIVER_NAME);
    }
    if !name.is_empty() {
        errors.invalid_each(path, name, names::dns1123_subdomain(&name.to_lowercase()));
    }
}

/// CSIDriver.
pub fn driver(_context: &Context<'_>, driver: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(driver, "spec");
    for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !has(spec, field) {
            errors.required(&path.child(if field == "attachRequired" { "attachedRequired" } else { field }), "");
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(&mut errors, &path.child("fsGroupPolicy"), text(spec, "fsGroupPolicy"), &policies);
    tokens(&mut errors, spec, &path);
    for mode in items(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            let known = ["Persistent", "Ephemeral"];
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &known);
        }
    }
    let period = number(spec, "nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = period.filter(|seconds| *seconds < SHORTEST_PERIOD) {
        let detail = format!("must be greater than or equal to {SHORTEST_PERIOD} seconds");
        errors.invalid(&path.child("nodeAllocatableUpdatePeriodSeconds"), seconds, detail);
    }
    if items(spec, "tokenRequests").is_empty() && has(spec, "serviceAccountTokenInSecrets") {
        let path = path.child("serviceAccountTokenInSecrets");
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&path, at(spec, "serviceAccountTokenInSecrets").clone(), detail);
    }
    errors
}

fn tokens(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let mut audiences = HashSet::new();
    for (index, request) in items(spec, "tokenRequests").iter().enumerate() {
        let path = path.child("tokenRequests").index(index);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), audience);
        }
        let Some(seconds) = number(request, "expirationSeconds") else { continue };
        let path = path.child("expirationSeconds");
        if seconds < SHORTEST_TOKEN {
            errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > LONGEST_TOKEN {
            errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

/// An update of a CSIDriver: whether it attaches, and what its volumes are, stays.
pub fn driver_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = driver(context, new);
    let path = Path::new("spec");
    for (field, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        unchanged(&mut errors, &path.child(shown), at(&new["spec"], field), at(&old["spec"], field));
    }
    errors
}

/// Warnings about a CSIDriver.
pub fn driver_warnings(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let untold = |driver: &Value| {
        !items(driver, "spec.tokenRequests").is_empty() && !has(driver, "spec.serviceAccountTokenInSecrets")
    };
    // Of tokens that stay as they are it was told before.
    let same = |old: &Value| untold(old) && items(old, "spec.tokenRequests") == items(new, "spec.tokenRequests");
    let exposed = untold(new) && !old.is_some_and(same);
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
    exposed.then(|| text.to_owned()).into_iter().collect()
}

/// CSINode.
pub fn node(_context: &Context<'_>, node: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut known = HashSet::new();
    for (index, driver) in items(node, "spec.drivers").iter().enumerate() {
        let path = Path::new("spec").child("drivers").index(index);
        let name = text(driver, "name");
        driver_name(&mut errors, &path.child("name"), name);
        match text(driver, "nodeID") {
            "" => errors.required(&path.child("nodeID"), ""),
            id if id.len() > NODE_ID => {
                errors.invalid(&path.child("nodeID"), id, format!("must be {NODE_ID} characters or less"));
            }
            _ => {}
        }
        if let Some(count) = number(driver, "allocatable.count").filter(|count| *count < 0) {
            errors.invalid(&path.child("allocatable").child("count"), count, NOT_NEGATIVE);
        }
        if !known.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let mut keys = HashSet::new();
        for key in items(driver, "topologyKeys").iter().map(|key| key.as_str().unwrap_or_default()) {
            if key.is_empty() {
                errors.required(&path, "");
            }
            if !keys.insert(key) {
                errors.duplicate(&path, key);
            }
            errors.invalid_each(&path, key, names::qualified(key));
        }
    }
    errors
}

/// An update of a CSINode: drivers come and go, but each stays as it is, but for what it can take.
pub fn node_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = node(context, new);
    for driver in items(new, "spec.drivers") {
        let before = items(old, "spec.drivers").iter().find(|before| text(before, "name") == text(driver, "name"));
        let same =
            |before: &Value| ["nodeID", "topologyKeys"].iter().all(|field| at(before, field) == at(driver, field));
        if before.is_some_and(|before| !same(before)) {
            let shown = format!(
                "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}",
                at(driver, "name"),
                at(driver, "nodeID"),
                at(driver, "topologyKeys"),
            );
            let error = FieldError::new(Fault::Invalid, &Path::new("spec").child("drivers"), driver.clone(), IMMUTABLE);
            errors.push(error.shown_as(shown));
        }
    }
    errors
}

/// CSIStorageCapacity.
pub fn capacity(_context: &Context<'_>, capacity: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    label_selector(&mut errors, &Path::new("nodeTopology"), at(capacity, "nodeTopology"));
    let class = text(capacity, "storageClassName");
    errors.invalid_each(&Path::new("storageClassName"), class, names::dns1123_subdomain(class));
    if let Some(amount) = quantity(at(capacity, "capacity")).filter(|amount| amount.sign() < 0) {
        errors.invalid(&Path::new("capacity"), amount.to_string(), NOT_NEGATIVE);
    }
    errors
}

/// An update of a CSIStorageCapacity: what it is about stays.
pub fn capacity_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = capacity(context, new);
    for field in ["nodeTopology", "storageClassName"] {
        unchanged(&mut errors, &Path::new(field), at(new, field), at(old, field));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes() {
        let class = |change: Value| {
            let mut class = json!({"provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"});
            for (field, value) in change.as_object().into_iter().flatten() {
                class[field] = value.clone();
            }
            class
        };
        let term = json!({"matchLabelExpressions": [{"key": "a", "values": ["x"]}]});
        let cases = [
            (json!({}), ""),
            (json!({"provisioner": ""}), "provisioner: Required value"),
            (json!({"parameters": {"": "a"}}), "parameters: Invalid value: \"\": field can not be empty."),
            (
                json!({"allowedTopologies": [term, term]}),
                "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(storage_class(&Context::ANY, &class(change)).to_string(), expected);
        }
        let errors = storage_class_update(&Context::ANY, &class(json!({"reclaimPolicy": "Retain"})), &class(json!({})));
        assert_eq!(errors.to_string(), "reclaimPolicy: Invalid value: null: field is immutable");
    }

    #[test]
    fn drivers_of_nodes_stay_as_they_are() {
        let node = |id: &str| json!({"spec": {"drivers": [{"name": "d.io", "nodeID": id}]}});
        assert_eq!(node_update(&Context::ANY, &node("a"), &node("a")).to_string(), "");
        assert_eq!(
            node_update(&Context::ANY, &node("b"), &node("a")).to_string(),
            "spec.drivers: Invalid value: {\"Name\":\"d.io\",\"NodeID\":\"b\",\"TopologyKeys\":null,\"Allocatable\":null}: \
             field is immutable"
        );
    }
}
