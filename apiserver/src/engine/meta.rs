//! Object metadata: what the server fills in, and what it checks.

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use pintle_machinery::status::{ApiError, quoted};
use rand::Rng;
use serde_json::{Value, json};

use crate::registry::Rules;

/// All annotations together may have so many bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Letters of generated names: none that form words or look alike.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Random letters at the end of a generated name.
const SUFFIX: usize = 5;
/// Longest generated name.
const GENERATED: usize = 63;

/// Text at `metadata.FIELD`; empty if there is none.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers.
pub fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Sets the finalizers; none: the field goes.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    set(object, "finalizers", if finalizers.is_empty() { Value::Null } else { json!(finalizers) });
}

/// The object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Sets a field of the metadata; null removes it.
pub fn set(object: &mut Value, field: &str, value: Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        match value {
            Value::Null => metadata.remove(field),
            value => metadata.insert(field.to_owned(), value),
        };
    }
}

/// RFC 3339 with seconds, as object metadata has it.
pub fn timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A name from a prefix.
pub fn generate_name(prefix: &str) -> String {
    let mut rng = rand::rng();
    let mut name: String = prefix.chars().take(GENERATED - SUFFIX).collect();
    name.extend((0..SUFFIX).map(|_| ALPHABET[rng.random_range(0..ALPHABET.len())] as char));
    name
}

/// Puts in what the server decides on creation.
pub fn fill_new(object: &mut Value, namespace: Option<&str>, now: jiff::Timestamp) {
    if let Some(namespace) = namespace {
        set(object, "namespace", json!(namespace));
    }
    wipe(object);
    set(object, "creationTimestamp", json!(timestamp(now)));
    set(object, "uid", json!(uuid::Uuid::new_v4().to_string()));
}

/// Takes out what no client decides.
pub fn wipe(object: &mut Value) {
    for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        set(object, field, Value::Null);
    }
}

/// Puts back what an update can't change.
pub fn carry_over(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "generation", "selfLink"] {
        set(new, field, old["metadata"][field].clone());
    }
    if is_deleting(old) {
        set(new, "deletionTimestamp", old["metadata"]["deletionTimestamp"].clone());
    }
    if text(new, "uid").is_empty() {
        set(new, "uid", old["metadata"]["uid"].clone());
    }
    if !old["metadata"]["deletionGracePeriodSeconds"].is_null()
        && new["metadata"]["deletionGracePeriodSeconds"].is_null()
    {
        set(new, "deletionGracePeriodSeconds", old["metadata"]["deletionGracePeriodSeconds"].clone());
    }
}

/// The body's namespace must be the path's; an absent one becomes it.
pub fn check_namespace(object: &mut Value, namespace: &str, namespaced: bool) -> Result<(), ApiError> {
    let own = text(object, "namespace");
    if namespaced {
        if own.is_empty() {
            set(object, "namespace", json!(namespace));
        } else if own != namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::BadRequest(message.into()));
        }
    } else if !own.is_empty() {
        set(object, "namespace", Value::Null);
    }
    Ok(())
}

/// Errors in a new object's metadata.
pub fn validate_new(object: &Value, namespaced: bool, rules: &Rules) -> ErrorList {
    let mut errors = names_faults(object, rules);
    let path = Path::new("metadata");
    let namespace = text(object, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&path.child("namespace"), ""),
        (true, false) => errors.invalid_each(&path.child("namespace"), namespace, names::dns1123_label(namespace)),
        (false, false) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
        (false, true) => {}
    }
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation < 0) {
        errors.invalid(&path.child("generation"), generation, "must be greater than or equal to 0");
    }
    errors.extend(validate_common(object));
    errors.extend(qualified_finalizers(object));
    if !rules.free_finalizers {
        errors.extend(known_finalizers(object));
    }
    errors
}

/// Errors in a name and in what it is made of.
fn names_faults(object: &Value, rules: &Rules) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata");
    let check_name = rules.validate_name.unwrap_or(subdomain_name);
    let (name, generate) = (text(object, "name"), text(object, "generateName"));
    if !generate.is_empty() && !rules.names_itself {
        errors.invalid_each(&path.child("generateName"), generate, check_name(object, generate, true));
    }
    match name {
        "" => errors.required(&path.child("name"), "name or generateName is required"),
        _ if rules.names_itself => {}
        name => errors.invalid_each(&path.child("name"), name, check_name(object, name, false)),
    }
    errors
}

