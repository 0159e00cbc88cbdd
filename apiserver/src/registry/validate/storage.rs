//! Errors of volumes and claims.

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use pintle_machinery::quantity::Quantity;
use serde_json::Value;

use super::volumes::Holder;
use super::{label_selector, one_of, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, entries, get_mut, has, items, remove, text};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Fields of a volume that say how it is used, not what it is.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// How a volume may be used.
pub fn modes(errors: &mut ErrorList, spec: &Value, path: &Path, empty: &str) {
    const ALONE: &str = "ReadWriteOncePod";
    let path = path.child("accessModes");
    let given = items(spec, "accessModes");
    if given.is_empty() {
        errors.required(&path, empty);
    }
    for mode in given.iter().filter_map(Value::as_str) {
        one_of(errors, &path, mode, &MODES);
    }
    if given.iter().any(|mode| mode == ALONE) && given.iter().any(|mode| mode != ALONE) {
        errors.forbidden(&path, format!("may not use {ALONE} with other access modes"));
    }
}

fn storage(value: Option<&Value>) -> Option<Quantity> {
    value.and_then(quantity)
}

/// Amounts that must not be negative, in the words for volumes.
fn amount(errors: &mut ErrorList, amount: Quantity, path: &Path) {
    if amount.sign() < 0 {
        errors.invalid(path, amount.value(), "must be a valid resource quantity");
    }
}

/// PersistentVolumeClaim.
pub fn claim(_context: &Context<'_>, claim: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    claim_spec(&mut errors, at(claim, "spec"), &Path::new("spec"));
    errors
}

/// What a claim, or a template of one, asks for.
pub fn claim_spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    modes(errors, spec, path, "at least 1 access mode is required");
    label_selector(errors, &path.child("selector"), at(spec, "selector"));
    let of_size = path.child("resources").key("storage");
    match storage(at(spec, "resources.requests").get("storage")) {
        None => errors.required(&of_size, ""),
        Some(size) if size.sign() <= 0 => {
            errors.invalid(&of_size, size.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = text(spec, field);
        if !class.is_empty() {
            errors.invalid_each(&path.child(field), class, names::dns1123_subdomain(class));
        }
    }
    if has(spec, "volumeMode") {
        one_of(errors, &path.child("volumeMode"), text(spec, "volumeMode"), &["Block", "Filesystem"]);
    }
    data_source(errors, spec, path);
}

/// A reference to an object of a group that is not the core one, or to a claim.
fn typed_reference(errors: &mut ErrorList, reference: &Value, path: &Path) {
    let (group, kind) = (text(reference, "apiGroup"), text(reference, "kind"));
    for field in ["name", "kind"].into_iter().filter(|field| text(reference, field).is_empty()) {
        errors.required(&path.child(field), "");
    }
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    } else if !group.is_empty() {
        errors.invalid_each(&path.child("apiGroup"), group, names::dns1123_subdomain(group));
    }
}

fn data_source(errors: &mut ErrorList, spec: &Value, path: &Path) {
    for field in ["dataSource", "dataSourceRef"].into_iter().filter(|field| has(spec, field)) {
        typed_reference(errors, at(spec, field), &path.child(field));
    }
    let (source, reference) = (at(spec, "dataSource"), at(spec, "dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    if !text(reference, "namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as("{}"));
    } else if ["apiGroup", "kind", "name"].iter().any(|field| text(source, field) != text(reference, field)) {
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, "must match dataSourceRef").shown_as("{}"));
    }
}

