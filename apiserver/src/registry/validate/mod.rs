//! Errors of objects, with upstream's field paths and words. Pure functions over the object, one module a family.

pub mod access;
pub mod addresses;
pub mod attachment;
pub mod autoscaling;
pub mod certificates;
pub mod claims;
pub mod classes;
pub mod cluster;
pub mod config;
mod container_status;
mod containers;
mod definition_schema;
pub mod definitions;
pub mod devices;
pub mod endpoint_slice;
mod environment;
mod ephemeral;
pub mod events;
mod expressions;
pub mod flow;
pub mod ingress;
pub mod job;
pub mod limit_range;
mod mounts;
pub mod network;
pub mod network_policy;
mod placement;
pub mod pod;
pub mod pod_certificate;
mod pod_status;
mod pod_volumes;
mod pod_warnings;
pub mod policies;
mod projected;
pub mod quota;
mod request_policy;
mod resources;
mod security;
pub mod storage;
pub mod trust;
mod volumes;
pub mod warnings;
pub mod webhooks;
pub mod workload;

pub use pod_warnings::all as pod_warnings;

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::value::{at, entries, has, text};

const IMMUTABLE: &str = "field is immutable";
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A field that must be one of a few words; empty is missing.
fn one_of(errors: &mut ErrorList, path: &Path, value: &str, allowed: &[&str]) {
    if !allowed.contains(&value) {
        errors.not_supported(path, value, allowed);
    }
}

/// Numbers that may be absent but not negative.
fn not_negative(errors: &mut ErrorList, object: &Value, path: &Path, fields: &[&str]) {
    for field in fields {
        if let Some(number) = at(object, field).as_i64().filter(|number| *number < 0) {
            errors.invalid(&path.child(field), number, NOT_NEGATIVE);
        }
    }
}

/// Upstream's declared rules count bytes where others count characters.
fn in_bytes(faults: Vec<String>) -> Vec<String> {
    let reworded = faults.into_iter().map(|fault| match fault.starts_with("must be no more than") {
        true => fault.replace("characters", "bytes"),
        false => fault,
    });
    reworded.collect()
}

/// A domain whose letters may be of either case, in the words for those.
fn caseless_subdomain(name: &str) -> Vec<String> {
    const WORDS: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'Example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let faults = in_bytes(names::dns1123_subdomain(&name.to_lowercase()));
    let reworded = faults.into_iter().map(|fault| match fault.starts_with("a lowercase RFC 1123 subdomain") {
        true => WORDS.to_owned(),
        false => fault,
    });
    reworded.collect()
}

/// Conditions of a status in the usual form.
fn conditions(errors: &mut ErrorList, status: &Value, path: &Path) {
    const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
                          alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                          'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex \
                          used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    let list = super::value::items(status, "conditions");
    let mut seen = HashSet::new();
    for (index, condition) in list.iter().enumerate() {
        let path = path.child("conditions").index(index);
        let (ty, state, reason) = (text(condition, "type"), text(condition, "status"), text(condition, "reason"));
        if !seen.insert(ty) {
            errors.duplicate(&path, ty);
        }
        if ty.is_empty() {
            errors.required(&path.child("type"), "is required");
        } else {
            errors.invalid_each(&path.child("type"), ty, names::qualified(ty));
        }
        match state {
            "" => errors.required(&path.child("status"), ""),
            state => one_of(errors, &path.child("status"), state, &["False", "True", "Unknown"]),
        }
        if let Some(generation) = at(condition, "observedGeneration").as_i64().filter(|generation| *generation < 0) {
            errors.invalid(&path.child("observedGeneration"), generation, "must be greater than or equal to zero");
        }
        if at(condition, "lastTransitionTime").is_null() {
            errors.required(&path.child("lastTransitionTime"), "");
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = reason.starts_with(|c: char| c.is_ascii_alphabetic())
            && reason.ends_with(word)
            && reason.chars().all(|c| word(c) || c == ',' || c == ':');
        if reason.is_empty() {
            errors.required(&path.child("reason"), "");
        } else if !good {
            errors.invalid(&path.child("reason"), reason, REASON);
        }
        for (field, limit) in [("reason", 1024), ("message", 32 * 1024)] {
            if text(condition, field).len() > limit {
                errors.too_long(&path.child(field), limit);
            }
        }
    }
}

/// Labels and their values, all reported at one path.
fn labels(errors: &mut ErrorList, path: &Path, object: &Value, field: &str) {
    for (key, value) in entries(object, field) {
        errors.invalid_each(path, key, names::label_key(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(path, value, names::label_value(value));
    }
}

/// Faults that upstream's code finds, and those that its declarations find: these come after.
#[derive(Debug, Default)]
pub struct Faults {
    /// Of the code.
    told: ErrorList,
    /// Of the declarations.
    declared: ErrorList,
}

impl Faults {
    /// All, in their order.
    fn all(mut self) -> ErrorList {
        self.told.extend(self.declared);
        self.told
    }
}

/// Annotations: their keys.
fn annotations(errors: &mut ErrorList, path: &Path, object: &Value, field: &str) {
    for (key, _) in entries(object, field) {
        errors.invalid_each(path, key, names::qualified(&key.to_lowercase()));
    }
}

/// Metadata for objects that are made of a template: labels and annotations.
fn template_metadata(errors: &mut ErrorList, metadata: &Value, path: &Path) {
    const FIXED: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    annotations(errors, &path.child("annotations"), metadata, "annotations");
    labels(errors, &path.child("labels"), metadata, "labels");
    for field in FIXED.into_iter().filter(|field| has(metadata, field)) {
        // The spelling is upstream's.
        let shown = if field == "uid" { "uID" } else { field };
        errors.forbidden(&path.child(shown), "cannot be set");
    }
}

/// A field that an update leaves alone.
fn unchanged(errors: &mut ErrorList, path: &Path, new: &Value, old: &Value) {
    if new != old {
        errors.invalid(path, new.clone(), IMMUTABLE);
    }
}

/// The port of a probe or target: a number or a name.
fn port(errors: &mut ErrorList, path: &Path, value: &Value) {
    match value {
        Value::String(name) => errors.invalid_each(path, name, names::port_name(name)),
        value => {
            let number = value.as_i64().unwrap_or_default();
            if let Some(detail) = names::port_number(number) {
                errors.invalid(path, number, detail);
            }
        }
    }
}

fn is_ip(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((ip, bits)) = text.split_once('/') else { return false };
    let Ok(ip) = ip.parse::<std::net::IpAddr>() else { return false };
    bits.parse::<u8>().is_ok_and(|bits| bits <= if ip.is_ipv4() { 32 } else { 128 })
}

/// A LabelSelector.
fn label_selector(errors: &mut ErrorList, path: &Path, selector: &Value) {
    labels(errors, &path.child("matchLabels"), selector, "matchLabels");
    for (index, expression) in super::value::items(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = !super::value::items(expression, "values").is_empty();
        match text(expression, "operator") {
            "In" | "NotIn" if !values => {
                errors.required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&path.child("values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.invalid_each(&path.child("key"), key, names::label_key(key));
        for (index, value) in super::value::items(expression, "values").iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            errors.invalid_each(&path.child("values").index(index), value, names::label_value(value));
        }
    }
}
