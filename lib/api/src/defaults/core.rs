//! The core group.

use pintle_machinery::{
    codec::scalar::encode_base64,
    schema::{Object, Value},
};
use serde_json::json;

use super::{is_empty, items, make, object, pod, service, set, text};

/// By kind.
pub fn apply(kind: &str, top: &mut Object) {
    match kind {
        "Pod" => {
            if let Some(spec) = object(top, "spec") {
                pod::spec(spec);
                pod::pod(spec);
            }
            if let Some(status) = object(top, "status") {
                both_forms(status, "podIP", "podIPs", |ip| json!({"ip": ip}));
            }
        }
        "PodTemplate" => template(top),
        "ReplicationController" => replication_controller(top),
        "Service" => service::apply(top),
        "Namespace" => namespace(top),
        "Secret" => secret(top),
        "Node" => node(top),
        "LimitRange" => limit_range(top),
        _ => {}
    }
}

/// The pod template under `template`.
pub fn template(holder: &mut Object) {
    if let Some(spec) = object(holder, "template").and_then(|template| object(template, "spec")) {
        pod::spec(spec);
    }
}

fn replication_controller(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    template(spec);
    let labels = spec.get("template").and_then(|template| template.pointer("/metadata/labels")).cloned();
    let Some(labels) = labels.filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty())) else {
        return;
    };
    if is_empty(spec, "selector") {
        spec.insert("selector".to_owned(), labels.clone());
    }
    if let Some(metadata) = make(top, "metadata").filter(|metadata| is_empty(metadata, "labels")) {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// Every namespace carries its name as a label.
fn namespace(top: &mut Object) {
    let Some(metadata) = make(top, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = make(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::String(name));
    }
}

/// What is written as plain text is kept among the rest.
fn secret(top: &mut Object) {
    let Some(Value::Object(plain)) = top.remove("stringData") else { return };
    if let (Some(data), false) = (make(top, "data"), plain.is_empty()) {
        for (key, value) in plain {
            let bytes = value.as_str().unwrap_or_default();
            data.insert(key, encode_base64(bytes.as_bytes()).into());
        }
    }
}

/// A value alone and a list of such say the same of the first; the value alone wins.
fn both_forms(holder: &mut Object, one: &str, list: &str, item: fn(&str) -> Value) {
    let alone = text(holder, one).to_owned();
    let first = holder.get(list).and_then(|items| items.get(0)).cloned().unwrap_or_default();
    match (alone.is_empty(), first) {
        (true, Value::String(first)) => drop(holder.insert(one.to_owned(), first.into())),
        (true, Value::Object(first)) => {
            holder.insert(one.to_owned(), first.get("ip").cloned().unwrap_or_default());
        }
        (false, first) if first != item(&alone) => {
            holder.insert(list.to_owned(), Value::Array(vec![item(&alone)]));
        }
        _ => {}
    }
}

fn node(top: &mut Object) {
    if let Some(spec) = object(top, "spec") {
        both_forms(spec, "podCIDR", "podCIDRs", |range| range.into());
    }
    let Some(status) = object(top, "status") else { return };
    if let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object()).cloned() {
        set(status, "allocatable", capacity);
    }
}

/// For containers: a default limit is the maximum, a default request the default limit, else the minimum.
fn limit_range(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    for item in items(spec, "limits").filter(|item| text(item, "type") == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let amounts = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            if amounts.is_empty() {
                continue;
            }
            if let Some(target) = make(item, to) {
                amounts.into_iter().for_each(|(name, amount)| set(target, &name, amount));
            }
        }
    }
}
