//! Errors of PodCertificateRequests.

use base64::Engine;
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::certificates::{pem_blocks, signer_name};
use super::one_of;
use super::projected::LIFE;
use crate::registry::Context;
use crate::registry::value::{at, entries, has, int, items, text};

const UID: usize = 128;
const ENDS: [&str; 3] = ["Issued", "Denied", "Failed"];

/// A fault whose value is not shown.
fn unshown(errors: &mut ErrorList, path: &Path, detail: &str) {
    errors.push(FieldError::new(Fault::Invalid, path, Value::Null, "").shown_as(detail));
}

/// PodCertificateRequest.
pub fn request(_context: &Context<'_>, request: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(request, "spec");
    signer_name(&mut errors, &path.child("signerName"), text(spec, "signerName"));
    for field in ["podName", "serviceAccountName", "nodeName"] {
        let name = text(spec, field);
        errors.invalid_each(&path.child(field), name, names::dns1123_subdomain(name));
    }
    for field in ["podUID", "serviceAccountUID", "nodeUID"] {
        match text(spec, field) {
            "" => errors.invalid(&path.child(field), "", "must not be empty"),
            uid if uid.len() > UID => errors.too_long(&path.child(field), UID),
            _ => {}
        }
    }
    let seconds = int(spec, "maxExpirationSeconds");
    if !(LIFE.0..=LIFE.1).contains(&seconds) {
        let detail = format!("must be in the range [{}, {}]", LIFE.0, LIFE.1);
        errors.invalid(&path.child("maxExpirationSeconds"), seconds, detail);
    }
    for (key, _) in entries(spec, "unverifiedUserAnnotations") {
        errors.invalid_each(&path.child("unverifiedUserAnnotations"), key, names::qualified(&key.to_lowercase()));
    }
    key(&mut errors, spec, &path);
    errors
}

fn key(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let given = |field: &str| !text(spec, field).is_empty();
    let pair = given("pkixPublicKey") || given("proofOfPossession");
    if given("stubPKCS10Request") == pair {
        let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
        return unshown(errors, path, detail);
    }
    if pair {
        return;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text(spec, "stubPKCS10Request")).unwrap_or_default();
    use x509_parser::prelude::FromDer;
    if x509_parser::certification_request::X509CertificationRequest::from_der(&bytes).is_err() {
        unshown(errors, &path.child("stubPKCS10Request"), "must be a valid PKCS#10 CSR");
    }
}

fn ended(request: &Value) -> Vec<&str> {
    let conditions = items(request, "status.conditions").iter().map(|condition| text(condition, "type"));
    conditions.filter(|ty| ENDS.contains(ty)).collect()
}

/// An update of a PodCertificateRequest: what is asked for stays, and it ends once.
pub fn request_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_none() {
        if at(new, "spec") != at(old, "spec") {
            errors.invalid(&Path::new("spec"), at(new, "spec").clone(), super::IMMUTABLE);
        }
        return errors;
    }
    let path = Path::new("status");
    if at(new, "status") == at(old, "status") {
        return errors;
    }
    if !ended(old).is_empty() || items(new, "status.conditions").is_empty() {
        let detail = "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        unshown(&mut errors, &path, detail);
        return errors;
    }
    for (index, condition) in items(new, "status.conditions").iter().enumerate() {
        let of_type = path.child("conditions").child(&format!("[{index}]")).child("type");
        one_of(&mut errors, &of_type, text(condition, "type"), &ENDS);
    }
    let ended = ended(new);
    let chain = text(new, "status.certificateChain");
    if ended.contains(&"Issued") {
        let path = path.child("certificateChain");
        if pem_blocks(chain.as_bytes()).is_empty() {
            errors.invalid(&path, chain, "issued certificate chain must contain at least one certificate");
        }
    } else if has(new, "status.certificateChain") && !chain.is_empty() {
        let detail = "must be empty unless the request is issued";
        errors.invalid(&path.child("certificateChain"), chain, detail);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_proven_in_one_way() {
        let faults = |spec: Value| {
            let mut errors = ErrorList::new();
            key(&mut errors, &spec, &Path::new("spec"));
            errors.to_string()
        };
        assert_eq!(
            faults(json!({})),
            "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        );
        assert_eq!(
            faults(json!({"stubPKCS10Request": "Zm9v"})),
            "spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"
        );
    }
}
