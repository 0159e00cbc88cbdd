//! Errors of ResourceClaims and their templates, as far as they can be told without understanding expressions.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::devices::{self, C_IDENTIFIER, DRIVER};
use super::{Faults, IMMUTABLE, caseless_subdomain, one_of, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, text};

/// Most requests, constraints, configurations of a claim.
const MOST: usize = 32;
const ALTERNATIVES: usize = 8;
/// Most that use a claim at a time.
const USERS: usize = 256;
const NAME: usize = 32;

/// ResourceClaim.
pub fn claim(_context: &Context<'_>, claim: &Value) -> ErrorList {
    let mut faults = Faults::default();
    spec(&mut faults, at(claim, "spec"), &Path::new("spec"));
    faults.all()
}

/// An update of a ResourceClaim: what is asked for stays.
pub fn claim_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut faults = Faults::default();
    if context.subresource.is_some() {
        status(&mut faults, new, old);
    } else if at(new, "spec") != at(old, "spec") {
        let error = FieldError::new(Fault::Invalid, &Path::new("spec"), Value::Null, IMMUTABLE);
        faults.told.push(error.shown_as("null"));
    }
    faults.all()
}

/// ResourceClaimTemplate.
pub fn template(_context: &Context<'_>, template: &Value) -> ErrorList {
    let mut faults = Faults::default();
    template_spec(&mut faults, template);
    faults.all()
}

fn template_spec(faults: &mut Faults, template: &Value) {
    let path = Path::new("spec");
    super::template_metadata(&mut faults.told, at(template, "spec.metadata"), &path.child("metadata"));
    spec(faults, at(template, "spec.spec"), &path.child("spec"));
}

/// An update of a ResourceClaimTemplate: nothing but metadata changes.
pub fn template_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut faults = Faults::default();
    template_spec(&mut faults, new);
    unchanged(&mut faults.told, &Path::new("spec"), at(new, "spec"), at(old, "spec"));
    faults.all()
}

fn spec(faults: &mut Faults, spec: &Value, path: &Path) {
    let path = path.child("devices");
    let devices = at(spec, "devices");
    let requests = items(devices, "requests");
    let mut taken = HashSet::new();
    for (index, request) in requests.iter().enumerate() {
        if !taken.insert(text(request, "name")) {
            let error = FieldError::new(Fault::Duplicate, &path.child("requests").index(index), Value::Null, "");
            faults.declared.push(error.shown_as(shown_request(request)));
        }
    }
    if few(faults, requests, &path.child("requests")) {
        for (index, request) in requests.iter().enumerate() {
            self::request(faults, request, &path.child("requests").index(index));
        }
    }
    let known = request_names(spec);
    let constraints = items(devices, "constraints");
    if few(faults, constraints, &path.child("constraints")) {
        for (index, constraint) in constraints.iter().enumerate() {
            self::constraint(faults, constraint, &known, &path.child("constraints").index(index));
        }
    }
    configurations(faults, items(devices, "config"), Some(&known), &path.child("config"));
}

fn few(faults: &mut Faults, list: &[Value], path: &Path) -> bool {
    let few = list.len() <= MOST;
    if !few {
        faults.declared.too_many(path, list.len(), MOST);
    }
    few
}

fn constraint(faults: &mut Faults, constraint: &Value, known: &HashSet<String>, path: &Path) {
    named(faults, items(constraint, "requests"), known, &path.child("requests"));
    let fields = ["matchAttribute", "distinctAttribute"];
    if !fields.iter().any(|field| has(constraint, field)) {
        let detail =
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        faults.told.required(path, detail);
    }
    for field in fields.into_iter().filter(|field| has(constraint, field)) {
        qualified(&mut faults.declared, text(constraint, field), &path.child(field));
    }
}

