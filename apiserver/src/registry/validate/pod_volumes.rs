//! Errors of the volumes of pods.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::volumes::Holder;
use super::{environment, one_of};
use crate::registry::value::{at, has, items, number, text};

/// Sources of volumes in the order in which they are looked for.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the volumes; the names that containers may mount.
pub fn volumes<'a>(errors: &mut ErrorList, spec: &'a Value, path: &Path) -> HashSet<&'a str> {
    let mut known = HashSet::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "name");
        let before = errors.len();
        for (position, field) in SOURCES.into_iter().filter(|field| has(volume, field)).enumerate() {
            // The spelling is upstream's.
            let shown = match field {
                "downwardAPI" => "downwarAPI",
                "cephfs" => "cephFS",
                field => field,
            };
            if position > 0 {
                errors.forbidden(&path.child(shown), "may not specify more than 1 volume type");
            } else {
                source_of(errors, field, &volume[field], &path);
            }
        }
        let mut faults = names::dns1123_label(name);
        if name.is_empty() {
            errors.required(&path.child("name"), "");
            faults.clear();
        }
        if faults.is_empty() && known.contains(name) {
            errors.duplicate(&path.child("name"), name);
        }
        errors.invalid_each(&path.child("name"), name, faults);
        // Faulty volumes can't be mounted and don't take their name.
        if errors.len() == before {
            known.insert(name);
        }
    }
    known
}

fn source_of(errors: &mut ErrorList, field: &str, source: &Value, path: &Path) {
    super::volumes::source(errors, field, source, path, Holder::Pod);
    let path = &path.child(field);
    let required = match field {
        "secret" => Some("secretName"),
        "configMap" => Some("name"),
        "image" => Some("reference"),
        _ => None,
    };
    if let Some(required) = required.filter(|required| text(source, required).is_empty()) {
        errors.required(&path.child(required), "");
    }
    match field {
        "secret" | "configMap" => files(errors, source, path),
        "downwardAPI" => downward(errors, source, path),
        "projected" => super::projected::volume(errors, source, path),
        "emptyDir"
            if pintle_api::quota::amounts::quantity(at(source, "sizeLimit")).is_some_and(|size| size.sign() < 0) =>
        {
            errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "ephemeral" => {
            let path = path.child("volumeClaimTemplate");
            match at(source, "volumeClaimTemplate") {
                Value::Null => errors.required(&path, ""),
                template => {
                    super::template_metadata(errors, at(template, "metadata"), &path.child("metadata"));
                    super::storage::claim_spec(errors, at(template, "spec"), &path.child("spec"));
                }
            }
        }
        "image" if has(source, "pullPolicy") => {
            let known = ["Always", "IfNotPresent", "Never"];
            one_of(errors, &path.child("pullPolicy"), text(source, "pullPolicy"), &known);
        }
        _ => {}
    }
}

/// The mode of a file.
pub fn mode(errors: &mut ErrorList, holder: &Value, field: &str, path: &Path) {
    if let Some(mode) = number(holder, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(field), mode, detail);
    }
}

/// Files out of the keys of an object.
pub fn files(errors: &mut ErrorList, source: &Value, path: &Path) {
    mode(errors, source, "defaultMode", path);
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = path.child("items").index(index);
        if text(item, "key").is_empty() {
            errors.required(&path.child("key"), "");
        }
        local_path(errors, text(item, "path"), &path.child("path"));
        mode(errors, item, "mode", &path);
    }
}

/// Files out of the pod's own fields.
pub fn downward(errors: &mut ErrorList, source: &Value, path: &Path) {
    mode(errors, source, "defaultMode", path);
    for item in items(source, "items") {
        local_path(errors, text(item, "path"), &path.child("path"));
        match (has(item, "fieldRef"), has(item, "resourceFieldRef")) {
            (false, false) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
            (true, true) => {
                errors.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
            (true, false) => {
                environment::field(errors, at(item, "fieldRef"), &path.child("fieldRef"), &environment::IN_FILES);
            }
            (false, true) => {
                let path = path.child("resourceFieldRef");
                match text(item, "resourceFieldRef.containerName") {
                    "" => errors.required(&path.child("containerName"), ""),
                    _ => environment::resource(errors, at(item, "resourceFieldRef"), &path),
                }
            }
        }
        mode(errors, item, "mode", path);
    }
}

/// A path below a directory that the node chooses.
pub fn local_path(errors: &mut ErrorList, local: &str, path: &Path) {
    if local.is_empty() {
        errors.required(path, "");
    }
    if relative(errors, local, path) && local.starts_with("..") {
        errors.invalid(path, local, "must not start with '..'");
    }
}

/// A path that stays below its start.
pub fn relative(errors: &mut ErrorList, local: &str, path: &Path) -> bool {
    if local.starts_with('/') {
        errors.invalid(path, local, "must be a relative path");
    } else if local.split('/').any(|part| part == "..") {
        errors.invalid(path, local, "must not contain '..'");
    } else {
        return true;
    }
    false
}
