//! Errors of projected volumes: files from several sources in one directory.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::certificates::signer_name;
use super::pod_volumes::{downward, files, local_path, mode};
use super::{label_selector, one_of};
use crate::registry::value::{at, entries, has, int, items, number, text};

/// Kinds of keys that pods may have certificates for.
pub const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
/// What a source may be, in the order in which faults are told.
const SOURCES: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
/// The shortest and the longest life of a pod's certificate, in seconds.
pub const LIFE: (i64, i64) = (3600, 91 * 24 * 3600);
/// The same of a token.
const TOKEN: (i64, i64) = (600, 1 << 32);

/// A projected volume.
pub fn volume(errors: &mut ErrorList, volume: &Value, path: &Path) {
    mode(errors, volume, "defaultMode", path);
    let mut paths = HashSet::new();
    for (index, part) in items(volume, "sources").iter().enumerate() {
        let here = path.child("sources").index(index);
        let given =
            || SOURCES.into_iter().map(|field| (field, at(part, field))).filter(|(_, source)| !source.is_null());
        for (field, source) in given() {
            one(errors, field, source, &here.child(field), path);
            for (file, named) in files_of(field, source) {
                if !paths.insert(file) {
                    errors.invalid(path, named, "conflicting duplicate paths");
                }
            }
        }
        if given().count() > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type per source");
        }
    }
}

fn one(errors: &mut ErrorList, field: &str, source: &Value, path: &Path, volume: &Path) {
    match field {
        "secret" | "configMap" => {
            if text(source, "name").is_empty() {
                errors.required(&path.child("name"), "");
            }
            files(errors, source, path);
        }
        "downwardAPI" => downward(errors, source, path),
        "serviceAccountToken" => token(errors, source, path, volume),
        "clusterTrustBundle" => trust(errors, source, path),
        "podCertificate" => certificate(errors, source, path),
        _ => {}
    }
}

/// The files that a source makes, each with what is shown when it is in the way of another.
fn files_of(field: &str, source: &Value) -> Vec<(String, String)> {
    let path = |holder: &Value, field: &str| text(holder, field).to_owned();
    let files: Vec<(String, String)> = match field {
        "secret" | "configMap" => {
            items(source, "items").iter().map(|item| (path(item, "path"), path(source, "name"))).collect()
        }
        "downwardAPI" => items(source, "items").iter().map(|item| (path(item, "path"), path(item, "path"))).collect(),
        "serviceAccountToken" | "clusterTrustBundle" => vec![(path(source, "path"), path(source, "path"))],
        "podCertificate" => {
            let fields = ["credentialBundlePath", "keyPath", "certificateChainPath"];
            fields.iter().map(|field| (path(source, field), path(source, field))).collect()
        }
        _ => Vec::new(),
    };
    files.into_iter().filter(|(path, _)| !path.is_empty()).collect()
}

