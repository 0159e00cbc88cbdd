//! Custom resources' schemas as OpenAPI tells them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pintle_machinery::schema::Gvk;
use pintle_machinery::schema::text::META;
use serde_json::{Map, Value, json};

use super::schemas::Notation;
use crate::custom::Custom;
use crate::resource::Resource;

/// What documents of custom resources are about, and their version.
pub const INFO: (&str, &str) = ("Kubernetes CRD Swagger", "v0.1.0");
/// Media types of objects.
pub const OBJECTS: &[&str] = &["application/json", "application/yaml"];
/// Media types of patches.
pub const PATCHES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The same of an object in an object.
const INNER_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const INNER_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// `com.example.v1.Widget`
pub fn name(kind: &Gvk) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([kind.version.as_str(), kind.kind.as_str()]);
    parts.join(".")
}

/// The schemas of the custom ones of some resources by their names.
pub fn schemas<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>, notation: Notation) -> BTreeMap<String, Value> {
    let custom = resources.filter_map(|resource| Some((resource, resource.custom.as_ref()?)));
    custom
        .flat_map(|(resource, custom)| {
            let list = Gvk { kind: resource.list_kind(), ..custom.kind.clone() };
            [(name(&custom.kind), object(custom, notation)), (name(&list), list_of(resource, custom, &list, notation))]
        })
        .collect()
}

/// The names that a schema refers to.
pub fn referred(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => {
            let own = map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
            own.map(str::to_owned).into_iter().chain(map.values().flat_map(referred)).collect()
        }
        Value::Array(items) => items.iter().flat_map(referred).collect(),
        _ => Vec::new(),
    }
}

fn object(custom: &Custom, notation: Notation) -> Value {
    // Version 2 could not say that there may be more.
    if notation == Notation::V2 && custom.node.preserve {
        return told(json!({"type": "object"}), custom, &custom.kind);
    }
    let mut schema = match notation {
        Notation::V3 => v3(&custom.given),
        Notation::V2 => v2(&custom.given),
    };
    if !schema.is_object() || schema["type"].is_null() {
        schema = json!({"type": "object"});
    }
    if custom.node.preserve && schema["x-kubernetes-preserve-unknown-fields"].is_null() {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    with_meta(&mut schema, (API_VERSION, KIND, METADATA), "ObjectMeta", notation);
    told(schema, custom, &custom.kind)
}

fn list_of(resource: &Resource, custom: &Custom, list: &Gvk, notation: Notation) -> Value {
    let mut schema = json!({
        "description": format!("{} is a list of {}", list.kind, custom.kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {
            "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", resource.name),
            "type": "array",
            "items": {"$ref": notation.reference(&name(&custom.kind))},
        }},
    });
    with_meta(&mut schema, (API_VERSION, KIND, LIST_METADATA), "ListMeta", notation);
    told(schema, custom, list)
}

/// What each object has, in words for version, kind and metadata.
fn with_meta(schema: &mut Value, (version, kind, metadata): (&str, &str, &str), ty: &str, notation: Notation) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let reference = notation.reference(&format!("{META}.{ty}"));
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"description": version, "type": "string"});
    properties["kind"] = json!({"description": kind, "type": "string"});
    properties["metadata"] = match notation {
        Notation::V2 => json!({"description": metadata, "$ref": reference}),
        Notation::V3 => json!({"description": metadata, "allOf": [{"$ref": reference}]}),
    };
}

fn told(mut schema: Value, custom: &Custom, kind: &Gvk) -> Value {
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    if !custom.fields.is_empty() {
        let fields: Vec<Value> = custom.fields.iter().map(|field| json!({"fieldPath": field})).collect();
        schema["x-kubernetes-selectable-fields"] = json!(fields);
    }
    schema
}

/// A schema as version 3 tells it: what an int-or-string is, is said.
fn v3(schema: &Value) -> Value {
    let mut schema = with_inner(below(schema, v3), Notation::V3);
    if schema["x-kubernetes-int-or-string"] == true && schema["anyOf"].is_null() && schema["allOf"].is_null() {
        schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
    schema
}

/// What version 2 has no words for.
const NOT_IN_V2: [&str; 7] = ["default", "nullable", "oneOf", "anyOf", "allOf", "not", "x-kubernetes-validations"];

/// A schema as version 2 tells it. Of what may be null it says nothing, because it could not say that.
fn v2(schema: &Value) -> Value {
    let mut schema = with_inner(below(schema, v2), Notation::V2);
    let nullable = schema["nullable"] == true;
    let Some(map) = schema.as_object_mut() else { return schema };
    map.retain(|name, _| !NOT_IN_V2.contains(&name.as_str()));
    let free = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if nullable || free {
        ["type", "items", "properties", "additionalProperties"].iter().for_each(|name| drop(map.remove(*name)));
    }
    if nullable || map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) && free {
        map.remove("required");
    }
    schema
}

/// A schema of an object with kind and metadata of its own tells of those.
fn with_inner(mut schema: Value, notation: Notation) -> Value {
    if schema["x-kubernetes-embedded-resource"] == true {
        with_meta(&mut schema, (INNER_API_VERSION, INNER_KIND, METADATA), "ObjectMeta", notation);
        let own = schema["required"].as_array().cloned().unwrap_or_default();
        let mut required = vec![json!("kind"), json!("apiVersion")];
        required.extend(own.into_iter().filter(|name| name != "kind" && name != "apiVersion"));
        schema["required"] = required.into();
    }
    schema
}

/// A schema with those in it changed.
fn below(schema: &Value, change: fn(&Value) -> Value) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    let each = |value: &Value| match value {
        Value::Object(map) => {
            map.iter().map(|(name, schema)| (name.clone(), change(schema))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    };
    let changed = map.iter().map(|(name, value)| {
        let value = match name.as_str() {
            "properties" => each(value),
            "items" | "additionalProperties" | "not" if value.is_object() => change(value),
            "oneOf" | "anyOf" | "allOf" => value.as_array().into_iter().flatten().map(change).collect(),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    changed.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations() {
        let given = json!({"type": "object", "properties": {
            "n": {"type": "string", "nullable": true}, "io": {"x-kubernetes-int-or-string": true},
            "color": {"type": "string", "default": "red"}, "of": {"type": "object", "oneOf": [{"required": ["a"]}]},
        }});
        let two = json!({"type": "object", "properties": {
            "n": {}, "io": {"x-kubernetes-int-or-string": true}, "color": {"type": "string"}, "of": {"type": "object"}}});
        assert_eq!(v2(&given), two);
        let mut three = given.clone();
        three["properties"]["io"]["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(v3(&given), three);
        assert_eq!(name(&Gvk::new("stable.example.com", "v1", "Widget")), "com.example.stable.v1.Widget");
    }
}
