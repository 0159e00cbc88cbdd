//! Volumes and configuration.

use jiff::Timestamp;
use serde_json::Value;

use super::{UNSET, age, deleting, join, name, or};
use crate::registry::value::{at, entries, flag, has, items, text};

fn modes(object: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    let have: Vec<&str> = items(object, path).iter().map(short).collect();
    join(["RWO", "ROX", "RWX", "RWOP"].into_iter().filter(|mode| have.contains(mode)), ",")
}

fn phase(object: &Value) -> Value {
    if deleting(object) { "Terminating".into() } else { text(object, "status.phase").into() }
}

fn class(object: &Value) -> &str {
    let old = at(object, "metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    old.and_then(Value::as_str).unwrap_or(text(object, "spec.storageClassName"))
}

/// PersistentVolumes.
pub fn persistentvolumes(volume: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match has(volume, "spec.claimRef") {
        true => format!("{}/{}", text(volume, "spec.claimRef.namespace"), text(volume, "spec.claimRef.name")),
        false => String::new(),
    };
    vec![
        name(volume),
        or(text(volume, "spec.capacity.storage"), "0").into(),
        modes(volume, "spec.accessModes").into(),
        text(volume, "spec.persistentVolumeReclaimPolicy").into(),
        phase(volume),
        claim.into(),
        class(volume).into(),
        or(text(volume, "spec.volumeAttributesClassName"), UNSET).into(),
        text(volume, "status.reason").into(),
        age(volume, now),
        or(text(volume, "spec.volumeMode"), UNSET).into(),
    ]
}

/// PersistentVolumeClaims.
pub fn persistentvolumeclaims(claim: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text(claim, "spec.volumeName").is_empty();
    let (capacity, modes) = match bound {
        true => (or(text(claim, "status.capacity.storage"), "0").to_owned(), modes(claim, "status.accessModes")),
        false => (String::new(), String::new()),
    };
    vec![
        name(claim),
        phase(claim),
        text(claim, "spec.volumeName").into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        or(text(claim, "spec.volumeAttributesClassName"), UNSET).into(),
        age(claim, now),
        or(text(claim, "spec.volumeMode"), UNSET).into(),
    ]
}

/// StorageClasses.
pub fn storageclasses(class: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = at(class, "metadata.annotations");
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| annotations.get(*key).and_then(Value::as_str) == Some("true"));
    let mark = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{mark}", text(class, "metadata.name")).into(),
        text(class, "provisioner").into(),
        or(text(class, "reclaimPolicy"), "Delete").into(),
        or(text(class, "volumeBindingMode"), UNSET).into(),
        flag(class, "allowVolumeExpansion").into(),
        age(class, now),
    ]
}

/// VolumeAttributesClasses.
pub fn volumeattributesclasses(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(class), text(class, "driverName").into(), age(class, now)]
}

/// VolumeAttachments.
pub fn volumeattachments(attachment: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(attachment),
        text(attachment, "spec.attacher").into(),
        text(attachment, "spec.source.persistentVolumeName").into(),
        text(attachment, "spec.nodeName").into(),
        flag(attachment, "status.attached").into(),
        age(attachment, now),
    ]
}

/// CSINodes.
pub fn csinodes(node: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(node), items(node, "spec.drivers").len().into(), age(node, now)]
}

/// CSIDrivers.
pub fn csidrivers(driver: &Value, now: Timestamp) -> Vec<Value> {
    let or_unset = |list: Vec<&str>| or(&list.join(","), UNSET).to_owned();
    let tokens = items(driver, "spec.tokenRequests").iter().map(|request| text(request, "audience")).collect();
    let modes = items(driver, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    vec![
        name(driver),
        flag(driver, "spec.attachRequired").into(),
        flag(driver, "spec.podInfoOnMount").into(),
        flag(driver, "spec.storageCapacity").into(),
        or_unset(tokens).into(),
        flag(driver, "spec.requiresRepublish").into(),
        or_unset(modes).into(),
        age(driver, now),
    ]
}

/// ConfigMaps.
pub fn configmaps(map: &Value, now: Timestamp) -> Vec<Value> {
    let count = entries(map, "data").count() + entries(map, "binaryData").count();
    vec![name(map), count.into(), age(map, now)]
}

/// Secrets.
pub fn secrets(secret: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(secret), text(secret, "type").into(), entries(secret, "data").count().into(), age(secret, now)]
}
