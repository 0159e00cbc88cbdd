//! Errors of where volumes get their data from, and of the nodes that can have them.

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::classes::driver_name;
use super::one_of;
use crate::registry::value::{at, entries, flag, has, items, number, text};

const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Who has a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A pod, in its own spec.
    Pod,
    /// It is an object of its own.
    Persistent,
}

/// Fields that a source must have.
fn required(field: &str) -> &'static [&'static str] {
    match field {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "csi" | "flexVolume" => &["driver"],
        "glusterfs" => &["endpoints", "path"],
        "gitRepo" => &["repository"],
        "cephfs" => &["monitors"],
        "rbd" => &["monitors", "image"],
        "vsphereVolume" => &["volumePath"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "portworxVolume" => &["volumeID"],
        "photonPersistentDisk" => &["pdID"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" => &["volumeID"],
        "persistentVolumeClaim" => &["claimName"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "storageos" => &["volumeName"],
        _ => &[],
    }
}

/// The source in one field of a volume; `path` is the volume's.
pub fn source(errors: &mut ErrorList, field: &str, source: &Value, path: &Path, holder: Holder) {
    let path = path.child(if field == "gcePersistentDisk" { "persistentDisk" } else { field });
    let absent = |name: &&&str| text(source, name).is_empty() && items(source, name).is_empty();
    for name in required(field).iter().filter(absent) {
        errors.required(&path.child(name), "");
    }
    match field {
        "hostPath" => {
            no_backsteps(errors, text(source, "path"), &path.child("path"));
            if has(source, "type") && !text(source, "path").is_empty() {
                one_of(errors, &path.child("type"), text(source, "type"), &HOST_PATHS);
            }
        }
        "local" => no_backsteps(errors, text(source, "path"), &path.child("path")),
        "gitRepo" => {
            super::pod_volumes::relative(errors, text(source, "directory"), &path.child("directory"));
        }
        "nfs" => {
            let place = text(source, "path");
            if !place.starts_with('/') {
                errors.invalid(&path.child("path"), place, "must be an absolute path");
            }
        }
        "iscsi" => iscsi(errors, source, &path, holder),
        "fc" => fibre_channel(errors, source, &path),
        "csi" if !text(source, "driver").is_empty() => {
            driver_name(errors, &path.child("driver"), text(source, "driver"));
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = number(source, "partition").filter(|partition| !(0..=255).contains(partition));
            if let Some(partition) = partition {
                errors.invalid(&path.child("partition"), partition, "must be between 1 and 255, inclusive");
            }
        }
        "azureFile" if has(source, "secretNamespace") && text(source, "secretNamespace").is_empty() => {
            errors.required(&path.child("secretNamespace"), "");
        }
        "azureDisk" => azure_disk(errors, source, &path),
        "flocker" => flocker(errors, source, &path),
        "quobyte" => quobyte(errors, source, &path),
        "storageos" => {
            for name in ["volumeName", "volumeNamespace"] {
                let value = text(source, name);
                if !value.is_empty() {
                    errors.invalid_each(&path.child(name), value, names::dns1123_label(value));
                }
            }
        }
        "flexVolume" => {
            for (key, _) in entries(source, "options") {
                let domain = key.to_lowercase();
                let domain = domain.split('/').next().unwrap_or_default();
                let reserved = |own: &str| domain == own || domain.ends_with(&format!(".{own}"));
                if key.contains('/') && (reserved("kubernetes.io") || reserved("k8s.io")) {
                    let detail = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.invalid(&path.child("options").key(key), key.as_str(), detail);
                }
            }
        }
        _ => {}
    }
    secret(errors, field, source, &path, holder);
}

/// The secret that a volume is opened with.
fn secret(errors: &mut ErrorList, field: &str, source: &Value, path: &Path, holder: Holder) {
    let (reference, name) = match (field, holder) {
        ("cinder" | "storageos", _) => (at(source, "secretRef"), "secretRef"),
        ("csi", Holder::Pod) => (at(source, "nodePublishSecretRef"), "nodePublishSecretRef"),
        _ => return,
    };
    if reference.is_null() {
        return;
    }
    let of_secret = path.child(name);
    match text(reference, "name") {
        "" => errors.required(&of_secret.child("name"), ""),
        // Upstream leaves the field out of this path.
        name if field == "csi" => errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name)),
        _ => {}
    }
    if holder == Holder::Persistent && text(reference, "namespace").is_empty() {
        errors.required(&of_secret.child("namespace"), "");
    }
}

fn azure_disk(errors: &mut ErrorList, source: &Value, path: &Path) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    if has(source, "cachingMode") {
        let known = ["None", "ReadOnly", "ReadWrite"];
        one_of(errors, &path.child("cachingMode"), text(source, "cachingMode"), &known);
    }
    let kind = text(source, "kind");
    if has(source, "kind") {
        one_of(errors, &path.child("kind"), kind, &["Dedicated", "Managed", "Shared"]);
    }
    let disk = text(source, "diskURI");
    let (start, shape) = if kind == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !disk.starts_with(start) {
        errors.not_supported(&path.child("diskURI"), disk, &[shape]);
    }
}

