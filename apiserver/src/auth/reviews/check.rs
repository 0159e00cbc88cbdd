//! What is wrong with an access review.

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use pintle_machinery::status::{ApiError, GroupResource};
use serde_json::{Map, Value, json};

use super::AUTHORIZATION;
use crate::auth::{text, texts};

/// Checks of a review that differ between its kinds.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// It names the user.
    pub names_user: bool,
    /// It is about this namespace only.
    pub namespace: Option<&'a str>,
}

/// Refuses a review that asks for nothing, for two things at once, or has more metadata than its place.
pub fn review(review: &Value, rules: Rules<'_>) -> Result<(), ApiError> {
    let spec = &review["spec"];
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == other.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&path, shown_path(other), detail);
    }
    if rules.names_user && text(spec, &["user"]).is_empty() && texts(&spec["groups"]).is_empty() {
        errors.invalid(&path.child("user"), text(spec, &["user"]), "at least one of user or group must be specified");
    }
    let attributes = path.child("resourceAttributes");
    selector(&mut errors, &attributes.child("fieldSelector"), &resource["fieldSelector"], field_requirement);
    selector(&mut errors, &attributes.child("labelSelector"), &resource["labelSelector"], label_requirement);
    metadata(&mut errors, &review["metadata"], rules.namespace.is_some());
    if let Some(namespace) = rules.namespace {
        let own = text(resource, &["namespace"]);
        if resource.is_object() && own != namespace {
            errors.invalid(&attributes.child("namespace"), own, "must match metadata.namespace");
        }
        if other.is_object() {
            let detail = "disallowed on this kind of request";
            errors.invalid(&path.child("nonResourceAttributes"), shown_path(other), detail);
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(&GroupResource::new(AUTHORIZATION, ""), "", errors)),
    }
}

/// A question about a path as upstream's message shows it.
fn shown_path(other: &Value) -> Value {
    match other.is_object() {
        true => json!({"Path": text(other, &["path"]), "Verb": text(other, &["verb"])}),
        false => Value::Null,
    }
}

/// Nothing but its managed fields, and the namespace where that belongs.
fn metadata(errors: &mut ErrorList, metadata: &Value, namespaced: bool) {
    let allowed = |name: &str| name == "managedFields" || (namespaced && name == "namespace");
    let fields = metadata.as_object().into_iter().flatten();
    if fields.clone().any(|(name, value)| !allowed(name) && !value.is_null()) {
        let detail = if namespaced { "must be empty except for namespace" } else { "must be empty" };
        let shown: Map<String, Value> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        errors.invalid(&Path::new("metadata"), shown, detail);
    }
}

/// A selector is a text or a list of requirements.
fn selector(
    errors: &mut ErrorList,
    path: &Path,
    selector: &Value,
    requirement: fn(&mut ErrorList, &Path, &Value, &[String]),
) {
    if !selector.is_object() {
        return;
    }
    let raw = text(selector, &["rawSelector"]);
    let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            errors.invalid(&path.child("rawSelector"), raw, detail);
        }
        (true, true) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.required(&path.child("requirements"), detail);
        }
        _ => {}
    }
    for (index, item) in requirements.iter().enumerate() {
        let path = path.child("requirements").index(index);
        let values = texts(&item["values"]);
        match (text(item, &["operator"]), values.is_empty()) {
            ("In" | "NotIn", true) => {
                errors.required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            ("Exists" | "DoesNotExist", false) => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.child("values"), detail);
            }
            _ => {}
        }
        requirement(errors, &path, item, &values);
    }
}

fn field_requirement(errors: &mut ErrorList, path: &Path, item: &Value, _values: &[String]) {
    if text(item, &["key"]).is_empty() {
        errors.required(&path.child("key"), "must be specified");
    }
}

fn label_requirement(errors: &mut ErrorList, path: &Path, item: &Value, values: &[String]) {
    let key = text(item, &["key"]);
    errors.invalid_each(&path.child("key"), key, names::label_key(key));
    for (index, value) in values.iter().enumerate() {
        errors.invalid_each(&path.child("values").index(index), value, names::label_value(value));
    }
}
