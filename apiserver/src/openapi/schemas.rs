//! Types as OpenAPI schemas.

use std::collections::{BTreeMap, BTreeSet};

use pintle_machinery::schema::text::META;
use pintle_machinery::schema::{Field, ListKind, MapKind, Schema, StructId, StructType, Type};
use serde_json::{Map, Value, json};

use super::custom;
use super::descriptions::Descriptions;
use super::endpoints::{Endpoint, capital};

/// The version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// 2.0, known as Swagger.
    V2,
    /// 3.0
    V3,
}

impl Notation {
    /// How a type is referred to.
    pub fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const DURATION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Types that have names but no fields.
fn named(name: &str, notation: Notation) -> Option<Value> {
    Some(match (name, notation) {
        (TIME | MICRO_TIME, _) => json!({"type": "string", "format": "date-time"}),
        (DURATION, _) | (QUANTITY, Notation::V2) => json!({"type": "string"}),
        (QUANTITY, Notation::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (INT_OR_STRING, Notation::V2) => json!({"type": "string", "format": "int-or-string"}),
        (INT_OR_STRING, Notation::V3) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        (FIELDS | RAW | PATCH, _) => json!({"type": "object"}),
        (JSON, _) => json!({}),
        _ => return None,
    })
}

/// Makes the schemas of a document.
pub struct Schemas<'a> {
    /// All kinds.
    schema: &'a Schema,
    /// What fields are for.
    descriptions: &'a Descriptions<'a>,
    /// Version of OpenAPI.
    notation: Notation,
    /// Groups and versions whose options kinds are told: `None` for all that there are.
    versions: Option<&'a [(String, String)]>,
    unions: BTreeSet<StructId>,
    /// Those of custom resources.
    custom: &'a BTreeMap<String, Value>,
}

impl<'a> Schemas<'a> {
    /// For a document; `versions` are those whose options kinds are told, all if `None`.
    pub fn new(
        schema: &'a Schema,
        descriptions: &'a Descriptions<'a>,
        notation: Notation,
        versions: Option<&'a [(String, String)]>,
        custom: &'a BTreeMap<String, Value>,
    ) -> Self {
        let fields = schema.structs().iter().flat_map(|ty| &ty.fields);
        let unions = fields.filter_map(|field| union_of(&field.ty)).collect();
        Self { schema, descriptions, notation, versions, unions, custom }
    }

    /// The names of all types that the endpoints refer to, and that those refer to.
    pub fn closure(&self, endpoints: &[Endpoint]) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let operations = endpoints.iter().flat_map(|endpoint| &endpoint.operations);
        let mut todo: Vec<String> = operations
            .flat_map(|operation| operation.answer.iter().chain(operation.body.as_ref().map(|(name, _)| name)))
            .cloned()
            .collect();
        while let Some(name) = todo.pop() {
            if seen.contains(&name) {
                continue;
            }
            if let Some(schema) = self.custom.get(&name) {
                todo.extend(custom::referred(schema));
            } else if let Some(ty) = self.schema.by_name(&name).filter(|ty| !self.is_union(ty)) {
                let referred = ty.fields.iter().filter_map(|field| self.referred(&field.ty, field, 0));
                todo.extend(referred.map(str::to_owned));
            }
            seen.insert(name);
        }
        seen
    }

    /// The schema of the type of that name.
    pub fn of(&self, name: &str) -> Value {
        if let Some(schema) = self.custom.get(name) {
            return schema.clone();
        }
        let mut value = match (named(name, self.notation), self.schema.by_name(name)) {
            (Some(value), _) => value,
            (None, Some(ty)) if !self.is_union(ty) => self.structure(ty),
            _ => json!({}),
        };
        if let Some(text) = self.descriptions.of(name) {
            value["description"] = json!(text);
        }
        value
    }

    /// Its JSON is one of its fields' alone: OpenAPI says nothing of its form.
    fn is_union(&self, ty: &StructType) -> bool {
        self.unions.contains(&ty.id)
    }

