//! Volumes and ingresses: protection finalizers and default classes.

use pintle_api::quota::amounts::quantity;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::engine::{Call, meta};
use crate::internal::{self, Address};

/// StorageObjectInUse: claims and volumes stay while they are used.
pub fn protect(call: &Call, object: &mut Value) {
    let finalizer = match call.resource.name.as_str() {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        "volumeattributesclasses" => "kubernetes.io/vac-protection",
        _ => "kubernetes.io/pvc-protection",
    };
    let mut finalizers = meta::finalizers(object);
    if !finalizers.iter().any(|own| own == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(object, finalizers);
    }
}

/// PersistentVolumeClaimResize: a claim grows only if its class says that its volumes can.
pub fn check_resize(call: &Call, new: &Value, old: &Value) -> Result<(), ApiError> {
    let size = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
    if size(new) <= size(old) {
        return Ok(());
    }
    let forbidden = |message: &str| Err(ApiError::forbidden(&call.group_resource(), meta::text(new, "name"), message));
    if old["status"]["phase"] != "Bound" {
        return forbidden("Only bound persistent volume claims can be expanded");
    }
    let annotation = old["metadata"]["annotations"].get("volume.beta.kubernetes.io/storage-class");
    let class = annotation.or(old["spec"].get("storageClassName")).and_then(Value::as_str).unwrap_or_default();
    let class = internal::cached(&call.state, Address::new("storage.k8s.io", "storageclasses", "", class));
    match class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        true => Ok(()),
        false => forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ),
    }
}

/// Devices are used on behalf of their owner in namespaces that are made for that.
pub fn check_admin_access(call: &Call, claim: &Value) -> Result<(), ApiError> {
    use pintle_machinery::field_path::{ErrorList, Path};
    const DETAIL: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing \
                          namespace";
    // A template's faults are told as if they were in a claim.
    let spec = match call.resource.name.as_str() {
        "resourceclaims" => &claim["spec"],
        "resourceclaimtemplates" => &claim["spec"]["spec"],
        _ => return Ok(()),
    };
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    for (index, request) in spec["devices"]["requests"].as_array().into_iter().flatten().enumerate() {
        if request["exactly"]["adminAccess"] == true {
            errors.forbidden(&path.child("devices").child("requests").index(index).child("adminAccess"), DETAIL);
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let namespace = internal::cached(&call.state, Address::new("", "namespaces", "", &call.info.namespace));
    let allowed = namespace.is_some_and(|namespace| {
        namespace["metadata"]["labels"].get("resource.kubernetes.io/admin-access").is_some_and(|value| value == "true")
    });
    match allowed {
        true => Ok(()),
        false => Err(ApiError::invalid(&call.resource.group_kind(), meta::text(claim, "name"), errors)),
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
