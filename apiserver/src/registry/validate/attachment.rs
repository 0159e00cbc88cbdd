//! Errors of VolumeAttachments.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IMMUTABLE, caseless_subdomain};
use crate::registry::Context;
use crate::registry::value::{at, entries, has, number, text};

const METADATA_BYTES: usize = 256 * 1024;
const MESSAGE_BYTES: usize = 1024;
/// Longest name of what attaches, in characters.
const NAME: usize = 63;

/// VolumeAttachment.
pub fn attachment(_context: &Context<'_>, attachment: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = at(attachment, "spec");
    place(&mut errors, spec, &Path::new("spec"));
    // Of a new one the words are those for letters of either case.
    attacher(&mut errors, text(spec, "attacher"), "characters", caseless_subdomain);
    status(&mut errors, at(attachment, "status"), &Path::new("status"));
    errors
}

/// An update of a VolumeAttachment: nothing but its status changes.
pub fn attachment_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_none() {
        let spec = at(new, "spec");
        attacher(&mut errors, text(spec, "attacher"), "bytes", |name| names::dns1123_subdomain(&name.to_lowercase()));
        place(&mut errors, spec, &Path::new("spec"));
    }
    status(&mut errors, at(new, "status"), &Path::new("status"));
    if context.subresource.is_none() && at(new, "spec") != at(old, "spec") {
        errors.push(FieldError::new(Fault::Invalid, &Path::new("spec"), Value::Null, IMMUTABLE).shown_as("null"));
    }
    errors
}

/// What is attached, and to what.
fn place(errors: &mut ErrorList, spec: &Value, path: &Path) {
    source(errors, at(spec, "source"), &path.child("source"));
    let node = text(spec, "nodeName");
    errors.invalid_each(&path.child("nodeName"), node, names::dns1123_subdomain(node));
}

fn attacher(errors: &mut ErrorList, name: &str, unit: &str, faults: fn(&str) -> Vec<String>) {
    let path = Path::new("spec").child("attacher");
    if name.is_empty() {
        return errors.required(&path, "");
    }
    let words = unit == "characters";
    if words {
        errors.invalid_each(&path, name, faults(name));
    }
    if name.len() > NAME {
        let detail = format!("may not be more than {NAME} {unit}");
        errors.push(FieldError::new(Fault::TooLong, &path, Value::Null, detail));
    }
    if !words {
        errors.invalid_each(&path, name, faults(name));
    }
}

fn source(errors: &mut ErrorList, source: &Value, path: &Path) {
    const DETAIL: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = at(source, "inlineVolumeSpec");
    match (inline.is_null(), has(source, "persistentVolumeName")) {
        (true, false) => errors.required(path, DETAIL),
        (false, true) => errors.forbidden(path, DETAIL),
        (true, true) => {
            let name = text(source, "persistentVolumeName");
            let path = path.child("persistentVolumeName");
            if name.is_empty() {
                errors.required(&path, "must specify non empty persistentVolumeName");
            }
            errors.invalid_each(&path, name, names::dns1123_subdomain(name));
        }
        (false, false) => self::inline(errors, inline, &path.child("inlineVolumeSpec")),
    }
}

fn inline(errors: &mut ErrorList, volume: &Value, path: &Path) {
    const DETAIL: &str = "may not be specified in the context of inline volumes";
    let told = |errors: &mut ErrorList, fields: &[&str]| {
        for field in fields.iter().filter(|field| has(volume, field)) {
            errors.forbidden(&path.child(field), DETAIL);
        }
    };
    told(errors, &["claimRef", "capacity"]);
    if !has(volume, "csi") {
        errors.required(&path.child("csi"), "has to be specified in the context of inline volumes");
    }
    super::storage::modes(errors, volume, path, "");
    let policy = text(volume, "persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
    told(errors, &["nodeAffinity"]);
    super::storage::one_source(errors, volume, path);
    if !text(volume, "storageClassName").is_empty() {
        errors.forbidden(&path.child("storageClassName"), DETAIL);
    }
    if !matches!(text(volume, "volumeMode"), "" | "Filesystem") {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.child("volumeMode"), detail);
    }
    told(errors, &["volumeAttributesClassName"]);
}

fn status(errors: &mut ErrorList, status: &Value, path: &Path) {
    let bytes: usize =
        entries(status, "attachmentMetadata").map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > METADATA_BYTES {
        errors.too_long(&path.child("attachmentMetadata"), METADATA_BYTES);
    }
    for field in ["attachError", "detachError"] {
        let error = at(status, field);
        let path = path.child(field);
        if text(error, "message").len() > MESSAGE_BYTES {
            errors.too_long(&path.child("message"), MESSAGE_BYTES);
        }
        if let Some(code) = number(error, "errorCode").filter(|code| !(0..=i64::from(i32::MAX)).contains(code)) {
            errors.invalid(&path.child("errorCode"), code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sources() {
        let faults = |given: Value| {
            let mut errors = ErrorList::new();
            source(&mut errors, &given, &Path::new("s"));
            errors.to_string()
        };
        assert_eq!(faults(json!({"persistentVolumeName": "a"})), "");
        assert_eq!(
            faults(json!({})),
            "s: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        );
        assert_eq!(
            faults(
                json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}, "storageClassName": "x"}})
            ),
            "s.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes"
        );
    }

    #[test]
    fn inline_volumes() {
        let faults = |more: Value| {
            let mut volume = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}});
            volume.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let mut errors = ErrorList::new();
            inline(&mut errors, &volume, &Path::new("v"));
            errors.to_string()
        };
        for (given, expected) in [
            (json!({}), ""),
            (json!({"claimRef": {}}), "v.claimRef: Forbidden: may not be specified in the context of inline volumes"),
            (
                json!({"persistentVolumeReclaimPolicy": "Delete"}),
                "v.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes",
            ),
            (
                json!({"volumeMode": "Block"}),
                "v.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes",
            ),
            (
                json!({"csi": null}),
                "[v.csi: Required value: has to be specified in the context of inline volumes, v: Required value: must specify a volume type]",
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
    }
}
