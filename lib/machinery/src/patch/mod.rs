//! The patches that clients send, applied to values. Errors are those that the API answers.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::{
    Value,
    status::{ApiError, Details, Status},
};
use std::collections::BTreeMap;

/// Reads a patch's body.
fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|_| ApiError::BadRequest("invalid JSON patch".into()))
}

/// A patch that is well formed but can't be applied to this object.
fn rejected() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    ApiError::Other(Box::new(Status::failure(422, "Invalid", message).with_details(Details::default())))
}

/// A failure without a reason, as upstream answers some malformed patches.
fn unclassified(message: String) -> ApiError {
    ApiError::Other(Box::new(Status::failure(500, "", message)))
}

/// The word for a JSON value's form in messages.
fn form(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}

/// A value as Go prints it with `%v`, which some messages show.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as Go prints it with `%s`.
fn go_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_string).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: BTreeMap<&String, String> = map.iter().map(|(key, value)| (key, go_string(value))).collect();
            let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Null => "%!s(<nil>)".into(),
        plain => format!("%!s({}={plain})", go_type(plain)),
    }
}

/// The Go type of a decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
