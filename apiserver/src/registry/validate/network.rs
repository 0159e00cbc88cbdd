//! Errors of Services and what leads to them.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{CIDR, IP, is_cidr, labels, one_of, port};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, number, text};

/// Service.
pub fn service(_context: &Context<'_>, service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let ty = text(spec, "type");
    let ports = items(spec, "ports");
    if ports.is_empty() && !is_headless(spec) && ty != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    if matches!(ty, "LoadBalancer" | "NodePort") && is_headless(spec) {
        let path = path.child("clusterIPs").index(0);
        errors.invalid(&path, "None", format!("may not be set to 'None' for {ty} services"));
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
    affinity(&mut errors, spec, &path);
    if ty == "ExternalName" {
        for field in ["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|field| has(spec, field)) {
            errors.forbidden(&path.child(field), "may not be set for ExternalName services");
        }
    }
    external_addresses(&mut errors, items(spec, "externalIPs"), &path.child("externalIPs"));
    one_of(&mut errors, &path.child("type"), ty, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    duplicates(&mut errors, ports, ty, &path.child("ports"));
    balancer(&mut errors, spec, ty, &path);
    traffic(&mut errors, spec, ty, &path);
    errors
}

fn is_headless(spec: &Value) -> bool {
    text(spec, "clusterIP") == "None"
}

fn affinity(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const DAY: i64 = 86_400;
    let affinity = text(spec, "sessionAffinity");
    one_of(errors, &path.child("sessionAffinity"), affinity, &["ClientIP", "None"]);
    if affinity == "ClientIP"
        && let Some(seconds) = number(spec, "sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=DAY).contains(&seconds)
    {
        let path = path.child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds");
        errors.invalid(&path, seconds, format!("must be greater than 0 and less than {DAY}"));
    }
}

/// The Service's own addresses and their families.
pub fn cluster_addresses(service: &Value) -> ErrorList {
    const MOST: usize = 2;
    let mut list = ErrorList::new();
    let errors = &mut list;
    let (spec, path) = (at(service, "spec"), &Path::new("spec"));
    if text(spec, "type") == "ExternalName" {
        return list;
    }
    let (families, policy) = (items(spec, "ipFamilies"), text(spec, "ipFamilyPolicy"));
    let (of_families, of_policy) = (path.child("ipFamilies"), path.child("ipFamilyPolicy"));
    let (first, all) = (text(spec, "clusterIP"), items(spec, "clusterIPs"));
    let of_addresses = path.child("clusterIPs");
    if first.is_empty() && !all.is_empty() {
        errors.invalid(&of_addresses, all.to_vec(), "must be empty when `clusterIP` is not specified");
    } else if !all.is_empty() && all[0] != first {
        errors.invalid(&of_addresses, all.to_vec(), "first value must match `clusterIP`");
    }
    let mut known = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        let family = family.as_str().unwrap_or_default();
        if !matches!(family, "IPv4" | "IPv6") {
            errors.not_supported(&of_families.index(index), family, &["IPv4", "IPv6"]);
        } else if !known.insert(family) {
            errors.duplicate(&of_families.index(index), family);
        }
    }
    if has(spec, "ipFamilyPolicy") {
        one_of(errors, &of_policy, policy, &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    }
    let given: Vec<&str> = match (all.is_empty(), first.is_empty()) {
        (true, false) => vec![first],
        _ => all.iter().map(|address| address.as_str().unwrap_or_default()).collect(),
    };
    for (index, address) in given.into_iter().enumerate().filter(|(_, address)| *address != "None") {
        let path = of_addresses.index(index);
        match (address.parse::<std::net::IpAddr>(), families.get(index).and_then(Value::as_str)) {
            (Err(_), _) => errors.invalid(&path, address, IP),
            (Ok(ip), Some(family @ ("IPv4" | "IPv6"))) if ip.is_ipv6() != (family == "IPv6") => {
                let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
                errors.invalid(&path, address, detail);
            }
            _ => {}
        }
    }
    if all.len() > MOST {
        errors.invalid(&of_addresses, all.to_vec(), "may only hold up to 2 values");
    }
    let ips: Vec<std::net::IpAddr> = all.iter().filter_map(|address| address.as_str()?.parse().ok()).collect();
    if all.len() == MOST && ips.len() == MOST && ips[0].is_ipv4() == ips[1].is_ipv4() {
        errors.invalid(&of_addresses, all.to_vec(), "may specify no more than one IP for each IP family");
    }
    if all.len() > 1 && all.iter().any(|address| address == "None") {
        errors.invalid(&of_addresses, all.to_vec(), "'None' must be the first and only value");
    }
    list
}

fn external_addresses(errors: &mut ErrorList, addresses: &[Value], path: &Path) {
    for (index, address) in addresses.iter().enumerate() {
        let (path, text) = (path.index(index), address.as_str().unwrap_or_default());
        let fault = match text.parse::<std::net::IpAddr>() {
            Err(_) => IP,
            Ok(ip) if ip.is_unspecified() => "may not be unspecified (0.0.0.0 or ::)",
            Ok(ip) if ip.is_loopback() => "may not be in the loopback range (127.0.0.0/8, ::1/128)",
            Ok(std::net::IpAddr::V4(ip)) if ip.is_link_local() => {
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            }
            Ok(std::net::IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            }
            Ok(_) => continue,
        };
        errors.invalid(&path, text, fault);
    }
}

/// What only load balancers have.
fn balancer(errors: &mut ErrorList, spec: &Value, ty: &str, path: &Path) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = ty == "LoadBalancer";
    let ranges = items(spec, "loadBalancerSourceRanges");
    // The capital is upstream's.
    let of_ranges = path.child("LoadBalancerSourceRanges");
    if !ranges.is_empty() && !balanced {
        errors.forbidden(&of_ranges, ONLY);
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if !is_cidr(range.trim()) {
            errors.invalid(&of_ranges.index(index), range, CIDR);
        }
    }
    if has(spec, "allocateLoadBalancerNodePorts") && !balanced {
        errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY);
    }
    if has(spec, "loadBalancerClass") {
        let (path, class) = (path.child("loadBalancerClass"), text(spec, "loadBalancerClass"));
        match balanced {
            true => errors.invalid_each(&path, class, names::qualified(class)),
            false => errors.forbidden(&path, ONLY),
        }
    }
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
        let protocol = text(item, "appProtocol");
        if has(item, "appProtocol") {
            errors.invalid_each(&path.child("appProtocol"), protocol, names::qualified(protocol));
        }
    }
}

