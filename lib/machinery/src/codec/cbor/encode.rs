//! Values into CBOR as upstream writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{SELF_DESCRIBED, TO_BASE64};
use crate::codec::{TypeMeta, json};
use crate::schema::{Object, Schema, StructType, Type, Value};

/// An object of a type, or of none that is known.
pub fn encode(schema: &Schema, ty: Option<&StructType>, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_object(schema, ty, value, &mut out);
    out
}

/// A watch event about an object.
pub fn encode_event(schema: &Schema, ty: Option<&StructType>, event: &str, object: &Value) -> Vec<u8> {
    let mut out = SELF_DESCRIBED.to_vec();
    head(5, 2, &mut out);
    for text in ["type", event, "object"] {
        string(text.as_bytes(), &mut out);
    }
    write_object(schema, ty, object, &mut out);
    out
}

fn write_object(schema: &Schema, ty: Option<&StructType>, value: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(&SELF_DESCRIBED);
    match (ty, value) {
        (Some(ty), Value::Object(object)) => fields(schema, ty, object, out),
        _ => any(schema, value, out),
    }
}

fn head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let bytes = argument.to_be_bytes();
    let (info, length) = match argument {
        0..=23 => (bytes[7], 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(major << 5 | info);
    out.extend_from_slice(&bytes[8 - length..]);
}

/// Text travels as bytes.
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    head(2, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn fields(schema: &Schema, ty: &StructType, object: &Object, out: &mut Vec<u8>) {
    let known = |key: &str| ty.field(key);
    let count = object.keys().filter(|key| ty.preserve_unknown || known(key).is_some()).count();
    head(5, count as u64, out);
    for (key, value) in object {
        match known(key) {
            Some(field) => {
                string(key.as_bytes(), out);
                typed(schema, &field.ty, value, out);
            }
            None if ty.preserve_unknown => {
                string(key.as_bytes(), out);
                any(schema, value, out);
            }
            None => {}
        }
    }
}

fn typed(schema: &Schema, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(object)) => fields(schema, schema.get(*id), object, out),
        (Type::Bytes, Value::String(text)) => match STANDARD.decode(text) {
            Ok(bytes) => {
                head(6, TO_BASE64, out);
                string(&bytes, out);
            }
            Err(_) => string(text.as_bytes(), out),
        },
        (Type::FieldsV1, Value::String(text)) => {
            any(schema, &json::parse(text.as_bytes()).unwrap_or_default(), out);
        }
        (Type::List(item) | Type::Wrapped(item), Value::Array(items)) => {
            head(4, items.len() as u64, out);
            items.iter().for_each(|value| typed(schema, item, value, out));
        }
        (Type::Map(item), Value::Object(object)) => {
            head(5, object.len() as u64, out);
            for (key, value) in object {
                string(key.as_bytes(), out);
                typed(schema, item, value, out);
            }
        }
        (_, value) => any(schema, value, out),
    }
}

fn any(schema: &Schema, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(value) => out.push(0xf4 | u8::from(*value)),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => head(0, number, out),
            (_, Some(number), _) => head(1, (-1 - number).unsigned_abs(), out),
            (.., float) => {
                out.push(0xfb);
                out.extend_from_slice(&float.unwrap_or_default().to_be_bytes());
            }
        },
        Value::String(text) => string(text.as_bytes(), out),
        Value::Array(items) => {
            head(4, items.len() as u64, out);
            items.iter().for_each(|value| any(schema, value, out));
        }
        Value::Object(object) => {
            // An object within another: its kind tells what is bytes in it.
            let meta = TypeMeta::of(value);
            let (group, version) = meta.group_version();
            match schema.kind(group, version, &meta.kind) {
                Some(ty) => fields(schema, ty, object, out),
                None => {
                    head(5, object.len() as u64, out);
                    for (key, value) in object {
                        string(key.as_bytes(), out);
                        any(schema, value, out);
                    }
                }
            }
        }
    }
}