/// The full name of an attribute.
fn qualified(errors: &mut ErrorList, name: &str, path: &Path) {
    let Some((domain, own)) = name.split_once('/') else {
        short(errors, name, path);
        return errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    };
    match domain {
        "" => errors.invalid(path, "", "prefix must not be empty"),
        domain => {
            for fault in names::dns1123_subdomain(&domain.to_lowercase()) {
                errors.invalid(path, domain, format!("prefix: {fault}"));
            }
        }
    }
    match own {
        "" => errors.invalid(path, "", "name must not be empty"),
        own => short(errors, own, path),
    }
}

/// A name without a domain. Of one that is too long no more is said, unless it is wrong as a whole.
fn short(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.len() > NAME {
        return errors.too_long(path, NAME);
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !name.chars().all(word) {
        errors.invalid(path, name, C_IDENTIFIER);
    }
}

/// Requests that something is about.
fn named(faults: &mut Faults, list: &[Value], known: &HashSet<String>, path: &Path) {
    for (index, name) in list.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        request_name(&mut faults.told, name, known, &path.index(index));
        if list[..index].iter().any(|before| before == name) {
            faults.declared.duplicate(&path.index(index), name);
        }
    }
}

fn request_name(errors: &mut ErrorList, name: &str, known: &HashSet<String>, path: &Path) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() <= 2 {
        for part in parts {
            errors.invalid_each(path, part, names::dns1123_label(part));
        }
    }
    if !known.contains(name) {
        let detail =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        errors.invalid(path, name, detail);
    }
}

/// What drivers are told. `requests`: the names that may be told; none: they can't be.
pub fn configurations(faults: &mut Faults, list: &[Value], requests: Option<&HashSet<String>>, path: &Path) {
    if !few(faults, list, path) {
        return;
    }
    for (index, configuration) in list.iter().enumerate() {
        let path = path.index(index);
        if let Some(known) = requests {
            named(faults, items(configuration, "requests"), known, &path.child("requests"));
        }
        let (opaque, path) = (at(configuration, "opaque"), path.child("opaque"));
        if opaque.is_null() {
            faults.told.required(&path, "");
            continue;
        }
        match at(opaque, "parameters") {
            Value::Null => faults.told.required(&path.child("parameters"), ""),
            Value::Object(_) => {}
            _ => {
                let detail = "must be a valid JSON object";
                let path = path.child("parameters");
                faults.told.push(FieldError::new(Fault::Invalid, &path, "<value omitted>", detail));
            }
        }
        driver(&mut faults.declared, text(opaque, "driver"), &path.child("driver"));
    }
}

/// The name of a driver, as claims tell it.
fn driver(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    errors.invalid_each(path, name, caseless_subdomain(name));
    if name.len() > DRIVER {
        let detail = format!("may not be more than {DRIVER} characters");
        errors.push(FieldError::new(Fault::TooLong, path, Value::Null, detail));
    }
}

/// Names of requests, and of their alternatives: `request/alternative`.
fn request_names(spec: &Value) -> HashSet<String> {
    let mut known = HashSet::new();
    for request in items(spec, "devices.requests") {
        let name = text(request, "name");
        known.insert(name.to_owned());
        for alternative in items(request, "firstAvailable") {
            known.insert(format!("{name}/{}", text(alternative, "name")));
        }
    }
    known
}

/// Go's JSON of a request has its fields in another order than ours.
fn shown_request(request: &Value) -> String {
    const ORDER: [&str; 9] = [
        "name",
        "exactly",
        "firstAvailable",
        "deviceClassName",
        "selectors",
        "allocationMode",
        "count",
        "adminAccess",
        "tolerations",
    ];
    fn ordered(value: &Value) -> String {
        match value {
            Value::Object(map) => {
                let rest = map.keys().map(String::as_str).filter(|key| !ORDER.contains(key));
                let keys = ORDER.into_iter().chain(rest).filter(|key| map.contains_key(*key));
                let fields: Vec<String> = keys.map(|key| format!("\"{key}\":{}", ordered(&map[key]))).collect();
                format!("{{{}}}", fields.join(","))
            }
            Value::Array(list) => format!("[{}]", list.iter().map(ordered).collect::<Vec<_>>().join(",")),
            other => other.to_string(),
        }
    }
    ordered(request)
}

