//! Reads a message into a value. Fields of unknown numbers are passed over.

use super::wire::{Reader, Scalar};
use crate::{
    codec::{json, scalar},
    schema::{Field, Object, Schema, Source, StructType, Type, Value},
};

/// As deep as JSON may be.
const MAX_DEPTH: usize = 400;

type Read<T> = Result<T, String>;

/// Reads a struct's message.
pub fn message(schema: &Schema, ty: &StructType, bytes: &[u8]) -> Read<Object> {
    let mut object = Object::new();
    Decoder { schema, depth: 0 }.fields(ty, bytes, &mut object)?;
    Ok(object)
}

struct Decoder<'a> {
    schema: &'a Schema,
    depth: usize,
}

impl Decoder<'_> {
    fn fields(&mut self, ty: &StructType, bytes: &[u8], object: &mut Object) -> Read<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match ty.wire_field(number).map(|wire| wire.source) {
                Some(Source::Field(index)) => self.field(&ty.fields[index], value, object)?,
                Some(Source::Embedded(id)) => self.fields(self.schema.get(id), value.bytes(), object)?,
                None => {}
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, field: &Field, scalar: Scalar<'_>, object: &mut Object) -> Read<()> {
        match &field.ty {
            Type::List(item) => {
                let value = self.value(item, scalar)?;
                if let Value::Array(items) = slot(object, &field.json, || Value::Array(Vec::new())) {
                    items.push(value);
                }
            }
            Type::Map(item) => {
                let (key, value) = self.entry(item, scalar.bytes())?;
                if let Value::Object(map) = slot(object, &field.json, || Value::Object(Object::new())) {
                    map.insert(key, value);
                }
            }
            ty => {
                let value = self.value(ty, scalar)?;
                let zero = !field.pointer && field.omit_empty && is_zero(&value);
                if !zero && !value.is_null() {
                    object.insert(field.json.clone(), value);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, item: &Type, bytes: &[u8]) -> Read<(String, Value)> {
        let (mut key, mut value) = (String::new(), Value::Null);
        let mut reader = Reader::new(bytes);
        while let Some((number, scalar)) = reader.field()? {
            match number {
                1 => key = scalar.text(),
                2 => value = self.value(item, scalar)?,
                _ => {}
            }
        }
        Ok((key, value))
    }

    fn value(&mut self, ty: &Type, scalar: Scalar<'_>) -> Read<Value> {
        Ok(match (ty, scalar) {
            (Type::Bool, Scalar::Integer(value)) => Value::Bool(value != 0),
            (Type::Int32, Scalar::Integer(value)) => Value::from(value as i32),
            (Type::Int64, Scalar::Integer(value)) => Value::from(value),
            (Type::Double, Scalar::Fixed(bits)) => double(f64::from_bits(bits)),
            (Type::String, Scalar::Bytes(_)) => Value::String(scalar.text()),
            (Type::Bytes, Scalar::Bytes(bytes)) => Value::String(scalar::encode_base64(bytes)),
            (Type::Struct(id), Scalar::Bytes(bytes)) => {
                let mut object = Object::new();
                self.fields(self.schema.get(*id), bytes, &mut object)?;
                Value::Object(object)
            }
            (Type::Union(id), Scalar::Bytes(bytes)) => {
                let mut object = Object::new();
                self.fields(self.schema.get(*id), bytes, &mut object)?;
                union(self.schema.get(*id), object)
            }
            (Type::Wrapped(item), Scalar::Bytes(bytes)) => {
                let mut items = Vec::new();
                let mut reader = Reader::new(bytes);
                while let Some((number, scalar)) = reader.field()? {
                    if number == 1 {
                        items.push(self.value(item, scalar)?);
                    }
                }
                Value::Array(items)
            }
            (_, Scalar::Bytes(bytes)) => special(ty, bytes)?,
            _ => return Err("proto: wrong wireType".to_owned()),
        })
    }
}

fn slot<'a>(object: &'a mut Object, name: &str, empty: impl FnOnce() -> Value) -> &'a mut Value {
    if !object.contains_key(name) {
        object.insert(name.to_owned(), empty());
    }
    &mut object[name]
}

/// The zero values that `omitempty` leaves out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn double(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { Value::from(value as i64) } else { Value::from(value) }
}

/// The one field of a union that was set.
fn union(ty: &StructType, mut object: Object) -> Value {
    let composite = ty.fields.iter().find(|field| !matches!(field.ty, Type::Bool) && object.contains_key(&field.json));
    let name = composite.or(ty.fields.first()).map(|field| field.json.as_str());
    name.and_then(|name| object.remove(name)).unwrap_or(Value::Null)
}

/// Types that are a small message of their own.
fn special(ty: &Type, bytes: &[u8]) -> Read<Value> {
    let (mut numbers, mut data) = ([0_i64; 4], None);
    let mut reader = Reader::new(bytes);
    while let Some((number, scalar)) = reader.field()? {
        match scalar {
            Scalar::Integer(value) if number < 4 => numbers[number as usize] = value,
            Scalar::Bytes(bytes) => data = Some(bytes),
            _ => {}
        }
    }
    let text = || String::from_utf8_lossy(data.unwrap_or_default()).into_owned();
    Ok(match ty {
        Type::Time | Type::MicroTime if bytes.is_empty() => Value::Null,
        Type::Time | Type::MicroTime => {
            let micro = matches!(ty, Type::MicroTime);
            let time = scalar::time_text(numbers[1], numbers[2] as i32, micro);
            Value::String(time.ok_or("time out of range")?)
        }
        Type::Duration => Value::String(scalar::format_duration(numbers[1])),
        Type::Quantity if data.is_none_or(<[u8]>::is_empty) => Value::from("0"),
        Type::Quantity => Value::String(scalar::canonical_quantity(&text())?),
        Type::IntOrString if numbers[1] == 0 => Value::from(numbers[2] as i32),
        Type::IntOrString => Value::String(text()),
        Type::FieldsV1 => match data {
            None | Some(b"" | b"null") => Value::Null,
            Some(text) => Value::String(json::fields_of(text).map_err(|error| error.to_string())?),
        },
        _ => match data {
            None | Some(b"") => Value::Null,
            Some(text) => json::parse(text).map_err(|error| error.to_string())?,
        },
    })
}
