//! Errors of ClusterTrustBundles and StorageVersionMigrations.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::certificates::{pem_blocks, signer_name};
use super::{IMMUTABLE, unchanged};
use crate::engine::meta::mask_trailing_dash;
use crate::registry::Context;
use crate::registry::value::{at, has, items, text};

/// ClusterTrustBundle.
pub fn bundle(_context: &Context<'_>, bundle: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let signer = text(bundle, "spec.signerName");
    if !signer.is_empty() {
        signer_name(&mut errors, &path.child("signerName"), signer);
    }
    if let Some(fault) = anchors_fault(text(bundle, "spec.trustBundle")) {
        let path = path.child("trustBundle");
        errors.push(FieldError::new(Fault::Invalid, &path, "<value omitted>", fault));
    }
    errors
}

/// An update of a ClusterTrustBundle: it stays with its signer.
pub fn bundle_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = bundle(context, new);
    let path = Path::new("spec").child("signerName");
    if text(new, "spec.signerName") != text(old, "spec.signerName") {
        errors.invalid(&path, text(new, "spec.signerName"), IMMUTABLE);
    }
    errors
}

/// What a bundle may be called depends on its signer.
pub fn bundle_name(bundle: &Value, name: &str, is_prefix: bool) -> Vec<String> {
    let signer = text(bundle, "spec.signerName");
    let prefix = format!("{}:", signer.replace('/', ":"));
    let rest = match signer {
        "" if name.contains(':') => {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        "" => name,
        _ => match name.strip_prefix(&prefix) {
            Some(rest) => rest,
            None => {
                return vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")];
            }
        },
    };
    names::dns1123_subdomain(&mask_trailing_dash(rest, is_prefix))
}

fn anchors_fault(pem: &str) -> Option<String> {
    let blocks = pem_blocks(pem.as_bytes());
    for (index, (label, der)) in blocks.iter().enumerate() {
        if label != "CERTIFICATE" {
            return Some(format!("entry {index} has bad block type: {label}"));
        }
        if x509_parser::parse_x509_certificate(der).is_err() {
            return Some(format!("entry {index} does not parse as X.509"));
        }
    }
    if blocks.is_empty() {
        return Some("at least one trust anchor must be provided".to_owned());
    }
    let twin = (1..blocks.len()).find_map(|b| (0..b).find(|a| blocks[*a].1 == blocks[b].1).map(|a| (a, b)));
    twin.map(|(a, b)| format!("duplicate trust anchor (indices [{a} {b}])"))
}

/// StorageVersionMigration.
pub fn migration(_context: &Context<'_>, migration: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("resource");
    match text(migration, "spec.resource.resource") {
        "" => errors.required(&path.child("resource"), "resource is required to be set"),
        resource => errors.invalid_each(&path.child("resource"), resource, names::dns1035_label(resource)),
    }
    let group = text(migration, "spec.resource.group");
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    }
    errors
}

/// An update of a StorageVersionMigration: what it is about stays, what has ended stays so.
pub fn migration_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_none() {
        errors.extend(migration(context, new));
        if at(new, "spec") != at(old, "spec") {
            let resource = at(new, "spec.resource");
            let shown = format!(
                "{{\"Resource\":{{\"group\":{},\"resource\":{}}}}}",
                Value::String(text(resource, "group").to_owned()),
                Value::String(text(resource, "resource").to_owned())
            );
            let error = FieldError::new(Fault::Invalid, &Path::new("spec"), Value::Null, IMMUTABLE);
            errors.push(error.shown_as(shown));
        }
        return errors;
    }
    let path = Path::new("status");
    let version = text(new, "status.resourceVersion");
    if has(new, "status.resourceVersion") && (version.is_empty() || version.parse::<u64>().is_err()) {
        let detail = format!("resource version is not well formed: {version}");
        errors.invalid(&path.child("resourceVersion"), version, detail);
    }
    let before = at(old, "status.resourceVersion");
    if !before.is_null() {
        unchanged(&mut errors, &path.child("resourceVersion"), at(new, "status.resourceVersion"), before);
    }
    super::conditions(&mut errors, at(new, "status"), &path);
    let is = |ty: &str| {
        let mut all = items(new, "status.conditions").iter();
        all.any(|condition| text(condition, "type") == ty && text(condition, "status") == "True")
    };
    if is("Succeeded") && is("Failed") {
        let detail = "Both success and failed conditions cannot be true at the same time";
        errors.invalid(&path.child("conditions"), at(new, "status.conditions").clone(), detail);
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anchors() {
        assert_eq!(anchors_fault("").as_deref(), Some("at least one trust anchor must be provided"));
        let other = "-----BEGIN FOO-----\nZm9v\n-----END FOO-----\n";
        assert_eq!(anchors_fault(other).as_deref(), Some("entry 0 has bad block type: FOO"));
        let broken = "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n";
        assert_eq!(anchors_fault(broken).as_deref(), Some("entry 0 does not parse as X.509"));
    }

    #[test]
    fn names_have_the_signer_before_them() {
        const OUTSIDE: &str = "must be named with prefix x.io:y:";
        const LETTERS: &str = "a lowercase RFC 1123 subdomain must consist of";
        let cases = [
            ("x.io/y", false, "x.io:y:z", None),
            ("x.io/y", false, "x.io:y:Z", Some(LETTERS)),
            ("x.io/y", false, "x.io:y:", Some(LETTERS)),
            ("x.io/y", false, "x.io:y:z-", Some(LETTERS)),
            ("x.io/y", false, "z", Some(OUTSIDE)),
            ("x.io/y", false, "x.io/y:z", Some(OUTSIDE)),
            ("x.io/y", true, "x.io:y:z-", None),
            ("x.io/y", true, "z-", Some(OUTSIDE)),
            ("", false, "z", None),
            ("", false, "Z", Some(LETTERS)),
            ("", false, "x.io:y:z", Some("without signer name must not have \":\" in its name")),
            ("", true, "z-", None),
        ];
        for (signer, is_prefix, name, wanted) in cases {
            let found = bundle_name(&json!({"spec": {"signerName": signer}}), name, is_prefix).into_iter().next();
            assert!(
                found.as_deref().zip(wanted).map_or(found.is_none() && wanted.is_none(), |(f, w)| f.contains(w)),
                "{name} of {signer}: {found:?}"
            );
        }
    }

    #[test]
    fn a_bundle_stays_with_its_signer() {
        let of = |signer: &str| json!({"metadata": {"name": "x.io:y:z"}, "spec": {"signerName": signer}});
        let moved = bundle_update(&Context::ANY, &of("x.io/z"), &of("x.io/y")).to_string();
        assert!(moved.contains("spec.signerName: Invalid value: \"x.io/z\": field is immutable"), "{moved}");
        let same = bundle_update(&Context::ANY, &of("x.io/y"), &of("x.io/y")).to_string();
        assert!(!same.contains("immutable"), "{same}");
    }
}
