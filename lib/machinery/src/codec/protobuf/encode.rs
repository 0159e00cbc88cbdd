//! Writes a value as a message, from its last field to its first.

use super::wire::Writer;
use crate::{
    codec::{
        EncodeError, json, scalar,
        tree::{Entries, Tree, get},
    },
    schema::{Schema, Source, StructType, Type},
};

type Encoded = Result<(), EncodeError>;

/// Writes an object's fields.
pub fn message(schema: &Schema, ty: &StructType, value: &Tree<'_>, out: &mut Writer) -> Encoded {
    match value {
        Tree::Object(object) => fields(schema, ty, Some(object), out),
        Tree::Null => fields(schema, ty, None, out),
        _ => Err(EncodeError::Type { field: ty.name.clone(), wanted: "struct" }),
    }
}

fn fields(schema: &Schema, ty: &StructType, object: Option<&Entries<'_>>, out: &mut Writer) -> Encoded {
    for wire in ty.wire.iter().rev() {
        let field = match wire.source {
            Source::Field(index) => &ty.fields[index],
            Source::Embedded(id) => {
                let end = out.len();
                fields(schema, schema.get(id), object, out)?;
                out.delimit(wire.number, end);
                continue;
            }
        };
        let value = object.and_then(|object| get(object, &field.json)).filter(|value| **value != Tree::Null);
        let written = match value {
            Some(value) => present(schema, &field.ty, wire.number, value, out),
            None if field.pointer => true,
            None => absent(schema, &field.ty, wire.number, out)?,
        };
        if !written {
            return Err(EncodeError::Type { field: field.json.clone(), wanted: name(&field.ty) });
        }
    }
    Ok(())
}

fn name(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::Int32 | Type::Int64 => "integer",
        Type::Double => "number",
        Type::String => "string",
        Type::Bytes => "base64 string",
        Type::Time | Type::MicroTime => "time",
        Type::Duration => "duration",
        Type::Quantity => "quantity",
        Type::IntOrString => "integer or string",
        Type::List(_) | Type::Wrapped(_) => "list",
        Type::Map(_) => "map",
        Type::Any | Type::Free | Type::FieldsV1 | Type::Struct(_) | Type::Union(_) => "object",
    }
}

/// The zero value of a field that is no pointer. Lists, maps and bytes have none.
fn absent(schema: &Schema, ty: &Type, number: u32, out: &mut Writer) -> Result<bool, EncodeError> {
    match ty {
        Type::Bool | Type::Int32 | Type::Int64 => out.integer(number, 0),
        Type::Double => out.double(number, 0.0),
        Type::String | Type::Time | Type::MicroTime | Type::Any | Type::Free | Type::FieldsV1 => out.bytes(number, b""),
        Type::Duration => out.bytes(number, &[8, 0]),
        Type::Quantity => out.bytes(number, &[10, 1, b'0']),
        Type::IntOrString => out.bytes(number, &[8, 0, 16, 0, 26, 0]),
        Type::List(_) | Type::Wrapped(_) | Type::Map(_) | Type::Bytes => {}
        Type::Struct(id) | Type::Union(id) => {
            let end = out.len();
            fields(schema, schema.get(*id), None, out)?;
            out.delimit(number, end);
        }
    }
    Ok(true)
}

