//! Short ways into JSON objects, for rules that look at a few fields.

use serde_json::{Map, Value, json};

/// The value at a dotted path; null if there is none.
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}

/// The text at a path; "" if there is none.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The integer at a path; 0 if there is none.
pub fn int(value: &Value, path: &str) -> i64 {
    at(value, path).as_i64().unwrap_or_default()
}

/// The integer at a path, if there is one.
pub fn number(value: &Value, path: &str) -> Option<i64> {
    at(value, path).as_i64()
}

/// Whether the value at a path is true.
pub fn flag(value: &Value, path: &str) -> bool {
    at(value, path).as_bool().unwrap_or_default()
}

/// The list at a path; empty if there is none.
pub fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The entries of the map at a path.
pub fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(value, path).as_object().into_iter().flatten()
}

/// Whether something is at a path.
pub fn has(value: &Value, path: &str) -> bool {
    !at(value, path).is_null()
}

/// The object at a path, made if it isn't there.
pub fn object_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').filter(|name| !name.is_empty()).fold(value, |value, name| {
        if !value.is_object() {
            *value = json!({});
        }
        let child = &mut value[name];
        if child.is_null() {
            *child = json!({});
        }
        child
    })
}

/// The object at a path, if it is there.
pub fn get_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, name| value.get_mut(name)).filter(|value| !value.is_null())
}

/// Sets a field of an object.
pub fn set(value: &mut Value, name: &str, to: impl Into<Value>) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value[name] = to.into();
}

/// Sets a field of an object if it isn't set; an empty string counts as not set.
pub fn default(value: &mut Value, name: &str, to: impl Into<Value>) {
    let absent = match value.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if absent {
        set(value, name, to);
    }
}

/// Removes a field of an object.
pub fn remove(value: &mut Value, name: &str) -> Option<Value> {
    value.as_object_mut()?.remove(name)
}

/// Puts a field back to what the old object has.
pub fn restore(new: &mut Value, old: &Value, name: &str) {
    match old.get(name) {
        Some(before) => set(new, name, before.clone()),
        None => drop(remove(new, name)),
    }
}
