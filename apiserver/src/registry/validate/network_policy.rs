//! Errors of NetworkPolicies.

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::{CIDR, Faults, is_cidr, label_selector, one_of, port};
use crate::registry::Context;
use crate::registry::value::{at, has, items, number, text};

/// NetworkPolicy.
pub fn create(_context: &Context<'_>, policy: &Value) -> ErrorList {
    let mut faults = Faults::default();
    let errors = &mut faults.told;
    let path = Path::new("spec");
    let spec = at(policy, "spec");
    label_selector(errors, &path.child("podSelector"), at(spec, "podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(spec, direction).iter().enumerate() {
            let path = path.child(direction).index(index);
            for (index, item) in items(rule, "ports").iter().enumerate() {
                one_port(errors, item, &path.child("ports").index(index));
            }
            for (index, item) in items(rule, peers).iter().enumerate() {
                let path = path.child(peers).index(index);
                peer(errors, item, &path);
                if has(item, "ipBlock") && text(item, "ipBlock.cidr").is_empty() {
                    faults.declared.required(&path.child("ipBlock").child("cidr"), "");
                }
            }
        }
    }
    let types = items(spec, "policyTypes");
    if types.len() > 2 {
        let path = path.child("policyTypes");
        errors.invalid(&path, types.to_vec(), "may not specify more than two policyTypes");
        return faults.all();
    }
    for (index, ty) in types.iter().enumerate() {
        let path = path.child("policyTypes").index(index);
        one_of(errors, &path, ty.as_str().unwrap_or_default(), &["Ingress", "Egress"]);
    }
    faults.all()
}

/// An update of a NetworkPolicy.
pub fn update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    create(context, new)
}

fn one_port(errors: &mut ErrorList, item: &Value, path: &Path) {
    if has(item, "protocol") {
        one_of(errors, &path.child("protocol"), text(item, "protocol"), &["TCP", "UDP", "SCTP"]);
    }
    let mut last = ErrorList::new();
    if let Some(end) = number(item, "endPort") {
        let path = path.child("endPort");
        match at(item, "port") {
            Value::Null => errors.invalid(&path, end, "may not be specified when `port` is not specified"),
            Value::String(_) => errors.invalid(&path, end, "may not be specified when `port` is non-numeric"),
            first => {
                if first.as_i64().is_some_and(|first| first > end) {
                    last.invalid(&path, end, "must be greater than or equal to `port`");
                }
                if let Some(fault) = pintle_machinery::names::port_number(end) {
                    last.invalid(&path, end, fault);
                }
            }
        }
    }
    if has(item, "port") {
        port(errors, &path.child("port"), &item["port"]);
    }
    errors.extend(last);
}

fn peer(errors: &mut ErrorList, peer: &Value, path: &Path) {
    let given = ["podSelector", "namespaceSelector", "ipBlock"].iter().filter(|field| has(peer, field)).count();
    for field in ["podSelector", "namespaceSelector"] {
        label_selector(errors, &path.child(field), at(peer, field));
    }
    if has(peer, "ipBlock") {
        block(errors, at(peer, "ipBlock"), &path.child("ipBlock"));
    }
    if given == 0 {
        errors.required(path, "must specify a peer");
    } else if has(peer, "ipBlock") && given > 1 {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn block(errors: &mut ErrorList, block: &Value, path: &Path) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return;
    }
    if !is_cidr(cidr) {
        return errors.invalid(&path.child("cidr"), cidr, CIDR);
    }
    for (index, except) in items(block, "except").iter().enumerate() {
        let except = except.as_str().unwrap_or_default();
        let path = path.child("except").index(index);
        match (cidr.parse::<ipnet::IpNet>(), except.parse::<ipnet::IpNet>()) {
            (Ok(whole), Ok(part)) if !whole.contains(&part) || whole.prefix_len() >= part.prefix_len() => {
                errors.invalid(&path, except, "must be a strict subset of `cidr`");
            }
            (_, Err(_)) => errors.invalid(&path, except, CIDR),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_and_ports() {
        let mut errors = ErrorList::new();
        block(&mut errors, &json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}), &Path::new("b"));
        one_port(&mut errors, &json!({"port": 5, "endPort": 9}), &Path::new("p"));
        assert_eq!(errors.to_string(), "");
        block(&mut errors, &json!({"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}), &Path::new("b"));
        assert_eq!(errors.to_string(), "b.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`");
        let mut errors = ErrorList::new();
        one_port(&mut errors, &json!({"port": "a", "endPort": 9}), &Path::new("p"));
        assert_eq!(errors.to_string(), "p.endPort: Invalid value: 9: may not be specified when `port` is non-numeric");
    }
}