/// An update of a claim: it may be bound and grow.
pub fn claim_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    const DETAIL: &str =
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    if context.subresource.is_some() {
        return claim_status(new);
    }
    let mut errors = claim(context, new);
    let bound = text(old, "status.phase") == "Bound";
    let fixed = |claim: &Value| {
        let mut spec = at(claim, "spec").clone();
        if let Some(requests) = get_mut(&mut spec, "resources.requests").filter(|_| bound) {
            remove(requests, "storage");
        }
        if bound {
            remove(&mut spec, "volumeAttributesClassName");
        }
        if text(old, "spec.volumeName").is_empty() {
            remove(&mut spec, "volumeName");
        }
        if !has(old, "spec.storageClassName") {
            remove(&mut spec, "storageClassName");
        }
        spec
    };
    let path = Path::new("spec");
    if fixed(new) != fixed(old) {
        errors.forbidden(&path, DETAIL);
    }
    let size = |claim: &Value| storage(at(claim, "spec.resources.requests").get("storage"));
    let had = storage(at(old, "status.capacity").get("storage")).unwrap_or_default();
    if size(new) < size(old) && size(new).unwrap_or_default() <= had {
        let path = path.child("resources").child("requests").child("storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
    unchanged(&mut errors, &Path::new("volumeMode"), at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
    errors
}

fn claim_status(claim: &Value) -> ErrorList {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let status = at(claim, "status");
    for (name, value) in entries(status, "capacity") {
        if let Some(size) = quantity(value) {
            amount(&mut errors, size, &path.child("capacity").key(name));
        }
    }
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        let path = path.child("allocatedResourceStatuses");
        allocatable(&mut errors, &path, name);
        if !state.as_str().is_some_and(|state| STATES.contains(&state)) {
            errors.not_supported(&path, name.as_str(), &STATES);
        }
    }
    for (name, value) in entries(status, "allocatedResources") {
        let path = path.child("allocatedResources");
        match quantity(value) {
            _ if !allocatable(&mut errors, &path, name) => {}
            Some(size) => amount(&mut errors, size, &path.key(name)),
            None => {}
        }
    }
    errors
}

/// A resource that a claim may have been given: its size, or what a driver calls its own.
fn allocatable(errors: &mut ErrorList, path: &Path, name: &str) -> bool {
    let known = name == "storage" || name.contains('/') && !name.starts_with("kubernetes.io/");
    if !known {
        errors.not_supported(path, name, &["storage"]);
    }
    known
}

/// PersistentVolume.
pub fn volume(_context: &Context<'_>, volume: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(volume, "spec");
    modes(&mut errors, spec, &path, "");
    capacity(&mut errors, at(spec, "capacity"), &path.child("capacity"));
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        let policies = ["Delete", "Recycle", "Retain"];
        one_of(&mut errors, &path.child("persistentVolumeReclaimPolicy"), policy, &policies);
    }
    if has(spec, "nodeAffinity") {
        let path = path.child("nodeAffinity").child("required");
        match at(spec, "nodeAffinity.required") {
            Value::Null => errors.required(&path, "must specify required node constraints"),
            required => super::volumes::node_terms(&mut errors, required, &path),
        }
    }
    one_source(&mut errors, spec, &path);
    if policy == "Recycle" && text(spec, "hostPath.path") == "/" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_each(&path.child("storageClassName"), class, names::dns1123_subdomain(class));
    }
    if has(spec, "volumeMode") {
        one_of(&mut errors, &path.child("volumeMode"), text(spec, "volumeMode"), &["Block", "Filesystem"]);
    }
    if has(spec, "volumeAttributesClassName") {
        let of_class = path.child("volumeAttributesClassName");
        match text(spec, "volumeAttributesClassName") {
            "" => errors.required(&of_class, "an empty string is disallowed"),
            class => errors.invalid_each(&of_class, class, names::dns1123_subdomain(class)),
        }
        if !has(spec, "csi") {
            errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
    errors
}

fn capacity(errors: &mut ErrorList, capacity: &Value, path: &Path) {
    let named: Vec<&String> = capacity.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    if named.is_empty() {
        errors.required(path, "");
    }
    if named.len() != 1 || named[0] != "storage" {
        // Go prints an empty map that was never made as null.
        let shown = if named.is_empty() { Value::Null } else { capacity.clone() };
        errors.not_supported(path, shown, &["storage"]);
    }
    for (name, size) in capacity.as_object().into_iter().flatten() {
        let Some(size) = quantity(size) else { continue };
        let path = path.key(name);
        amount(errors, size, &path);
        if size.sign() <= 0 {
            errors.invalid(&path, size.to_string(), "must be greater than zero");
        }
    }
}

/// Sources of volumes in the order in which they are looked for, with their names in messages.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

/// Where a volume's data is: one place of many.
pub fn one_source(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let mut sources = SOURCES.into_iter().filter(|(field, _)| has(spec, field));
    match sources.next() {
        None => errors.required(path, "must specify a volume type"),
        Some((field, _)) => {
            let source = at(spec, field);
            super::volumes::source(errors, field, source, path, Holder::Persistent);
            match field {
                "csi" => super::volumes::persistent_csi(errors, source, &path.child(field)),
                "glusterfs" if has(source, "endpointsNamespace") => {
                    endpoints_namespace(errors, text(source, "endpointsNamespace"), &path.child(field));
                }
                "local" if !has(spec, "nodeAffinity") => {
                    errors.required(&path.child("nodeAffinity"), "Local volume requires node affinity");
                }
                _ => {}
            }
        }
    }
    for (field, shown) in sources {
        // This one upstream does not count.
        if field == "flexVolume" {
            super::volumes::source(errors, field, at(spec, field), path, Holder::Persistent);
        } else {
            errors.forbidden(&path.child(shown), "may not specify more than 1 volume type");
        }
    }
}

fn endpoints_namespace(errors: &mut ErrorList, namespace: &str, path: &Path) {
    let path = path.child("endpointsNamespace");
    match namespace {
        "" => errors.invalid(&path, "", "if the endpointnamespace is set, it must be a valid namespace name"),
        dotted if dotted.contains('.') => errors.invalid(&path, dotted, "must not contain dots"),
        name => errors.invalid_each(&path, name, names::dns1123_label(name)),
    }
}

/// An update of a volume: where its data is stays.
pub fn volume_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    if context.subresource.is_some() {
        return ErrorList::new();
    }
    let mut errors = volume(context, new);
    let sources = |volume: &Value| {
        let mut spec = at(volume, "spec").clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| !NOT_SOURCES.contains(&field.as_str()));
        }
        spec
    };
    if sources(new) != sources(old) {
        errors.forbidden(
            &Path::new("spec").child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        );
    }
    unchanged(&mut errors, &Path::new("volumeMode"), at(new, "spec.volumeMode"), at(old, "spec.volumeMode"));
    let (affinity, before) = (at(new, "spec.nodeAffinity"), at(old, "spec.nodeAffinity"));
    if !before.is_null() && affinity != before && *affinity != renewed(before, affinity) {
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.invalid(&Path::new("nodeAffinity"), affinity.clone(), detail);
    }
    errors
}

