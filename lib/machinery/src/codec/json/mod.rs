//! JSON by schema: strict errors and type errors as upstream words them, output in Go's field order.

mod decode;
mod encode;
mod scan;

pub use decode::decode;
pub use encode::{encode, encode_any, encode_patched, encode_tree};

use super::{DecodeError, Decoded, TypeMeta};
use crate::schema::Value;
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
