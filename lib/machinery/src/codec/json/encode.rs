//! Writes JSON as Go does: struct fields in their order, map keys sorted, HTML characters escaped.

use std::io::Write as _;

use crate::codec::tree::Tree;
use crate::schema::{Field, Object, Schema, StructType, Type, Value};

/// Appends an object of that type. Fields that the type does not have are left out.
pub fn encode(schema: &Schema, ty: &StructType, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(object) => write_struct(schema, ty, object, out),
        other => encode_any(other, out),
    }
}

/// What a patch made of an object.
#[derive(Clone, Copy)]
pub struct Patched<'a> {
    /// The type of the object, and its schema.
    pub schema: &'a Schema,
    /// Its type.
    pub ty: &'a StructType,
    /// The object before.
    pub old: &'a Value,
    /// What the patch copied or moved: (from, to), as JSON pointers.
    pub moves: &'a [(String, String)],
}

impl Patched<'_> {
    /// Appends the object as it is now: what the patch left alone stands as it was written, also where it was moved; the keys of
    /// what it touched are sorted.
    pub fn encode(self, new: &Value, out: &mut Vec<u8>) {
        match new {
            // The object itself counts as touched.
            Value::Object(object) => {
                self.write_touched(&Type::Struct(self.ty.id), Some(self.old), object, &mut String::new(), out);
            }
            other => encode_any(other, out),
        }
    }

    fn write(self, ty: &Type, old: Option<&Value>, new: &Value, path: &mut String, out: &mut Vec<u8>) {
        match (ty, new) {
            (ty, new) if old == Some(new) => write_typed(self.schema, ty, new, out),
            (_, new) if self.moved(new, path, out) => {}
            (ty, Value::Object(object)) => self.write_touched(ty, old, object, path, out),
            (Type::List(item), Value::Array(items)) => {
                out.push(b'[');
                for (at, value) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    self.below(item, old.and_then(|old| old.get(at)), value, (path, &at.to_string()), out);
                }
                out.push(b']');
            }
            (ty, other) => write_typed(self.schema, ty, other, out),
        }
    }

    fn write_touched(self, ty: &Type, old: Option<&Value>, new: &Object, path: &mut String, out: &mut Vec<u8>) {
        let mut entries: Vec<_> = new.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        out.push(b'{');
        for (at, (key, value)) in entries.into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_string(key, out);
            out.push(b':');
            let old = old.and_then(|old| old.get(key));
            self.below(type_below(self.schema, ty, key), old, value, (path, key), out);
        }
        out.push(b'}');
    }

    fn below(self, ty: &Type, old: Option<&Value>, new: &Value, (path, step): (&mut String, &str), out: &mut Vec<u8>) {
        let length = path.len();
        path.push('/');
        path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        self.write(ty, old, new, path, out);
        path.truncate(length);
    }

    /// Appends what was moved here as it stood where it came from.
    fn moved(self, new: &Value, path: &str, out: &mut Vec<u8>) -> bool {
        let of = |(from, to): &&(String, String)| to == path && self.old.pointer(from) == Some(new);
        let Some((from, _)) = self.moves.iter().rfind(of) else { return false };
        let start = Type::Struct(self.ty.id);
        let steps = from.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"));
        let ty = steps.fold(&start, |ty, step| type_below(self.schema, ty, &step));
        write_typed(self.schema, ty, new, out);
        true
    }
}

/// The type of what is at a key of something of a type.
fn type_below<'a>(schema: &'a Schema, ty: &'a Type, key: &str) -> &'a Type {
    match ty {
        Type::Struct(id) => schema.get(*id).field(key).map_or(&Type::Any, |field| &field.ty),
        Type::Map(item) | Type::List(item) => item,
        _ => &Type::Any,
    }
}

/// Of a struct with so few fields each is looked for.
const FEW: usize = 6;

fn write_struct(schema: &Schema, ty: &StructType, object: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    let write = |field: &Field, value: &Value, out: &mut Vec<u8>| {
        // Names of fields need no escapes.
        out.extend_from_slice(if out.len() > start { b",\"" } else { b"\"" });
        out.extend_from_slice(field.json.as_bytes());
        out.extend_from_slice(b"\":");
        write_typed(schema, &field.ty, value, out);
    };
    if ty.fields.len() <= FEW {
        for field in &ty.fields {
            if let Some(value) = object.get(&field.json) {
                write(field, value, out);
            }
        }
    } else {
        let found = object.iter().filter_map(|(name, value)| Some((ty.field_index(name)?, value)));
        let mut found: Vec<(usize, &Value)> = found.collect();
        found.sort_unstable_by_key(|(index, _)| *index);
        for (index, value) in found {
            write(&ty.fields[index], value, out);
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
        (Type::FieldsV1, Value::String(text)) => out.extend_from_slice(text.as_bytes()),
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
        Value::Number(number) => {
            // Writing into a Vec can't fail.
            let _ = write!(out, "{number}");
        }
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
        Tree::Text(text) => out.extend_from_slice(text.as_bytes()),
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

/// Bytes that may not stand for themselves.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    let (mut at, others) = (0, *b"\"\\<>&\xe2");
    while at < others.len() {
        special[others[at] as usize] = true;
        at += 1;
    }
    special
};

/// Appends a string.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !SPECIAL[usize::from(byte)] {
            continue;
        }
        // Of what begins so, only the two line separators.
        if byte == 0xe2 && !matches!(bytes[at..], [_, 0x80, 0xa8 | 0xa9, ..]) {
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
