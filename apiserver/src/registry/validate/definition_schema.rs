//! Errors of the schemas of custom resources: that they are structural.

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::one_of;
use crate::registry::value::{at, entries, flag, has, items, text};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Parts of JSON schemas that upstream knows and does not serve.
const UNSERVED: [&str; 4] = ["$ref", "dependencies", "id", "patternProperties"];
const ANY_TYPE: [&str; 2] = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Where a schema stands in another one.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Field,
    Item,
}

/// The schema of a whole object.
pub fn root(errors: &mut ErrorList, schema: &Value, path: &Path) {
    shape(errors, schema, path);
    structure(errors, schema, Place::Root, path);
    lists(errors, schema, path);
    let metadata = at(schema, "properties.metadata");
    let told = entries(metadata, "properties").any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
    if told {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&path.child("properties").key("metadata"), detail);
    }
    for name in ["apiVersion", "kind"] {
        let ty = text(&schema["properties"][name], "type");
        if !matches!(ty, "" | "string") {
            errors.invalid(&path.child("properties").key(name).child("type"), ty, "must be string");
        }
    }
}

/// The schemas below, with their places.
fn below<'a>(schema: &'a Value, path: &Path) -> Vec<(&'a Value, Place, Path)> {
    let fields = entries(schema, "properties");
    let mut all: Vec<_> =
        fields.map(|(name, schema)| (schema, Place::Field, path.child("properties").key(name))).collect();
    if schema["items"].is_object() {
        all.push((&schema["items"], Place::Item, path.child("items")));
    }
    if schema["additionalProperties"].is_object() {
        all.push((&schema["additionalProperties"], Place::Field, path.child("additionalProperties")));
    }
    all
}

/// What any schema is checked for.
fn shape(errors: &mut ErrorList, schema: &Value, path: &Path) {
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    for field in UNSERVED.into_iter().filter(|field| schema.get(field).is_some_and(|value| !value.is_null())) {
        errors.forbidden(&path.child(field), format!("{field} is not supported"));
    }
    if text(schema, "type") == "array" && !has(schema, "items") {
        errors.required(&path.child("items"), "must be specified");
    }
    for (field, known) in
        [("x-kubernetes-list-type", &["atomic", "set", "map"][..]), ("x-kubernetes-map-type", &["atomic", "granular"])]
    {
        if let Some(word) = schema.get(field).and_then(Value::as_str) {
            one_of(errors, &path.child(field), word, known);
        }
    }
    list_keys(errors, schema, path);
    for (schema, _, path) in below(schema, path) {
        shape(errors, schema, &path);
    }
    rules(errors, schema, path);
}

/// What says of what kind of list it is, is a list.
fn lists(errors: &mut ErrorList, schema: &Value, path: &Path) {
    if has(schema, "x-kubernetes-list-type") {
        let (detail, path) = ("must be array if x-kubernetes-list-type is specified", path.child("type"));
        match text(schema, "type") {
            "array" => {}
            "" => errors.required(&path, detail),
            ty => errors.invalid(&path, ty, detail),
        }
    }
    for (schema, _, path) in below(schema, path) {
        lists(errors, schema, &path);
    }
}

fn list_keys(errors: &mut ErrorList, schema: &Value, path: &Path) {
    let keys = items(schema, "x-kubernetes-list-map-keys");
    if schema["x-kubernetes-list-type"] != "map" {
        let (detail, path) =
            ("must be map if x-kubernetes-list-map-keys is non-empty", path.child("x-kubernetes-list-type"));
        return match text(schema, "x-kubernetes-list-type") {
            _ if keys.is_empty() => {}
            "" => errors.required(&path, detail),
            ty => errors.invalid(&path, ty, detail),
        };
    }
    let path = path.child("x-kubernetes-list-map-keys");
    let known = |key: &Value| key.as_str().is_some_and(|key| schema["items"]["properties"].get(key).is_some());
    if keys.is_empty() {
        errors.required(&path, "must not be empty if x-kubernetes-list-type is map");
    } else if !keys.iter().all(known) {
        errors.invalid(&path, keys.to_vec(), "entries must all be names of item properties");
    }
}

