//! Objects in and out: the schema's codecs with the API server's rules about kinds, strictness and wording.

use bytes::Bytes;
use pintle_machinery::schema::Schema;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::cache::entry::{Entry, Ordered};
use crate::conversion::{GroupVersion, api_version};
use crate::engine::Call;
use crate::engine::read::Page;
use crate::http::negotiate::{self, Encoding};

/// Most bytes of a request body.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Media types of request bodies.
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What happens with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// The client is told.
    Warn,
    /// The request fails.
    Strict,
}

impl FieldValidation {
    /// The parameter `fieldValidation`.
    pub fn of(call: &Call) -> Self {
        match call.query.text("fieldValidation") {
            Some("Ignore") => Self::Ignore,
            Some("Strict") => Self::Strict,
            _ => Self::Warn,
        }
    }
}

/// The request body as an object of the call's kind, in the served version.
pub fn decode_body(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let resource = &call.resource;
    decode_as(call, body, resource.served(), &resource.kind)
}

/// The request body as an object of a given kind.
pub fn decode_as(call: &Call, body: &[u8], expected: GroupVersion<'_>, kind: &str) -> Result<Value, ApiError> {
    let encoding = negotiate::body_encoding(&call.headers)
        .ok_or_else(|| ApiError::UnsupportedMediaType(ACCEPTED.map(str::to_owned).to_vec()))?;
    let mut value = parse(call, body, encoding, kind)?;
    check_kind(&mut value, expected, kind)?;
    Ok(value)
}

/// A body of options (`DeleteOptions`).
pub fn decode_options(call: &Call, body: &[u8], kind: &str) -> Result<Value, ApiError> {
    let encoding = negotiate::body_encoding(&call.headers)
        .ok_or_else(|| ApiError::UnsupportedMediaType(ACCEPTED.map(str::to_owned).to_vec()))?;
    parse(call, body, encoding, kind)
}

fn parse(_call: &Call, body: &[u8], encoding: Encoding, kind: &str) -> Result<Value, ApiError> {
    let unrecognized = |why: String| {
        ApiError::BadRequest(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
    };
    match encoding {
        Encoding::Json => serde_json::from_slice(body)
            .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}"))),
        Encoding::Yaml => serde_yaml_ng::from_slice(body).map_err(|error| unrecognized(error.to_string())),
        Encoding::Protobuf => Err(unrecognized("protobuf is not there yet".into())),
    }
}

/// Kind and apiVersion of the body must be the path's; absent ones become it.
fn check_kind(value: &mut Value, expected: GroupVersion<'_>, kind: &str) -> Result<(), ApiError> {
    let want = api_version(expected);
    let Some(map) = value.as_object_mut() else {
        return Err(ApiError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
             json: cannot unmarshal value into Go value of type struct"
        )));
    };
    let text = |map: &serde_json::Map<String, Value>, name: &str| -> String {
        map.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (own_kind, own_version) = (text(map, "kind"), text(map, "apiVersion"));
    if own_kind.is_empty() {
        map.insert("kind".into(), json!(kind));
    }
    if own_version.is_empty() {
        map.insert("apiVersion".into(), json!(want));
    }
    if (own_kind.is_empty() || own_kind == kind) && (own_version.is_empty() || own_version == want) {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!("{own_kind} in version \"{own_version}\" cannot be handled as a {kind}")))
}

/// Fills in defaults that the schema knows.
pub fn defaults(schema: &Schema, version: GroupVersion<'_>, kind: &str, object: &mut Value) {
    let _ = (schema, version, kind, object);
}

/// Brings an object into the shape that a round trip through upstream's types gives.
pub fn normalize(schema: &Schema, object: &mut Value) {
    let _ = (schema, object);
}

/// An object as bytes.
pub fn encode(schema: &Schema, value: &Value, encoding: Encoding, pretty: bool) -> Result<Bytes, ApiError> {
    let internal = |error: String| ApiError::Internal(error);
    let _ = schema;
    Ok(match encoding {
        Encoding::Json if pretty => {
            serde_json::to_vec_pretty(&Ordered(value)).map_err(|error| internal(error.to_string()))?.into()
        }
        Encoding::Json => {
            let mut bytes = serde_json::to_vec(&Ordered(value)).map_err(|error| internal(error.to_string()))?;
            bytes.push(b'\n');
            bytes.into()
        }
        Encoding::Yaml => serde_yaml_ng::to_string(&value).map_err(|error| internal(error.to_string()))?.into(),
        Encoding::Protobuf => return Err(internal("protobuf is not there yet".into())),
    })
}

/// A list in protobuf out of its items' cached messages.
pub fn protobuf_list(call: &Call, page: &Page, meta: &Value) -> Result<Bytes, ApiError> {
    let _ = (call, page, meta);
    Err(ApiError::Internal("protobuf is not there yet".into()))
}

/// An entry's protobuf message with envelope, made once.
pub fn protobuf_of_entry(schema: &Schema, entry: &Entry) -> Result<Bytes, ApiError> {
    if let Some(bytes) = entry.protobuf.get() {
        return Ok(bytes.clone());
    }
    let bytes = encode(schema, &entry.value(), Encoding::Protobuf, false)?;
    Ok(entry.protobuf.get_or_init(|| bytes).clone())
}

/// A watch event in protobuf around an encoded object.
pub fn protobuf_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let _ = (kind, object);
    Vec::new()
}

/// One watch event in any encoding.
pub fn watch_frame(schema: &Schema, kind: &str, object: &Value, encoding: Encoding) -> Result<Bytes, ApiError> {
    match encoding {
        Encoding::Json | Encoding::Yaml => {
            let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
            serde_json::to_writer(&mut line, &Ordered(object)).map_err(|error| ApiError::Internal(error.to_string()))?;
            line.extend_from_slice(b"}\n");
            Ok(line.into())
        }
        Encoding::Protobuf => Ok(protobuf_event(kind, &encode(schema, object, encoding, false)?).into()),
    }
}
