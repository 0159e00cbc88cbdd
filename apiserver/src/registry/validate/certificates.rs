//! Errors of CertificateSigningRequests.

use std::collections::HashSet;

use base64::Engine;
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::one_of;
use crate::registry::Context;
use crate::registry::value::{at, items, number, text};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// Longest name of a signer: a domain, a slash, and a path of five labels.
const SIGNER_NAME: usize = 571;
/// Shortest life of a certificate, in seconds.
const SHORTEST: i64 = 600;
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// CertificateSigningRequest.
pub fn request(_context: &Context<'_>, request: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(request, "spec");
    let shown = text(spec, "request");
    let bytes = base64::engine::general_purpose::STANDARD.decode(shown).unwrap_or_default();
    if let Some(fault) = request_fault(&bytes) {
        errors.invalid(&path.child("request"), at(spec, "request").clone(), fault);
    }
    let usages = path.child("usages");
    let given = items(spec, "usages");
    if given.is_empty() {
        errors.required(&usages, "");
    }
    let mut seen = HashSet::new();
    for (index, usage) in given.iter().map(|usage| usage.as_str().unwrap_or_default()).enumerate() {
        one_of(&mut errors, &usages.index(index), usage, &USAGES);
        if !seen.insert(usage) {
            errors.duplicate(&usages.index(index), usage);
        }
    }
    match text(spec, "signerName") {
        LEGACY => {
            let detail = "the legacy signerName is not allowed via this API version";
            errors.invalid(&path.child("signerName"), LEGACY, detail);
        }
        name => signer_name(&mut errors, &path.child("signerName"), name),
    }
    if let Some(seconds) = number(spec, "expirationSeconds").filter(|seconds| *seconds < SHORTEST) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), seconds, detail);
    }
    conditions(&mut errors, request);
    errors
}

/// An update of a CertificateSigningRequest: conditions are added, certificates issued, each in its own way.
pub fn request_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let has = |request: &Value, ty: &str| items(request, "status.conditions").iter().any(|c| text(c, "type") == ty);
    let path = Path::new("status");
    // Approval and denial are what `approval` is for; they stay.
    for ty in ["Approved", "Denied", "Failed"] {
        let may_add = ty == "Failed" || context.subresource == Some("approval");
        match (has(old, ty), has(new, ty)) {
            (false, true) if !may_add => {
                let detail = format!("updates may not add a condition of type \"{ty}\"");
                errors.forbidden(&path.child("conditions"), detail);
            }
            (true, false) => {
                let detail = format!("updates may not remove a condition of type \"{ty}\"");
                errors.forbidden(&path.child("conditions"), detail);
            }
            _ => {}
        }
    }
    conditions(&mut errors, new);
    let (before, after) = (text(old, "status.certificate"), text(new, "status.certificate"));
    if context.subresource == Some("status") && before != after {
        let path = path.child("certificate");
        let hidden = |detail: String| FieldError::new(Fault::Invalid, &path, "<certificate data>", detail);
        if !before.is_empty() {
            errors.forbidden(
                &path,
                "updates may not set certificate content if existing certificate content is not empty",
            );
        }
        let bytes = base64::engine::general_purpose::STANDARD.decode(after).unwrap_or_default();
        if let Some(fault) = certificate_fault(&bytes).filter(|_| !after.is_empty()) {
            errors.push(hidden(fault));
        }
    }
    errors
}

