//! Struct types as OpenAPI schemas.

use std::collections::BTreeSet;
use std::sync::Arc;

use pintle_machinery::schema::{Field, ListKind, MapKind, Schema, StructId, StructType, Type};
use serde_json::{Map, Value, json};

use crate::resource::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Types that are no structs but have names.
const NAMED: [(&str, &str, &str); 6] = [
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "string", "date-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "string", "date-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", "string", ""),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "string", ""),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "string", "int-or-string"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "object", ""),
];

/// The schemas of the resources' kinds, their lists and everything that they refer to.
pub fn closure(schema: &Schema, resources: &[Arc<Resource>], prefix: &str) -> Value {
    let mut out = Map::new();
    let mut todo: Vec<StructId> = Vec::new();
    for resource in resources {
        let mut kinds = vec![(resource.group.as_str(), resource.version.as_str(), resource.kind.clone())];
        kinds.push((&resource.group, &resource.version, format!("{}List", resource.kind)));
        kinds.extend(
            resource.subresources.iter().map(|sub| (sub.group.as_str(), sub.version.as_str(), sub.kind.clone())),
        );
        todo.extend(
            kinds.iter().filter_map(|(group, version, kind)| schema.kind(group, version, kind)).map(|ty| ty.id),
        );
    }
    todo.extend(schema.by_name(&format!("{META}.DeleteOptions")).map(|ty| ty.id));
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        let ty = schema.get(id);
        for field in &ty.fields {
            todo.extend(referred(&field.ty));
        }
        out.insert(ty.name.clone(), struct_schema(schema, ty, prefix));
    }
    for (name, ty, format) in NAMED {
        let mut value = json!({"type": ty});
        if !format.is_empty() {
            value["format"] = json!(format);
        }
        out.insert(name.to_owned(), value);
    }
    Value::Object(out)
}

fn referred(ty: &Type) -> Option<StructId> {
    match ty {
        Type::Struct(id) | Type::Union(id) => Some(*id),
        Type::List(item) | Type::Wrapped(item) | Type::Map(item) => referred(item),
        _ => None,
    }
}

fn struct_schema(schema: &Schema, ty: &StructType, prefix: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in &ty.fields {
        properties.insert(field.json.clone(), field_schema(schema, field, prefix));
        if field.required {
            required.push(field.json.clone());
        }
    }
    let mut value = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        value["required"] = json!(required);
    }
    if let Some(gvk) = &ty.kind {
        value["x-kubernetes-group-version-kind"] =
            json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}]);
    }
    if ty.map == MapKind::Atomic {
        value["x-kubernetes-map-type"] = json!("atomic");
    }
    value
}

fn field_schema(schema: &Schema, field: &Field, prefix: &str) -> Value {
    let mut value = type_schema(schema, &field.ty, prefix);
    if let Some(reference) = value.get("$ref").cloned() {
        // Beside a reference nothing else counts.
        value = if prefix.starts_with("#/components") { json!({"allOf": [{"$ref": reference}]}) } else { value };
    }
    if let Some(default) = &field.default {
        value["default"] = default.clone();
    }
    if !field.enum_values.is_empty() {
        value["enum"] = json!(field.enum_values);
    }
    if matches!(field.ty, Type::List(_)) {
        match &field.list {
            ListKind::Atomic => value["x-kubernetes-list-type"] = json!("atomic"),
            ListKind::Set => value["x-kubernetes-list-type"] = json!("set"),
            ListKind::Map(keys) => {
                value["x-kubernetes-list-type"] = json!("map");
                value["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
    }
    let strategy = [(field.patch_strategy.merge, "merge"), (field.patch_strategy.retain_keys, "retainKeys")];
    let strategy: Vec<&str> = strategy.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if !strategy.is_empty() {
        value["x-kubernetes-patch-strategy"] = json!(strategy.join(","));
    }
    if let Some(key) = &field.patch_merge_key {
        value["x-kubernetes-patch-merge-key"] = json!(key);
    }
    value
}

fn type_schema(schema: &Schema, ty: &Type, prefix: &str) -> Value {
    let reference = |name: &str| json!({"$ref": format!("{prefix}{name}")});
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Double => json!({"type": "number", "format": "double"}),
        Type::String => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time => reference(NAMED[0].0),
        Type::MicroTime => reference(NAMED[1].0),
        Type::Duration => reference(NAMED[2].0),
        Type::Quantity => reference(NAMED[3].0),
        Type::IntOrString => reference(NAMED[4].0),
        Type::FieldsV1 => reference(NAMED[5].0),
        Type::Any => json!({"type": "object"}),
        Type::List(item) | Type::Wrapped(item) => json!({"type": "array", "items": type_schema(schema, item, prefix)}),
        Type::Map(item) => json!({"type": "object", "additionalProperties": type_schema(schema, item, prefix)}),
        Type::Struct(id) | Type::Union(id) => reference(&schema.get(*id).name),
    }
}
