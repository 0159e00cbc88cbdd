//! Walks over objects by their schema: how a value divides into fields, lists into items.

use std::borrow::Cow;

use crate::{
    Value,
    schema::{Field, ListKind, MapKind, Object, Schema, StructType, Type},
    status::quoted,
};

use super::set::field_element;

/// A value's type and how its parts belong together.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub schema: &'a Schema,
    pub ty: &'a Type,
    /// The field that the value is in; list items and map entries have none.
    field: Option<&'a Field>,
}

/// How a value divides.
pub(super) enum Parts<'a> {
    /// It is owned as one.
    Leaf,
    /// A struct.
    Struct(&'a StructType),
    /// Entries of one type.
    Map(&'a Type),
    /// Unique scalars.
    Set,
    /// Items told apart by fields.
    List(&'a Type, &'a [String]),
}

impl<'a> Parts<'a> {
    /// The fields by which items are told apart, if it is a list of such.
    pub fn keys(&self) -> &'a [String] {
        match self {
            Parts::List(_, keys) => keys,
            _ => &[],
        }
    }
}

impl<'a> Shape<'a> {
    pub fn new(schema: &'a Schema, ty: &'a Type) -> Self {
        Self { schema, ty, field: None }
    }

    fn of(self, field: &'a Field) -> Self {
        Self { schema: self.schema, ty: &field.ty, field: Some(field) }
    }

    /// The shape of a struct's field; what a struct keeps without knowing it has a shape of its own.
    fn field(self, ty: &'a StructType, name: &str) -> Option<Self> {
        match ty.field(name) {
            Some(field) => Some(self.of(field)),
            None => ty.preserve_unknown.then(|| self.item(&Type::Free)),
        }
    }

    fn item(self, ty: &'a Type) -> Self {
        Self { schema: self.schema, ty, field: None }
    }

