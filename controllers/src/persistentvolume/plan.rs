//! Which volume a claim gets, and in which phase each is. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use pintle_api::volumes::{COMPLETE, capacity, class_of, is_for, is_free, reference, suits};

use crate::meta;

/// What to do with a claim.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Bind it to this volume.
    Bind(String),
    /// It stays as it is, in this phase; why, as an event's reason and message, if it is worth one.
    Stay(&'static str, Option<(&'static str, String)>),
}

/// How volumes of a claim's class come to be.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Somebody makes them.
    pub provisioner: Option<String>,
    /// Only once a pod wants one.
    pub waits: bool,
}

fn spec(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    claim.spec.clone().unwrap_or_default()
}

/// What to do with a claim, given all volumes.
pub fn claim<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume> + Clone,
    class: &Class,
) -> Step {
    let name = |volume: &PersistentVolume| meta::name(&volume.metadata).to_owned();
    let bound = meta::annotation(&claim.metadata, COMPLETE).is_some();
    if let Some(own) = spec(claim).volume_name.filter(|own| !own.is_empty()) {
        let volume = volumes.clone().find(|volume| meta::name(&volume.metadata) == own);
        return match volume {
            Some(volume) if is_for(volume, claim) || (reference(volume).is_none() && !bound) => Step::Bind(own),
            Some(volume) if reference(volume).is_none() => Step::Bind(own),
            _ if bound => {
                let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                Step::Stay("Lost", Some(("ClaimLost", why.to_owned())))
            }
            _ => Step::Stay("Pending", None),
        };
    }
    if let Some(kept) = volumes.clone().find(|volume| is_for(volume, claim)) {
        return Step::Bind(name(kept));
    }
    if class.waits {
        let why = "waiting for first consumer to be created before binding";
        return Step::Stay("Pending", Some(("WaitForFirstConsumer", why.to_owned())));
    }
    let of_class = class_of(claim);
    let fitting = volumes.filter(|v| is_free(v) && suits(v, claim));
    // The smallest that is large enough.
    match fitting.min_by_key(|volume| (capacity(volume), name(volume))) {
        Some(volume) => Step::Bind(name(volume)),
        None => Step::Stay("Pending", Some(unbound(of_class, class))),
    }
}

fn unbound(name: &str, class: &Class) -> (&'static str, String) {
    match &class.provisioner {
        Some(provisioner) if provisioner != "kubernetes.io/no-provisioner" => (
            "ExternalProvisioning",
            format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is running and \
                 correctly registered."
            ),
        ),
        None if !name.is_empty() => ("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{name}\" not found")),
        _ => ("FailedBinding", "no persistent volumes available for this claim and no storage class is set".to_owned()),
    }
}

/// The phase of a volume, given the claim that it refers to, if that is there.
pub fn phase(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> &'static str {
    let Some(reference) = reference(volume) else { return "Available" };
    let Some(uid) = reference.uid.as_deref().filter(|uid| !uid.is_empty()) else { return "Available" };
    match claim.filter(|claim| meta::uid(&claim.metadata) == uid) {
        None => "Released",
        Some(claim) => {
            let ours = spec(claim).volume_name.as_deref() == volume.metadata.name.as_deref();
            if ours { "Bound" } else { "Available" }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, change: Value) -> PersistentVolume {
        let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]});
        for (field, value) in change.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let volume = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}});
        serde_json::from_value(volume).expect("a volume")
    }

    fn asks(change: Value) -> PersistentVolumeClaim {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        for (field, value) in change.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let claim = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": spec});
        serde_json::from_value(claim).expect("a claim")
    }

    #[test]
    fn the_smallest_that_fits_is_bound() {
        let volumes = [
            volume("large", "5Gi", json!({})),
            volume("fits", "2Gi", json!({})),
            volume("small", "500Mi", json!({})),
            volume("other", "1Gi", json!({"storageClassName": "x"})),
            volume("block", "1Gi", json!({"volumeMode": "Block"})),
            volume("taken", "1Gi", json!({"claimRef": {"name": "d", "namespace": "n", "uid": "v"}})),
        ];
        let step = claim(&asks(json!({})), volumes.iter(), &Class::default());
        assert_eq!(step, Step::Bind("fits".into()));
        let of_class = claim(&asks(json!({"storageClassName": "x"})), volumes.iter(), &Class::default());
        assert_eq!(of_class, Step::Bind("other".into()));
        let many = claim(&asks(json!({"accessModes": ["ReadWriteMany"]})), volumes.iter(), &Class::default());
        assert!(matches!(many, Step::Stay("Pending", Some(("FailedBinding", _)))));
    }

    #[test]
    fn volumes_kept_for_a_claim_go_to_it() {
        let kept = volume("kept", "9Gi", json!({"claimRef": {"name": "c", "namespace": "n"}}));
        let other = volume("other", "1Gi", json!({}));
        let waits = Class { provisioner: None, waits: true };
        assert_eq!(claim(&asks(json!({})), [&other, &kept].into_iter(), &waits), Step::Bind("kept".into()));
        assert!(matches!(claim(&asks(json!({})), [&other].into_iter(), &waits), Step::Stay("Pending", _)));
    }

    #[test]
    fn a_bound_claim_can_lose_its_volume() {
        let mut bound = asks(json!({"volumeName": "gone"}));
        assert_eq!(claim(&bound, [].into_iter(), &Class::default()), Step::Stay("Pending", None));
        bound.metadata.annotations = Some([(COMPLETE.to_owned(), "yes".to_owned())].into());
        assert!(matches!(claim(&bound, [].into_iter(), &Class::default()), Step::Stay("Lost", Some(_))));
    }

    #[test]
    fn phases() {
        let bound = asks(json!({"volumeName": "v"}));
        let with = |uid: &str| volume("v", "1Gi", json!({"claimRef": {"name": "c", "namespace": "n", "uid": uid}}));
        assert_eq!(phase(&volume("v", "1Gi", json!({})), None), "Available");
        assert_eq!(phase(&with(""), None), "Available");
        assert_eq!(phase(&with("u"), Some(&bound)), "Bound");
        assert_eq!(phase(&with("u"), None), "Released");
        assert_eq!(phase(&with("another"), Some(&bound)), "Released");
    }
}
