//! Claims and volumes: which volume is what a claim asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::Value;

use crate::nodes::matches_value;
use crate::quota::amounts::quantity;

/// Set when a claim's binding is complete: losing its volume is a loss from then on.
pub const COMPLETE: &str = "pv.kubernetes.io/bind-completed";
/// Set on what was bound by a choice, not by the user.
pub const CHOSEN: &str = "pv.kubernetes.io/bound-by-controller";
/// The node for which a claim's volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The older way to name a class.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The names of the claims that a pod uses, its ephemeral ones included.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name)),
        (None, None) => None,
    })
}

/// The name of a claim's class, empty if it has none.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let own = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&claim.metadata, CLASS).or_else(own).unwrap_or_default()
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    let own = || volume.spec.as_ref()?.storage_class_name.as_deref();
    annotation(&volume.metadata, CLASS).or_else(own).unwrap_or_default()
}

/// The claim that a volume is kept for.
pub fn reference(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// True if the volume is kept for the claim, or is its.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    reference(volume).is_some_and(|reference| {
        let same = |own: &Option<String>, other: &Option<String>| own.as_deref() == other.as_deref();
        same(&reference.name, &claim.metadata.name)
            && same(&reference.namespace, &claim.metadata.namespace)
            && reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// True if the claim and its volume are bound for good.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_some_and(|name| !name.is_empty());
    named && annotation(&claim.metadata, COMPLETE).is_some()
}

/// The node for which a claim's volume is being made.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, SELECTED_NODE)
}

fn amount(map: Option<&BTreeMap<String, Quantity>>) -> i64 {
    let text = map.and_then(|map| map.get("storage")).map(|size| Value::String(size.0.clone()));
    text.and_then(|text| quantity(&text)).map_or(0, |size| size.value())
}

/// Bytes that a volume has.
pub fn capacity(volume: &PersistentVolume) -> i64 {
    amount(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
}

/// Bytes that a claim asks for.
pub fn wanted(claim: &PersistentVolumeClaim) -> i64 {
    amount(claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()))
}

/// True if nobody has the volume.
pub fn is_free(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    reference(volume).is_none() && phase == Some("Available") && volume.metadata.deletion_timestamp.is_none()
}

/// True if the volume is what the claim asks for.
pub fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(own), Some(asked)) = (volume.spec.as_ref(), claim.spec.as_ref()) else { return false };
    let same = |own: &Option<String>, asked: &Option<String>, unsaid: &str| {
        own.as_deref().unwrap_or(unsaid) == asked.as_deref().unwrap_or(unsaid)
    };
    let modes = own.access_modes.as_deref().unwrap_or_default();
    class_of_volume(volume) == class_of(claim)
        && same(&own.volume_mode, &asked.volume_mode, "Filesystem")
        && asked.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && capacity(volume) >= wanted(claim)
        && same(&own.volume_attributes_class_name, &asked.volume_attributes_class_name, "")
        && asked.selector.as_ref().is_none_or(|selector| selected(selector, volume.metadata.labels.as_ref()))
}

fn selected(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted))
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|r| matches_value(&r.operator, r.values.as_deref().unwrap_or_default(), value(&r.key)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_are_chosen_by_labels() {
        let volume = |labels: Value| -> PersistentVolume {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": {"capacity": {"storage": "1Gi"}}}))
                .expect("a volume")
        };
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]});
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {}, "spec": {"selector": selector}})).expect("a claim");
        assert!(suits(&volume(json!({"a": "b"})), &claim));
        assert!(!suits(&volume(json!({"a": "c"})), &claim));
        assert!(!suits(&volume(json!({"a": "b", "c": "d"})), &claim));
    }
}
