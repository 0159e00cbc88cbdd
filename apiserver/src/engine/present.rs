//! Answers: an object in the encoding and form that the client asked for.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Response, StatusCode};
use pintle_machinery::codec::json;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use super::table;
use super::{Answer, Call};
use crate::cache::entry;
use crate::codec;
use crate::http::body::{self, Body};
use crate::http::negotiate::{Encoding, Form};

/// An answer with ready bytes.
pub fn bytes(status: StatusCode, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    with_body(status, content_type, body::full(bytes))
}

/// An answer with any body.
pub fn with_body(status: StatusCode, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    response
}

/// A stored object (bytes without resource version) as the answer to get, create, update, patch.
pub fn stored(call: &Call, status: StatusCode, bytes: &[u8], revision: i64) -> Answer {
    let spliced = entry::splice(bytes, revision).filter(|_| revision > 0);
    let as_stored = call.accepted.form == Form::Object && call.resource.serves_stored_form();
    match (spliced, call.accepted.encoding) {
        (Some(json), Encoding::Json) if as_stored && !call.accepted.pretty => {
            Ok(self::bytes(status, Encoding::Json.media_type(), json))
        }
        (Some(_), Encoding::Protobuf) if as_stored => {
            let bytes = codec::protobuf_stored(call, bytes, revision)?;
            Ok(self::bytes(status, Encoding::Protobuf.media_type(), bytes))
        }
        _ => {
            let mut value: Value =
                serde_json::from_slice(bytes).map_err(|error| ApiError::Internal(format!("stored object: {error}")))?;
            // A dry run has no revision.
            if revision > 0 {
                value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
            }
            stored_value(call, status, value)
        }
    }
}

/// An object in its stored form as the answer.
pub fn stored_value(call: &Call, status: StatusCode, value: Value) -> Answer {
    let value = match call.accepted.form {
        Form::Object => value,
        // Views have parts of the object anywhere.
        Form::Table(_) | Form::Metadata(_) => json::with_fields_as_json(&value).into_owned(),
    };
    match call.accepted.form {
        Form::Object => {
            let mut value = value;
            codec::to_served(call, &mut value);
            object(call, status, &value)
        }
        Form::Table(v1) => {
            let meta = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            let include = table::Include::parse(&call.query)?;
            let table = table::render(call, std::slice::from_ref(&value), meta, include, v1, true);
            object(call, status, &table)
        }
        Form::Metadata(v1) => object(call, status, &partial_metadata(&value, v1)),
    }
}

/// Any object as it is, in the wanted encoding.
pub fn object(call: &Call, status: StatusCode, value: &Value) -> Answer {
    let accepted = call.accepted;
    let bytes = codec::encode(call.state.schema, value, accepted.encoding, accepted.pretty)?;
    Ok(self::bytes(status, &accepted.content_type(false), bytes))
}

/// The metadata of an object alone.
pub fn partial_metadata(value: &Value, v1: bool) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": if v1 { "meta.k8s.io/v1" } else { "meta.k8s.io/v1beta1" },
        "metadata": shown_metadata(value),
    })
}

/// An annotation that is a field of another name in upstream's internal form: only a whole object shows it.
const FIELD_ANNOTATION: (&str, &str) = ("DaemonSet", "deprecated.daemonset.template.generation");

/// Whether the metadata of such a kind can be shown alone as it is stored.
pub fn shows_stored_metadata(kind: &str) -> bool {
    kind != FIELD_ANNOTATION.0
}

/// The metadata of an object as it is shown alone.
fn shown_metadata(value: &Value) -> Value {
    let mut metadata = value["metadata"].clone();
    if !value["kind"].as_str().is_none_or(shows_stored_metadata)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(FIELD_ANNOTATION.1);
        if annotations.is_empty() {
            metadata.as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_alone_has_no_annotation_that_is_a_field() {
        let (_, annotation) = FIELD_ANNOTATION;
        let alone = |kind: &str, annotations: Value| {
            partial_metadata(&json!({"kind": kind, "metadata": {"name": "a", "annotations": annotations}}), true)["metadata"]
                .clone()
        };
        assert_eq!(alone("DaemonSet", json!({annotation: "1"})), json!({"name": "a"}));
        assert_eq!(alone("DaemonSet", json!({annotation: "1", "b": "c"}))["annotations"], json!({"b": "c"}));
        let bare = json!({"kind": "DaemonSet", "metadata": {"name": "a"}});
        assert_eq!(partial_metadata(&bare, true)["metadata"], json!({"name": "a"}));
        assert_eq!(alone("Deployment", json!({annotation: "1"}))["annotations"], json!({annotation: "1"}));
    }
}