/// Writes a value; false if it is not of the type.
fn present(schema: &Schema, ty: &Type, number: u32, value: &Tree<'_>, out: &mut Writer) -> bool {
    match (ty, value) {
        (Type::Bool, Tree::Bool(value)) => out.integer(number, i64::from(*value)),
        (Type::Int32 | Type::Int64, Tree::Number(value)) => match value.as_i64() {
            Some(value) => out.integer(number, value),
            None => return false,
        },
        (Type::Double, Tree::Number(value)) => out.double(number, value.as_f64().unwrap_or_default()),
        (Type::String, Tree::String(text)) => out.bytes(number, text.as_bytes()),
        (Type::Bytes, Tree::String(text)) => match scalar::decode_base64(text) {
            Ok(bytes) => out.bytes(number, &bytes),
            Err(_) => return false,
        },
        (Type::FieldsV1, Tree::String(text)) | (Type::Any | Type::FieldsV1, Tree::Text(text)) => {
            let end = out.len();
            out.bytes(1, text.as_bytes());
            out.delimit(number, end);
        }
        (ty, Tree::Text(text)) => {
            return json::parse_borrowed(text.as_bytes()).is_ok_and(|tree| present(schema, ty, number, &tree, out));
        }
        (Type::Any | Type::FieldsV1, value) => {
            let end = out.len();
            let mut text = Vec::new();
            json::encode_tree(value, &mut text);
            out.bytes(1, &text);
            out.delimit(number, end);
        }
        (Type::List(item), Tree::Array(items)) => {
            return items.iter().rev().all(|value| element(schema, item, number, value, out));
        }
        (Type::Wrapped(item), Tree::Array(items)) => {
            let end = out.len();
            let written = items.iter().rev().all(|value| element(schema, item, 1, value, out));
            out.delimit(number, end);
            return written;
        }
        (Type::Map(item), Tree::Object(object)) => return map(schema, item, number, object, out),
        (Type::Struct(id), Tree::Object(object)) => {
            let end = out.len();
            let written = fields(schema, schema.get(*id), Some(object), out).is_ok();
            out.delimit(number, end);
            return written;
        }
        (Type::Union(id), value) => return union(schema, schema.get(*id), number, value, out),
        _ => return special(ty, number, value, out),
    }
    true
}

/// An item of a list or map: null is the zero value.
fn element(schema: &Schema, ty: &Type, number: u32, value: &Tree<'_>, out: &mut Writer) -> bool {
    match value {
        Tree::Null => absent(schema, ty, number, out).unwrap_or(false),
        value => present(schema, ty, number, value, out),
    }
}

/// Types that are a small message of their own.
fn special(ty: &Type, number: u32, value: &Tree<'_>, out: &mut Writer) -> bool {
    let end = out.len();
    match (ty, value) {
        (Type::Time | Type::MicroTime, Tree::String(text)) => {
            let Some((seconds, nanos)) = scalar::time_parts(text) else { return false };
            let nanos = if matches!(ty, Type::Time) { 0 } else { nanos / 1000 * 1000 };
            out.integer(2, i64::from(nanos));
            out.integer(1, seconds);
        }
        (Type::Duration, Tree::String(text)) => {
            let Ok(nanos) = scalar::parse_duration(text) else { return false };
            out.integer(1, nanos);
        }
        (Type::Quantity, Tree::String(text)) => out.bytes(1, text.as_bytes()),
        (Type::IntOrString, Tree::String(text)) => {
            out.bytes(3, text.as_bytes());
            out.integer(2, 0);
            out.integer(1, 1);
        }
        (Type::IntOrString, Tree::Number(value)) => {
            out.bytes(3, b"");
            out.integer(2, value.as_i64().unwrap_or_default());
            out.integer(1, 0);
        }
        _ => return false,
    }
    out.delimit(number, end);
    true
}

fn map(schema: &Schema, item: &Type, number: u32, object: &Entries<'_>, out: &mut Writer) -> bool {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| key);
    entries.into_iter().rev().all(|(key, value)| {
        let end = out.len();
        let written = element(schema, item, 2, value, out);
        out.bytes(1, key.as_bytes());
        out.delimit(number, end);
        written
    })
}

/// The field whose form the value has; the bool beside an object is true.
fn union(schema: &Schema, ty: &StructType, number: u32, value: &Tree<'_>, out: &mut Writer) -> bool {
    let end = out.len();
    let written = ty.wire.iter().rev().all(|wire| {
        let Source::Field(index) = wire.source else { return true };
        let field = &ty.fields[index];
        match (&field.ty, value) {
            (Type::Bool, Tree::Bool(value)) => out.integer(wire.number, i64::from(*value)),
            (Type::Bool, value) => out.integer(wire.number, i64::from(matches!(value, Tree::Object(_)))),
            (Type::Struct(_), Tree::Object(_)) | (Type::List(_), Tree::Array(_)) => {
                return present(schema, &field.ty, wire.number, value, out);
            }
            _ => {}
        }
        true
    });
    out.delimit(number, end);
    written
}
