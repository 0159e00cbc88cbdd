//! The annotation in which kubectl keeps what it applied itself before the server did.
//!
//! When kubectl applies by the server to such an object, what the annotation names is in its hands already: it may be
//! taken from others without force, and the annotation is brought up to date.

use super::{FieldSet, Shape, compare};
use crate::Value;

/// The manager as which kubectl applies by the server.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Bytes that an object's annotations may have; with more it goes.
const MOST: usize = 256 << 10;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that were applied last.
pub(super) fn fields(shape: Shape<'_>, live: &Value) -> FieldSet {
    let applied: Option<Value> = annotation(live).and_then(|text| serde_json::from_str(text).ok());
    applied.map(|applied| compare::field_set(shape, &applied)).unwrap_or_default()
}

/// Notes what is applied now, where something is noted.
pub(super) fn renew(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{config}\n");
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.into(), text.into());
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if size > MOST {
            annotations.remove(ANNOTATION);
        }
    }
}
