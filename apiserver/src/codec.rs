//! Objects in and out: the schema's codecs with the API server's rules about kinds, strictness and wording.

use std::borrow::Cow;
use std::num::IntErrorKind;

use bytes::Bytes;
use pintle_machinery::codec::{DecodeError, EncodeError, TypeMeta, cbor, json, protobuf, yaml};
use pintle_machinery::schema::{Schema, StructType};
use pintle_machinery::status::{ApiError, quoted};
use pintle_store::Revision;
use serde_json::Value;

use crate::cache::entry::{self, Entry, Ordered};
use crate::conversion::{GroupVersion, api_version};
use crate::custom::{Custom, object, schema};
use crate::engine::Call;
use crate::engine::read::Page;
use crate::http::negotiate::{self, Encoding, Encodings};

/// Most bytes of a request body.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

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
    pub fn of(call: &Call) -> Result<Self, ApiError> {
        match call.query.text("fieldValidation") {
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            None | Some("Warn") => Ok(Self::Warn),
            Some(other) => {
                Err(call.unsupported_option("fieldValidation", other.into(), &["", "Ignore", "Strict", "Warn"]))
            }
        }
    }
}

/// The request body as an object of the call's kind, in the served version.
pub fn decode_body(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let resource = &call.resource;
    decode_as(call, body, resource.served(), &resource.kind)
}

/// JSON as an object of the call's kind, whatever the request's content type.
pub fn decode_json(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    decode_readable(call, Readable::json(body), call.resource.served(), &call.resource.kind)
}

/// The request body as an object of a given kind.
pub fn decode_as(call: &Call, body: &[u8], expected: GroupVersion<'_>, kind: &str) -> Result<Value, ApiError> {
    decode_readable(call, readable(call, body, kind)?, expected, kind)
}

/// The body of an apply request, JSON, YAML or CBOR, checked by the schema, with just the fields that it names.
pub fn decode_applied(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let body = match negotiate::content_type(&call.headers).ends_with("+cbor") {
        true => Readable::cbor(body).map_err(|why| format!("error decoding patch: {why}")),
        false => {
            Readable::yaml(body).map_err(|why| format!("error decoding patch: error converting YAML to JSON: {why}"))
        }
    };
    let body = body.map_err(ApiError::BadRequest)?;
    if let Some(custom) = &call.resource.custom {
        let (meta, decoded) = (type_meta(&body.body, body.encoding, &custom.kind.kind)?, object::applied(&body.body));
        object::check_version(custom, &meta)?;
        let mut decoded = decoded.map_err(ApiError::BadRequest)?;
        decoded.strict_errors.splice(0..0, body.duplicates);
        tell_strict(call, &decoded.strict_errors, |why| object::handled(custom, &why))?;
        return Ok(decoded.value);
    }
    decode_readable(call, body, call.resource.served(), &call.resource.kind)
}

fn decode_readable(call: &Call, body: Readable<'_>, expected: GroupVersion<'_>, kind: &str) -> Result<Value, ApiError> {
    let Readable { body, encoding, duplicates } = body;
    let body = &*body;
    if let Some(custom) = call.resource.custom.as_ref().filter(|_| expected == call.resource.served()) {
        return decode_custom(call, custom, Readable { body: Cow::Borrowed(body), encoding, duplicates });
    }
    let ty = struct_type(call.state.schema, expected, kind)?;
    let meta = type_meta(body, encoding, kind)?;
    check_kind(call.state.schema, &meta, expected, kind)?;
    let decoded = match encoding {
        Encoding::Protobuf => {
            protobuf::envelope(body).and_then(|envelope| protobuf::decode_as(call.state.schema, ty, &envelope))
        }
        Encoding::Cbor => cbor::decode(call.state.schema, ty, body),
        _ => json::decode(call.state.schema, ty, body),
    };
    let version = expected.1;
    let handled = |why: String| {
        ApiError::BadRequest(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let mut decoded = decoded.map_err(|error| handled(error.to_string()))?;
    decoded.strict_errors.splice(0..0, duplicates);
    tell_strict(call, &decoded.strict_errors, handled)?;
    let mut value = decoded.value;
    daemon_generation(kind, &value).map_err(handled)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("kind".into(), kind.into());
        map.insert("apiVersion".into(), api_version(expected).into());
    }
    Ok(value)
}

/// Which generation a DaemonSet's template is of is told in an annotation, as a number.
pub fn daemon_generation(kind: &str, object: &Value) -> Result<(), String> {
    let annotation = &object["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
    let Some(told) = annotation.as_str().filter(|_| kind == "DaemonSet") else { return Ok(()) };
    let unread = |fault: std::num::ParseIntError| {
        let why = match fault.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {}: {why}", quoted(told))
    };
    told.parse::<i64>().map(drop).map_err(unread)
}

/// A custom object: JSON by the definition's schema.
fn decode_custom(call: &Call, custom: &Custom, body: Readable<'_>) -> Result<Value, ApiError> {
    let kind = &custom.kind.kind;
    if body.encoding == Encoding::Protobuf {
        return Err(ApiError::UnsupportedMediaType(
            ["application/json", "application/yaml"].map(str::to_owned).to_vec(),
        ));
    }
    let meta = type_meta(&body.body, body.encoding, kind)?;
    if meta.kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&body.body));
        return Err(unrecognized(kind, &why, &body.body));
    }
    let mut decoded = object::decode(custom, &body.body, &meta)?;
    decoded.strict_errors.splice(0..0, body.duplicates);
    tell_strict(call, &decoded.strict_errors, |why| object::handled(custom, &why))?;
    Ok(decoded.value)
}

