//! CBOR (RFC 8949) as upstream speaks it: strings are byte strings or text, bytes carry the tag of what becomes base64, what is
//! written begins with the tag that tells CBOR. Errors are in upstream's words.
//!
//! Bytes are first seen to be well-formed, which takes no memory, then read straight into a value by the schema.

mod decode;
mod encode;
mod read;

use std::borrow::Cow;

pub use decode::decode;
pub use encode::{encode, encode_event};

use self::read::Reader;
use super::{DecodeError, TypeMeta};
use crate::schema::Value;

/// The tag that tells CBOR (55799).
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Tags of byte strings that become text: in URL-safe base64, in base64, in digits.
const TO_BASE64_URL: u64 = 21;
const TO_BASE64: u64 = 22;
const TO_BASE16: u64 = 23;

/// Deepest nesting that is read, as of JSON.
const MAX_DEPTH: usize = super::json::MAX_DEPTH;

/// apiVersion and kind of an object; all of it must be well-formed. Errors are upstream's, complete.
pub fn type_meta(bytes: &[u8]) -> Result<TypeMeta, DecodeError> {
    let meta = read::check(bytes).and_then(|()| decode::type_meta(&mut Reader::new(bytes)));
    meta.map_err(|error| DecodeError::Syntax(format!("unable to determine group/version/kind: {error}")))
}

/// An object of no known type.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    let value = read::check(bytes).and_then(|()| decode::any(&mut Reader::new(bytes)));
    value.map_err(DecodeError::Syntax)
}

/// The same as JSON.
pub fn to_json(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let value = parse(bytes)?;
    let mut text = Vec::with_capacity(bytes.len());
    super::json::encode_any(&value, &mut text);
    Ok(text)
}

/// What a string of bytes says: what is no UTF-8 in it is replaced.
fn text(bytes: Cow<'_, [u8]>) -> String {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Cow::Owned(bytes) => {
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
    }
}

#[cfg(test)]
mod tests;
