//! Errors of Services and what leads to them.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::addresses::{address_advice, ip_fault, range_advice, range_fault};
use super::{IMMUTABLE, labels, one_of, port};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, number, text};
use crate::services;

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
        names_another(&mut errors, spec, &path);
    }
    service_ports(&mut errors, ports, &path.child("ports"));
    labels(&mut errors, &path.child("selector"), spec, "selector");
    affinity(&mut errors, spec, &path);
    external_addresses(&mut errors, items(spec, "externalIPs"), &path.child("externalIPs"));
    one_of(&mut errors, &path.child("type"), ty, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    duplicates(&mut errors, ports, ty, &path.child("ports"));
    balancer(&mut errors, spec, ty, &path);
    traffic(&mut errors, service, &path);
    errors
}

/// What only names another has no addresses.
fn names_another(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const NONE: &str = "may not be set for ExternalName services";
    if !text(spec, "clusterIP").is_empty() || !items(spec, "clusterIPs").is_empty() {
        errors.forbidden(&path.child("clusterIPs"), NONE);
    }
    if !items(spec, "ipFamilies").is_empty() {
        errors.forbidden(&path.child("ipFamilies"), NONE);
    }
    if has(spec, "ipFamilyPolicy") {
        errors.forbidden(&path.child("ipFamilyPolicy"), NONE);
    }
    match text(spec, "externalName") {
        "" => errors.required(&path.child("externalName"), ""),
        name => {
            let name = name.strip_suffix('.').unwrap_or(name);
            errors.invalid_each(&path.child("externalName"), name, names::dns1123_subdomain(name));
        }
    }
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
    let given: Vec<&str> = all.iter().map(|address| address.as_str().unwrap_or_default()).collect();
    let mut wrong = false;
    for (index, address) in given.iter().enumerate() {
        if index == 0 && *address == "None" {
            if given.len() > 1 {
                errors.invalid(&of_addresses, all.to_vec(), "'None' must be the first and only value");
                wrong = true;
            }
            continue;
        }
        if let Some(fault) = ip_fault(address) {
            errors.invalid(&of_addresses.index(index), *address, fault);
            wrong = true;
        }
    }
    if given.len() > MOST {
        errors.invalid(&of_addresses, all.to_vec(), "may only hold up to 2 values");
    }
    if wrong {
        return list;
    }
    let is_v6 = |address: &&str| address.contains(':');
    if given.len() > 1 && given.iter().all(is_v6) == given.iter().any(is_v6) {
        errors.invalid(&of_addresses, all.to_vec(), "may specify no more than one IP for each IP family");
    }
    for (index, address) in given.into_iter().enumerate().filter(|(_, address)| *address != "None") {
        if let Some(family @ ("IPv4" | "IPv6")) = families.get(index).and_then(Value::as_str)
            && is_v6(&address) != (family == "IPv6")
        {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&of_addresses.index(index), address, detail);
        }
    }
    list
}

fn external_addresses(errors: &mut ErrorList, addresses: &[Value], path: &Path) {
    for (index, address) in addresses.iter().enumerate() {
        let (path, text) = (path.index(index), address.as_str().unwrap_or_default());
        if let Some(fault) = ip_fault(text) {
            errors.invalid(&path, text, fault);
            continue;
        }
        let fault = match text.parse::<std::net::IpAddr>() {
            Ok(ip) if ip.is_unspecified() => "may not be unspecified (0.0.0.0 or ::)",
            Ok(ip) if ip.is_loopback() => "may not be in the loopback range (127.0.0.0/8, ::1/128)",
            Ok(std::net::IpAddr::V4(ip)) if ip.is_link_local() => {
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            }
            Ok(std::net::IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            }
            _ => continue,
        };
        errors.invalid(&path, text, fault);
    }
}