/// What strict validation says, as the request wants to hear it.
pub fn tell_strict(call: &Call, errors: &[String], refuse: impl Fn(String) -> ApiError) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    match FieldValidation::of(call)? {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            errors.iter().for_each(|error| call.warn(error));
            Ok(())
        }
        FieldValidation::Strict => Err(refuse(format!("strict decoding error: {}", errors.join(", ")))),
    }
}

/// A body of options (`DeleteOptions`).
pub fn decode_options(call: &Call, body: &[u8], kind: &str) -> Result<Value, ApiError> {
    let ty = struct_type(call.state.schema, ("meta.k8s.io", "v1"), kind)?;
    let Readable { body, encoding, .. } = readable(call, body, kind)?;
    let decoded = match encoding {
        Encoding::Protobuf => {
            protobuf::envelope(&body).and_then(|envelope| protobuf::decode_as(call.state.schema, ty, &envelope))
        }
        Encoding::Cbor => cbor::type_meta(&body).and_then(|_| cbor::decode(call.state.schema, ty, &body)),
        _ => json::type_meta(&body).and_then(|_| json::decode(call.state.schema, ty, &body)),
    };
    decoded.map(|decoded| decoded.value).map_err(|error| unrecognized(kind, &error.to_string(), &body))
}

/// The type of a kind.
fn struct_type<'a>(
    schema: &'a Schema,
    (group, version): GroupVersion<'_>,
    kind: &str,
) -> Result<&'a StructType, ApiError> {
    schema
        .kind(group, version, kind)
        .ok_or_else(|| ApiError::Internal(format!("no schema for {kind} of {group}/{version}")))
}

/// A body in an encoding that the schema reads.
struct Readable<'a> {
    body: Cow<'a, [u8]>,
    encoding: Encoding,
    /// What strict validation says of keys that YAML had twice.
    duplicates: Option<String>,
}

impl<'a> Readable<'a> {
    fn json(body: &'a [u8]) -> Self {
        Self { body: Cow::Borrowed(body), encoding: Encoding::Json, duplicates: None }
    }

    /// CBOR becomes JSON for those who know no schema of ours.
    fn cbor(body: &[u8]) -> Result<Self, DecodeError> {
        let body = Cow::Owned(cbor::to_json(body)?);
        Ok(Self { body, encoding: Encoding::Json, duplicates: None })
    }

    /// YAML becomes JSON; JSON is left to the schema, which sees more of its faults.
    fn yaml(body: &'a [u8]) -> Result<Self, DecodeError> {
        if body.first() == Some(&b'{') && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() {
            return Ok(Self::json(body));
        }
        let document = yaml::parse(body)?;
        let mut text = Vec::with_capacity(body.len());
        json::encode_any(&document.value, &mut text);
        Ok(Self { body: Cow::Owned(text), encoding: Encoding::Json, duplicates: document.duplicates })
    }
}

fn readable<'a>(call: &Call, body: &'a [u8], kind: &str) -> Result<Readable<'a>, ApiError> {
    let encodings = Encodings::of(&call.state.config.features.gates);
    let encoding = negotiate::body_encoding(&call.headers, encodings)
        .ok_or_else(|| ApiError::UnsupportedMediaType(encodings.media_types().map(str::to_owned).collect()))?;
    match encoding {
        Encoding::Yaml => Readable::yaml(body).map_err(|error| unrecognized(kind, &error.to_string(), body)),
        Encoding::Cbor if call.resource.custom.is_some() => {
            Readable::cbor(body).map_err(|error| unrecognized(kind, &error.to_string(), body))
        }
        encoding => Ok(Readable { body: Cow::Borrowed(body), encoding, duplicates: None }),
    }
}

