//! Errors of roles and their bindings.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use pintle_machinery::selector::label::Selector;
use serde_json::Value;

use super::{IMMUTABLE, label_selector, one_of};
use crate::registry::Context;
use crate::registry::value::{at, has, items, text};

const GROUP: &str = "rbac.authorization.k8s.io";

fn rules(errors: &mut ErrorList, role: &Value, namespaced: bool) {
    for (index, rule) in items(role, "rules").iter().enumerate() {
        let path = Path::new("rules").index(index);
        let urls = items(rule, "nonResourceURLs");
        let named = ["apiGroups", "resources", "resourceNames"].iter().any(|field| !items(rule, field).is_empty());
        match (urls.is_empty(), namespaced, named) {
            (true, ..) => {
                if items(rule, "apiGroups").is_empty() {
                    errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
                }
                if items(rule, "resources").is_empty() {
                    errors.required(&path.child("resources"), "resource rules must supply at least one resource");
                }
            }
            (false, namespaced, named) => {
                let path = path.child("nonResourceURLs");
                if namespaced {
                    let detail = "namespaced rules cannot apply to non-resource URLs";
                    errors.invalid(&path, urls.to_vec(), detail);
                }
                if named {
                    let detail = "rules cannot apply to both regular resources and non-resource URLs";
                    errors.invalid(&path, urls.to_vec(), detail);
                }
            }
        }
    }
}

/// Rules that allow nothing.
fn verbless(errors: &mut ErrorList, role: &Value) {
    for (index, _) in items(role, "rules").iter().enumerate().filter(|(_, rule)| items(rule, "verbs").is_empty()) {
        errors.required(&Path::new("rules").index(index).child("verbs"), "");
    }
}

/// Which other roles a ClusterRole gathers.
fn aggregation(errors: &mut ErrorList, role: &Value) {
    if !has(role, "aggregationRule") {
        return;
    }
    let path = Path::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = items(role, "aggregationRule.clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        return errors.required(&path, detail);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index);
        label_selector(errors, &path, selector);
        if Selector::from_object(Some(selector)).is_err() {
            // The stop is upstream's.
            errors.push(FieldError::new(Fault::Invalid, &path, Value::Null, "invalid label selector."));
        }
    }
}

/// Role.
pub fn role(_context: &Context<'_>, role: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    rules(&mut errors, role, true);
    verbless(&mut errors, role);
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
    aggregation(&mut errors, role);
    verbless(&mut errors, role);
    errors
}

/// An update of a ClusterRole.
pub fn cluster_role_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    cluster_role(context, new)
}

/// RoleBinding and ClusterRoleBinding.
pub fn binding(context: &Context<'_>, binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let unnamed = text(binding, "roleRef.name").is_empty();
    reference(&mut errors, context, binding);
    subjects(&mut errors, context, binding);
    nameless(&mut errors, binding);
    if unnamed {
        errors.required(&Path::new("roleRef").child("name"), "");
    }
    errors
}

fn reference(errors: &mut ErrorList, context: &Context<'_>, binding: &Value) {
    let path = Path::new("roleRef");
    let reference = at(binding, "roleRef");
    one_of(errors, &path.child("apiGroup"), text(reference, "apiGroup"), &[GROUP]);
    let kinds: &[&str] = if context.resource == "rolebindings" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    one_of(errors, &path.child("kind"), text(reference, "kind"), kinds);
    let name = text(reference, "name");
    if !name.is_empty() {
        errors.invalid_each(&path.child("name"), name, names::path_segment(name));
    }
}

fn subjects(errors: &mut ErrorList, context: &Context<'_>, binding: &Value) {
    for (index, subject) in items(binding, "subjects").iter().enumerate() {
        self::subject(errors, context, subject, &Path::new("subjects").index(index));
    }
}

/// Subjects without a name.
fn nameless(errors: &mut ErrorList, binding: &Value) {
    let subjects = items(binding, "subjects").iter().enumerate();
    for (index, _) in subjects.filter(|(_, subject)| text(subject, "name").is_empty()) {
        errors.required(&Path::new("subjects").index(index).child("name"), "");
    }
}

fn subject(errors: &mut ErrorList, context: &Context<'_>, subject: &Value, path: &Path) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
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
    let mut errors = ErrorList::new();
    reference(&mut errors, context, new);
    if text(new, "roleRef.name").is_empty() {
        errors.required(&Path::new("roleRef").child("name"), "");
    }
    subjects(&mut errors, context, new);
    if new["roleRef"] != old["roleRef"] {
        let reference = &new["roleRef"];
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| Value::from(text(reference, field)));
        let error = FieldError::new(Fault::Invalid, &Path::new("roleRef"), reference.clone(), IMMUTABLE);
        errors.push(error.shown_as(format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}")));
    }
    nameless(&mut errors, new);
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_lack_are_told_last_of_a_new_binding() {
        let context = Context { resource: "rolebindings", ..Context::ANY };
        let of = |name: &str| {
            let subjects =
                json!([{"kind": "User", "name": "", "apiGroup": GROUP}, {"kind": "Deployment", "name": "s"}]);
            json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name}, "subjects": subjects})
        };
        let fields = |errors: ErrorList| errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>();
        assert_eq!(fields(binding(&context, &of(""))), ["subjects[1].kind", "subjects[0].name", "roleRef.name"]);
        assert_eq!(
            fields(binding_update(&context, &of(""), &of("r"))),
            ["roleRef.name", "subjects[1].kind", "roleRef", "subjects[0].name"]
        );
    }
}
