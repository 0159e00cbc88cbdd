//! Errors of Services and what leads to them.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{CIDR, IP, is_cidr, is_ip, label_selector, labels, one_of, port};
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

/// Ingress.
pub fn ingress(_context: &Context<'_>, ingress: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(ingress, "spec");
    if items(spec, "rules").is_empty() && !has(spec, "defaultBackend") {
        errors.invalid(&path, Value::Null, "either `defaultBackend` or `rules` must be specified");
    }
    if has(spec, "defaultBackend") {
        backend(&mut errors, &spec["defaultBackend"], &path.child("defaultBackend"));
    }
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        let path = path.child("rules").index(index);
        let host = text(rule, "host");
        if is_ip(host) {
            errors.invalid(&path.child("host"), host, "must be a DNS name, not an IP address");
        } else if host.contains('*') {
            errors.invalid_each(&path.child("host"), host, names::wildcard_dns1123_subdomain(host));
        } else if !host.is_empty() {
            errors.invalid_each(&path.child("host"), host, names::dns1123_subdomain(host));
        }
        for (index, item) in items(rule, "http.paths").iter().enumerate() {
            ingress_path(&mut errors, item, &path.child("http").child("paths").index(index));
        }
    }
    let class = text(spec, "ingressClassName");
    if has(spec, "ingressClassName") {
        errors.invalid_each(&path.child("ingressClassName"), class, names::dns1123_subdomain(class));
    }
    errors
}

fn ingress_path(errors: &mut ErrorList, item: &Value, path: &Path) {
    match text(item, "pathType") {
        "" => {
            errors.required(&path.child("pathType"), "pathType must be specified");
            return;
        }
        "Exact" | "Prefix" => {
            if !text(item, "path").starts_with('/') {
                errors.invalid(&path.child("path"), text(item, "path"), "must be an absolute path");
            }
        }
        "ImplementationSpecific" => {
            let place = text(item, "path");
            if !place.is_empty() && !place.starts_with('/') {
                errors.invalid(&path.child("path"), place, "must be an absolute path");
            }
        }
        other => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), other, &known);
        }
    }
    backend(errors, at(item, "backend"), &path.child("backend"));
}

fn backend(errors: &mut ErrorList, backend: &Value, path: &Path) {
    match (at(backend, "service"), at(backend, "resource")) {
        (Value::Null, Value::Null) => errors.invalid(path, "", "resource or service backend is required"),
        (Value::Null, _) => {}
        (_, resource) if !resource.is_null() => {
            errors.invalid(path, "", "cannot set both resource and service backends");
        }
        (service, _) => {
            let path = path.child("service");
            match text(service, "name") {
                "" => errors.required(&path.child("name"), ""),
                name => errors.invalid_each(&path.child("name"), name, names::dns1123_label(name)),
            }
            let target = at(service, "port");
            match (text(target, "name"), int(target, "number")) {
                ("", 0) => errors.required(&path, "port name or number is required"),
                ("", number) => port(errors, &path.child("port").child("number"), &number.into()),
                (name, _) => errors.invalid_each(&path.child("port").child("name"), name, names::port_name(name)),
            }
        }
    }
}

/// An update of an Ingress.
pub fn ingress_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_some() { ErrorList::new() } else { ingress(context, new) }
}

/// NetworkPolicy.
pub fn network_policy(_context: &Context<'_>, policy: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(policy, "spec");
    label_selector(&mut errors, &path.child("podSelector"), at(spec, "podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(spec, direction).iter().enumerate() {
            let path = path.child(direction).index(index);
            for (index, item) in items(rule, "ports").iter().enumerate() {
                policy_port(&mut errors, item, &path.child("ports").index(index));
            }
            for (index, peer) in items(rule, peers).iter().enumerate() {
                policy_peer(&mut errors, peer, &path.child(peers).index(index));
            }
        }
    }
    for (index, ty) in items(spec, "policyTypes").iter().enumerate() {
        let path = path.child("policyTypes").index(index);
        one_of(&mut errors, &path, ty.as_str().unwrap_or_default(), &["Ingress", "Egress"]);
    }
    errors
}

fn policy_port(errors: &mut ErrorList, item: &Value, path: &Path) {
    let protocol = text(item, "protocol");
    if !protocol.is_empty() {
        one_of(errors, &path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    if has(item, "port") {
        port(errors, &path.child("port"), &item["port"]);
    }
}

fn policy_peer(errors: &mut ErrorList, peer: &Value, path: &Path) {
    let given = ["podSelector", "namespaceSelector", "ipBlock"].iter().filter(|field| has(peer, field)).count();
    for field in ["podSelector", "namespaceSelector"] {
        label_selector(errors, &path.child(field), at(peer, field));
    }
    if has(peer, "ipBlock") {
        let cidr = text(peer, "ipBlock.cidr");
        let path = path.child("ipBlock").child("cidr");
        if cidr.is_empty() {
            errors.required(&path, "");
        } else if !is_cidr(cidr) {
            errors.invalid(&path, cidr, CIDR);
        }
    }
    if given == 0 {
        errors.required(path, "must specify a peer");
    } else if has(peer, "ipBlock") && given > 1 {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

/// An update of a NetworkPolicy.
pub fn network_policy_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    network_policy(context, new)
}

/// EndpointSlice.
pub fn endpoint_slice(_context: &Context<'_>, slice: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, item) in items(slice, "ports").iter().enumerate() {
        let path = Path::new("ports").index(index);
        let name = text(item, "name");
        if !name.is_empty() {
            errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
        }
        one_of(&mut errors, &path.child("protocol"), text(item, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
    let ty = text(slice, "addressType");
    match ty {
        "" => errors.required(&Path::new("addressType"), ""),
        ty => one_of(&mut errors, &Path::new("addressType"), ty, &["FQDN", "IPv4", "IPv6"]),
    }
    for (index, endpoint) in items(slice, "endpoints").iter().enumerate() {
        let path = Path::new("endpoints").index(index).child("addresses");
        let addresses = items(endpoint, "addresses");
        if addresses.is_empty() {
            errors.required(&path, "");
        }
        for (index, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            match ty {
                "IPv4" | "IPv6" if !is_ip(address) => errors.invalid(&path.index(index), address, IP),
                "FQDN" => errors.invalid_each(&path.index(index), address, names::dns1123_subdomain(address)),
                _ => {}
            }
        }
    }
    errors
}

/// An update of an EndpointSlice.
pub fn endpoint_slice_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = endpoint_slice(context, new);
    super::unchanged(&mut errors, &Path::new("addressType"), &new["addressType"], &old["addressType"]);
    errors
}