fn type_meta(body: &[u8], encoding: Encoding, kind: &str) -> Result<TypeMeta, ApiError> {
    let meta = match encoding {
        Encoding::Protobuf => protobuf::envelope(body).map(|envelope| envelope.type_meta),
        Encoding::Cbor => cbor::type_meta(body),
        _ => json::type_meta(body),
    };
    meta.map_err(|error| unrecognized(kind, &error.to_string(), body))
}

/// A body that does not even say what it is.
fn unrecognized(kind: &str, why: &str, body: &[u8]) -> ApiError {
    let summary = summarize(body);
    ApiError::BadRequest(format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})"))
}

/// The first bytes of a body, for messages.
fn summarize(body: &[u8]) -> String {
    const LIMIT: usize = 30;
    let shown = &body[..body.len().min(LIMIT)];
    let text = match body.first() {
        None => return "<empty>".into(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > LIMIT { format!("{text} ...") } else { text }
}

/// Kind and apiVersion of the body must be the path's; absent ones become it.
fn check_kind(schema: &Schema, meta: &TypeMeta, expected: GroupVersion<'_>, kind: &str) -> Result<(), ApiError> {
    let want = api_version(expected);
    let own_kind = if meta.kind.is_empty() { kind } else { &meta.kind };
    let own_version = if meta.api_version.is_empty() { &want } else { &meta.api_version };
    if own_kind == kind && *own_version == want {
        return Ok(());
    }
    let (group, version) = own_version.split_once('/').unwrap_or(("", own_version));
    let known = schema.kind(group, version, own_kind);
    let why = match known {
        None => format!(
            "no kind \"{own_kind}\" is registered for version \"{own_version}\" in scheme \
             \"pkg/runtime/scheme.go:111\""
        ),
        Some(_) if own_kind == kind => {
            return Err(ApiError::BadRequest(format!(
                "the API version in the data ({own_version}) does not match the expected API version ({want})"
            )));
        }
        Some(ty) => {
            let package = expected.0.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
            format!("converting ({}) to ({package}.{kind}): unknown conversion", ty.go)
        }
    };
    Err(ApiError::BadRequest(format!("{own_kind} in version \"{version}\" cannot be handled as a {kind}: {why}")))
}

/// Turns an object from its stored into its served form.
pub fn to_served(call: &Call, object: &mut Value) {
    let resource = &call.resource;
    if let Some(custom) = &resource.custom {
        object::read(custom, object);
    } else if !resource.serves_stored_form() {
        crate::conversion::convert(object, resource.stored(), resource.served());
        normalize(call.state.schema, object);
    }
}

/// Defaults of an object in its served form, and the shape that upstream's types give.
pub fn complete(call: &Call, object: &mut Value) {
    let resource = &call.resource;
    if let Some(custom) = &resource.custom {
        return schema::fill(&custom.node, object);
    }
    let schema = call.state.schema;
    defaults(schema, resource.served(), &resource.kind, object);
    let now = pintle_machinery::time::format(call.now);
    pintle_api::defaults::set_times(&resource.group, &resource.kind, object, &now);
    // This version tells some of its fields in annotations too.
    if resource.served() == ("autoscaling", "v1") {
        crate::conversion::convert(object, resource.served(), resource.stored());
        crate::conversion::convert(object, resource.stored(), resource.served());
    }
    normalize(schema, object);
}

/// Turns a completed object from its served into its stored form, which may have defaults of its own.
pub fn to_stored(call: &Call, object: &mut Value) {
    let resource = &call.resource;
    if resource.custom.is_some() {
        object["apiVersion"] = api_version(resource.stored()).into();
    } else if !resource.serves_stored_form() {
        crate::conversion::convert(object, resource.served(), resource.stored());
        defaults(call.state.schema, resource.stored(), &resource.kind, object);
    }
}

/// Fills in defaults that the schema knows.
pub fn defaults(schema: &Schema, version: GroupVersion<'_>, kind: &str, object: &mut Value) {
    if let Some(ty) = schema.kind(version.0, version.1, kind) {
        pintle_api::defaults::apply(ty, object);
    }
}

/// Brings an object into the shape that a round trip through upstream's types gives.
pub fn normalize(schema: &Schema, object: &mut Value) {
    if let Some(ty) = type_of(schema, object) {
        pintle_machinery::normalize::normalize(schema, ty, object);
    }
}

fn type_of<'a>(schema: &'a Schema, object: &Value) -> Option<&'a StructType> {
    let meta = TypeMeta::of(object);
    let (group, version) = meta.group_version();
    schema.kind(group, version, &meta.kind)
}

