//! Custom objects in and out: what the built-in kinds' types do for theirs.

use pintle_machinery::codec::{TypeMeta, json};
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::status::{ApiError, GroupResource};
use serde_json::Value;

use super::schema::{self, METADATA, Node};
use super::{Custom, Scale};
use crate::conversion::api_version;

/// An object as a client sent it, and what strict validation says of it.
pub struct Decoded {
    /// The object: pruned, not defaulted.
    pub value: Value,
    /// Unknown and duplicate fields.
    pub strict_errors: Vec<String>,
}

/// Reads a JSON body.
pub fn decode(custom: &Custom, body: &[u8], meta: &TypeMeta) -> Result<Decoded, ApiError> {
    check_version(custom, meta)?;
    let decoded = shaped(custom, body).map_err(|why| handled(custom, &why))?;
    if meta.kind != custom.kind.kind {
        let mut errors = ErrorList::new();
        errors.invalid(&Path::new("kind"), meta.kind.as_str(), format!("must be {}", custom.kind.kind));
        let name = decoded.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        return Err(ApiError::invalid(&GroupResource::new(&custom.kind.group, &meta.kind), &name, errors));
    }
    Ok(decoded)
}

/// The body must be of the version that the path names.
pub fn check_version(custom: &Custom, meta: &TypeMeta) -> Result<(), ApiError> {
    let expected = api_version((&custom.kind.group, &custom.kind.version));
    if meta.api_version == expected {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!(
        "the API version in the data ({}) does not match the expected API version ({expected})",
        meta.api_version
    )))
}

/// A configuration that is applied: what the schema does not know, in metadata too, is left for apply to refuse.
pub fn applied(body: &[u8]) -> Result<Decoded, String> {
    let read = json::parse_free(body).map_err(|error| error.to_string())?;
    Ok(Decoded { value: read.value, strict_errors: read.strict_errors })
}