    /// The name of the type that a field's type, or that of its items, refers to.
    fn referred<'b>(&'b self, ty: &Type, field: &Field, depth: usize) -> Option<&'b str> {
        Some(match ty {
            Type::Struct(id) | Type::Union(id) => &self.schema.get(*id).name,
            Type::List(item) | Type::Wrapped(item) | Type::Map(item) => return self.referred(item, field, depth + 1),
            Type::Time => TIME,
            Type::MicroTime => MICRO_TIME,
            Type::Duration => DURATION,
            Type::Quantity => QUANTITY,
            Type::IntOrString => INT_OR_STRING,
            Type::FieldsV1 => FIELDS,
            Type::Any if field.go_type(depth) == "v1.JSON" => JSON,
            Type::Any | Type::Free => RAW,
            _ => return None,
        })
    }

    fn structure(&self, ty: &StructType) -> Value {
        let mut value = json!({"type": "object"});
        if !ty.fields.is_empty() {
            let fields = ty.fields.iter().map(|field| (field.json.clone(), self.field(ty, field)));
            value["properties"] = Value::Object(fields.collect());
        }
        let required: Vec<&str> =
            ty.fields.iter().filter(|field| field.required).map(|field| field.json.as_str()).collect();
        if !required.is_empty() {
            value["required"] = json!(required);
        }
        let kinds = self.kinds(ty);
        if !kinds.is_empty() {
            value["x-kubernetes-group-version-kind"] = Value::Array(kinds);
        }
        if ty.map == MapKind::Atomic {
            value["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(discriminator) = &ty.one_of {
            value["x-kubernetes-unions"] = union(ty, discriminator);
        }
        value
    }

    /// What the type is served as. The options kinds are kinds of every group.
    fn kinds(&self, ty: &StructType) -> Vec<Value> {
        let kind = ty.short_name();
        let one = |group: &str, version: &str| json!({"group": group, "version": version, "kind": kind});
        if ["DeleteOptions", "WatchEvent"].contains(&kind) && ty.name.starts_with(META) {
            let told = |(group, version): &(&str, &str)| match self.versions {
                Some(versions) => versions.iter().any(|(own, of)| own == group && of == version),
                None => true,
            };
            return pintle_api::versions().filter(told).map(|(group, version)| one(group, version)).collect();
        }
        ty.kind.iter().map(|gvk| one(&gvk.group, &gvk.version)).collect()
    }

    fn field(&self, ty: &StructType, field: &Field) -> Value {
        let mut value = self.value(&field.ty, field, 0);
        let mut beside = Map::new();
        if let Some(text) = self.descriptions.of_field(&ty.name, &field.json) {
            beside.insert("description".to_owned(), json!(with_values(text, &field.enum_values)));
        }
        if self.notation == Notation::V3
            && let Some(default) = default(field)
        {
            beside.insert("default".to_owned(), default);
        }
        beside.extend(extensions(field));
        if self.notation == Notation::V3 && !beside.is_empty() && value.get("$ref").is_some() {
            // Beside a reference nothing else would count.
            value = json!({"allOf": [value]});
        }
        if let Value::Object(map) = &mut value {
            map.extend(beside);
        }
        value
    }

    fn value(&self, ty: &Type, field: &Field, depth: usize) -> Value {
        let simple = |ty: &str, format: &str| match format {
            "" => json!({"type": ty}),
            format => json!({"type": ty, "format": format}),
        };
        match ty {
            Type::Bool => simple("boolean", ""),
            Type::Int32 => simple("integer", "int32"),
            Type::Int64 => simple("integer", "int64"),
            Type::Double => simple("number", "double"),
            Type::String if field.enum_values.is_empty() => simple("string", ""),
            Type::String => json!({"type": "string", "enum": field.enum_values}),
            Type::Bytes => simple("string", "byte"),
            Type::List(item) | Type::Wrapped(item) => {
                json!({"type": "array", "items": self.value(item, field, depth + 1)})
            }
            Type::Map(item) => json!({"type": "object", "additionalProperties": self.value(item, field, depth + 1)}),
            other => match self.referred(other, field, depth) {
                Some(name) => json!({"$ref": self.notation.reference(name)}),
                None => json!({}),
            },
        }
    }
}

/// A description with the values that are allowed.
fn with_values(text: &str, values: &[String]) -> String {
    let lines = values.iter().map(|value| format!("\n - `{value:?}`"));
    match values {
        [] => text.to_owned(),
        _ => lines.fold(format!("{text}\n\nPossible enum values:"), |text, line| text + &line),
    }
}

/// The union that a type is, or that its items are.
fn union_of(ty: &Type) -> Option<StructId> {
    match ty {
        Type::Union(id) => Some(*id),
        Type::List(item) | Type::Wrapped(item) | Type::Map(item) => union_of(item),
        _ => None,
    }
}

/// What the value is if the field is absent: the one that is told, or that of a Go variable.
fn default(field: &Field) -> Option<Value> {
    if field.said.default {
        return field.default.clone();
    }
    if field.pointer {
        return None;
    }
    match &field.ty {
        Type::Struct(_) => Some(json!({})),
        _ if field.omit_empty => None,
        Type::String => Some(json!("")),
        Type::Bool => Some(json!(false)),
        Type::Int32 | Type::Int64 | Type::Double => Some(json!(0)),
        _ => None,
    }
}

/// How lists and maps are merged.
fn extensions(field: &Field) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, value: Value| found.insert(format!("x-kubernetes-{name}"), value);
    match &field.list {
        ListKind::Atomic if field.said.list => {
            add("list-type", json!("atomic"));
        }
        ListKind::Atomic => {}
        ListKind::Set => {
            add("list-type", json!("set"));
        }
        ListKind::Map(keys) => {
            add("list-type", json!("map"));
            add("list-map-keys", json!(keys));
        }
    }
    match (field.map, field.granular) {
        (MapKind::Atomic, _) => {
            add("map-type", json!("atomic"));
        }
        (_, true) => {
            add("map-type", json!("granular"));
        }
        _ => {}
    }
    let strategy = field.patch_strategy;
    let strategy = [(strategy.merge, "merge"), (strategy.retain_keys, "retainKeys"), (strategy.replace, "replace")];
    let strategy: Vec<&str> = strategy.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if !strategy.is_empty() {
        add("patch-strategy", json!(strategy.join(",")));
    }
    if let Some(key) = &field.patch_merge_key {
        add("patch-merge-key", json!(key));
    }
    found
}

/// The fields of which at most one is set, and the one that tells which.
fn union(ty: &StructType, discriminator: &str) -> Value {
    let members = ty.fields.iter().filter(|field| field.json != discriminator);
    let members: Map<String, Value> = members.map(|field| (field.json.clone(), json!(capital(&field.json)))).collect();
    let mut value = json!({"fields-to-discriminateBy": members});
    if !discriminator.is_empty() {
        value["discriminator"] = json!(discriminator);
    }
    json!([value])
}
