//! Writes JSON as Go does: struct fields in their order, map keys sorted, HTML characters escaped.

use crate::codec::tree::Tree;
use crate::schema::{Object, Schema, StructType, Type, Value};

/// Appends an object of that type. Fields that the type does not have are left out.
pub fn encode(schema: &Schema, ty: &StructType, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(object) => write_struct(schema, ty, object, out),
        other => encode_any(other, out),
    }
}

/// Appends what a patch made of an object: what it left alone stands as it was written, the keys of what it touched are
/// sorted.
pub fn encode_patched(schema: &Schema, ty: &StructType, old: &Value, new: &Value, out: &mut Vec<u8>) {
    match new {
        // The object itself counts as touched.
        Value::Object(object) => write_touched(schema, &Type::Struct(ty.id), Some(old), object, out),
        other => encode_any(other, out),
    }
}

fn write_patched(schema: &Schema, ty: &Type, old: Option<&Value>, new: &Value, out: &mut Vec<u8>) {
    match (ty, new) {
        (ty, new) if old == Some(new) => write_typed(schema, ty, new, out),
        (ty, Value::Object(object)) => write_touched(schema, ty, old, object, out),
        (Type::List(item), Value::Array(items)) => {
            out.push(b'[');
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_patched(schema, item, old.and_then(|old| old.get(at)), value, out);
            }
            out.push(b']');
        }
        (_, other) => encode_any(other, out),
    }
}

fn write_touched(schema: &Schema, ty: &Type, old: Option<&Value>, new: &Object, out: &mut Vec<u8>) {
    let of = |key: &str| match ty {
        Type::Struct(id) => schema.get(*id).field(key).map_or(&Type::Any, |field| &field.ty),
        Type::Map(item) => item,
        _ => &Type::Any,
    };
    let mut entries: Vec<_> = new.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    out.push(b'{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_patched(schema, of(key), old.and_then(|old| old.get(key)), value, out);
    }
    out.push(b'}');
}

fn write_struct(schema: &Schema, ty: &StructType, object: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    for field in &ty.fields {
        if let Some(value) = object.get(&field.json) {
            if out.len() > start {
                out.push(b',');
            }
            write_string(&field.json, out);
            out.push(b':');
            write_typed(schema, &field.ty, value, out);
        }
    }
    if ty.preserve_unknown {
        for (key, value) in object.iter().filter(|(key, _)| ty.field(key).is_none()) {
            if out.len() > start {
                out.push(b',');
            }
            write_string(key, out);
            out.push(b':');
            encode_any(value, out);
        }
    }
    out.push(b'}');
}

fn write_typed(schema: &Schema, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(object)) => write_struct(schema, schema.get(*id), object, out),
        (Type::List(item), Value::Array(items)) => write_list(items, out, |item_value, out| {
            write_typed(schema, item, item_value, out);
        }),
        (Type::Map(item), Value::Object(object)) => write_map(object, out, |item_value, out| {
            write_typed(schema, item, item_value, out);
        }),
        (Type::Union(id), value) => {
            let fits = |ty: &Type| {
                matches!((ty, value), (Type::Struct(_), Value::Object(_)) | (Type::List(_), Value::Array(_)))
            };
            match schema.get(*id).fields.iter().find(|field| fits(&field.ty)) {
                Some(field) => write_typed(schema, &field.ty, value, out),
                None => encode_any(value, out),
            }
        }
        (_, value) => encode_any(value, out),
    }
}

/// Appends any JSON.
pub fn encode_any(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => write_list(items, out, encode_any),
        Value::Object(object) => write_map(object, out, encode_any),
    }
}

/// Appends any JSON; keys are sorted.
pub fn encode_tree(tree: &Tree<'_>, out: &mut Vec<u8>) {
    match tree {
        Tree::Null => out.extend_from_slice(b"null"),
        Tree::Bool(value) => encode_any(&Value::Bool(*value), out),
        Tree::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Tree::String(text) => write_string(text, out),
        Tree::Array(items) => {
            out.push(b'[');
            separated(items, out, encode_tree);
            out.push(b']');
        }
        Tree::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key);
            out.push(b'{');
            separated(entries, out, |(key, value), out| {
                write_string(key, out);
                out.push(b':');
                encode_tree(value, out);
            });
            out.push(b'}');
        }
    }
}

fn separated<T>(items: impl IntoIterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

fn write_list(items: &[Value], out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    separated(items, out, write);
    out.push(b']');
}

fn write_map(object: &Object, out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'{');
    let entry = |(key, value): (&String, &Value), out: &mut Vec<u8>| {
        write_string(key, out);
        out.push(b':');
        write(value, out);
    };
    if object.keys().is_sorted() {
        separated(object, out, entry);
    } else {
        let mut entries: Vec<_> = object.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        separated(entries, out, entry);
    }
    out.push(b'}');
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let separator = byte == 0xe2 && bytes[at..].len() > 2 && bytes[at + 1] == 0x80 && bytes[at + 2] & 0xfe == 0xa8;
        if (byte >= 0x20 && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&') && !separator) || at < plain {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        plain = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0xe2 => {
                out.extend_from_slice(b"\\u202");
                out.push(HEX[usize::from(bytes[at + 2] & 0xf)]);
                plain = at + 3;
            }
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}
