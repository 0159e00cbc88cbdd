//! Warnings about what is accepted and should not be written any more.

use serde_json::Value;

use crate::registry::Context;
use crate::registry::value::at;

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

/// PersistentVolumeClaim.
pub fn claim(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let advice = "deprecated since v1.8; use \"storageClassName\" attribute instead";
    annotation(new, "volume.beta.kubernetes.io/storage-class", advice).into_iter().collect()
}
