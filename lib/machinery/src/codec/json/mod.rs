//! JSON by schema: strict errors and type errors as upstream words them, output in Go's field order.

mod decode;
mod encode;
mod parts;
mod scan;

pub use decode::decode;
pub(crate) use encode::write_string;
pub use encode::{Patched, encode, encode_any, encode_tree};
pub use parts::{Place, parse_parts, spans};

use std::borrow::Cow;

use super::tree::Tree;
use super::{DecodeError, Decoded, TypeMeta};
use crate::schema::{Object, Value};
pub(crate) use scan::MAX_DEPTH;
use scan::{Form, Scanner};

/// Any JSON, without a schema. Of duplicate keys the last one counts.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut scanner = Scanner::new(bytes);
    scanner.value().and_then(|value| scanner.end().map(|()| value)).map_err(DecodeError::Syntax)
}

/// JSON of a custom resource, whose fields no schema of ours knows yet: whole floats are integers, keys that are there twice
/// are listed and the last one counts.
pub fn parse_free(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut scanner = Scanner::new(bytes);
    let mut strict_errors = Vec::new();
    let value = scanner.free("", &mut strict_errors).and_then(|value| scanner.end().map(|()| value));
    value.map(|value| Decoded { value, strict_errors }).map_err(DecodeError::Syntax)
}

/// The same that lends its strings from the text.
pub fn parse_borrowed(bytes: &[u8]) -> Result<Tree<'_>, DecodeError> {
    let mut scanner = Scanner::new(bytes);
    scanner.tree().and_then(|tree| scanner.end().map(|()| tree)).map_err(DecodeError::Syntax)
}

/// JSON without a schema as it is in a store: who owns which field stays the text that it is (`Type::FieldsV1`).
pub fn parse_stored(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut scanner = Scanner::new(bytes);
    let value = stored(&mut scanner, &["metadata", "managedFields", "fieldsV1"]);
    value.and_then(|value| scanner.end().map(|()| value)).map_err(DecodeError::Syntax)
}

/// The next value; what is at the end of the path is text. Lists on the way count as each of their items.
fn stored(scanner: &mut Scanner<'_>, path: &[&str]) -> Result<Value, String> {
    match (scanner.form()?, path) {
        (Form::Object, [next, rest @ ..]) => {
            scanner.enter()?;
            let mut object = Object::new();
            while let Some(key) = scanner.key(object.is_empty())? {
                let value = match (*key == **next, rest) {
                    (true, []) => fields_text(&scanner.text()?).map(Value::String)?,
                    (true, rest) => stored(scanner, rest)?,
                    (false, _) => scanner.value()?,
                };
                object.insert(key.into_owned(), value);
            }
            Ok(Value::Object(object))
        }
        (Form::Array, path) => {
            scanner.enter()?;
            let mut items = Vec::new();
            while scanner.item(items.is_empty())? {
                items.push(stored(scanner, path)?);
            }
            Ok(Value::Array(items))
        }
        _ => scanner.value(),
    }
}

/// Any JSON in the form that values of `Type::FieldsV1` have.
pub(crate) fn fields_of(bytes: &[u8]) -> Result<String, DecodeError> {
    let mut scanner = Scanner::new(bytes);
    let text = scanner.text().and_then(|text| scanner.end().map(|()| text));
    text.and_then(|text| fields_text(&text)).map_err(DecodeError::Syntax)
}

/// JSON in the form that values of `Type::FieldsV1` have: text without blanks, written as Go writes it.
pub(crate) fn fields_text(text: &str) -> Result<String, String> {
    let odd = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | b'<' | b'>' | b'&' | 0x80..);
    if !text.as_bytes().iter().any(odd) {
        return Ok(text.to_owned());
    }
    let mut scanner = Scanner::new(text.as_bytes());
    let value = scanner.value().and_then(|value| scanner.end().map(|()| value))?;
    let mut out = Vec::with_capacity(text.len());
    encode_any(&value, &mut out);
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The object with who owns which field as JSON instead of text, for those that do not go by the schema.
pub fn with_fields_as_json(object: &Value) -> Cow<'_, Value> {
    const ENTRIES: &str = "/metadata/managedFields";
    let entries = object.pointer(ENTRIES).and_then(Value::as_array);
    if !entries.is_some_and(|entries| entries.iter().any(|entry| entry["fieldsV1"].is_string())) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    for entry in object.pointer_mut(ENTRIES).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = entry.get_mut("fieldsV1")
            && let Value::String(text) = fields
        {
            *fields = parse(text.as_bytes()).unwrap_or_default();
        }
    }
    Cow::Owned(object)
}

/// How upstream's messages name the struct into which it reads just apiVersion and kind.
const HEADER: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// apiVersion and kind of a JSON object; the whole text must be well-formed. Errors are upstream's, complete.
pub fn type_meta(bytes: &[u8]) -> Result<TypeMeta, DecodeError> {
    read_type_meta(bytes)
        .map_err(|error| DecodeError::Syntax(format!("couldn't get version/kind; json parse error: {error}")))
}

fn read_type_meta(bytes: &[u8]) -> Result<TypeMeta, String> {
    let mut scanner = Scanner::new(bytes);
    let mut meta = TypeMeta::default();
    let mut error = None;
    match scanner.form()? {
        Form::Object => {
            scanner.enter()?;
            let mut first = true;
            while let Some(key) = scanner.key(first)? {
                first = false;
                let place = match &*key {
                    "apiVersion" => &mut meta.api_version,
                    "kind" => &mut meta.kind,
                    _ => {
                        scanner.skip()?;
                        continue;
                    }
                };
                match scanner.form()? {
                    Form::String => *place = scanner.string()?.into_owned(),
                    form => {
                        scanner.skip()?;
                        let wrong = format!(
                            "json: cannot unmarshal {} into Go struct field .{key} of type string",
                            form.name()
                        );
                        error = error.or((form != Form::Null).then_some(wrong));
                    }
                }
            }
        }
        form => {
            scanner.skip()?;
            let wrong = format!("json: cannot unmarshal {} into Go value of type {HEADER}", form.name());
            error = (form != Form::Null).then_some(wrong);
        }
    }
    scanner.end()?;
    error.map_or(Ok(meta), Err)
}

#[cfg(test)]
mod tests;
