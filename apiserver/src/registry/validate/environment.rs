//! Errors of what a container's environment, and files of the downward API, are made of.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use crate::registry::value::{has, items, text};

const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
/// Fields of a pod that have a name for selectors and the like.
const FIELDS: [&str; 16] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.host",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];
/// Those that a variable may have.
const IN_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Those that a file may have.
pub const IN_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Resources whose amounts may be told.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The variables of a container, and the sources of whole sets of them.
pub fn variables(errors: &mut ErrorList, container: &Value, path: &Path, volumes: &HashSet<&str>) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = path.child("env").index(index);
        match text(variable, "name") {
            "" => errors.required(&path.child("name"), ""),
            name => errors.invalid_each(&path.child("name"), name, names::env_var(name)),
        }
        if has(variable, "valueFrom") {
            source(errors, variable, &path.child("valueFrom"), volumes);
        }
    }
    let list = path.child("envFrom");
    for (index, source) in items(container, "envFrom").iter().enumerate() {
        let path = list.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.invalid_each(&path.child("prefix"), prefix, names::env_var(prefix));
        }
        for field in ["configMapRef", "secretRef"].into_iter().filter(|field| has(source, field)) {
            match text(&source[field], "name") {
                "" => errors.required(&path.child(field).child("name"), ""),
                name => {
                    errors.invalid_each(&path.child(field).child("name"), name, names::dns1123_subdomain(name));
                }
            }
        }
        // Which of the sources it is isn't told.
        match (has(source, "configMapRef"), has(source, "secretRef")) {
            (false, false) => errors.invalid(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            (true, true) => errors.invalid(&list, "", "may not have more than one field specified at a time"),
            _ => {}
        }
    }
}

fn source(errors: &mut ErrorList, variable: &Value, path: &Path, volumes: &HashSet<&str>) {
    let source = &variable["valueFrom"];
    let given: Vec<&str> = SOURCES.into_iter().filter(|field| has(source, field)).collect();
    for kind in &given {
        let path = path.child(kind);
        let reference = &source[*kind];
        match *kind {
            "fieldRef" => field(errors, reference, &path, &IN_VARIABLES),
            "resourceFieldRef" => resource(errors, reference, &path),
            "fileKeyRef" => file(errors, reference, &path),
            _ => {
                let name = text(reference, "name");
                errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
                match text(reference, "key") {
                    "" => errors.required(&path.child("key"), ""),
                    key => errors.invalid_each(&path.child("key"), key, names::config_key(key)),
                }
            }
        }
    }
    match given.len() {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            errors.invalid(path, "", detail);
        }
        _ if !text(variable, "value").is_empty() => {
            errors.invalid(path, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
    if has(source, "fileKeyRef") {
        let volume = text(source, "fileKeyRef.volumeName");
        if !volumes.contains(volume) {
            errors.not_found(&path.child("fileKeyRef").child("volumeName"), volume);
        }
    }
}

/// A reference to one of the pod's own fields.
pub fn field(errors: &mut ErrorList, reference: &Value, path: &Path, known: &[&str]) {
    let of_field = path.child("fieldPath");
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    if field.is_empty() {
        return errors.required(&of_field, "");
    }
    if !matches!(version, "" | "v1") {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        return errors.invalid(&of_field, field, detail);
    }
    let keyed = ["metadata.labels['", "metadata.annotations['"];
    if let Some(rest) = keyed.iter().find_map(|start| field.strip_prefix(start)) {
        match rest.strip_suffix("']") {
            Some(key) => return errors.invalid_each(path, key, names::qualified(&key.to_lowercase())),
            None => {
                let detail = format!("error converting fieldPath: field label not supported: {field}");
                return errors.invalid(&of_field, field, detail);
            }
        }
    }
    if !FIELDS.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.invalid(&of_field, field, detail);
    } else if !known.contains(&field) {
        errors.not_supported(&of_field, field, known);
    }
}

/// A reference to the amount of a resource that a container has.
pub fn resource(errors: &mut ErrorList, reference: &Value, path: &Path) {
    let name = text(reference, "resource");
    let huge = ["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    if name.is_empty() {
        return errors.required(&path.child("resource"), "");
    }
    if !huge && !RESOURCES.contains(&name) {
        return errors.not_supported(&path.child("resource"), name, &RESOURCES);
    }
    let divisor = text(reference, "divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    let (known, list, what): (bool, &str, &str) = match name.split_once('.').map_or("", |(_, rest)| rest) {
        "cpu" => (matches!(divisor, "1m" | "1"), "1m and 1", "cpu"),
        "memory" => (SIZES.contains(&divisor), "", "memory"),
        "ephemeral-storage" => (SIZES.contains(&divisor), "", "local ephemeral storage"),
        _ => (SIZES.contains(&divisor), "", "hugepages"),
    };
    if !known {
        let list = if list.is_empty() { SIZES.join(", ") } else { list.to_owned() };
        let detail = format!("only divisor's values {list} are supported with the {what} resource");
        errors.invalid(&path.child("divisor"), name, detail);
    }
}

fn file(errors: &mut ErrorList, reference: &Value, path: &Path) {
    match text(reference, "key") {
        "" => errors.required(&path.child("key"), ""),
        key => errors.invalid_each(&path.child("key"), key, names::env_var(key)),
    }
    let volume = text(reference, "volumeName");
    match volume {
        "" => errors.required(&path.child("volumeName"), ""),
        name => errors.invalid_each(&path.child("volumeName"), name, names::dns1123_label(name)),
    }
    match text(reference, "path") {
        "" => errors.required(&path.child("path"), ""),
        file if file.split('/').any(|part| part == "..") => {
            errors.invalid(&path.child("path"), file, "must not contain '..'");
        }
        _ => {}
    }
}
