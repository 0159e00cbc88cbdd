//! Errors of APIServices, RuntimeClasses and IngressClasses.

use base64::Engine;
use pintle_machinery::field_path::{ErrorList, Fault, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::resources::Name;
use super::{IMMUTABLE, in_bytes, labels, one_of};
use crate::registry::Context;
use crate::registry::names::path_segment;
use crate::registry::value::{at, entries, flag, has, int, items, number, text};

const CONTROLLER_NAME: usize = 250;

/// APIService.
pub fn api_service(_context: &Context<'_>, service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    } else if version != "v1" {
        errors.required(&path.child("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    errors.invalid_each(&path.child("version"), version, names::dns1035_label(version));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = int(spec, field);
        if !(1..=most).contains(&priority) {
            errors.invalid(&path.child(field), priority, format!("must be positive and less than {most}"));
        }
    }
    backend(&mut errors, spec, &path);
    errors
}

/// An APIService is called after its version and group.
pub fn api_service_name(service: &Value, name: &str, is_prefix: bool) -> Vec<String> {
    let faults = path_segment(service, name, is_prefix);
    let wanted = format!("{}.{}", text(service, "spec.version"), text(service, "spec.group"));
    match faults.is_empty() && name != wanted {
        true => vec![format!("must be `spec.version+\".\"+spec.group`: \"{wanted}\"")],
        false => faults,
    }
}

fn backend(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let bundle = text(spec, "caBundle");
    let insecure = flag(spec, "insecureSkipTLSVerify");
    if !has(spec, "service") {
        if !bundle.is_empty() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap_or_default().len();
            let detail = "local APIServices may not have a caBundle";
            errors.invalid(&path.child("caBundle"), format!("{bytes} bytes"), detail);
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&path.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    }
    let service = path.child("service");
    for field in ["namespace", "name"].into_iter().filter(|field| text(&spec["service"], field).is_empty()) {
        errors.required(&service.child(field), "");
    }
    if let Some(port) = number(spec, "service.port")
        && let Some(fault) = names::port_number(port)
    {
        errors.invalid(&service.child("port"), port, format!("port is not valid: {fault}"));
    }
    if insecure && !bundle.is_empty() {
        errors.invalid(&path.child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present");
    }
}

/// An update of an APIService.
pub fn api_service_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_none() {
        return api_service(context, new);
    }
    let mut errors = ErrorList::new();
    for (index, condition) in items(new, "status.conditions").iter().enumerate() {
        let path = Path::new("status").child("conditions").index(index).child("status");
        one_of(&mut errors, &path, text(condition, "status"), &["True", "False", "Unknown"]);
    }
    errors
}

/// RuntimeClass.
pub fn runtime_class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    pods_of_class(&mut errors, class);
    let path = Path::new("handler");
    match text(class, "handler") {
        "" => errors.required(&path, ""),
        handler => errors.invalid_each(&path, handler, in_bytes(names::dns1123_label(handler))),
    }
    errors
}

/// An update of a RuntimeClass: the handler stays.
pub fn runtime_class_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (handler, path) = (text(new, "handler"), Path::new("handler"));
    if !handler.is_empty() {
        errors.invalid_each(&path, handler, names::dns1123_label(handler));
    }
    pods_of_class(&mut errors, new);
    if new["handler"] != old["handler"] {
        errors.invalid(&path, Value::Null, IMMUTABLE);
    }
    if handler.is_empty() {
        errors.required(&path, "");
    }
    errors
}

/// What pods of a class need, and where they run.
fn pods_of_class(errors: &mut ErrorList, class: &Value) {
    for (name, amount) in entries(class, "overhead.podFixed") {
        let path = Path::new("overhead").child("limits").key(name);
        Name(name).check_container(errors, &path);
        Name(name).check_amount(errors, &path, amount);
    }
    let path = Path::new("scheduling");
    labels(errors, &path.child("nodeSelector"), at(class, "scheduling"), "nodeSelector");
    let path = path.child("tolerations");
    let tolerations = items(class, "scheduling.tolerations");
    super::placement::tolerations_at(errors, tolerations, &path);
    super::placement::duplicate_tolerations(errors, tolerations, &path);
}