/// Labels of nodes that have newer names.
const RENAMED: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
];

/// The nodes of before with the newer names of labels where those are the new ones; upstream takes none for the newer
/// name of a label that has none.
fn renewed(before: &Value, affinity: &Value) -> Value {
    const TERMS: &str = "required.nodeSelectorTerms";
    const LABELS: &str = "matchExpressions";
    let mut before = before.clone();
    let terms = before["required"]["nodeSelectorTerms"].as_array_mut();
    for (term, new) in terms.into_iter().flatten().zip(items(affinity, TERMS)) {
        let labels = term.get_mut(LABELS).and_then(Value::as_array_mut);
        for (label, new) in labels.into_iter().flatten().zip(items(new, LABELS)) {
            let newer = RENAMED.iter().find(|(old, _)| *old == text(label, "key")).map_or("", |(_, newer)| newer);
            if text(new, "key") == newer {
                label["key"] = new["key"].clone();
            }
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_of_a_volume_stay_but_for_newer_names() {
        const ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
        let affinity = |key: &str, value: &str| {
            let label = json!({"key": key, "operator": "In", "values": [value]});
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}})
        };
        let same = |before: &Value, new: &Value| renewed(before, new) == *new;
        for (before, after, value, fits) in [
            (ZONE, "topology.kubernetes.io/zone", "a", true),
            (ZONE, "topology.kubernetes.io/zone", "b", false),
            (ZONE, "topology.kubernetes.io/region", "a", false),
            ("x", "y", "a", false),
            ("x", "", "a", true),
        ] {
            assert_eq!(same(&affinity(before, "a"), &affinity(after, value)), fits, "{before} {after} {value}");
        }
    }

    #[test]
    fn what_claims_are_given() {
        let faults = |status: Value| claim_status(&json!({"status": status})).to_string();
        for (given, expected) in [
            (json!({"allocatedResources": {"storage": "1", "x.io/a": "1"}}), ""),
            (
                json!({"allocatedResources": {"cpu": "1"}}),
                "status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
            ),
            (
                json!({"allocatedResourceStatuses": {"cpu": "NodeResizePending"}}),
                "status.allocatedResourceStatuses: Unsupported value: \"cpu\": supported values: \"storage\"",
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
    }
}