fn request(faults: &mut Faults, request: &Value, path: &Path) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = text(request, "name");
    faults.told.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    let alternatives = items(request, "firstAvailable");
    match (has(request, "exactly"), alternatives.is_empty()) {
        (false, true) => faults.told.required(path, ONE),
        (true, false) => {
            faults.told.invalid(path, Value::Null, format!("{ONE}, but multiple fields are set"));
            for (index, alternative) in alternatives.iter().enumerate().take(ALTERNATIVES) {
                let path = path.child("firstAvailable").index(index);
                class(&mut faults.declared, alternative, &path);
            }
        }
        (true, true) => {
            let (exactly, path) = (at(request, "exactly"), path.child("exactly"));
            class(&mut faults.told, exactly, &path);
            exact(faults, exactly, &path);
        }
        (false, false) if alternatives.len() > ALTERNATIVES => {
            faults.declared.too_many(&path.child("firstAvailable"), alternatives.len(), ALTERNATIVES);
        }
        (false, false) => {
            let mut taken = HashSet::new();
            for (index, alternative) in alternatives.iter().enumerate() {
                let path = path.child("firstAvailable").index(index);
                let name = text(alternative, "name");
                faults.told.invalid_each(&path.child("name"), name, names::dns1123_label(name));
                if !taken.insert(name) {
                    let error = FieldError::new(Fault::Duplicate, &path, Value::Null, "");
                    faults.declared.push(error.shown_as(shown_request(alternative)));
                }
                class(&mut faults.declared, alternative, &path);
                exact(faults, alternative, &path);
            }
        }
    }
}

fn class(errors: &mut ErrorList, request: &Value, path: &Path) {
    let path = path.child("deviceClassName");
    match text(request, "deviceClassName") {
        "" => errors.required(&path, ""),
        // Declarations speak of bytes.
        name if path.to_string().contains("firstAvailable") => {
            let faults = names::dns1123_subdomain(name).into_iter();
            errors.invalid_each(
                &path,
                name,
                faults.map(|fault| fault.replace("253 characters", "253 bytes")).collect(),
            );
        }
        name => errors.invalid_each(&path, name, names::dns1123_subdomain(name)),
    }
}