/// `Widget in version "v1" cannot be handled as a Widget: …`
pub fn handled(custom: &Custom, why: &str) -> ApiError {
    let (kind, version) = (&custom.kind.kind, &custom.kind.version);
    ApiError::BadRequest(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

/// Any JSON in the shape of the kind: metadata as its type has it, nothing that the schema does not know.
pub fn shaped(custom: &Custom, body: &[u8]) -> Result<Decoded, String> {
    let read = json::parse_free(body).map_err(|error| error.to_string())?;
    let (mut value, mut strict_errors) = (read.value, read.strict_errors);
    let mut unknown = Vec::new();
    metadata(custom, true, &custom.node, "", &mut value, &mut unknown)?;
    unknown.extend(schema::prune(&custom.node, &mut value));
    strict_errors.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
    Ok(Decoded { value, strict_errors })
}

/// Brings the metadata of an object, and of the objects in it, into the shape of its type.
fn metadata(
    custom: &Custom,
    embeds: bool,
    node: &Node,
    path: &str,
    value: &mut Value,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(map) => {
            if embeds && let Some(given) = map.get_mut("metadata") {
                coerce(custom, &below("metadata"), given, unknown)?;
            }
            for (name, value) in map.iter_mut().filter(|(name, _)| !(embeds && METADATA.contains(&name.as_str()))) {
                let Some(field) = node.field(name) else { continue };
                metadata(custom, field.embedded, field, &below(name), value, unknown)?;
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return Ok(()) };
            for (index, value) in items.iter_mut().enumerate() {
                metadata(custom, item.embedded, item, &format!("{path}[{index}]"), value, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce(custom: &Custom, path: &str, given: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(ty) = custom.types.by_name(schema::OBJECT_META) else { return Ok(()) };
    let decoded = json::decode(&custom.types, ty, given.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let named = |error: &String| Some(format!("{path}.{}", error.strip_prefix("unknown field \"")?.strip_suffix('"')?));
    unknown.extend(decoded.strict_errors.iter().filter_map(named));
    *given = decoded.value;
    if let Some(metadata) = given.as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    Ok(())
}

/// A stored object, of whatever version, as one of this version: what the schema has come to know or to forget since it was
/// written shows.
pub fn read(custom: &Custom, object: &mut Value) {
    object["apiVersion"] = api_version((&custom.kind.group, &custom.kind.version)).into();
    schema::prune(&custom.node, object);
    schema::fill(&custom.node, object);
}

impl Scale {
    /// What makes `/scale` impossible.
    pub fn validate(&self, object: &Value, errors: &mut ErrorList) {
        let Some(path) = self.wanted.fields() else { return };
        let shown = format!(".{}", path.join("."));
        let mut value = object;
        for name in &path {
            match value {
                Value::Object(map) => match map.get(*name) {
                    Some(next) => value = next,
                    None => return,
                },
                other => {
                    let detail = format!(
                        "{shown} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                        plain(other),
                        go_type(other)
                    );
                    return errors.push(FieldError::new(Fault::Invalid, &Path::new(&shown), 0, detail));
                }
            }
        }
        let detail = match value.as_i64() {
            Some(replicas) if replicas < 0 => "should be a non-negative integer".to_owned(),
            Some(replicas) if replicas > i64::from(i32::MAX) => {
                format!("should be less than or equal to {}", i32::MAX)
            }
            Some(_) => return,
            None => {
                format!("{shown} accessor error: {} is of the type {}, expected int64", plain(value), go_type(value))
            }
        };
        let found = value.as_i64().unwrap_or(0);
        errors.push(FieldError::new(Fault::Invalid, &Path::new(&shown), found, detail));
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::cache::Cache;
    use crate::custom::definition;
    use crate::registry;

    fn custom() -> Arc<Custom> {
        let names = json!({"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"});
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "replicas": {"type": "integer", "default": 1},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}});
        let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        let definition = json!({"spec": {"group": "example.com", "names": names, "versions": [{"name": "v1", "storage": true,
            "served": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale}}]},
            "status": {"acceptedNames": names}});
        let cache = Arc::new(Cache::new("/registry/example.com/widgets/".into(), &registry::CUSTOM));
        definition::resources(&definition, pintle_api::schema(), &cache)[0].custom.clone().unwrap()
    }

    fn decoded(body: &str) -> Result<Decoded, String> {
        let meta = json::type_meta(body.as_bytes()).unwrap();
        decode(&custom(), body.as_bytes(), &meta).map_err(|error| error.status().message)
    }

    #[test]
    fn bodies() {
        let read = decoded(
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","foo":1},"spec":{"size":1,"size":2},"bad":1}"#,
        )
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read.value["spec"], json!({"size": 2}));
        assert_eq!(
            read.strict_errors,
            ["duplicate field \"spec.size\"", "unknown field \"metadata.foo\"", "unknown field \"bad\""]
        );
        for (body, message) in [
            (
                r#"{"apiVersion":"example.com/v2","kind":"Widget"}"#,
                "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)",
            ),
            (
                r#"{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"c"}}"#,
                "Gadget.example.com \"c\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
            ),
            (
                r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":1}}}"#,
                "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
                 ObjectMeta.labels of type string",
            ),
            (
                r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":"x"}"#,
                "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal string into Go value of type \
                 v1.ObjectMeta",
            ),
        ] {
            assert_eq!(decoded(body).err().as_deref(), Some(message));
        }
        let inner =
            r#"{"apiVersion":"example.com/v1","kind":"Widget","spec":{"pod":{"metadata":{"name":"A_","bad":1}}}}"#;
        let read = decoded(inner).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read.strict_errors, ["unknown field \"spec.pod.metadata.bad\""]);
    }

    #[test]
    fn scales_must_be_possible() {
        let faults = |spec: Value| custom().validate(&json!({"spec": spec}), None).to_string();
        assert_eq!(faults(json!({"replicas": 3})), "");
        assert_eq!(faults(json!({})), "");
        let fault = faults(json!("x"));
        let wanted = ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected map[string]interface{}";
        assert!(fault.ends_with(&format!("{wanted}]")), "{fault}");
        assert_eq!(
            faults(json!({"replicas": -1})),
            ".spec.replicas: Invalid value: -1: should be a non-negative integer"
        );
    }
}
