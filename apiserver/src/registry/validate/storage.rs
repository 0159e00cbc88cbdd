//! Errors of volumes and claims.

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use pintle_machinery::quantity::Quantity;
use serde_json::Value;

use super::one_of;
use crate::registry::Context;
use crate::registry::value::{at, get_mut, has, items, remove, text};

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

fn modes(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let given = items(spec, "accessModes");
    if given.is_empty() {
        errors.required(&path.child("accessModes"), "at least 1 access mode is required");
    }
    for mode in given.iter().filter_map(Value::as_str) {
        one_of(errors, &path.child("accessModes"), mode, &MODES);
    }
}

fn storage(value: Option<&Value>) -> Option<Quantity> {
    value?.as_str()?.parse().ok()
}

/// PersistentVolumeClaim.
pub fn claim(_context: &Context<'_>, claim: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(claim, "spec");
    modes(&mut errors, spec, &path);
    let wanted = at(spec, "resources.requests").get("storage");
    match storage(wanted) {
        None => errors.required(&path.child("resources").key("storage"), ""),
        Some(amount) if amount.sign() <= 0 => {
            let path = path.child("resources").key("storage");
            errors.invalid(&path, amount.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_each(&path.child("storageClassName"), class, names::dns1123_subdomain(class));
    }
    one_of(&mut errors, &path.child("volumeMode"), text(spec, "volumeMode"), &["Block", "Filesystem"]);
    errors
}

/// An update of a claim: it may be bound and grow.
pub fn claim_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    const DETAIL: &str =
        "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    if context.subresource.is_some() {
        return ErrorList::new();
    }
    let mut errors = claim(context, new);
    let fixed = |claim: &Value| {
        let mut spec = at(claim, "spec").clone();
        if let Some(requests) = get_mut(&mut spec, "resources.requests") {
            remove(requests, "storage");
        }
        remove(&mut spec, "volumeAttributesClassName");
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
    if size(new) < size(old) && size(new) < storage(at(old, "status.capacity").get("storage")) {
        let path = path.child("resources").child("requests").child("storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
    errors
}

/// PersistentVolume.
pub fn volume(_context: &Context<'_>, volume: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(volume, "spec");
    modes(&mut errors, spec, &path);
    let capacity = at(spec, "capacity");
    if capacity.as_object().is_none_or(|capacity| capacity.is_empty()) {
        errors.required(&path.child("capacity"), "");
    }
    match storage(capacity.get("storage")) {
        None => errors.not_supported(&path.child("capacity"), capacity.clone(), &["storage"]),
        Some(amount) if amount.sign() <= 0 => {
            let path = path.child("capacity").key("storage");
            errors.invalid(&path, amount.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    one_of(&mut errors, &path.child("persistentVolumeReclaimPolicy"), policy, &policies);
    one_source(&mut errors, spec, &path);
    errors
}

fn one_source(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let fields = spec.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let mut sources = fields.filter(|field| !NOT_SOURCES.contains(field));
    if sources.next().is_none() {
        errors.required(path, "must specify a volume type");
    }
    for source in sources {
        errors.forbidden(&path.child(source), "may not specify more than 1 volume type");
    }
}

/// A volume that is described where it is used.
pub fn inline_source(errors: &mut ErrorList, spec: &Value, path: &Path) {
    modes(errors, spec, path);
    one_source(errors, spec, path);
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
    errors
}