fn exact(faults: &mut Faults, request: &Value, path: &Path) {
    devices::selectors(&mut faults.told, items(request, "selectors"), &path.child("selectors"));
    let count = int(request, "count");
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            faults.told.invalid(&path.child("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" if count <= 0 => {
            faults.told.invalid(&path.child("count"), count, "must be greater than zero");
        }
        "ExactCount" => {}
        other => one_of(&mut faults.declared, &path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    for (index, toleration) in items(request, "tolerations").iter().enumerate() {
        self::toleration(faults, toleration, &path.child("tolerations").index(index));
    }
}

fn toleration(faults: &mut Faults, toleration: &Value, path: &Path) {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
    match operator {
        "Exists" if !value.is_empty() => {
            faults.told.invalid(&path.child("value"), value, "must be empty for operator `Exists`");
        }
        "Equal" => faults.told.invalid_each(&path.child("value"), value, names::label_value(value)),
        _ => {}
    }
    if !key.is_empty() {
        faults.declared.invalid_each(&path.child("key"), key, names::label_key(key));
    }
    if operator.is_empty() {
        faults.declared.required(&path.child("operator"), "");
    } else {
        one_of(&mut faults.declared, &path.child("operator"), operator, &["Equal", "Exists"]);
    }
    if !effect.is_empty() {
        one_of(&mut faults.declared, &path.child("effect"), effect, &["NoExecute", "NoSchedule", "None"]);
    }
}

fn status(faults: &mut Faults, new: &Value, old: &Value) {
    let (status, path) = (at(new, "status"), Path::new("status"));
    allocated(faults, status, &path.child("devices"));
    users(faults, status, &path.child("reservedFor"));
    let before = at(old, "status.allocation");
    let allocation = at(status, "allocation");
    let of_allocation = path.child("allocation");
    if !before.is_null() && !allocation.is_null() {
        if before != allocation {
            faults.told.invalid(&of_allocation, Value::Null, "field cannot be modified once set");
        }
        return;
    }
    let requests = request_names(at(new, "spec"));
    for (index, result) in items(allocation, "devices.results").iter().enumerate() {
        let path = of_allocation.child("devices").child("results").index(index);
        request_name(&mut faults.told, text(result, "request"), &requests, &path.child("request"));
        let device = text(result, "device");
        faults.told.invalid_each(&path.child("device"), device, names::dns1123_label(device));
        devices::binding(faults, result, &path);
        driver(&mut faults.declared, text(result, "driver"), &path.child("driver"));
        pool(&mut faults.declared, text(result, "pool"), &path.child("pool"));
    }
    let of_config = of_allocation.child("devices").child("config");
    configurations(faults, items(allocation, "devices.config"), Some(&requests), &of_config);
    for (index, configuration) in items(allocation, "devices.config").iter().enumerate() {
        let path = of_config.index(index).child("source");
        match text(configuration, "source") {
            "" => faults.declared.required(&path, ""),
            source => one_of(&mut faults.declared, &path, source, &["FromClaim", "FromClass"]),
        }
    }
    if has(allocation, "nodeSelector") {
        let path = of_allocation.child("nodeSelector");
        super::volumes::node_terms(&mut faults.told, at(allocation, "nodeSelector"), &path);
    }
}

/// Where devices are from, as results tell it.
fn pool(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    for (index, part) in name.split('/').enumerate() {
        for fault in names::dns1123_subdomain(part) {
            errors.invalid(path, part, format!("segment {index}: {fault}"));
        }
    }
}

/// Who uses the claim.
fn users(faults: &mut Faults, status: &Value, path: &Path) {
    let users = items(status, "reservedFor");
    if users.len() > USERS {
        return faults.declared.too_many(path, users.len(), USERS);
    }
    for (index, user) in users.iter().enumerate() {
        let path = path.index(index);
        for field in ["resource", "name", "uid"].into_iter().filter(|field| text(user, field).is_empty()) {
            faults.told.required(&path.child(field), "");
        }
        if users[..index].iter().any(|before| text(before, "uid") == text(user, "uid")) {
            let part = |field| Value::from(text(user, field)).to_string();
            let group = match text(user, "apiGroup") {
                "" => String::new(),
                group => format!("\"apiGroup\":{},", Value::from(group)),
            };
            let shown = format!(
                "{{{group}\"resource\":{},\"name\":{},\"uid\":{}}}",
                part("resource"),
                part("name"),
                part("uid")
            );
            faults.declared.push(FieldError::new(Fault::Duplicate, &path, Value::Null, "").shown_as(shown));
        }
    }
    if !users.is_empty() && !has(status, "allocation") {
        faults.told.forbidden(path, "may not be specified when `allocated` is not set");
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(hex)
}

/// What drivers say about devices that are allocated.
fn allocated(faults: &mut Faults, status: &Value, path: &Path) {
    let id = |device: &Value| ["driver", "pool", "device", "shareID"].map(|field| text(device, field).to_owned());
    let known: HashSet<[String; 4]> = items(status, "allocation.devices.results").iter().map(id).collect();
    let list = items(status, "devices");
    for (index, device) in list.iter().enumerate() {
        let path = path.index(index);
        let own = id(device);
        let [name, pool, place, share] = own.clone().map(|part| Value::from(part).to_string());
        devices::driver(&mut faults.told, text(device, "driver"), &path.child("driver"));
        devices::pool_name(&mut faults.told, text(device, "pool"), &path.child("pool"));
        let label = text(device, "device");
        faults.told.invalid_each(&path.child("device"), label, names::dns1123_label(label));
        if !known.contains(&own) {
            let shown = format!("{{\"Driver\":{name},\"Pool\":{pool},\"Device\":{place},\"ShareID\":{share}}}");
            let detail = "must be an allocated device in the claim";
            faults.told.push(FieldError::new(Fault::Invalid, &path, Value::Null, detail).shown_as(shown));
        }
        if list[..index].iter().any(|before| id(before) == own) {
            let shown = format!("{{\"driver\":{name},\"pool\":{pool},\"device\":{place},\"conditions\":null}}");
            faults.told.push(FieldError::new(Fault::Duplicate, &path, Value::Null, "").shown_as(shown));
        }
        super::conditions(&mut faults.told, device, &path);
        if !matches!(at(device, "data"), Value::Null | Value::Object(_)) {
            let detail = "must be a valid JSON object";
            faults.told.push(FieldError::new(Fault::Invalid, &path.child("data"), "<value omitted>", detail));
        }
        if has(device, "shareID") && !is_uuid(text(device, "shareID")) {
            let detail = "must be a lowercase UUID in 8-4-4-4-12 format";
            faults.declared.invalid(&path.child("shareID"), text(device, "shareID"), detail);
        }
        let ips = items(device, "networkData.ips");
        for (index, ip) in ips.iter().map(|ip| ip.as_str().unwrap_or_default()).enumerate() {
            let path = path.child("networkData").child("ips").index(index);
            if ip.parse::<ipnet::IpNet>().is_err() {
                let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                faults.told.invalid(&path, ip, detail);
            }
            if ips[..index].iter().any(|before| before == ip) {
                faults.declared.duplicate(&path, ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(devices: Value) -> String {
        claim(&Context::ANY, &json!({"spec": {"devices": devices}})).to_string().replace("spec.devices.", "")
    }

    #[test]
    fn requests() {
        let exact = json!({"deviceClassName": "dc", "allocationMode": "ExactCount", "count": 1});
        let with = |field: &str, value: Value| {
            let mut exact = exact.clone();
            exact[field] = value;
            json!({"requests": [{"name": "a", "exactly": exact}]})
        };
        for (given, expected) in [
            (json!({"requests": [{"name": "a", "exactly": exact}]}), ""),
            (
                json!({"requests": [{"name": "a"}]}),
                "requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ),
            (
                with("allocationMode", json!("All")),
                "requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'",
            ),
            (
                with("tolerations", json!([{"operator": "Exists", "value": "v"}])),
                "requests[0].exactly.tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn what_declarations_find_is_told_last() {
        let given = json!({"constraints": [{"matchAttribute": "size"}, {"requests": ["a.b"]}]});
        assert_eq!(
            faults(given),
            "[constraints[1].requests[0]: Invalid value: \"a.b\": must not contain dots, constraints[1].requests[0]: Invalid \
             value: \"a.b\": must be the name of a request in the claim or the name of a request and a subrequest separated \
             by '/', constraints[1]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, \
             but multiple fields are set, constraints[0].matchAttribute: Invalid value: \"size\": a fully qualified name must \
             be a domain and a name separated by a slash]"
        );
    }

    #[test]
    fn statuses() {
        let context = Context { subresource: Some("status"), ..Context::ANY };
        let user = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x"});
        for (status, expected) in [
            (json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [user("u")]}), ""),
            (
                json!({"reservedFor": [user("u")]}),
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ),
            (
                json!({"allocation": {}, "reservedFor": [user("u"), user("u")]}),
                "status.reservedFor[1]: Duplicate value: {\"resource\":\"pods\",\"name\":\"p\",\"uid\":\"u\"}",
            ),
            (
                json!({"devices": [{"driver": "d", "pool": "p", "device": "x"}]}),
                "status.devices[0]: Invalid value: {\"Driver\":\"d\",\"Pool\":\"p\",\"Device\":\"x\",\"ShareID\":\"\"}: must be an allocated device in the claim",
            ),
        ] {
            let new = json!({"spec": {"devices": {"requests": [{"name": "r"}]}}, "status": status});
            assert_eq!(claim_update(&context, &new, &json!({})).to_string(), expected, "{new}");
        }
    }
}