/// Stored bytes of an object: kind, apiVersion and metadata lead.
pub fn serialize(schema: &Schema, object: &Value) -> Vec<u8> {
    match type_of(schema, object) {
        Some(ty) => {
            let mut out = Vec::with_capacity(8 * 1024);
            json::encode(schema, ty, object, &mut out);
            out
        }
        None => entry::serialize(&json::with_fields_as_json(object)),
    }
}

/// Upstream stores the objects of this group as JSON rather than as protobuf.
pub fn stored_as_json(group: &str) -> bool {
    matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
}

/// An object as the store keeps it.
pub fn store(schema: &Schema, object: &mut Value) -> Vec<u8> {
    stored(schema, object);
    let mut bytes = serialize(schema, object);
    // They stay in memory for as long as the object.
    bytes.shrink_to_fit();
    bytes
}

/// Brings an object into the shape that a round trip through upstream's store gives.
pub fn stored(schema: &Schema, object: &mut Value) {
    if let Some(ty) = type_of(schema, object)
        && ty.kind.as_ref().is_some_and(|kind| !stored_as_json(&kind.group))
    {
        pintle_machinery::normalize::stored(schema, ty, object);
    }
}

/// An object as bytes.
pub fn encode(schema: &Schema, value: &Value, encoding: Encoding, pretty: bool) -> Result<Bytes, ApiError> {
    let internal = |error: String| ApiError::Internal(error);
    Ok(match encoding {
        Encoding::Json if pretty => serde_json::to_vec_pretty(&Ordered(&json::with_fields_as_json(value)))
            .map_err(|error| internal(error.to_string()))?
            .into(),
        Encoding::Json => {
            let mut bytes = serialize(schema, value);
            bytes.push(b'\n');
            bytes.into()
        }
        Encoding::Yaml => serde_yaml_ng::to_string(&*json::with_fields_as_json(value))
            .map_err(|error| internal(error.to_string()))?
            .into(),
        Encoding::Protobuf => protobuf::encode(schema, value).map_err(|error| internal(error.to_string()))?.into(),
        Encoding::Cbor => cbor::encode(schema, type_of(schema, value), value).into(),
    })
}

/// A list in protobuf: all before its items, and the items' messages, to be written as [`item_head`] says.
pub struct ProtobufList {
    /// The envelope up to the first item.
    pub head: Vec<u8>,
    /// What is cached of each item.
    pub messages: Vec<Bytes>,
    /// The size of it all.
    pub size: usize,
}

