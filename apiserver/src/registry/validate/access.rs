//! Errors of roles and their bindings.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IMMUTABLE, one_of};
use crate::registry::Context;
use crate::registry::value::{at, items, text};

const GROUP: &str = "rbac.authorization.k8s.io";

fn rules(errors: &mut ErrorList, role: &Value, namespaced: bool) {
    for (index, rule) in items(role, "rules").iter().enumerate() {
        let path = Path::new("rules").index(index);
        if items(rule, "verbs").is_empty() {
            errors.required(&path.child("verbs"), "");
        }
        let urls = items(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let named = ["apiGroups", "resources", "resourceNames"].iter().any(|field| !items(rule, field).is_empty());
            let detail = match (namespaced, named) {
                (true, _) => "namespaced rules cannot apply to non-resource URLs",
                (false, true) => "rules cannot apply to both regular resources and non-resource URLs",
                (false, false) => continue,
            };
            errors.invalid(&path.child("nonResourceURLs"), urls.to_vec(), detail);
            continue;
        }
        if items(rule, "apiGroups").is_empty() {
            errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if items(rule, "resources").is_empty() {
            errors.required(&path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

/// Role.
pub fn role(_context: &Context<'_>, role: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    rules(&mut errors, role, true);
    errors
}

/// An update of a Role.
pub fn role_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    role(context, new)
}

/// ClusterRole.
pub fn cluster_role(_context: &Context<'_>, role: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    rules(&mut errors, role, false);
    errors
}

/// An update of a ClusterRole.
pub fn cluster_role_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    cluster_role(context, new)
}

/// RoleBinding and ClusterRoleBinding.
pub fn binding(context: &Context<'_>, binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("roleRef");
    let reference = at(binding, "roleRef");
    one_of(&mut errors, &path.child("apiGroup"), text(reference, "apiGroup"), &[GROUP]);
    let kinds: &[&str] = if context.resource == "rolebindings" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    one_of(&mut errors, &path.child("kind"), text(reference, "kind"), kinds);
    match text(reference, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => errors.invalid_each(&path.child("name"), name, names::path_segment(name)),
    }
    for (index, subject) in items(binding, "subjects").iter().enumerate() {
        self::subject(&mut errors, context, subject, &Path::new("subjects").index(index));
    }
    errors
}

fn subject(errors: &mut ErrorList, context: &Context<'_>, subject: &Value, path: &Path) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
            }
            one_of(errors, &path.child("apiGroup"), group, &[""]);
            if text(subject, "namespace").is_empty() && context.resource == "clusterrolebindings" {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" => one_of(errors, &path.child("apiGroup"), group, &[GROUP]),
        kind => errors.not_supported(&path.child("kind"), kind, &["ServiceAccount", "User", "Group"]),
    }
}

/// An update of a binding: the role stays.
pub fn binding_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = binding(context, new);
    if new["roleRef"] != old["roleRef"] {
        let reference = &new["roleRef"];
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            reference["apiGroup"], reference["kind"], reference["name"]
        );
        let error = FieldError::new(Fault::Invalid, &Path::new("roleRef"), reference.clone(), IMMUTABLE);
        errors.push(error.shown_as(shown));
    }
    errors
}