fn duplicates(errors: &mut ErrorList, ports: &[Value], ty: &str, path: &Path) {
    let mut numbers = HashSet::new();
    for (index, item) in ports.iter().enumerate() {
        if int(item, "nodePort") != 0 && ty == "ClusterIP" {
            let detail = format!("may not be used when `type` is '{ty}'");
            errors.forbidden(&path.index(index).child("nodePort"), detail);
        }
    }
    let mut exposed = HashSet::new();
    for (index, item) in ports.iter().enumerate().filter(|(_, item)| int(item, "nodePort") != 0) {
        let number = int(item, "nodePort");
        if !exposed.insert((number, text(item, "protocol"))) {
            errors.duplicate(&path.index(index).child("nodePort"), number);
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
    let checked = number(spec, "healthCheckNodePort").filter(|port| *port != 0);
    if let Some(port) = checked.filter(|_| ty != "LoadBalancer" || external != "Local") {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.child("healthCheckNodePort"), port, detail);
    }
    if has(spec, "internalTrafficPolicy") {
        let internal = text(spec, "internalTrafficPolicy");
        one_of(errors, &path.child("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
    if has(spec, "trafficDistribution") {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        one_of(errors, &path.child("trafficDistribution"), text(spec, "trafficDistribution"), &known);
    }
}

/// An update of a Service: its first address stays.
pub fn service_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_some() {
        let balanced = text(new, "spec.type") == "LoadBalancer";
        if !balanced && !items(new, "status.loadBalancer.ingress").is_empty() {
            let path = Path::new("status").child("loadBalancer").child("ingress");
            errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
        }
        return errors;
    }
    let has_ip = |service: &Value| !matches!(text(service, "spec.type"), "ExternalName");
    let (before, after) = (text(old, "spec.clusterIP"), text(new, "spec.clusterIP"));
    if has_ip(new) && has_ip(old) && !before.is_empty() && before != after {
        let path = Path::new("spec").child("clusterIPs").index(0);
        errors.invalid(&path, at(new, "spec.clusterIPs").clone(), "may not change once set");
    }
    let balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let class = at(new, "spec.loadBalancerClass");
    if balanced(new) && balanced(old) && class != at(old, "spec.loadBalancerClass") {
        let path = Path::new("spec").child("loadBalancerClass");
        errors.invalid(&path, class.clone(), "may not change once set");
    }
    errors.extend(service(context, new));
    errors
}

/// Warnings about a Service.
pub fn service_warnings(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let spec = at(new, "spec");
    let ty = text(spec, "type");
    let mut warnings = Vec::new();
    if !items(spec, "externalIPs").is_empty() {
        warnings.push(match (ty, is_headless(spec)) {
            ("ExternalName", _) => "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
            (_, true) => "spec.externalIPs is ignored for headless services",
            _ => "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        });
    }
    if ty != "ExternalName" && !text(spec, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
    warnings.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cluster_addresses_are_told_alone() {
        let spec = |more: Value| json!({"spec": more});
        for (given, expected) in [
            (json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"]}), ""),
            (
                json!({"clusterIPs": ["10.0.0.1"]}),
                "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: must be empty when `clusterIP` is not specified",
            ),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]}),
                "spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP family",
            ),
            (json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]: Duplicate value: \"IPv4\""),
        ] {
            assert_eq!(cluster_addresses(&spec(given.clone())).to_string(), expected, "{given}");
        }
    }
}