/// Owners that are told twice are kept once, and the client is told.
pub fn single_owners(call: &super::Call, object: &mut Value) {
    let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else { return };
    let mut kept: Vec<Value> = Vec::new();
    let mut twice: Vec<String> = Vec::new();
    for owner in std::mem::take(owners) {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        if !kept.contains(&owner) {
            kept.push(owner);
        } else if !twice.contains(&uid) {
            twice.push(uid);
        }
    }
    *owners = kept;
    if !twice.is_empty() {
        call.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// Errors in an updated object's metadata: those that any object's may have, then those of the change, which upstream's
/// rules for kinds find once more.
pub fn validate_update(new: &Value, old: &Value, rules: &Rules) -> ErrorList {
    let mut errors = ErrorList::new();
    let generate = text(new, "generateName");
    if !generate.is_empty() {
        let of_prefix = Path::new("metadata").child("generateName");
        errors.invalid_each(&of_prefix, generate, names::path_segment(&format!("{generate}a")));
    }
    errors.extend(validate_common(new));
    errors.extend(qualified_finalizers(new));
    let changes = change_faults(new, old);
    errors.extend(changes.clone());
    errors.extend(changes);
    if !rules.free_finalizers {
        errors.extend(known_finalizers(new));
    }
    if rules.renames {
        errors.extend(names_faults(new, rules));
        errors.extend(validate_common(new));
    }
    if rules.tells_again { errors } else { errors.once_each() }
}

/// What an update may not do to metadata.
fn change_faults(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata");
    if is_deleting(old) {
        let known = finalizers(old);
        let added: Vec<_> = finalizers(new).into_iter().filter(|finalizer| !known.contains(finalizer)).collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|finalizer| quoted(finalizer)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden(&path.child("finalizers"), detail);
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new["metadata"][field] != old["metadata"][field] {
            errors.invalid(&path.child(field), new["metadata"][field].clone(), "field is immutable");
        }
    }
    errors.extend(validate_common(new));
    errors
}

/// Labels, annotations and owners.
fn validate_common(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata");
    let metadata = &object["metadata"];
    let labels = path.child("labels");
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        errors.invalid_each(&labels, key, names::label_key(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&labels, value, names::label_value(value));
    }
    let annotations = path.child("annotations");
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        errors.invalid_each(&annotations, key, names::qualified(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(&annotations, ANNOTATIONS_LIMIT);
    }
    errors.extend(validate_owners(metadata, &path.child("ownerReferences")));
    errors
}

fn qualified_finalizers(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata").child("finalizers");
    for finalizer in finalizers(object) {
        errors.invalid_each(&path, &finalizer, names::qualified(&finalizer));
    }
    errors
}

/// Finalizers are the server's own, or somebody's.
fn known_finalizers(object: &Value) -> ErrorList {
    const OWN: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let mut errors = ErrorList::new();
    let path = Path::new("metadata").child("finalizers");
    for (index, finalizer) in finalizers(object).into_iter().enumerate() {
        if !finalizer.contains('/') && !OWN.contains(&finalizer.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path.index(index), finalizer, detail);
        }
    }
    errors
}

fn validate_owners(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut controller: Option<String> = None;
    for (index, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| path.index(index).child(field);
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_empty() {
                errors.required(&at(field), "must not be empty");
            }
        }
        if owner["controller"] == true {
            if let Some(other) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    other,
                    reference(owner)
                );
                errors.invalid(path, metadata["ownerReferences"].clone(), detail);
            }
            controller = Some(reference(owner));
        }
    }
    errors
}

/// `Pod/name`
fn reference(owner: &Value) -> String {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind"), text("name"))
}

/// The usual rule of names.
fn subdomain_name(_object: &Value, name: &str, prefix: bool) -> Vec<String> {
    names::dns1123_subdomain(&mask_trailing_dash(name, prefix))
}

/// A prefix may end with a dash: something follows.
pub fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(rest) if prefix && !rest.is_empty() => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_prefix_and_suffix() {
        let name = generate_name("pod-");
        assert!(name.starts_with("pod-") && name.len() == 9);
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
    }

    #[test]
    fn metadata_is_checked() {
        let causes = |object: Value, namespaced| {
            let errors = validate_new(&object, namespaced, &Rules::NONE);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let ok =
            json!({"metadata": {"name": "a.b", "namespace": "n", "labels": {"app.x/y": "z"}, "finalizers": ["a/b"]}});
        assert!(causes(ok.clone(), true).is_empty(), "{:?}", causes(ok, true));
        assert_eq!(
            causes(json!({"metadata": {}}), false),
            ["metadata.name: Required value: name or generateName is required"]
        );
        assert!(
            causes(json!({"metadata": {"name": "A"}}), false)[0]
                .starts_with("metadata.name: Invalid value: \"A\": a lowercase RFC 1123")
        );
        assert!(
            causes(json!({"metadata": {"name": "a", "labels": {"a b": "c"}}}), false)[0]
                .starts_with("metadata.labels: Invalid value: \"a b\"")
        );
        assert!(causes(json!({"metadata": {"name": "a", "generateName": "b-"}}), false).is_empty());
        assert!(
            causes(json!({"metadata": {"name": "a", "finalizers": ["x"]}}), false)[0].contains("standard finalizer")
        );
    }

    #[test]
    fn immutable_metadata() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "x", "generation": 3}});
        let mut new = json!({"metadata": {"name": "b", "finalizers": ["c/d"]}});
        carry_over(&mut new, &old);
        assert_eq!(new["metadata"]["uid"], "1");
        assert_eq!(new["metadata"]["generation"], 3);
        assert_eq!(validate_update(&new, &old, &Rules::NONE).len(), 2);
    }

    #[test]
    fn an_update_tells_what_any_object_may_have_first() {
        let old = json!({"metadata": {"name": "a", "namespace": "n"}});
        let new = json!({"metadata": {"name": "a", "namespace": "n", "generateName": "A/b", "labels": {"a b": "c"},
            "deletionGracePeriodSeconds": 8080, "finalizers": ["x"]}});
        let told = |rules: Rules| -> Vec<String> {
            let errors = validate_update(&new, &old, &rules);
            errors.iter().filter_map(|error| Some(error.field.strip_prefix("metadata.")?.to_owned())).collect()
        };
        let (labels, grace) = ("labels", "deletionGracePeriodSeconds");
        assert_eq!(told(Rules::NONE), ["generateName", labels, grace, "finalizers[0]"]);
        let mut rules = Rules { tells_again: true, free_finalizers: true, ..Rules::NONE };
        let again = ["generateName", labels, grace, labels, grace, labels];
        assert_eq!(told(rules), again);
        rules.renames = true;
        assert_eq!(told(rules), [&again[..], &["generateName", labels]].concat());
    }
}