    pub fn parts(self) -> Parts<'a> {
        let atomic = self.field.is_some_and(|field| field.map == MapKind::Atomic);
        let granular = self.field.is_some_and(|field| field.granular);
        match self.ty {
            Type::Struct(id) => {
                let ty = self.schema.get(*id);
                let whole = atomic || (ty.map == MapKind::Atomic && !granular);
                if whole { Parts::Leaf } else { Parts::Struct(ty) }
            }
            Type::Map(_) | Type::Free if atomic => Parts::Leaf,
            Type::Free => Parts::Map(&Type::Free),
            Type::Map(item) => Parts::Map(item),
            Type::List(item) => match self.field.map(|field| &field.list) {
                Some(ListKind::Set) => Parts::Set,
                Some(ListKind::Map(keys)) => Parts::List(item, keys),
                _ => Parts::Leaf,
            },
            _ => Parts::Leaf,
        }
    }

    /// The parts of a value that isn't owned as one: path element, value and shape of each, in order.
    pub fn children<'v>(self, value: &'v Value) -> Vec<(String, &'v Value, Shape<'a>)> {
        match (self.parts(), value) {
            (Parts::Struct(ty), Value::Object(map)) => map
                .iter()
                .filter_map(|(name, value)| Some((field_element(name), value, self.field(ty, name)?)))
                .collect(),
            (Parts::Map(item), Value::Object(map)) => {
                map.iter().map(|(key, value)| (field_element(key), value, self.item(item))).collect()
            }
            (Parts::Set, Value::Array(items)) => {
                items.iter().map(|value| (format!("v:{value}"), value, self.scalar())).collect()
            }
            (Parts::List(item, keys), Value::Array(items)) => {
                items.iter().map(|value| (self.list_key(item, keys, value), value, self.item(item))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The shape of a field of a struct, or of an entry of a map.
    pub fn named(self, parts: &Parts<'a>, name: &str) -> Option<Shape<'a>> {
        match parts {
            Parts::Struct(ty) => self.field(ty, name),
            Parts::Map(item) => Some(self.item(item)),
            _ => None,
        }
    }

    fn scalar(self) -> Self {
        Self { ty: &Type::Any, ..self }
    }

    /// Whether a value has parts that are owned on their own.
    pub fn divides(self, value: &Value) -> bool {
        match (self.parts(), value) {
            (Parts::Struct(_) | Parts::Map(_), Value::Object(map)) => !map.is_empty(),
            (Parts::Set | Parts::List(..), Value::Array(items)) => !items.is_empty(),
            _ => false,
        }
    }

    /// Whether a value is a list of items that are owned on their own.
    pub fn lists(self, value: &Value) -> bool {
        value.is_array() && matches!(self.parts(), Parts::Set | Parts::List(..))
    }

    /// The `k:{…}` element of an item, its keys in order; absent ones count with their default.
    fn list_key(self, item: &'a Type, keys: &[String], value: &Value) -> String {
        let mut ordered: Vec<&String> = keys.iter().collect();
        ordered.sort_unstable();
        let mut out = String::from("k:{");
        for name in ordered {
            let Some(value) = self.key_value(item, name, value) else { continue };
            let comma = if out.ends_with('{') { "" } else { "," };
            out.extend([comma, "\"", name, "\":"]);
            match &*value {
                Value::String(text) if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') => {
                    out.extend(["\"", text, "\""]);
                }
                value => out.push_str(&value.to_string()),
            }
        }
        out.push('}');
        out
    }

    fn key_value<'v>(self, item: &'a Type, name: &str, value: &'v Value) -> Option<Cow<'v, Value>>
    where
        'a: 'v,
    {
        if let Some(value) = value.get(name).filter(|value| !value.is_null()) {
            return Some(Cow::Borrowed(value));
        }
        let field = self.schema.resolve(item)?.field(name)?;
        match (&field.default, &field.ty) {
            (Some(default), _) => Some(Cow::Borrowed(default)),
            (None, Type::String) if !field.pointer && !field.omit_empty => Some(Cow::Owned("".into())),
            (None, Type::Int32 | Type::Int64) if !field.pointer && !field.omit_empty => Some(Cow::Owned(0.into())),
            _ => None,
        }
    }

    /// Whether an item of a list has none of the fields by which items are told apart.
    fn lacks_keys(self, item: &'a Type, keys: &[String], value: &Value) -> bool {
        keys.iter().all(|key| self.key_value(item, key, value).is_none())
    }
}

/// Whether an item of a list has none of the fields by which items are told apart.
pub(super) fn omits_key(shape: Shape<'_>, value: &Value) -> bool {
    let parts = shape.parts();
    match (&parts, value) {
        (Parts::List(item, keys), Value::Array(items)) => {
            items.iter().any(|value| shape.lacks_keys(item, keys, value) || omits_key(shape.item(item), value))
        }
        (Parts::Struct(_) | Parts::Map(_), Value::Object(map)) => map
            .iter()
            .filter(|(_, value)| value.is_object() || value.is_array())
            .any(|(name, value)| shape.named(&parts, name).is_some_and(|shape| omits_key(shape, value))),
        _ => false,
    }
}

/// Whose object is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The stored one: items may be there several times.
    Live,
    /// The applied one.
    Applied,
}

/// What makes an object unfit for server-side apply, in upstream's words.
pub(super) fn faults(side: Side, shape: Shape<'_>, path: &str, value: &Value) -> Vec<String> {
    if value.is_null() {
        return Vec::new();
    }
    match (shape.ty, value) {
        (Type::Struct(id), Value::Object(map)) => struct_faults(side, shape, shape.schema.get(*id), path, map),
        (Type::Map(item), Value::Object(map)) => map
            .iter()
            .flat_map(|(key, value)| faults(side, shape.item(item), &format!("{path}.{key}"), value))
            .collect(),
        (Type::List(item), Value::Array(items)) => list_faults(side, shape, item, path, items),
        (Type::Struct(_) | Type::Map(_), other) => vec![format!("{path}: expected map, got &{}", wrapped(other))],
        (Type::List(_), other) => vec![format!("{path}: expected list, got &{}", wrapped(other))],
        (Type::String | Type::Bytes | Type::Time | Type::MicroTime | Type::Duration, Value::String(_)) => Vec::new(),
        (Type::String | Type::Bytes | Type::Time | Type::MicroTime | Type::Duration, other) => {
            vec![format!("{path}: expected string, got &{}", unstructured(other))]
        }
        (Type::Int32 | Type::Int64 | Type::Double, Value::Number(_)) | (Type::Bool, Value::Bool(_)) => Vec::new(),
        (Type::Int32 | Type::Int64 | Type::Double, other) => {
            vec![format!("{path}: expected numeric (int or float), got {}", unstructured(other))]
        }
        (Type::Bool, other) => vec![format!("{path}: expected boolean, got &{}", unstructured(other))],
        _ => Vec::new(),
    }
}

fn wrapped(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{{{text}}}"),
        other => format!("{{{other}}}"),
    }
}

fn unstructured(value: &Value) -> String {
    match value {
        Value::String(text) => format!("value.valueUnstructured{{Value:{}}}", quoted(text)),
        other => format!("value.valueUnstructured{{Value:{other}}}"),
    }
}

fn struct_faults(side: Side, shape: Shape<'_>, ty: &StructType, path: &str, map: &Object) -> Vec<String> {
    let mut out = Vec::new();
    let mut unknown = Vec::new();
    for (name, value) in map {
        let path = format!("{path}.{name}");
        match ty.field(name) {
            Some(field) => out.extend(faults(side, shape.of(field), &path, value)),
            None if ty.preserve_unknown => {}
            None => unknown.push(format!("{path}: field not declared in schema")),
        }
    }
    out.append(&mut unknown);
    out
}

fn list_faults(side: Side, shape: Shape<'_>, item: &Type, path: &str, items: &[Value]) -> Vec<String> {
    let mut out = Vec::new();
    let mut seen = Vec::new();
    for (index, value) in items.iter().enumerate() {
        let shown = match shape.parts() {
            Parts::Set => format!("[={value}]"),
            Parts::List(item, keys) if shape.lacks_keys(item, keys, value) => {
                let names: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
                out.push(format!(
                    "{path}: element {index}: associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
                // Nothing more is looked at.
                break;
            }
            Parts::List(item, keys) => {
                let field = |key: &String| Some(format!("{key}={}", shape.key_value(item, key, value)?));
                format!("[{}]", keys.iter().filter_map(field).collect::<Vec<_>>().join(","))
            }
            _ => {
                out.extend(faults(side, shape.item(item), &format!("{path}[{index}]"), value));
                continue;
            }
        };
        if side == Side::Applied && seen.contains(&shown) {
            out.push(format!("{path}: duplicate entries for key {shown}"));
        }
        out.extend(faults(side, shape.item(item), &format!("{path}{shown}"), value));
        seen.push(shown);
    }
    out
}
