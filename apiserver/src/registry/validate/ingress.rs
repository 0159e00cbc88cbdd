//! Errors of Ingresses.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::addresses::address_fault;
use super::cluster::reference;
use super::{is_ip, one_of, port};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, text};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// What a path may not have in it, and at its end.
const NOT_IN_PATH: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_END: [&str; 2] = ["/..", "/."];

/// Ingress.
pub fn create(context: &Context<'_>, ingress: &Value) -> ErrorList {
    let mut errors = update(context, ingress, &Value::Null);
    let class = at(ingress, "metadata.annotations").get(CLASS_ANNOTATION).and_then(Value::as_str);
    if let Some(annotated) = class
        && has(ingress, "spec.ingressClassName")
        && annotated != text(ingress, "spec.ingressClassName")
    {
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(&Path::new("annotations").child(CLASS_ANNOTATION), annotated, detail);
    }
    errors
}

/// An update of an Ingress.
pub fn update(context: &Context<'_>, ingress: &Value, _old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    match context.subresource {
        Some(_) => status(&mut errors, ingress),
        None => spec(&mut errors, at(ingress, "spec"), &Path::new("spec")),
    }
    errors
}

/// Warnings about an Ingress.
pub fn warnings(_context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let annotated = at(new, "metadata.annotations").get(CLASS_ANNOTATION).is_some();
    let text = format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
    (annotated && old.is_none()).then_some(text).into_iter().collect()
}

fn spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if items(spec, "rules").is_empty() && !has(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as("null"));
    }
    if has(spec, "defaultBackend") {
        backend(errors, &spec["defaultBackend"], &path.child("defaultBackend"));
    }
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        let path = path.child("rules").index(index);
        let name = text(rule, "host");
        if is_ip(name) {
            errors.invalid(&path.child("host"), name, "must be a DNS name, not an IP address");
        } else if !name.is_empty() {
            host(errors, name, &path.child("host"));
        }
        let paths = items(rule, "http.paths");
        let path = path.child("http").child("paths");
        if has(rule, "http") && paths.is_empty() {
            errors.required(&path, "");
        }
        for (index, item) in paths.iter().enumerate() {
            one_path(errors, item, &path.index(index));
        }
    }
    let class = text(spec, "ingressClassName");
    if has(spec, "ingressClassName") {
        errors.invalid_each(&path.child("ingressClassName"), class, names::dns1123_subdomain(class));
    }
    for (index, tls) in items(spec, "tls").iter().enumerate() {
        let path = path.child("tls").index(index);
        for (index, name) in items(tls, "hosts").iter().enumerate() {
            host(errors, name.as_str().unwrap_or_default(), &path.child("hosts").index(index));
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            errors.invalid_each(&path.child("secretName"), secret, names::dns1123_subdomain(secret));
        }
    }
}

fn host(errors: &mut ErrorList, host: &str, path: &Path) {
    let faults = match host.contains('*') {
        true => names::wildcard_dns1123_subdomain(host),
        false => names::dns1123_subdomain(host),
    };
    errors.invalid_each(path, host, faults);
}

fn one_path(errors: &mut ErrorList, item: &Value, path: &Path) {
    let (ty, given) = (text(item, "pathType"), text(item, "path"));
    let of_path = path.child("path");
    if !has(item, "pathType") {
        return errors.required(&path.child("pathType"), "pathType must be specified");
    }
    match ty {
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                errors.invalid(&of_path, given, "must be an absolute path");
            }
            for part in NOT_IN_PATH.into_iter().filter(|part| given.contains(part)) {
                errors.invalid(&of_path, given, format!("must not contain '{part}'"));
            }
            for end in NOT_AT_END.into_iter().filter(|end| given.ends_with(end)) {
                errors.invalid(&of_path, given, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if !given.is_empty() && !given.starts_with('/') => {
            errors.invalid(&of_path, given, "must be an absolute path");
        }
        "ImplementationSpecific" => {}
        other => one_of(errors, &path.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(errors, at(item, "backend"), &path.child("backend"));
}

fn backend(errors: &mut ErrorList, backend: &Value, path: &Path) {
    let (service, resource) = (at(backend, "service"), at(backend, "resource"));
    match (service.is_null(), resource.is_null()) {
        (true, true) => errors.invalid(path, "", "resource or service backend is required"),
        (false, false) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => reference(errors, resource, &path.child("resource")),
        (false, true) => {
            let of_service = path.child("service");
            match text(service, "name") {
                "" => errors.required(&of_service.child("name"), ""),
                name => errors.invalid_each(&of_service.child("name"), name, names::dns1123_label(name)),
            }
            let of_port = of_service.child("port");
            match (text(service, "port.name"), int(service, "port.number")) {
                ("", 0) => errors.required(path, "port name or number is required"),
                ("", number) => port(errors, &of_port.child("number"), &number.into()),
                (name, 0) => errors.invalid_each(&of_port.child("name"), name, names::port_name(name)),
                _ => errors.invalid(path, "", "cannot set both port name & port number"),
            }
        }
    }
}

fn status(errors: &mut ErrorList, ingress: &Value) {
    for (index, point) in items(ingress, "status.loadBalancer.ingress").iter().enumerate() {
        let path = Path::new("status").child("loadBalancer").child("ingress").index(index);
        let (ip, name) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty()
            && let Some(fault) = address_fault(ip)
        {
            errors.invalid(&path.child("ip"), ip, fault);
        }
        if !name.is_empty() {
            errors.invalid_each(&path.child("hostname"), name, names::dns1123_subdomain(name));
            if is_ip(name) {
                errors.invalid(&path.child("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths() {
        let faults = |ty: &str, given: &str| {
            let mut errors = ErrorList::new();
            let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
            one_path(&mut errors, &json!({"pathType": ty, "path": given, "backend": backend}), &Path::new("p"));
            errors.to_string()
        };
        for (ty, given, expected) in [
            ("Prefix", "/a", ""),
            ("ImplementationSpecific", "", ""),
            ("Prefix", "a", "p.path: Invalid value: \"a\": must be an absolute path"),
            ("Exact", "/a//b", "p.path: Invalid value: \"/a//b\": must not contain '//'"),
            ("Prefix", "/a/.", "p.path: Invalid value: \"/a/.\": cannot end with '/.'"),
        ] {
            assert_eq!(faults(ty, given), expected);
        }
    }
}
