//! Defaults of an object: the constant ones of the schema, and those that depend on other fields, one module a group.

mod apps;
mod autoscaling;
mod batch;
mod core;
mod image;
mod other;
mod pod;
mod service;

use pintle_machinery::{
    defaults as constant,
    schema::{Object, StructType, Value},
};

use crate::schema;

/// Sets all defaults of an object of that type, as upstream's API server does when it reads a request.
pub fn apply(ty: &StructType, value: &mut Value) {
    if let (Some(kind), Value::Object(object)) = (&ty.kind, &mut *value)
        && kind.group == "apps"
    {
        apps::strategy(&kind.kind, object);
    }
    constant::apply(schema(), ty, value);
    let (Some(kind), Value::Object(object)) = (&ty.kind, value) else { return };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", name) => core::apply(name, object),
        ("apps", name) => apps::apply(name, object),
        ("batch", name) => batch::apply(name, object),
        ("autoscaling", name) => autoscaling::apply(&kind.version, name, object),
        (group, name) => other::apply(group, name, object),
    }
}

/// Fields that hold the time when they were set: group, kind, dotted path (`a[].b` for all items).
const TIMES: [(&str, &str, &str); 2] = [
    ("resource.k8s.io", "DeviceTaintRule", "spec.taint.timeAdded"),
    ("resource.k8s.io", "ResourceSlice", "spec.devices[].taints[].timeAdded"),
];

/// Sets times that are absent to that of the request.
pub fn set_times(group: &str, kind: &str, value: &mut Value, now: &str) {
    for (_, _, path) in TIMES.iter().filter(|(of_group, of_kind, _)| (*of_group, *of_kind) == (group, kind)) {
        set_at(value, path, now);
    }
}

fn set_at(value: &mut Value, path: &str, to: &str) {
    let Some(object) = value.as_object_mut() else { return };
    match path.split_once('.') {
        None => set(object, path, to),
        Some((first, rest)) => match first.strip_suffix("[]") {
            Some(list) => {
                let items = object.get_mut(list).and_then(Value::as_array_mut);
                items.into_iter().flatten().for_each(|item| set_at(item, rest, to));
            }
            None => {
                if let Some(inner) = object.get_mut(first) {
                    set_at(inner, rest, to);
                }
            }
        },
    }
}

/// The object under that name.
fn object<'a>(parent: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    parent.get_mut(name)?.as_object_mut()
}

/// The object under that name, made if it is absent.
fn make<'a>(parent: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    let value = parent.entry(name.to_owned()).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// The objects of the list under that name.
fn items<'a>(parent: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = parent.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The text under that name, empty if absent.
fn text<'a>(parent: &'a Object, name: &str) -> &'a str {
    parent.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether there is nothing under that name: absent, null, or empty.
fn is_empty(parent: &Object, name: &str) -> bool {
    match parent.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(object)) => object.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Sets what is absent or null.
fn set(parent: &mut Object, name: &str, value: impl Into<Value>) {
    if parent.get(name).is_none_or(Value::is_null) {
        parent.insert(name.to_owned(), value.into());
    }
}

/// Sets what is absent or empty text: Go's string fields know no difference.
fn set_text(parent: &mut Object, name: &str, value: &str) {
    if text(parent, name).is_empty() {
        parent.insert(name.to_owned(), value.into());
    }
}

/// Sets what is absent or zero: Go's number fields know no difference.
fn set_number(parent: &mut Object, name: &str, value: impl Into<Value>) {
    if parent.get(name).and_then(Value::as_i64).unwrap_or_default() == 0 {
        parent.insert(name.to_owned(), value.into());
    }
}