/// Rules in expressions, as far as they can be told without understanding these.
fn rules(errors: &mut ErrorList, schema: &Value, path: &Path) {
    for (index, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        let path = path.child("x-kubernetes-validations").index(index);
        if text(rule, "rule").trim().is_empty() {
            errors.required(&path.child("rule"), "rule is not specified");
        }
        let message = text(rule, "message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.invalid(&path.child("message"), message, "must be non-empty if specified");
        }
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            errors.required(&path.child("messageExpression"), "messageExpression must be non-empty if specified");
        }
        if has(rule, "reason") {
            one_of(errors, &path.child("reason"), text(rule, "reason"), &REASONS);
        }
        let place = text(rule, "fieldPath");
        if !place.is_empty() && find(schema, place).is_err() && !place.contains('[') {
            errors.invalid(&path.child("fieldPath"), place, "must be a valid path");
        }
    }
}

/// Every field has a type.
fn structure(errors: &mut ErrorList, schema: &Value, place: Place, path: &Path) {
    for (schema, place, path) in below(schema, path) {
        structure(errors, schema, place, &path);
    }
    let free = ANY_TYPE.iter().any(|field| schema[field] == true);
    let of_type = path.child("type");
    for list in ["anyOf", "allOf", "oneOf"] {
        for (index, option) in items(schema, list).iter().enumerate() {
            if !text(option, "type").is_empty() && !free {
                errors.forbidden(&path.child(list).index(index).child("type"), "must be empty to be structural");
            }
        }
    }
    match text(schema, "type") {
        "" if free && place != Place::Root => {}
        "" => errors.required(
            &of_type,
            match place {
                Place::Root => "must not be empty at the root",
                Place::Field => "must not be empty for specified object fields",
                Place::Item => "must not be empty for specified array items",
            },
        ),
        ty => {
            if place == Place::Root && ty != "object" {
                errors.invalid(&of_type, ty, "must be object at the root");
            }
            one_of(errors, &of_type, ty, &TYPES);
        }
    }
    if flag(schema, "x-kubernetes-embedded-resource")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
        && !has(schema, "properties")
    {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), detail);
    }
}

/// The schema at a path like `.spec.color`.
pub fn find<'a>(schema: &'a Value, place: &str) -> Result<&'a Value, String> {
    if !place.starts_with(['.', '[']) {
        return Err(format!("expected [ or . but got: {}", place.split(['.', '[']).next().unwrap_or_default()));
    }
    if place.contains('[') {
        return Err("array notation is not allowed".to_owned());
    }
    let unknown = || "does not refer to a valid field".to_owned();
    place.split('.').skip(1).try_fold(schema, |schema, name| schema["properties"].get(name).ok_or_else(unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas() {
        for (field, expected) in [
            (json!({"type": "string"}), ""),
            (json!({"x-kubernetes-int-or-string": true}), ""),
            (json!({}), ".type: Required value: must not be empty for specified object fields"),
            (json!({"type": "array"}), ".items: Required value: must be specified"),
            (
                json!({"type": "array", "items": {}}),
                ".items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "x"}),
                ".type: Unsupported value: \"x\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "x-kubernetes-list-type": "set"}),
                ".type: Required value: must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-map-keys": ["a"]}),
                ".x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ),
            (json!({"type": "string", "id": "x"}), ".id: Forbidden: id is not supported"),
            (
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}),
                ".x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": ""}]}),
                ".x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ),
        ] {
            let mut errors = ErrorList::new();
            root(&mut errors, &json!({"type": "object", "properties": {"a": field}}), &Path::new("s"));
            assert_eq!(errors.to_string().replace("s.properties[a]", ""), expected, "{field}");
        }
    }
}
