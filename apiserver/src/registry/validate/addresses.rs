//! Errors of IPAddresses and ServiceCIDRs; addresses and ranges in their canonical form.

use std::net::IpAddr;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{CIDR, IMMUTABLE, IP, is_ip};
use crate::registry::Context;
use crate::registry::value::{at, has, items, text};

/// What is wrong with an address.
pub fn ip_fault(text: &str) -> Option<String> {
    const MAPPED: &str = "must not be an IPv4-mapped IPv6 address";
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Some(MAPPED.to_owned()),
        Ok(_) => None,
        Err(_) if is_ip(&without_zeros(text)) => Some("must not have leading 0s".to_owned()),
        Err(_) => Some(IP.to_owned()),
    }
}

/// The same with numbers as they are written today.
fn without_zeros(text: &str) -> String {
    let parts = text.split('.').map(|part| part.trim_start_matches('0'));
    parts.map(|part| if part.is_empty() { "0" } else { part }).collect::<Vec<_>>().join(".")
}

/// What is wrong with an address that must be in its canonical form.
pub fn address_fault(text: &str) -> Option<String> {
    ip_fault(text).or_else(|| {
        let canonical = text.parse::<IpAddr>().ok()?.to_string();
        (canonical != text).then(|| format!("must be in canonical form (\"{canonical}\")"))
    })
}

/// What is wrong with a range.
pub fn range_fault(text: &str) -> Option<String> {
    let Some((address, bits)) = text.split_once('/') else { return Some(CIDR.to_owned()) };
    let leading = bits.len() > 1 && bits.starts_with('0');
    let zeros = ip_fault(address).is_some_and(|fault| fault == "must not have leading 0s");
    if leading || zeros {
        return Some("must not have leading 0s in IP or prefix length".to_owned());
    }
    let Ok(net) = text.parse::<ipnet::IpNet>() else { return Some(CIDR.to_owned()) };
    if matches!(net.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        return Some("must not have an IPv4-mapped IPv6 address".to_owned());
    }
    (net.addr() != net.network()).then(|| "must not have bits set beyond the prefix length".to_owned())
}

/// What is wrong with a range that must be in its canonical form.
fn canonical_range_fault(text: &str) -> Option<String> {
    range_fault(text).or_else(|| {
        let canonical = text.parse::<ipnet::IpNet>().ok()?.to_string();
        (canonical != text).then(|| format!("must be in canonical form (\"{canonical}\")"))
    })
}

/// How an address would better be written.
pub fn address_advice(path: &Path, text: &str) -> Option<String> {
    let (address, standard) = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => (IpAddr::V4(mapped), false),
            None => (IpAddr::V6(address), true),
        },
        Ok(_) => return None,
        Err(_) => (without_zeros(text).parse().ok()?, false),
    };
    let better = address.to_string();
    match standard {
        true if better == text => None,
        true => Some(format!("{path}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{better}\")")),
        false => Some(format!("{path}: non-standard IP address \"{text}\" is invalid: use \"{better}\"")),
    }
}

/// How a range would better be written.
pub fn range_advice(path: &Path, text: &str) -> Option<String> {
    let better = text.parse::<ipnet::Ipv6Net>().ok()?.to_string();
    let words = format!("{path}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{better}\")");
    (better != text).then_some(words)
}

/// IPAddress.
pub fn address(_context: &Context<'_>, address: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("parentRef");
    let parent = at(address, "spec.parentRef");
    if parent.is_null() {
        errors.required(&path, "");
        return errors;
    }
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    }
    for field in ["resource", "name"] {
        match text(parent, field) {
            "" => errors.required(&path.child(field), ""),
            value => errors.invalid_each(&path.child(field), value, names::path_segment(value)),
        }
    }
    let namespace = text(parent, "namespace");
    if !namespace.is_empty() {
        errors.invalid_each(&path.child("namespace"), namespace, names::path_segment(namespace));
    }
    errors
}

/// An update of an IPAddress: it stays with whom it belongs to.
pub fn address_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = address(context, new);
    if at(new, "spec.parentRef") != at(old, "spec.parentRef") {
        let error = FieldError::new(Fault::Invalid, &Path::new("spec").child("parentRef"), Value::Null, IMMUTABLE);
        errors.push(error.shown_as("null"));
    }
    errors
}

/// ServiceCIDR.
pub fn range(_context: &Context<'_>, range: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("cidrs");
    let ranges = items(range, "spec.cidrs");
    if ranges.is_empty() {
        errors.required(&path, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        let shown = format!("{{\"CIDRs\":{}}}", at(range, "spec.cidrs"));
        let detail = "may only hold up to 2 values";
        errors.push(FieldError::new(Fault::Invalid, &path, Value::Null, detail).shown_as(shown));
        return errors;
    }
    let families: Vec<bool> =
        ranges.iter().map(|range| range.as_str().is_some_and(|text| text.contains(':'))).collect();
    let faulty = ranges.iter().any(|range| range.as_str().and_then(range_fault).is_some_and(|fault| fault == CIDR));
    if let [a, b] = families[..]
        && a == b
        && !faulty
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, at(range, "spec.cidrs").clone(), detail);
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if let Some(fault) = canonical_range_fault(range) {
            errors.invalid(&path.index(index), range, fault);
        }
    }
    errors
}

/// An update of a ServiceCIDR: a range may be added, of the other family.
pub fn range_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    if context.subresource.is_some() {
        return ErrorList::new();
    }
    let mut errors = ErrorList::new();
    let path = Path::new("spec").child("cidrs");
    let (before, after) = (items(old, "spec.cidrs"), items(new, "spec.cidrs"));
    if before == after {
        return errors;
    }
    if !has(new, "spec.cidrs") || after.len() < before.len() {
        errors.invalid(&path, at(new, "spec.cidrs").clone(), IMMUTABLE);
        return errors;
    }
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        if before != after {
            errors.invalid(&path.index(index), after.clone(), IMMUTABLE);
        }
    }
    // A second range is looked at, and then the first once more.
    if errors.is_empty() || after.len() > before.len() {
        errors.extend(range(context, new));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (text, fault) in [
            ("10.0.0.1", None),
            ("x", Some(IP)),
            ("010.1.1.1", Some("must not have leading 0s")),
            ("::ffff:1.2.3.4", Some("must not be an IPv4-mapped IPv6 address")),
            ("2001:0db8::1", Some("must be in canonical form (\"2001:db8::1\")")),
        ] {
            assert_eq!(address_fault(text).as_deref(), fault, "{text}");
        }
        for (text, fault) in [
            ("10.0.0.0/8", None),
            ("x", Some(CIDR)),
            ("10.0.0.1/8", Some("must not have bits set beyond the prefix length")),
            ("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length")),
            ("FD00::/64", Some("must be in canonical form (\"fd00::/64\")")),
        ] {
            assert_eq!(canonical_range_fault(text).as_deref(), fault, "{text}");
        }
    }
}
