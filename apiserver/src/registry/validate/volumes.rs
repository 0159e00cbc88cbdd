//! Errors of where volumes get their data from, and of the nodes that can have them.

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::classes::driver_name;
use super::one_of;
use crate::registry::value::{at, has, items, number, text};

const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Fields that a source must have.
fn required(field: &str) -> &'static [&'static str] {
    match field {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "csi" => &["driver"],
        "glusterfs" => &["endpoints", "path"],
        "flexVolume" => &["driver"],
        "rbd" => &["image"],
        "vsphereVolume" => &["volumePath"],
        "azureFile" => &["secretName", "shareName"],
        "portworxVolume" => &["volumeID"],
        "photonPersistentDisk" => &["pdID"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" => &["volumeID"],
        "persistentVolumeClaim" => &["claimName"],
        _ => &[],
    }
}

/// The source in one field of a volume, for a pod or for a persistent volume.
pub fn source(errors: &mut ErrorList, field: &str, source: &Value, path: &Path) {
    for name in required(field).iter().filter(|name| text(source, name).is_empty()) {
        errors.required(&path.child(name), "");
    }
    match field {
        "hostPath" => {
            no_backsteps(errors, text(source, "path"), &path.child("path"));
            if has(source, "type") {
                one_of(errors, &path.child("type"), text(source, "type"), &HOST_PATHS);
            }
        }
        "local" => no_backsteps(errors, text(source, "path"), &path.child("path")),
        "nfs" => {
            let place = text(source, "path");
            if !place.starts_with('/') {
                errors.invalid(&path.child("path"), place, "must be an absolute path");
            }
        }
        "iscsi" => iscsi(errors, source, path),
        "fc" => fibre_channel(errors, source, path),
        "csi" if !text(source, "driver").is_empty() => {
            driver_name(errors, &path.child("driver"), text(source, "driver"));
        }
        _ => {}
    }
}

/// A path that leads nowhere above its start.
pub fn no_backsteps(errors: &mut ErrorList, given: &str, path: &Path) {
    if given.split('/').any(|part| part == "..") {
        errors.invalid(path, given, "must not contain '..'");
    }
}

fn iscsi(errors: &mut ErrorList, source: &Value, path: &Path) {
    let name = text(source, "iqn");
    for (field, name) in [("iqn", name), ("initiatorname", text(source, "initiatorName"))] {
        let known = ["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix));
        let dotted = name.get(3..).is_some_and(|rest| rest.starts_with('.'));
        let path = path.child(field);
        match (name.is_empty(), known, dotted) {
            (true, ..) | (_, true, true) => {}
            (_, false, _) => errors.invalid(&path, name, "must be valid format starting with iqn, eui, or naa"),
            _ => errors.invalid(&path, name, "must be valid format"),
        }
    }
    if let Some(lun) = number(source, "lun").filter(|lun| !(0..=255).contains(lun)) {
        errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
    }
}

fn fibre_channel(errors: &mut ErrorList, source: &Value, path: &Path) {
    let (names, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            errors.required(&path.child("targetWWNs"), detail);
        }
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&path.child("targetWWNs"), names.to_vec(), detail);
        }
        (false, true) => match number(source, "lun") {
            None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => {
                errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
            }
            Some(_) => {}
        },
        _ => {}
    }
}

/// What only drivers of persistent volumes have.
pub fn persistent_csi(errors: &mut ErrorList, source: &Value, path: &Path) {
    if text(source, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeStageSecretRef",
        "nodeExpandSecretRef",
    ] {
        let reference = at(source, field);
        for part in
            ["name", "namespace"].into_iter().filter(|part| !reference.is_null() && text(reference, part).is_empty())
        {
            errors.required(&path.child(field).child(part), "");
        }
    }
}

/// Terms that choose nodes.
pub fn node_terms(errors: &mut ErrorList, selector: &Value, path: &Path) {
    let path = path.child("nodeSelectorTerms");
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(errors, term, &path.index(index));
    }
}

/// One such term.
pub fn node_term(errors: &mut ErrorList, term: &Value, path: &Path) {
    for (index, expression) in items(term, "matchExpressions").iter().enumerate() {
        node_expression(errors, expression, &path.child("matchExpressions").index(index));
    }
    for (index, expression) in items(term, "matchFields").iter().enumerate() {
        node_field(errors, expression, &path.child("matchFields").index(index));
    }
}

fn node_expression(errors: &mut ErrorList, expression: &Value, path: &Path) {
    let values = items(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&path.child("values"), detail);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.required(&path.child("values"), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    let key = text(expression, "key");
    errors.invalid_each(&path.child("key"), key, names::label_key(key));
    for (index, value) in values.iter().enumerate().filter(|_| matches!(text(expression, "operator"), "In" | "NotIn")) {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&path.child("values").index(index), value, names::label_value(value));
    }
}

fn node_field(errors: &mut ErrorList, expression: &Value, path: &Path) {
    let values = items(expression, "values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    match text(expression, "key") {
        "metadata.name" => {
            for (index, value) in values.iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                errors.invalid_each(&path.child("values").index(index), value, names::dns1123_subdomain(value));
            }
        }
        other => errors.invalid(&path.child("key"), other, "not a valid field selector key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sources() {
        let faults = |field: &str, given: Value| {
            let mut errors = ErrorList::new();
            source(&mut errors, field, &given, &Path::new("v").child(field));
            errors.to_string()
        };
        for (field, given, expected) in [
            ("hostPath", json!({"path": "/a"}), ""),
            (
                "hostPath",
                json!({"path": "/a/../b"}),
                "v.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
            ),
            ("nfs", json!({"server": "s", "path": "a"}), "v.nfs.path: Invalid value: \"a\": must be an absolute path"),
            (
                "iscsi",
                json!({"targetPortal": "p", "iqn": "x"}),
                "v.iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
            ),
            ("fc", json!({}), "v.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"),
        ] {
            assert_eq!(faults(field, given), expected);
        }
    }

    #[test]
    fn terms() {
        let mut errors = ErrorList::new();
        let expression = |operator: &str, values: Value| json!({"key": "a", "operator": operator, "values": values});
        let terms = json!({"nodeSelectorTerms": [
            {"matchExpressions": [expression("Exists", json!([])), expression("X", json!([]))]},
            {"matchExpressions": [expression("Gt", json!(["1", "2"]))]},
        ]});
        node_terms(&mut errors, &terms, &Path::new("n"));
        assert_eq!(
            errors.to_string(),
            "[n.nodeSelectorTerms[0].matchExpressions[1].operator: Invalid value: \"X\": not a valid selector operator, \
             n.nodeSelectorTerms[1].matchExpressions[0].values: Required value: must be specified single value when \
             `operator` is 'Lt' or 'Gt']"
        );
    }
}
