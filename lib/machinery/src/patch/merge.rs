//! JSON merge patch (RFC 7386).

use super::{form, parse};
use crate::{Value, status::ApiError};

/// Applies a patch's body to a document.
pub fn apply(document: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let patch = parse(patch)?;
    if !patch.is_object() {
        return Err(ApiError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            form(&patch)
        )));
    }
    let mut document = document.clone();
    merge(&mut document, patch);
    Ok(document)
}

/// Merges a patch into a value: null deletes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(&key)),
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rfc_cases() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (document, patch, result) in cases {
            assert_eq!(apply(&document, patch.to_string().as_bytes()).unwrap(), result);
        }
        assert_eq!(apply(&json!({}), b"xx").unwrap_err().status().message, "invalid JSON patch");
    }
}
