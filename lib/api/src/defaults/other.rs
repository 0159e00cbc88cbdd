//! The groups whose defaults are few.

use pintle_machinery::schema::{Object, Value};
use serde_json::json;

use super::{items, make, object, set_number, set_text, text};

const RBAC: &str = "rbac.authorization.k8s.io";

/// By group and kind.
pub fn apply(group: &str, kind: &str, top: &mut Object) {
    match (group, kind) {
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => binding(top),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(top),
        ("resource.k8s.io", "ResourceClaim") => device_counts(object(top, "spec")),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            device_counts(object(top, "spec").and_then(|spec| object(spec, "spec")));
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(top),
        _ => {}
    }
}

fn binding(top: &mut Object) {
    if let Some(role) = make(top, "roleRef") {
        set_text(role, "apiGroup", RBAC);
    }
    for subject in items(top, "subjects").filter(|subject| matches!(text(subject, "kind"), "User" | "Group")) {
        set_text(subject, "apiGroup", RBAC);
    }
}

/// Policies are for ingress, and for egress if they have such rules.
fn network_policy(top: &mut Object) {
    let Some(spec) = make(top, "spec") else { return };
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    if super::is_empty(spec, "policyTypes") {
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

/// One device where an exact count is asked for without the count.
fn device_counts(spec: Option<&mut Object>) {
    let Some(devices) = spec.and_then(|spec| object(spec, "devices")) else { return };
    let count = |request: &mut Object| {
        if text(request, "allocationMode") == "ExactCount" {
            set_number(request, "count", 1);
        }
    };
    for request in items(devices, "requests") {
        items(request, "firstAvailable").for_each(count);
        if let Some(exactly) = object(request, "exactly") {
            count(exactly);
        }
    }
}

fn definition(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    let storage = items(spec, "versions").find(|version| version.get("storage") == Some(&true.into()));
    let storage = storage.map(|version| text(version, "name").to_owned());
    names(spec);
    // What says of no version that objects are stored in it says so of the one in which they are.
    let Some(name) = storage else { return };
    let status = top.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut().filter(|status| super::is_empty(status, "storedVersions")) {
        status.insert("storedVersions".to_owned(), json!([name]));
    }
}

fn names(spec: &mut Object) {
    let Some(names) = object(spec, "names") else { return };
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        set_text(names, "singular", &kind.to_lowercase());
        set_text(names, "listKind", &format!("{kind}List"));
    }
}