fn conditions(errors: &mut ErrorList, request: &Value) {
    let path = Path::new("status").child("conditions");
    let conditions = items(request, "status.conditions");
    let types: Vec<&str> = conditions.iter().map(|condition| text(condition, "type")).collect();
    let mut seen = HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (ty, status) = (types[index], text(condition, "status"));
        if ty.is_empty() {
            errors.required(&path.child("type"), "");
        }
        if !seen.insert(ty) {
            errors.duplicate(&path.child("type"), ty);
        }
        match ty {
            _ if status.is_empty() => errors.required(&path.child("status"), ""),
            "Approved" | "Denied" | "Failed" => one_of(errors, &path.child("status"), status, &["True"]),
            _ => one_of(errors, &path.child("status"), status, &["False", "True", "Unknown"]),
        }
    }
    if types.contains(&"Approved") && types.contains(&"Denied") {
        let both = ["Approved", "Denied"].map(|ty| format!("conditions[{{\"type\": \"{ty}\"}}]"));
        let shown = format!("{{{}}}", both.join(", "));
        let detail = format!("must specify at most one of: {}", both.map(|one| format!("`{one}`")).join(", "));
        errors.invalid(&path, shown, detail);
    }
}

/// Domain and path of a signer's name.
pub fn signer_name(errors: &mut ErrorList, path: &Path, name: &str) {
    const SHAPE: &str = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    if name.is_empty() {
        return errors.required(path, "");
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        return errors.invalid(path, name, SHAPE);
    };
    for label in domain.split('.') {
        for fault in names::dns1123_label(label) {
            errors.invalid(path, domain, format!("validating label \"{label}\": {fault}"));
        }
    }
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    for label in rest.split('.') {
        for fault in names::dns1123_subdomain(label) {
            errors.invalid(path, rest, format!("validating label \"{label}\": {fault}"));
        }
    }
    if name.len() > SIGNER_NAME {
        errors.too_long(path, SIGNER_NAME);
    }
}

/// What is wrong with a request in PEM.
fn request_fault(bytes: &[u8]) -> Option<String> {
    match pem_blocks(bytes).first() {
        Some((label, der)) if label == "CERTIFICATE REQUEST" => {
            use x509_parser::prelude::FromDer;
            let parsed = x509_parser::certification_request::X509CertificationRequest::from_der(der);
            parsed.is_err().then(|| "asn1: structure error: malformed certificate request".to_owned())
        }
        _ => Some("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

/// What is wrong with issued certificates in PEM.
fn certificate_fault(bytes: &[u8]) -> Option<String> {
    let blocks = pem_blocks(bytes);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for (label, der) in blocks {
        if label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {label:?}"));
        }
        if x509_parser::parse_x509_certificate(&der).is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
    }
    None
}

/// The blocks of a PEM text: label and content.
pub fn pem_blocks(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = String::from_utf8_lossy(bytes);
    let mut blocks = Vec::new();
    let mut rest = text.as_ref();
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, after)) = after.split_once("-----") else { break };
        let Some((body, after)) = after.split_once(&format!("-----END {label}-----")) else { break };
        let body: String = body.lines().filter(|line| !line.contains(':')).collect::<String>();
        let body: String = body.split_whitespace().collect();
        if let Ok(der) = base64::engine::general_purpose::STANDARD.decode(body) {
            blocks.push((label.to_owned(), der));
        }
        rest = after;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signers() {
        let faults = |name: &str| {
            let mut errors = ErrorList::new();
            signer_name(&mut errors, &Path::new("s"), name);
            errors.to_string()
        };
        assert_eq!(faults("example.com/a"), "");
        assert_eq!(
            faults("foo"),
            "s: Invalid value: \"foo\": must be a fully qualified domain and path of the form 'example.com/signer-name'"
        );
        assert_eq!(
            faults("com/x"),
            "s: Invalid value: \"com\": should be a domain with at least two segments separated by dots"
        );
    }

    #[test]
    fn conditions_exclude_each_other() {
        let mut errors = ErrorList::new();
        let condition = |ty: &str| json!({"type": ty, "status": "True"});
        conditions(&mut errors, &json!({"status": {"conditions": [condition("Approved"), condition("Denied")]}}));
        assert_eq!(
            errors.to_string(),
            "status.conditions: Invalid value: \"{conditions[{\\\"type\\\": \\\"Approved\\\"}], conditions[{\\\"type\\\": \
             \\\"Denied\\\"}]}\": must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, \
             `conditions[{\"type\": \"Denied\"}]`"
        );
    }
}
