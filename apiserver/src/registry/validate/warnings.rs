//! Warnings about what is accepted and should not be written any more.

use pintle_machinery::codec::scalar::decode_base64;
use serde_json::Value;

use super::certificates::pem_blocks;
use crate::registry::Context;
use crate::registry::value::{at, text};

/// An annotation that has had its day: (key, what to do instead).
fn annotation(object: &Value, key: &str, advice: &str) -> Option<String> {
    let given = at(object, "metadata.annotations").get(key).is_some();
    given.then(|| format!("metadata.annotations[{key}]: {advice}"))
}

/// ServiceAccount.
pub fn service_account(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let advice = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    let known = |account: &Value| annotation(account, "kubernetes.io/enforce-mountable-secrets", advice);
    known(new).filter(|_| old.and_then(known).is_none()).into_iter().collect()
}

/// Secret: a certificate or a key that is none.
pub fn secret(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    if text(new, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let lacks_pem = |field: &str| {
        let bytes = new["data"][field].as_str().and_then(|text| decode_base64(text).ok()).unwrap_or_default();
        pem_blocks(&bytes).is_empty()
    };
    let fault = |what: &str| vec![format!("tls: failed to find any PEM data in {what} input")];
    match (lacks_pem("tls.crt"), lacks_pem("tls.key")) {
        (true, _) => fault("certificate"),
        (false, true) => fault("key"),
        (false, false) => Vec::new(),
    }
}

/// PersistentVolumeClaim.
pub fn claim(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let advice = "deprecated since v1.8; use \"storageClassName\" attribute instead";
    annotation(new, "volume.beta.kubernetes.io/storage-class", advice).into_iter().collect()
}