/// What an envelope has behind its message: no content encoding, no content type.
pub const TAIL: [u8; 4] = [3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// A list of objects in protobuf.
pub fn protobuf_list(call: &Call, page: &Page, meta: &Value) -> Result<ProtobufList, ApiError> {
    let messages = page.entries.iter().map(|entry| message_of(call, entry)).collect::<Result<_, _>>()?;
    let kind = format!("{}List", call.resource.kind);
    Ok(list(&call.resource.api_version(), &kind, &list_meta(call, meta)?, messages))
}

/// A list of metadata in protobuf: the first field of every object's message is its metadata.
pub fn protobuf_metadata_list(
    call: &Call,
    page: &Page,
    meta: &Value,
    api_version: &str,
) -> Result<ProtobufList, ApiError> {
    let metadata = |entry| message_of(call, entry).map(|message| message.slice_ref(protobuf::first_field(&message)));
    let messages = page.entries.iter().map(|entry| metadata(entry)).collect::<Result<_, _>>()?;
    Ok(list(api_version, "PartialObjectMetadataList", &list_meta(call, meta)?, messages))
}

fn list(api_version: &str, kind: &str, meta: &[u8], messages: Vec<Bytes>) -> ProtobufList {
    let mut first = Vec::new();
    delimited(1, meta, &mut first);
    let items: usize = messages.iter().map(|message| 1 + varint_size(message.len()) + message.len()).sum();
    let mut head = envelope_head(api_version, kind, first.len() + items);
    head.extend_from_slice(&first);
    ProtobufList { size: head.len() + items + TAIL.len(), head, messages }
}

/// What stands before an item's message.
pub fn item_head(message: &[u8], out: &mut impl bytes::BufMut) {
    delimiter(2, message.len(), out);
}

fn list_meta(call: &Call, meta: &Value) -> Result<Vec<u8>, ApiError> {
    let schema = call.state.schema;
    let ty = schema
        .by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
        .ok_or_else(|| ApiError::Internal("no schema for ListMeta".into()))?;
    protobuf::encode_message(schema, ty, meta).map_err(|error| ApiError::Internal(error.to_string()))
}

/// An entry's protobuf message in the served version; made once if that is the stored one.
fn message_of(call: &Call, entry: &Entry) -> Result<Bytes, ApiError> {
    let schema = call.state.schema;
    let resource = &call.resource;
    if resource.serves_stored_form()
        && let Some(bytes) = entry.protobuf.get()
    {
        return Ok(bytes.clone());
    }
    let ty = struct_type(schema, resource.served(), &resource.kind)?;
    let internal = |error: EncodeError| ApiError::Internal(error.to_string());
    if resource.serves_stored_form() {
        let mut text = Vec::with_capacity(entry.size());
        entry.write(&mut text);
        let bytes = protobuf::encode_text(schema, ty, &text).map_err(internal)?;
        return Ok(entry.protobuf.get_or_init(|| bytes.into()).clone());
    }
    let mut value = entry.value();
    to_served(call, &mut value);
    protobuf::encode_message(schema, ty, &value).map(Bytes::from).map_err(internal)
}

/// A stored object as it is served at a revision, in protobuf.
pub fn protobuf_stored(call: &Call, stored: &[u8], revision: Revision) -> Result<Bytes, ApiError> {
    let resource = &call.resource;
    let cached = resource.cache.as_ref().and_then(|cache| cache.snapshot().0.get(&call.key()).cloned());
    let message = match cached.filter(|entry| entry.revision == revision) {
        Some(entry) => message_of(call, &entry)?,
        None => {
            let ty = struct_type(call.state.schema, resource.served(), &resource.kind)?;
            let internal = |error: String| ApiError::Internal(format!("stored object: {error}"));
            let text = entry::splice(stored, revision).ok_or_else(|| internal("no object".into()))?;
            protobuf::encode_text(call.state.schema, ty, &text).map_err(|error| internal(error.to_string()))?.into()
        }
    };
    Ok(envelope(&resource.api_version(), &resource.kind, &message).into())
}

/// A watch event about an entry in protobuf.
pub fn protobuf_event(call: &Call, kind: &str, entry: &Entry) -> Result<Vec<u8>, ApiError> {
    let message = message_of(call, entry)?;
    let object = envelope(&call.resource.api_version(), &call.resource.kind, &message);
    Ok(protobuf::frame::watch_event(kind, &object))
}

/// A message in its envelope.
fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = envelope_head(api_version, kind, message.len());
    out.extend_from_slice(message);
    out.extend_from_slice(&TAIL);
    out
}

/// An envelope up to its message of that size.
fn envelope_head(api_version: &str, kind: &str, size: usize) -> Vec<u8> {
    let mut meta = Vec::new();
    delimited(1, api_version.as_bytes(), &mut meta);
    delimited(2, kind.as_bytes(), &mut meta);
    let mut out = Vec::with_capacity(meta.len() + 64);
    out.extend_from_slice(&protobuf::MAGIC);
    delimited(1, &meta, &mut out);
    delimiter(2, size, &mut out);
    out
}

/// A length-delimited protobuf field.
pub(crate) fn delimited(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    delimiter(number, bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn delimiter(number: u8, mut length: usize, out: &mut impl bytes::BufMut) {
    out.put_u8(number << 3 | 2);
    while length >= 0x80 {
        out.put_u8((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
}

fn varint_size(value: usize) -> usize {
    (usize::BITS - value.leading_zeros()).div_ceil(7).max(1) as usize
}

/// One watch event in any encoding.
pub fn watch_frame(schema: &Schema, kind: &str, object: &Value, encoding: Encoding) -> Result<Bytes, ApiError> {
    match encoding {
        Encoding::Json | Encoding::Yaml => {
            let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
            line.extend_from_slice(&serialize(schema, object));
            line.extend_from_slice(b"}\n");
            Ok(line.into())
        }
        Encoding::Protobuf => Ok(protobuf::frame::watch_event(kind, &encode(schema, object, encoding, false)?).into()),
        Encoding::Cbor => Ok(cbor::encode_event(schema, type_of(schema, object), kind, object).into()),
    }
}
