//! Kubernetes' protobuf: four magic bytes, an envelope with apiVersion and kind, and the message by the schema's numbers.
//!
//! Messages are written as Go's generated code does: fields ascending, map keys sorted, zero values of fields that
//! are no pointers included, so that bytes are the same as upstream's.

mod decode;
mod encode;
pub mod frame;
mod wire;

use super::tree::Tree;
use super::{DecodeError, Decoded, EncodeError, TypeMeta, json};
use crate::schema::{Schema, StructType, Value};
use wire::{Reader, Writer};

/// What protobuf objects begin with.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// The envelope's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// apiVersion and kind.
    pub type_meta: TypeMeta,
    /// The message, or what the content type says.
    pub raw: &'a [u8],
    /// Content type of `raw`; empty: protobuf.
    pub content_type: String,
}

/// Takes the envelope off.
pub fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let Some(body) = bytes.strip_prefix(&MAGIC) else {
        return Err(DecodeError::Syntax(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned(),
        ));
    };
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(body);
    while let Some((number, value)) = reader.field().map_err(DecodeError::Syntax)? {
        match number {
            1 => envelope.type_meta = type_meta(value.bytes()).map_err(DecodeError::Syntax)?,
            2 => envelope.raw = value.bytes(),
            4 => envelope.content_type = value.text(),
            _ => {}
        }
    }
    Ok(envelope)
}

fn type_meta(bytes: &[u8]) -> Result<TypeMeta, String> {
    let mut meta = TypeMeta::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.field()? {
        match number {
            1 => meta.api_version = value.text(),
            2 => meta.kind = value.text(),
            _ => {}
        }
    }
    Ok(meta)
}

/// Decodes an object with its envelope; the kind is looked up in the schema.
pub fn decode(schema: &Schema, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let envelope = envelope(bytes)?;
    let meta = &envelope.type_meta;
    let (group, version) = meta.group_version();
    let Some(ty) = schema.kind(group, version, &meta.kind) else {
        let message = format!("no kind {:?} is registered for version {:?}", meta.kind, meta.api_version);
        return Err(DecodeError::Type(message));
    };
    decode_as(schema, ty, &envelope)
}

/// Decodes an envelope's message as that type, whatever kind the envelope tells.
pub fn decode_as(schema: &Schema, ty: &StructType, envelope: &Envelope<'_>) -> Result<Decoded, DecodeError> {
    let mut value = decode_message(schema, ty, envelope.raw)?;
    if let Value::Object(object) = &mut value {
        for (name, text) in [("apiVersion", &envelope.type_meta.api_version), ("kind", &envelope.type_meta.kind)] {
            if !text.is_empty() {
                object.insert(name.to_owned(), Value::String(text.clone()));
            }
        }
    }
    Ok(Decoded { value, strict_errors: Vec::new() })
}

/// Decodes a message without an envelope.
pub fn decode_message(schema: &Schema, ty: &StructType, bytes: &[u8]) -> Result<Value, DecodeError> {
    decode::message(schema, ty, bytes).map(Value::Object).map_err(DecodeError::Type)
}

/// Encodes an object with its envelope.
pub fn encode(schema: &Schema, value: &Value) -> Result<Vec<u8>, EncodeError> {
    let meta = TypeMeta::of(value);
    let (group, version) = meta.group_version();
    match schema.kind(group, version, &meta.kind) {
        Some(ty) => encode_as(schema, ty, &meta, value),
        None => Err(EncodeError::UnknownKind { api_version: meta.api_version, kind: meta.kind }),
    }
}

/// Encodes an object of that type with an envelope that tells `meta`.
pub fn encode_as(schema: &Schema, ty: &StructType, meta: &TypeMeta, value: &Value) -> Result<Vec<u8>, EncodeError> {
    in_envelope(schema, ty, meta, &value.into())
}

/// The same of an object's JSON, which has to be as the schema has it.
pub fn encode_text_as(schema: &Schema, ty: &StructType, meta: &TypeMeta, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    in_envelope(schema, ty, meta, &tree(json)?)
}

fn tree(text: &[u8]) -> Result<Tree<'_>, EncodeError> {
    json::parse_borrowed(text).map_err(|error| EncodeError::Syntax(error.to_string()))
}

fn in_envelope(schema: &Schema, ty: &StructType, meta: &TypeMeta, tree: &Tree<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut out = Writer::default();
    // Backwards, as everything is written: contentType, contentEncoding, raw, typeMeta.
    out.bytes(4, b"");
    out.bytes(3, b"");
    let end = out.len();
    encode::message(schema, ty, tree, &mut out)?;
    out.delimit(2, end);
    let end = out.len();
    out.bytes(2, meta.kind.as_bytes());
    out.bytes(1, meta.api_version.as_bytes());
    out.delimit(1, end);
    out.raw(&MAGIC);
    Ok(out.finish())
}

/// Encodes a message without an envelope.
pub fn encode_message(schema: &Schema, ty: &StructType, value: &Value) -> Result<Vec<u8>, EncodeError> {
    message(schema, ty, &value.into(), 0)
}

/// The same of an object's JSON, which has to be as the schema has it.
pub fn encode_text(schema: &Schema, ty: &StructType, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    message(schema, ty, &tree(json)?, json.len())
}

fn message(schema: &Schema, ty: &StructType, tree: &Tree<'_>, size: usize) -> Result<Vec<u8>, EncodeError> {
    let mut out = Writer::with_capacity(size);
    encode::message(schema, ty, tree, &mut out)?;
    Ok(out.finish())
}

/// The first field of a well-formed message, with its tag: of a kind's message, the metadata. Empty if the message is.
pub fn first_field(message: &[u8]) -> &[u8] {
    let mut reader = Reader::new(message);
    match reader.field() {
        Ok(Some(_)) => &message[..message.len() - reader.rest()],
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
