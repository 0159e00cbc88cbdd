//! Errors of EndpointSlices and Endpoints.

use std::collections::HashSet;
use std::net::IpAddr;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::addresses::address_fault;
use super::{IMMUTABLE, one_of};
use crate::registry::Context;
use crate::registry::value::{has, items, text};

const ENDPOINTS: usize = 1000;
const ADDRESSES: usize = 100;
const PORTS: usize = 20_000;
/// Zones and nodes of a hint.
const HINTS: usize = 8;

/// EndpointSlice.
pub fn create(_context: &Context<'_>, slice: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    ports(&mut errors, items(slice, "ports"), &Path::new("ports"));
    all(&mut errors, slice);
    address_type(&mut errors, slice);
    addressed(&mut errors, slice);
    errors
}

/// An update of an EndpointSlice: the type of its addresses stays. Endpoints that stay as they are are not looked at.
pub fn update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    address_type(&mut errors, new);
    ports(&mut errors, items(new, "ports"), &Path::new("ports"));
    if items(new, "endpoints") != items(old, "endpoints") {
        all(&mut errors, new);
    }
    if new["addressType"] != old["addressType"] {
        errors.invalid(&Path::new("addressType"), Value::Null, IMMUTABLE);
    }
    if items(new, "endpoints") != items(old, "endpoints") {
        addressed(&mut errors, new);
    }
    errors
}

fn address_type(errors: &mut ErrorList, slice: &Value) {
    let path = Path::new("addressType");
    match text(slice, "addressType") {
        "" => errors.required(&path, ""),
        ty => one_of(errors, &path, ty, &["FQDN", "IPv4", "IPv6"]),
    }
}

fn all(errors: &mut ErrorList, slice: &Value) {
    let (ty, all, path) = (text(slice, "addressType"), items(slice, "endpoints"), Path::new("endpoints"));
    if all.len() > ENDPOINTS {
        return errors.too_many(&path, all.len(), ENDPOINTS);
    }
    for (index, item) in all.iter().enumerate() {
        endpoint(errors, item, ty, &path.index(index));
    }
}

/// Endpoints have addresses: that is what upstream's declared rules say, and they come last.
fn addressed(errors: &mut ErrorList, slice: &Value) {
    let (all, path) = (items(slice, "endpoints"), Path::new("endpoints"));
    for (index, endpoint) in all.iter().enumerate().filter(|_| all.len() <= ENDPOINTS) {
        if items(endpoint, "addresses").is_empty() {
            errors.required(&path.index(index).child("addresses"), "");
        }
    }
}

/// Endpoints.
pub fn endpoints(_context: &Context<'_>, endpoints: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, subset) in items(endpoints, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(subset, list).is_empty()) {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            for (index, address) in items(subset, list).iter().enumerate() {
                one_address(&mut errors, address, &path.child(list).index(index));
            }
        }
        let ports = items(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            one_port(&mut errors, port, ports.len() > 1, &path.child("ports").index(index));
        }
    }
    errors
}

/// An update of Endpoints.
pub fn endpoints_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    endpoints(context, new)
}

fn one_address(errors: &mut ErrorList, address: &Value, path: &Path) {
    let ip = text(address, "ip");
    let of_ip = path.child("ip");
    if let Some(fault) = address_fault(ip) {
        errors.invalid(&of_ip, ip, fault);
    }
    match ip.parse::<IpAddr>() {
        Err(_) => errors.invalid(&of_ip, ip, "must be a valid IP address"),
        Ok(ip_address) => {
            if let Some(fault) = special(ip_address) {
                errors.invalid(&of_ip, ip, fault);
            }
        }
    }
    for (field, check) in [
        ("hostname", names::dns1123_label as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain as fn(&str) -> Vec<String>),
    ] {
        let name = text(address, field);
        if !name.is_empty() || field == "nodeName" && has(address, field) {
            errors.invalid_each(&path.child(field), name, check(name));
        }
    }
}

fn one_port(errors: &mut ErrorList, port: &Value, named: bool, path: &Path) {
    match text(port, "name") {
        "" if named => errors.required(&path.child("name"), ""),
        "" => {}
        name => errors.invalid_each(&path.child("name"), name, names::dns1123_label(name)),
    }
    super::port(errors, &path.child("port"), &port["port"]);
    match text(port, "protocol") {
        "" => errors.required(&path.child("protocol"), ""),
        protocol => one_of(errors, &path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]),
    }
    if has(port, "appProtocol") {
        let application = text(port, "appProtocol");
        errors.invalid_each(&path.child("appProtocol"), application, names::qualified(application));
    }
}

