//! Volumes and ingresses: protection finalizers and default classes.

use serde_json::{Value, json};

use crate::engine::{Call, meta};
use crate::internal;

/// StorageObjectInUse: claims and volumes stay while they are used.
pub fn protect(call: &Call, object: &mut Value) {
    let finalizer = match call.resource.name.as_str() {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        _ => "kubernetes.io/pvc-protection",
    };
    let mut finalizers = meta::finalizers(object);
    if !finalizers.iter().any(|own| own == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(object, finalizers);
    }
}

/// DefaultStorageClass: a claim without a class gets the newest default one.
pub fn default_class(call: &Call, claim: &mut Value) {
    if call.resource.name != "persistentvolumeclaims" || !claim["spec"]["storageClassName"].is_null() {
        return;
    }
    let annotations = &claim["metadata"]["annotations"];
    if annotations.get("volume.beta.kubernetes.io/storage-class").is_some() {
        return;
    }
    if let Some(name) =
        default_of(call, "storage.k8s.io", "storageclasses", "storageclass.kubernetes.io/is-default-class")
    {
        claim["spec"]["storageClassName"] = json!(name);
    }
}

/// DefaultIngressClass: the same for ingresses.
pub fn default_ingress_class(call: &Call, ingress: &mut Value) {
    let annotated = ingress["metadata"]["annotations"].get("kubernetes.io/ingress.class").is_some();
    if annotated || !ingress["spec"]["ingressClassName"].is_null() {
        return;
    }
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    if let Some(name) = default_of(call, "networking.k8s.io", "ingressclasses", annotation) {
        ingress["spec"]["ingressClassName"] = json!(name);
    }
}

/// The newest object that an annotation marks as the default.
fn default_of(call: &Call, group: &str, resource: &str, annotation: &str) -> Option<String> {
    let mut classes = internal::list(&call.state, group, resource, "");
    classes.retain(|class| class["metadata"]["annotations"].get(annotation).is_some_and(|value| value == "true"));
    classes.sort_by(|a, b| {
        let created = |class: &Value| meta::text(class, "creationTimestamp").to_owned();
        created(b).cmp(&created(a)).then_with(|| meta::text(a, "name").cmp(meta::text(b, "name")))
    });
    classes.first().map(|class| meta::text(class, "name").to_owned())
}