/// IngressClass.
pub fn ingress_class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    controller(&mut errors, text(class, "spec.controller"), &path.child("controller"));
    parameters(&mut errors, at(class, "spec.parameters"), &path.child("parameters"));
    errors
}

/// An update of an IngressClass: the controller stays.
pub fn ingress_class_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let name = text(new, "spec.controller");
    if name != text(old, "spec.controller") {
        errors.invalid(&path.child("controller"), name, IMMUTABLE);
    }
    controller(&mut errors, name, &path.child("controller"));
    parameters(&mut errors, at(new, "spec.parameters"), &path.child("parameters"));
    errors
}

fn controller(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > CONTROLLER_NAME {
        errors.too_long(path, CONTROLLER_NAME);
    }
    match name.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.invalid_each(path, domain, names::dns1123_subdomain(domain));
        }
        _ => errors.invalid(path, name, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

fn parameters(errors: &mut ErrorList, parameters: &Value, path: &Path) {
    if parameters.is_null() {
        return;
    }
    let (lacking, wrong) = references(parameters, path);
    errors.extend(wrong);
    let namespace = text(parameters, "namespace");
    let scope = text(parameters, "scope");
    let namespaced = has(parameters, "namespace");
    match scope {
        "Namespace" if !namespaced => {
            errors.required(&path.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => errors.invalid_each(&path.child("namespace"), namespace, names::dns1123_label(namespace)),
        "Cluster" if namespaced => {
            errors.forbidden(&path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        other => errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespace"]),
    }
    errors.extend(lacking);
}

/// What a reference lacks, and what else is wrong with it.
fn references(parameters: &Value, path: &Path) -> (ErrorList, ErrorList) {
    let mut errors = ErrorList::new();
    reference(&mut errors, parameters, path);
    let (lacking, wrong): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| error.fault == Fault::Required);
    (lacking.into_iter().collect(), wrong.into_iter().collect())
}

/// A reference to an object in the same namespace: group, kind and name.
pub fn reference(errors: &mut ErrorList, reference: &Value, path: &Path) {
    let group = text(reference, "apiGroup");
    if has(reference, "apiGroup") {
        errors.invalid_each(&path.child("apiGroup"), group, names::dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        match text(reference, field) {
            "" => errors.required(&path.child(field), ""),
            value => errors.invalid_each(&path.child(field), value, names::path_segment(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn handlers() {
        let class = |handler: Value| json!({"handler": handler, "overhead": {"podFixed": {"a": "1"}}});
        let fields = |errors: ErrorList| errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>();
        let overhead = ["overhead.limits[a]"; 2];
        let faults = fields(runtime_class(&Context::ANY, &class(Value::Null)));
        assert_eq!(faults, [&overhead[..], &["handler"]].concat());
        let update = |handler: Value| fields(runtime_class_update(&Context::ANY, &class(handler), &class(json!("a"))));
        assert_eq!(update(Value::Null), [&overhead[..], &["handler", "handler"]].concat());
        assert_eq!(update(json!("A")), [&["handler"], &overhead[..], &["handler"]].concat());
    }

    #[test]
    fn controllers_and_parameters() {
        let faults = |spec: Value| ingress_class(&Context::ANY, &json!({"spec": spec})).to_string();
        let named =
            |scope: &str| json!({"controller": "a.io/b", "parameters": {"kind": "K", "name": "n", "scope": scope}});
        assert_eq!(faults(named("Cluster")), "");
        assert_eq!(
            faults(named("Namespace")),
            "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"
        );
        assert_eq!(
            faults(json!({"controller": "a"})),
            "spec.controller: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")"
        );
    }
}
