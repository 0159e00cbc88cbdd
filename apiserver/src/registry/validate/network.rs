//! Errors of Services and what leads to them.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IP, is_ip, labels, one_of, port};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, text};

/// Service.
pub fn service(_context: &Context<'_>, service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let ty = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = items(spec, "ports");
    if ports.is_empty() && !headless && ty != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    if ty == "LoadBalancer" && headless {
        let path = path.child("clusterIPs").index(0);
        errors.invalid(&path, "None", "may not be set to 'None' for LoadBalancer services");
    }
    if ty == "ExternalName" {
        if has(spec, "clusterIP") || has(spec, "clusterIPs") {
            errors.forbidden(&path.child("clusterIPs"), "may not be set for ExternalName services");
        }
        match text(spec, "externalName") {
            "" => errors.required(&path.child("externalName"), ""),
            name => {
                let name = name.strip_suffix('.').unwrap_or(name);
                errors.invalid_each(&path.child("externalName"), name, names::dns1123_subdomain(name));
            }
        }
    }
    service_ports(&mut errors, ports, &path.child("ports"));
    labels(&mut errors, &path.child("selector"), spec, "selector");
    one_of(&mut errors, &path.child("sessionAffinity"), text(spec, "sessionAffinity"), &["ClientIP", "None"]);
    for (index, ip) in items(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if !is_ip(ip) {
            errors.invalid(&path.child("externalIPs").index(index), ip, IP);
        }
    }
    one_of(&mut errors, &path.child("type"), ty, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    duplicates(&mut errors, ports, ty, &path.child("ports"));
    traffic(&mut errors, spec, ty, &path);
    let ip = text(spec, "clusterIP");
    if !matches!(ip, "" | "None") && !is_ip(ip) && ty != "ExternalName" {
        errors.invalid(&path.child("clusterIPs").index(0), ip, IP);
    }
    errors
}

fn service_ports(errors: &mut ErrorList, ports: &[Value], path: &Path) {
    let mut taken = HashSet::new();
    for (index, item) in ports.iter().enumerate() {
        let path = path.index(index);
        match text(item, "name") {
            "" if ports.len() > 1 => errors.required(&path.child("name"), ""),
            "" => {}
            name => {
                let faults = names::dns1123_label(name);
                if faults.is_empty() && !taken.insert(name) {
                    errors.duplicate(&path.child("name"), name);
                }
                errors.invalid_each(&path.child("name"), name, faults);
            }
        }
        port(errors, &path.child("port"), at(item, "port"));
        one_of(errors, &path.child("protocol"), text(item, "protocol"), &["SCTP", "TCP", "UDP"]);
        port(errors, &path.child("targetPort"), at(item, "targetPort"));
    }
}

fn duplicates(errors: &mut ErrorList, ports: &[Value], ty: &str, path: &Path) {
    let mut numbers = HashSet::new();
    for (index, item) in ports.iter().enumerate() {
        if int(item, "nodePort") != 0 && matches!(ty, "ClusterIP" | "ExternalName") {
            let detail = format!("may not be used when `type` is '{ty}'");
            errors.forbidden(&path.index(index).child("nodePort"), detail);
        }
    }
    for (index, item) in ports.iter().enumerate() {
        if !numbers.insert((int(item, "port"), text(item, "protocol"))) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                item["protocol"], item["port"]
            );
            errors.push(FieldError::new(Fault::Duplicate, &path.index(index), item.clone(), "").shown_as(shown));
        }
    }
}

fn traffic(errors: &mut ErrorList, spec: &Value, ty: &str, path: &Path) {
    let external = text(spec, "externalTrafficPolicy");
    let exposed = matches!(ty, "NodePort" | "LoadBalancer") || !items(spec, "externalIPs").is_empty();
    let at_external = path.child("externalTrafficPolicy");
    if !exposed && !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&at_external, external, detail);
    } else if exposed && !external.is_empty() {
        one_of(errors, &at_external, external, &["Cluster", "Local"]);
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() {
        one_of(errors, &path.child("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
}

/// An update of a Service: its first address stays.
pub fn service_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    if context.subresource.is_some() {
        return ErrorList::new();
    }
    let mut errors = ErrorList::new();
    let has_ip = |service: &Value| !matches!(text(service, "spec.type"), "ExternalName");
    let (before, after) = (text(old, "spec.clusterIP"), text(new, "spec.clusterIP"));
    if has_ip(new) && has_ip(old) && !before.is_empty() && before != after {
        let path = Path::new("spec").child("clusterIPs").index(0);
        errors.invalid(&path, at(new, "spec.clusterIPs").clone(), "may not change once set");
    }
    errors.extend(service(context, new));
    errors
}
