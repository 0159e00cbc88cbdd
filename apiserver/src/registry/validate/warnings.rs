//! Warnings about what is accepted and should not be written any more.

use pintle_api::quota::amounts::quantity;
use pintle_machinery::codec::scalar::decode_base64;
use pintle_machinery::field_path::Path;
use serde_json::Value;

use super::certificates::pem_blocks;
use super::pod_warnings::{claim_sizes, source};
use crate::registry::Context;
use crate::registry::value::{at, int, items, text};

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

fn pod_name(object: &Value, old: Option<&Value>, used: &str) -> Vec<String> {
    let faults = pintle_machinery::names::dns1123_label(text(object, "metadata.name"));
    if old.is_some() || faults.is_empty() {
        return Vec::new();
    }
    let list = faults.join(" ");
    vec![format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: [{list}]"
    )]
}

/// Pod.
pub fn pod(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    pod_name(new, old, "the Pod's hostname")
}

/// What names its pods after itself.
pub fn workload(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    pod_name(new, old, "Pod names and hostnames")
}

/// StatefulSet.
pub fn stateful_set(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut told = Vec::new();
    for (index, claim) in items(new, "spec.volumeClaimTemplates").iter().enumerate() {
        let path = Path::new("spec").child("volumeClaimTemplates").index(index);
        claim_sizes(&mut told, at(claim, "spec"), &path);
    }
    if int(new, "spec.revisionHistoryLimit") < 0 {
        let words = "a negative value retains all historical revisions; a value >= 0 is recommended";
        told.push(format!("spec.revisionHistoryLimit: {words}"));
    }
    told
}

/// A new ResourceQuota: less is to be asked for than may be used at most.
pub fn quota(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let hard = at(new, "spec.hard");
    let mut told = Vec::new();
    if old.is_some() {
        return told;
    }
    for resource in ["cpu", "memory", "ephemeral-storage"] {
        let (asked, most) = (format!("requests.{resource}"), format!("limits.{resource}"));
        let asked = if hard.get(&asked).is_some() { asked } else { resource.to_owned() };
        let amounts = hard.get(&asked).and_then(quantity).zip(hard.get(&most).and_then(quantity));
        if let Some((request, limit)) = amounts.filter(|(request, limit)| request > limit) {
            told.push(format!("ResourceQuota {asked} ({request}) should be less than {most} ({limit})"));
        }
    }
    told
}

/// PersistentVolume.
pub fn volume(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut told = Vec::new();
    if text(new, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        let words = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        told.push(format!("spec.persistentVolumeReclaimPolicy: {words}"));
    }
    source(&mut told, at(new, "spec"), &Path::new("spec"));
    told
}

/// Node.
pub fn node(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let told = !text(new, "spec.externalID").is_empty();
    let warning = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
    told.then(|| warning.to_owned()).into_iter().collect()
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
    let mut told: Vec<String> =
        annotation(new, "volume.beta.kubernetes.io/storage-class", advice).into_iter().collect();
    claim_sizes(&mut told, at(new, "spec"), &Path::new("spec"));
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotas() {
        for (hard, told) in [
            (json!({"cpu": "10", "limits.cpu": "10"}), None),
            (json!({"cpu": "1.5", "limits.cpu": "1400m"}), Some("cpu (1500m) should be less than limits.cpu (1400m)")),
            (
                json!({"requests.cpu": "11", "cpu": "12", "limits.cpu": "10"}),
                Some("requests.cpu (11) should be less than limits.cpu (10)"),
            ),
            (json!({"cpu": "1.5", "requests.cpu": "1400m"}), None),
        ] {
            let told: Vec<String> = told.iter().map(|told| format!("ResourceQuota {told}")).collect();
            assert_eq!(quota(&Context::ANY, &json!({"spec": {"hard": hard}}), None), told);
        }
    }
}