const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// What only load balancers have.
fn balancer(errors: &mut ErrorList, spec: &Value, ty: &str, path: &Path) {
    let balanced = ty == "LoadBalancer";
    let ranges = items(spec, "loadBalancerSourceRanges");
    // The capital is upstream's.
    let of_ranges = path.child("LoadBalancerSourceRanges");
    if !ranges.is_empty() && !balanced {
        errors.forbidden(&of_ranges, ONLY);
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if let Some(fault) = range_fault(range.trim()) {
            errors.invalid(&of_ranges.index(index), range, fault);
        }
    }
    if has(spec, "allocateLoadBalancerNodePorts") && !balanced {
        errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY);
    }
    balancer_class(errors, spec);
}

fn balancer_class(errors: &mut ErrorList, spec: &Value) {
    if has(spec, "loadBalancerClass") {
        let (path, class) = (Path::new("spec").child("loadBalancerClass"), text(spec, "loadBalancerClass"));
        match text(spec, "type") {
            "LoadBalancer" => errors.invalid_each(&path, class, names::qualified(class)),
            _ => errors.forbidden(&path, ONLY),
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

fn traffic(errors: &mut ErrorList, service: &Value, path: &Path) {
    let spec = at(service, "spec");
    let external = text(spec, "externalTrafficPolicy");
    let exposed = services::takes_outsiders(service);
    let at_external = path.child("externalTrafficPolicy");
    if !exposed && !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&at_external, external, detail);
    } else if exposed && !external.is_empty() {
        one_of(errors, &at_external, external, &["Cluster", "Local"]);
    }
    let at_check = path.child("healthCheckNodePort");
    match number(spec, "healthCheckNodePort").filter(|port| *port != 0) {
        Some(port) if !services::needs_health_port(service) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at_check, port, detail);
        }
        Some(port) => {
            if let Some(fault) = names::port_number(port) {
                errors.invalid(&at_check, port, fault);
            }
        }
        None => {}
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
    let both = |has: fn(&Value) -> bool| has(new) && has(old);
    let (before, after) = (items(old, "spec.clusterIPs"), items(new, "spec.clusterIPs"));
    if both(services::has_addresses) && !both(services::is_headless) && before.len() == after.len() {
        for (index, _) in before.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after) {
            let path = Path::new("spec").child("clusterIPs").index(index);
            errors.invalid(&path, after.to_vec(), "may not change once set");
        }
    }
    let balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let class = at(new, "spec.loadBalancerClass");
    if balanced(new) && balanced(old) && class != at(old, "spec.loadBalancerClass") {
        let path = Path::new("spec").child("loadBalancerClass");
        errors.invalid(&path, class.clone(), "may not change once set");
    }
    balancer_class(&mut errors, at(new, "spec"));
    let check = "spec.healthCheckNodePort";
    if both(services::needs_health_port) && at(new, check) != at(old, check) {
        errors.forbidden(&Path::new(check), IMMUTABLE);
    }
    errors.extend(service(context, new));
    errors
}

