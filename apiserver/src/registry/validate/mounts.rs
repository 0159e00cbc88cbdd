//! Errors of where a container has its volumes, as directories and as devices.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::one_of;
use super::pod_volumes::relative;
use crate::registry::value::{at, flag, has, items, text};

/// Names and places of one list.
fn taken<'a>(container: &'a Value, list: &str, place: &str) -> (HashSet<&'a str>, HashSet<&'a str>) {
    let all = items(container, list);
    (all.iter().map(|item| text(item, "name")).collect(), all.iter().map(|item| text(item, place)).collect())
}

/// Mounted volumes.
pub fn mounts(errors: &mut ErrorList, container: &Value, path: &Path, volumes: &HashSet<&str>) {
    let (device_names, device_places) = taken(container, "volumeDevices", "devicePath");
    let mut places = HashSet::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        // Upstream leaves the index out of some paths.
        let (list, path) = (path, path.index(index));
        let (name, place) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        if !volumes.contains(name) {
            errors.not_found(&path.child("name"), name);
        }
        if place.is_empty() {
            errors.required(&path.child("mountPath"), "");
        }
        if !places.insert(place) {
            errors.invalid(&path.child("mountPath"), place, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_places.contains(place) {
            errors.invalid(&path.child("mountPath"), place, "must not already exist as a path in volumeDevices");
        }
        relative(errors, text(mount, "subPath"), &list.child("subPath"));
        let expression = text(mount, "subPathExpr");
        if !expression.is_empty() {
            if !text(mount, "subPath").is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&path.child("subPathExpr"), expression, detail);
            }
            relative(errors, expression, &list.child("subPathExpr"));
        }
        propagation(errors, container, mount, list);
    }
}

fn propagation(errors: &mut ErrorList, container: &Value, mount: &Value, path: &Path) {
    let of_propagation = path.child("mountPropagation");
    if has(mount, "mountPropagation") {
        let known = ["Bidirectional", "HostToContainer", "None"];
        one_of(errors, &of_propagation, text(mount, "mountPropagation"), &known);
    }
    if text(mount, "mountPropagation") == "Bidirectional" && !flag(container, "securityContext.privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&of_propagation, detail);
    }
    let path = path.child("recursiveReadOnly");
    match (text(mount, "recursiveReadOnly"), has(mount, "recursiveReadOnly")) {
        (_, false) | ("Disabled", _) => {}
        ("Enabled" | "IfPossible", _) => {
            if at(mount, "readOnly") != &Value::Bool(true) {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if has(mount, "mountPropagation") && text(mount, "mountPropagation") != "None" {
                errors.forbidden(&path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        (other, true) => errors.not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Volumes as devices.
pub fn devices(errors: &mut ErrorList, container: &Value, path: &Path, volumes: &HashSet<&str>) {
    let (mount_names, mount_places) = taken(container, "volumeMounts", "mountPath");
    let (mut names, mut places) = (HashSet::new(), HashSet::new());
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, place) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        }
        if !names.insert(name) {
            errors.invalid(&path.child("name"), name, "must be unique");
        }
        if !volumes.contains(name) {
            errors.not_found(&path.child("name"), name);
        }
        if place.is_empty() {
            errors.required(&path.child("devicePath"), "");
        }
        if !places.insert(place) {
            errors.invalid(&path.child("devicePath"), place, "must be unique");
        }
        if place.split('/').any(|part| part == "..") {
            errors.invalid(&path.child("devicePath"), place, "can not contain backsteps ('..')");
        } else if mount_places.contains(place) {
            errors.invalid(&path.child("devicePath"), place, "must not already exist as a path in volumeMounts");
        }
        if mount_names.contains(name) {
            errors.invalid(&path.child("name"), name, "must not already exist in volumeMounts");
        }
    }
}