fn flocker(errors: &mut ErrorList, source: &Value, path: &Path) {
    let (name, id) = (text(source, "datasetName"), text(source, "datasetUUID"));
    match (name.is_empty(), id.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(errors: &mut ErrorList, source: &Value, path: &Path) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    const TENANT: usize = 64;
    let registry = text(source, "registry");
    let pair = |pair: &str| pair.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && !port.is_empty());
    if registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if text(source, "tenant").len() > TENANT {
        let detail = format!("must be a UUID and may not exceed a length of {TENANT} characters");
        errors.required(&path.child("tenant"), detail);
    } else if !registry.split(',').all(pair) {
        errors.invalid(&path.child("registry"), registry, PAIRS);
    }
    if text(source, "volume").is_empty() {
        errors.required(&path.child("volume"), "");
    }
}

/// A path that leads nowhere above its start.
pub fn no_backsteps(errors: &mut ErrorList, given: &str, path: &Path) {
    if given.split('/').any(|part| part == "..") {
        errors.invalid(path, given, "must not contain '..'");
    }
}

fn iscsi(errors: &mut ErrorList, source: &Value, path: &Path, holder: Holder) {
    let faulty = |errors: &mut ErrorList, field: &str, name: &str| {
        let known = ["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix));
        let detail = match (known, holder) {
            _ if name.is_empty() || is_iscsi_name(name) => return,
            (false, Holder::Pod) => "must be valid format starting with iqn, eui, or naa",
            _ => "must be valid format",
        };
        errors.invalid(&path.child(field), name, detail);
    };
    faulty(errors, "iqn", text(source, "iqn"));
    if let Some(lun) = number(source, "lun").filter(|lun| !(0..=255).contains(lun)) {
        errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
    }
    let secret = at(source, "secretRef");
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession")) && secret.is_null() {
        errors.required(&path.child("secretRef"), "");
    }
    if !secret.is_null() && text(secret, "name").is_empty() {
        errors.required(&path.child("secretRef").child("name"), "");
    }
    faulty(errors, "initiatorname", text(source, "initiatorName"));
}

/// `iqn.2001-04.com.example:disk`, `eui.` with 16 digits or `naa.` with 32.
fn is_iscsi_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric();
    let Some((kind, rest)) = name.split_once('.') else { return false };
    match kind {
        "eui" => rest.len() == 16 && rest.chars().all(word),
        "naa" => rest.len() == 32 && rest.chars().all(word),
        "iqn" => {
            let Some((month, rest)) = rest.split_once('.') else { return false };
            let Some((authority, own)) = rest.split_once(':') else { return false };
            let bytes = month.as_bytes();
            let dated = bytes.len() == 7
                && bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| if at == 4 { *byte == b'-' } else { byte.is_ascii_digit() });
            dated
                && !authority.is_empty()
                && authority.chars().all(|c| word(c) || c == '-' || c == '.')
                && !own.is_empty()
                && !own.chars().any(|c| ",;*&$|".contains(c) || c.is_whitespace())
        }
        _ => false,
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
        _ => {}
    }
    match number(source, "lun") {
        _ if names.is_empty() => {}
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
        }
        Some(_) => {}
    }
}

/// What only drivers of persistent volumes have.
pub fn persistent_csi(errors: &mut ErrorList, source: &Value, path: &Path) {
    if text(source, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    // The secret for staging is not looked at.
    let references =
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    for field in references.into_iter().filter(|field| has(source, field)) {
        let (reference, path) = (at(source, field), path.child(field));
        for (part, check) in
            [("name", names::dns1123_subdomain as fn(&str) -> Vec<String>), ("namespace", names::dns1123_label)]
        {
            match text(reference, part) {
                "" => errors.required(&path.child(part), ""),
                value => errors.invalid_each(&path.child(part), value, check(value)),
            }
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
            source(&mut errors, field, &given, &Path::new("v"), Holder::Pod);
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
            ("flocker", json!({}), "v.flocker: Required value: one of datasetName and datasetUUID is required"),
            (
                "gcePersistentDisk",
                json!({"pdName": "a", "partition": 256}),
                "v.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            ),
            (
                "azureDisk",
                json!({"diskName": "a", "diskURI": "x"}),
                "v.azureDisk.diskURI: Unsupported value: \"x\": supported values: \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\"",
            ),
            (
                "quobyte",
                json!({"registry": "a:1,b", "volume": "v"}),
                "v.quobyte.registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple pairs separated by commas",
            ),
            (
                "flexVolume",
                json!({"driver": "d", "options": {"kubernetes.io/x": "1"}}),
                "v.flexVolume.options[kubernetes.io/x]: Invalid value: \"kubernetes.io/x\": kubernetes.io and k8s.io namespaces are reserved",
            ),
            ("storageos", json!({"volumeName": "a", "secretRef": {}}), "v.storageos.secretRef.name: Required value"),
            (
                "csi",
                json!({"driver": "d", "nodePublishSecretRef": {}}),
                "v.csi.nodePublishSecretRef.name: Required value",
            ),
            (
                "iscsi",
                json!({"targetPortal": "p", "iqn": "iqn.2001-04.com.example:s", "chapAuthSession": true}),
                "v.iscsi.secretRef: Required value",
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
