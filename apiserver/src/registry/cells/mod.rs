//! The cells of `kubectl get`, as upstream's server prints them: one function a resource, as many cells as columns.

mod access;
mod cluster;
mod network;
mod pod;
mod storage;
mod workload;

pub use access::*;
pub use cluster::*;
pub use network::*;
pub use pod::*;
pub use storage::*;
pub use workload::*;

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::Value;

use super::value::{at, entries, items, text};

/// Stands for nothing.
pub(super) const NONE: &str = "<none>";
/// Stands for what isn't set.
pub(super) const UNSET: &str = "<unset>";

pub(super) fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(object, "metadata.creationTimestamp", now).into()
}

pub(super) fn since(object: &Value, path: &str, now: Timestamp) -> String {
    time::age(at(object, path).as_str(), now)
}

pub(super) fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn join<'a>(texts: impl IntoIterator<Item = &'a str>, separator: &str) -> String {
    texts.into_iter().collect::<Vec<_>>().join(separator)
}

/// `a=b,c=d`.
fn labels(object: &Value, path: &str) -> String {
    let pairs: Vec<String> =
        entries(object, path).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or(&pairs.join(","), NONE).to_owned()
}

/// A LabelSelector as text.
fn selector(object: &Value, path: &str) -> String {
    let selector = at(object, path);
    let mut parts: Vec<(String, String)> = entries(selector, "matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".into(),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    or(&join(parts.iter().map(|(_, text)| text.as_str()), ","), NONE).to_owned()
}

/// The first of a list, and how many are not shown.
fn first_of(all: &[String], limit: usize) -> String {
    let shown = all[..all.len().min(limit)].join(",");
    match all.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// Names and images of a template's containers.
fn containers(object: &Value, path: &str) -> [Value; 2] {
    let list = items(at(object, path), "spec.containers");
    let of = |field: &str| Value::from(join(list.iter().map(|container| text(container, field)), ","));
    [of("name"), of("image")]
}

/// Whether the object is being deleted.
fn deleting(object: &Value) -> bool {
    !at(object, "metadata.deletionTimestamp").is_null()
}

/// `True` or `False`.
fn truth(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
}

/// The status of a condition.
pub(super) fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    items(object, "status.conditions").iter().find(|condition| text(condition, "type") == ty)
}

pub(super) fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| text(condition, "status") == "True")
}

/// Name and age alone.
pub fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_and_lists() {
        let object = json!({"s": {"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]}});
        assert_eq!(selector(&object, "s"), "a in (x,y),b=c,!d");
        assert_eq!(selector(&object, "nothing"), "<none>");
        let all: Vec<String> = ["a", "b", "c", "d"].iter().map(ToString::to_string).collect();
        assert_eq!(first_of(&all, 3), "a,b,c + 1 more...");
    }
}