/// Warnings about a Service.
pub fn service_warnings(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let (spec, path) = (at(new, "spec"), Path::new("spec"));
    let (names_another, headless) = (text(spec, "type") == "ExternalName", is_headless(spec));
    let outside = !items(spec, "externalIPs").is_empty();
    let mut told = Vec::new();
    for field in ["clusterIPs", "externalIPs"] {
        let addresses = items(spec, field).iter().enumerate();
        let words =
            |(index, address): (usize, &Value)| address_advice(&path.child(field).index(index), address.as_str()?);
        told.extend(addresses.filter_map(words));
    }
    let mut tell = |is: bool, words: &str| told.extend(is.then(|| words.to_owned()));
    let deprecated = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
    tell(outside && !names_another && !headless, deprecated);
    if let Some(words) = address_advice(&path.child("loadBalancerIP"), text(spec, "loadBalancerIP")) {
        tell(true, &words);
    }
    for (index, range) in items(spec, "loadBalancerSourceRanges").iter().enumerate() {
        let advice =
            range_advice(&path.child("loadBalancerSourceRanges").index(index), range.as_str().unwrap_or_default());
        tell(advice.is_some(), &advice.unwrap_or_default());
    }
    tell(names_another && outside, "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    if headless {
        let balanced = !text(spec, "loadBalancerIP").is_empty();
        tell(balanced, "spec.loadBalancerIP is ignored for headless services");
        tell(outside, "spec.externalIPs is ignored for headless services");
        let affine = text(spec, "sessionAffinity") == "ClientIP";
        tell(affine, "spec.SessionAffinity is ignored for headless services");
    }
    let unused = !names_another && !text(spec, "externalName").is_empty();
    tell(unused, "spec.externalName is ignored when spec.type is not \"ExternalName\"");
    let close = text(spec, "trafficDistribution") == "PreferClose";
    tell(close, "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    told
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

    fn told(errors: ErrorList) -> Vec<String> {
        errors.iter().map(|error| error.to_string().chars().take(90).collect()).collect()
    }

    #[test]
    fn what_only_names_another_has_no_addresses() {
        let given = json!({"spec": {"type": "ExternalName", "clusterIP": "1.2.3.4", "clusterIPs": ["1.2.3.4"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "x"}});
        let forbidden = |field: &str| format!("spec.{field}: Forbidden: may not be set for ExternalName services");
        assert_eq!(
            told(service(&Context::ANY, &given)),
            [
                forbidden("clusterIPs"),
                forbidden("ipFamilies"),
                forbidden("ipFamilyPolicy"),
                "spec.externalName: Required value".to_owned(),
                "spec.sessionAffinity: Unsupported value: \"x\": supported values: \"ClientIP\", \"None\"".to_owned(),
            ]
        );
    }

    #[test]
    fn a_type_that_is_none_takes_no_outsiders() {
        let given = json!({"spec": {"type": "Nonsense", "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local",
            "sessionAffinity": "None", "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}]}});
        let fields: Vec<String> = service(&Context::ANY, &given).iter().map(|error| error.field.clone()).collect();
        assert_eq!(fields, ["spec.type", "spec.externalTrafficPolicy"]);
    }

    #[test]
    fn what_was_allotted_stays() {
        let balanced = |address: &str, check: i64| {
            json!({"spec": {"type": "LoadBalancer", "clusterIP": address, "clusterIPs": [address], "externalTrafficPolicy": "Local",
                "healthCheckNodePort": check, "sessionAffinity": "None", "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}]}})
        };
        assert_eq!(
            told(service_update(&Context::ANY, &balanced("10.1.2.3", -3), &balanced("10.97.0.9", 30001))),
            [
                "spec.clusterIPs[0]: Invalid value: [\"10.1.2.3\"]: may not change once set",
                "spec.healthCheckNodePort: Forbidden: field is immutable",
                "spec.healthCheckNodePort: Invalid value: -3: must be between 1 and 65535, inclusive",
            ]
        );
    }

    #[test]
    fn what_is_ignored_is_told() {
        let warnings = |spec: Value| service_warnings(&Context::ANY, &json!({"spec": spec}), None);
        assert_eq!(
            warnings(
                json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "loadBalancerIP": "192.0.2.1",
                "externalIPs": ["192.0.2.1"], "externalName": "x"})
            ),
            [
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            ]
        );
        assert_eq!(
            warnings(json!({"type": "LoadBalancer", "externalIPs": ["FD00::1"], "loadBalancerIP": "010.2.3.4",
                "loadBalancerSourceRanges": ["2001:0db8::/32"]})),
            [
                "spec.externalIPs[0]: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")",
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                "spec.loadBalancerIP: non-standard IP address \"010.2.3.4\" is invalid: use \"10.2.3.4\"",
                "spec.loadBalancerSourceRanges[0]: IPv6 CIDR value \"2001:0db8::/32\" should be in RFC 5952 canonical format \
                 (\"2001:db8::/32\")",
            ]
        );
    }
}