/// Warnings about an EndpointSlice.
pub fn warnings(_context: &Context<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
    let deprecated = text(new, "addressType") == "FQDN";
    deprecated.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
}

fn endpoint(errors: &mut ErrorList, endpoint: &Value, ty: &str, path: &Path) {
    let addresses = items(endpoint, "addresses");
    let of_addresses = path.child("addresses");
    if addresses.len() > ADDRESSES {
        errors.too_many(&of_addresses, addresses.len(), ADDRESSES);
    }
    if addresses.len() <= ADDRESSES {
        for (index, address) in addresses.iter().enumerate() {
            let address = address.as_str().unwrap_or_default();
            let path = of_addresses.index(index);
            match ty {
                "IPv4" | "IPv6" => ip(errors, address, ty, &of_addresses, &path),
                "FQDN" => domain(errors, address, &path),
                _ => {}
            }
        }
    }
    let node = text(endpoint, "nodeName");
    if !node.is_empty() {
        errors.invalid_each(&path.child("nodeName"), node, names::dns1123_subdomain(node));
    }
    let host = text(endpoint, "hostname");
    if !host.is_empty() {
        errors.invalid_each(&path.child("hostname"), host, names::dns1123_label(host));
    }
    for (field, check) in [
        ("forZones", names::label_value as fn(&str) -> Vec<String>),
        ("forNodes", names::dns1123_subdomain as fn(&str) -> Vec<String>),
    ] {
        hints(errors, items(&endpoint["hints"], field), check, &path.child("hints").child(field));
    }
}

/// A full name of a machine.
fn domain(errors: &mut ErrorList, name: &str, path: &Path) {
    let faults = names::dns1123_subdomain(name);
    if faults.is_empty() && !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    errors.invalid_each(path, name, faults);
}

fn hints(errors: &mut ErrorList, hints: &[Value], check: fn(&str) -> Vec<String>, path: &Path) {
    if hints.len() > HINTS {
        return errors.too_many(path, hints.len(), HINTS);
    }
    let mut known = HashSet::new();
    for (index, hint) in hints.iter().enumerate() {
        let name = text(hint, "name");
        let path = path.index(index).child("name");
        if !known.insert(name) {
            errors.duplicate(&path, name);
        }
        errors.invalid_each(&path, name, check(name));
    }
}

fn ip(errors: &mut ErrorList, text: &str, ty: &str, all: &Path, path: &Path) {
    let Ok(address) = text.parse::<IpAddr>() else {
        let fault = address_fault(text).unwrap_or_default();
        return errors.invalid(path, text, fault);
    };
    if address.is_ipv4() != (ty == "IPv4") {
        errors.invalid(all, text, format!("must be an {ty} address"));
    }
    if let Some(fault) = special(address) {
        errors.invalid(path, text, fault);
    }
}

/// Why an address can't be an endpoint's.
fn special(address: IpAddr) -> Option<String> {
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    let words = if address.is_unspecified() {
        format!("unspecified ({address})")
    } else if address.is_loopback() {
        "in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_local_multicast {
        "in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return None;
    };
    Some(format!("may not be {words}"))
}

fn ports(errors: &mut ErrorList, ports: &[Value], path: &Path) {
    if ports.len() > PORTS {
        return errors.too_many(path, ports.len(), PORTS);
    }
    let mut known = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
        }
        if !known.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        one_of(errors, &path.child("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
        let application = text(port, "appProtocol");
        if !application.is_empty() {
            errors.invalid_each(&path.child("appProtocol"), application, names::qualified(application));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses() {
        for (address, expected) in [
            ("10.0.0.1", None),
            ("127.0.0.1", Some("may not be in the loopback range (127.0.0.0/8, ::1/128)")),
            ("fe80::1", Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)")),
            ("224.0.0.9", Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")),
            ("0.0.0.0", Some("may not be unspecified (0.0.0.0)")),
        ] {
            assert_eq!(special(address.parse().expect("valid")).as_deref(), expected, "{address}");
        }
    }
}