fn token(errors: &mut ErrorList, token: &Value, path: &Path, volume: &Path) {
    let seconds = int(token, "expirationSeconds");
    let of_seconds = path.child("expirationSeconds");
    if seconds < TOKEN.0 {
        errors.invalid(&of_seconds, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > TOKEN.1 {
        errors.invalid(&of_seconds, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    local_path(errors, text(token, "path"), &volume.child("path"));
}

fn trust(errors: &mut ErrorList, source: &Value, path: &Path) {
    let (name, signer) = (text(source, "name"), text(source, "signerName"));
    match (has(source, "name"), has(source, "signerName")) {
        (true, true) => {
            let shown = format!(
                "{{\"Name\":{},\"SignerName\":{},\"LabelSelector\":{},\"Optional\":{},\"Path\":{},\"User\":{}}}",
                source["name"],
                source["signerName"],
                at(source, "labelSelector"),
                at(source, "optional"),
                Value::String(text(source, "path").to_owned()),
                at(source, "user")
            );
            let detail = "only one of name and signerName may be used";
            errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as(shown));
        }
        (true, false) => {
            let of_name = path.child("name");
            if name.is_empty() {
                errors.required(&of_name, "must be a valid object name");
            }
            for fault in super::trust::bundle_name(&Value::Null, name, false) {
                errors.invalid(&of_name, name, format!("not a valid clustertrustbundlename: {fault}"));
            }
            if has(source, "labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), source["labelSelector"].clone(), detail);
            }
        }
        (false, true) => {
            let of_signer = path.child("signerName");
            if signer.is_empty() {
                errors.required(&of_signer, "must be a valid signer name");
            }
            signer_name(errors, &of_signer, signer);
            label_selector(errors, &path.child("labelSelector"), at(source, "labelSelector"));
        }
        (false, false) => errors.required(path, "either name or signerName must be specified"),
    }
    local_path(errors, text(source, "path"), &path.child("path"));
}

fn certificate(errors: &mut ErrorList, source: &Value, path: &Path) {
    signer_name(errors, &path.child("signerName"), text(source, "signerName"));
    one_of(errors, &path.child("keyType"), text(source, "keyType"), &KEY_TYPES);
    if let Some(seconds) = number(source, "maxExpirationSeconds") {
        let path = path.child("maxExpirationSeconds");
        if seconds < LIFE.0 {
            errors.invalid(&path, seconds, format!("if provided, maxExpirationSeconds must be >= {}", LIFE.0));
        }
        if seconds > LIFE.1 {
            errors.invalid(&path, seconds, format!("if provided, maxExpirationSeconds must be <= {}", LIFE.1));
        }
    }
    let given = files_of("podCertificate", source);
    if given.is_empty() {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = text(source, field);
        if !file.is_empty() {
            local_path(errors, file, &path.child(field));
        }
    }
    for (key, _) in entries(source, "userAnnotations") {
        errors.invalid_each(&path.child("userAnnotations"), key, names::qualified(&key.to_lowercase()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(source: Value) -> String {
        let mut errors = ErrorList::new();
        volume(&mut errors, &json!({"sources": [source]}), &Path::new("v"));
        errors.to_string()
    }

    #[test]
    fn certificates() {
        let with = |field: &str, value: Value| {
            let mut source = json!({"signerName": "x.io/y", "keyType": "ED25519", "credentialBundlePath": "b"});
            source[field] = value;
            faults(json!({"podCertificate": source}))
        };
        assert_eq!(with("keyPath", json!("k")), "");
        let path = "v.sources[0].podCertificate";
        assert_eq!(
            with("maxExpirationSeconds", json!(5)),
            format!("{path}.maxExpirationSeconds: Invalid value: 5: if provided, maxExpirationSeconds must be >= 3600")
        );
        assert_eq!(with("keyPath", json!("b")), "v: Invalid value: \"b\": conflicting duplicate paths");
    }

    #[test]
    fn each_of_several_sources_is_looked_at() {
        let source = json!({"clusterTrustBundle": {}, "configMap": {}, "serviceAccountToken": {"path": "/a", "expirationSeconds": 600}});
        let path = "v.sources[0]";
        assert_eq!(
            faults(source),
            format!(
                "[{path}.configMap.name: Required value, v.path: Invalid value: \"/a\": must be a relative path, \
                 {path}.clusterTrustBundle: Required value: either name or signerName must be specified, \
                 {path}.clusterTrustBundle.path: Required value, {path}: Forbidden: may not specify more than 1 volume type per source]"
            )
        );
    }

    #[test]
    fn bundles() {
        let path = "v.sources[0].clusterTrustBundle";
        assert_eq!(faults(json!({"clusterTrustBundle": {"name": "a", "path": "p"}})), "");
        assert_eq!(
            faults(json!({"clusterTrustBundle": {"path": "p"}})),
            format!("{path}: Required value: either name or signerName must be specified")
        );
    }
}
