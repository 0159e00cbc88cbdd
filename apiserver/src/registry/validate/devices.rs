//! Errors of DeviceClasses, ResourceClaims and their templates, and ResourceSlices, as far as they can be told without
//! understanding expressions.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::{Map, Value};

use super::volumes::node_terms;
use super::{IMMUTABLE, caseless_subdomain, labels, one_of, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, entries, flag, has, int, items, text};

/// Most selectors, requests, alternatives, constraints, configurations of one object.
const MOST: usize = 32;
const ALTERNATIVES: usize = 8;
const DEVICES: usize = 128;
const TEXT: usize = 64;
const NAME: usize = 32;
const DRIVER: usize = 63;
const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                            characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
                            '[A-Za-z_][A-Za-z0-9_]*')";

/// DeviceClass.
pub fn class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(class, "spec");
    selectors(&mut errors, items(spec, "selectors"), &path.child("selectors"));
    configurations(&mut errors, items(spec, "config"), None, &path.child("config"));
    let extended = text(spec, "extendedResourceName");
    if has(spec, "extendedResourceName") && !super::resources::Name(extended).is_extended() {
        let detail = "a name must be a domain-prefixed path, such as 'example.com/my-prop'";
        errors.invalid(&path.child("extendedResourceName"), extended, detail);
    }
    errors
}

/// An update of a DeviceClass.
pub fn class_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    class(context, new)
}

/// ResourceClaim.
pub fn claim(_context: &Context<'_>, claim: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    claim_spec(&mut errors, at(claim, "spec"), &Path::new("spec"));
    errors
}

/// An update of a ResourceClaim: what is asked for stays.
pub fn claim_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_none() {
        if at(new, "spec") != at(old, "spec") {
            errors.invalid(&Path::new("spec"), Value::Null, IMMUTABLE);
        }
        return errors;
    }
    let path = Path::new("status");
    let status = at(new, "status");
    let requests = request_names(at(new, "spec"));
    for (index, result) in items(status, "allocation.devices.results").iter().enumerate() {
        let path = path.child("allocation").child("devices").child("results").index(index);
        request_name(&mut errors, text(result, "request"), &requests, &path.child("request"));
        driver(&mut errors, text(result, "driver"), &path.child("driver"));
        pool_name(&mut errors, text(result, "pool"), &path.child("pool"));
        let device = text(result, "device");
        errors.invalid_each(&path.child("device"), device, names::dns1123_label(device));
    }
    if !items(status, "reservedFor").is_empty() && !has(status, "allocation") {
        errors.forbidden(&path.child("reservedFor"), "may not be specified when `allocated` is not set");
    }
    let before = at(old, "status.allocation");
    if !before.is_null() && has(status, "allocation") {
        unchanged(&mut errors, &path.child("allocation"), at(status, "allocation"), before);
    }
    errors
}

/// ResourceClaimTemplate.
pub fn template(_context: &Context<'_>, template: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    template_metadata(&mut errors, at(template, "spec.metadata"), &path.child("metadata"));
    claim_spec(&mut errors, at(template, "spec.spec"), &path.child("spec"));
    errors
}

/// Metadata for objects that are made of a template: labels and annotations.
fn template_metadata(errors: &mut ErrorList, metadata: &Value, path: &Path) {
    // The spelling of uID is upstream's.
    const FIXED: [(&str, &str); 12] = [
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("selfLink", "selfLink"),
        ("uid", "uID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("ownerReferences", "ownerReferences"),
        ("finalizers", "finalizers"),
    ];
    for (_, shown) in FIXED.into_iter().filter(|(field, _)| has(metadata, field)) {
        errors.forbidden(&path.child(shown), "cannot be set");
    }
    labels(errors, &path.child("labels"), metadata, "labels");
    for (key, _) in entries(metadata, "annotations") {
        errors.invalid_each(&path.child("annotations"), key, names::qualified(&key.to_lowercase()));
    }
}

/// An update of a ResourceClaimTemplate: nothing but metadata changes.
pub fn template_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = template(context, new);
    unchanged(&mut errors, &Path::new("spec"), at(new, "spec"), at(old, "spec"));
    errors
}

fn selectors(errors: &mut ErrorList, selectors: &[Value], path: &Path) {
    if selectors.len() > MOST {
        return errors.too_many(path, selectors.len(), MOST);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = path.index(index).child("cel");
        if !has(selector, "cel") {
            errors.required(&path, "");
        } else if text(selector, "cel.expression").is_empty() {
            let detail = "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', \
                          '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
            errors.invalid(&path.child("expression"), "", detail);
        }
    }
}

fn driver(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > DRIVER {
        errors.too_long(path, DRIVER);
    }
    errors.invalid_each(path, name, caseless_subdomain(name));
}

/// `requests`: the names that may be told; none: they can't be.
fn configurations(errors: &mut ErrorList, list: &[Value], requests: Option<&HashSet<String>>, path: &Path) {
    if list.len() > MOST {
        return errors.too_many(path, list.len(), MOST);
    }
    for (index, configuration) in list.iter().enumerate() {
        let path = path.index(index);
        if let Some(known) = requests {
            for (index, name) in items(configuration, "requests").iter().enumerate() {
                request_name(errors, name.as_str().unwrap_or_default(), known, &path.child("requests").index(index));
            }
        }
        let opaque = at(configuration, "opaque");
        let path = path.child("opaque");
        if opaque.is_null() {
            errors.required(&path, "");
            continue;
        }
        match at(opaque, "parameters") {
            Value::Null => errors.required(&path.child("parameters"), ""),
            Value::Object(_) => {}
            _ => {
                let path = path.child("parameters");
                let detail = "must be a valid JSON object";
                errors.push(FieldError::new(Fault::Invalid, &path, "<value omitted>", detail));
            }
        }
        driver(errors, text(opaque, "driver"), &path.child("driver"));
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

fn request_name(errors: &mut ErrorList, name: &str, known: &HashSet<String>, path: &Path) {
    if !known.contains(name) {
        let detail =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        errors.invalid(path, name, detail);
    }
}

fn claim_spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let path = path.child("devices");
    let devices = at(spec, "devices");
    let requests = items(devices, "requests");
    if requests.len() > MOST {
        errors.too_many(&path.child("requests"), requests.len(), MOST);
    } else {
        let mut taken = HashSet::new();
        for (index, request) in requests.iter().enumerate() {
            let path = path.child("requests").index(index);
            self::request(errors, request, &path);
            if !taken.insert(text(request, "name")) {
                errors.push(FieldError::new(Fault::Duplicate, &path, Value::Null, "").shown_as(shown_request(request)));
            }
        }
    }
    let known = request_names(spec);
    for (index, constraint) in items(devices, "constraints").iter().enumerate() {
        let path = path.child("constraints").index(index);
        for (index, name) in items(constraint, "requests").iter().enumerate() {
            request_name(errors, name.as_str().unwrap_or_default(), &known, &path.child("requests").index(index));
        }
        match ["matchAttribute", "distinctAttribute"].into_iter().find(|field| has(constraint, field)) {
            Some(field) => qualified(errors, text(constraint, field), &path.child(field)),
            None => {
                let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
                errors.required(&path, detail);
            }
        }
    }
    configurations(errors, items(devices, "config"), Some(&known), &path.child("config"));
}

fn qualified(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    match name.split_once('/') {
        None => errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"),
        Some((domain, own)) => {
            errors.invalid_each(path, domain, caseless_subdomain(domain));
            identifier(errors, own, path);
        }
    }
}

fn identifier(errors: &mut ErrorList, name: &str, path: &Path) {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word);
    if !good {
        errors.invalid(path, name, C_IDENTIFIER);
    }
    if name.len() > NAME {
        errors.too_long(path, NAME);
    }
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

fn request(errors: &mut ErrorList, request: &Value, path: &Path) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = text(request, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    let alternatives = items(request, "firstAvailable");
    match (has(request, "exactly"), alternatives.is_empty()) {
        (false, true) => errors.required(path, ONE),
        (true, false) => errors.invalid(path, Value::Null, format!("{ONE}, but multiple fields are set")),
        (true, true) => exact(errors, at(request, "exactly"), &path.child("exactly")),
        (false, false) if alternatives.len() > ALTERNATIVES => {
            errors.too_many(&path.child("firstAvailable"), alternatives.len(), ALTERNATIVES);
        }
        (false, false) => {
            let mut taken = HashSet::new();
            for (index, alternative) in alternatives.iter().enumerate() {
                let path = path.child("firstAvailable").index(index);
                let name = text(alternative, "name");
                errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
                exact(errors, alternative, &path);
                if !taken.insert(name) {
                    let error = FieldError::new(Fault::Duplicate, &path, Value::Null, "");
                    errors.push(error.shown_as(shown_request(alternative)));
                }
            }
        }
    }
}

fn exact(errors: &mut ErrorList, request: &Value, path: &Path) {
    match text(request, "deviceClassName") {
        "" => errors.required(&path.child("deviceClassName"), ""),
        name => errors.invalid_each(&path.child("deviceClassName"), name, names::dns1123_subdomain(name)),
    }
    selectors(errors, items(request, "selectors"), &path.child("selectors"));
    let count = int(request, "count");
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            errors.invalid(&path.child("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" if count <= 0 => errors.invalid(&path.child("count"), count, "must be greater than zero"),
        "ExactCount" => {}
        other => one_of(errors, &path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    for (index, toleration) in items(request, "tolerations").iter().enumerate() {
        let path = path.child("tolerations").index(index);
        let (key, operator, effect) =
            (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
        if !key.is_empty() {
            errors.invalid_each(&path.child("key"), key, names::label_key(key));
        }
        match operator {
            "" => errors.required(&path.child("operator"), ""),
            operator => one_of(errors, &path.child("operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            one_of(errors, &path.child("effect"), effect, &["NoExecute", "NoSchedule", "None"]);
        }
    }
}

/// ResourceSlice.
pub fn slice(_context: &Context<'_>, slice: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(slice, "spec");
    let node = text(spec, "nodeName");
    if has(spec, "nodeName") {
        match node {
            "" => errors.required(&path.child("nodeName"), ""),
            node => errors.invalid_each(&path.child("nodeName"), node, names::dns1123_subdomain(node)),
        }
    }
    match text(spec, "driver") {
        "" => errors.required(&path.child("driver"), ""),
        name => errors.invalid_each(&path.child("driver"), name, names::dns1123_subdomain(name)),
    }
    pool(&mut errors, at(spec, "pool"), &path.child("pool"));
    place(&mut errors, spec, &path);
    let devices = items(spec, "devices");
    if devices.len() > DEVICES {
        errors.too_many(&path.child("devices"), devices.len(), DEVICES);
    } else {
        let mut taken = HashSet::new();
        for (index, device) in devices.iter().enumerate() {
            let path = path.child("devices").index(index);
            self::device(&mut errors, device, &path);
            if !taken.insert(text(device, "name")) {
                errors.duplicate(&path, text(device, "name"));
            }
        }
    }
    errors
}

/// An update of a ResourceSlice: whose it is stays.
pub fn slice_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = slice(context, new);
    let path = Path::new("spec");
    for (field, shown) in [
        ("spec.driver", path.child("driver")),
        ("spec.pool.name", path.child("pool").child("name")),
        ("spec.nodeName", path.child("nodeName")),
    ] {
        unchanged(&mut errors, &shown, at(new, field), at(old, field));
    }
    errors
}

fn pool_name(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    for part in name.split('/') {
        errors.invalid_each(path, part, names::dns1123_subdomain(part));
    }
}

fn pool(errors: &mut ErrorList, pool: &Value, path: &Path) {
    pool_name(errors, text(pool, "name"), &path.child("name"));
    let count = int(pool, "resourceSliceCount");
    if count <= 0 {
        errors.invalid(&path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    let generation = int(pool, "generation");
    if generation < 0 {
        errors.invalid(&path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// DeviceTaintRule.
pub fn taint_rule(_context: &Context<'_>, rule: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let (selector, of_selector) = (at(rule, "spec.deviceSelector"), path.child("deviceSelector"));
    for (field, check) in [
        ("driver", names::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("pool", names::dns1123_subdomain),
        ("device", names::dns1123_label),
    ] {
        let name = text(selector, field);
        if has(selector, field) {
            errors.invalid_each(&of_selector.child(field), name, check(name));
        }
    }
    taint(&mut errors, at(rule, "spec.taint"), &path.child("taint"));
    errors
}

/// An update of a DeviceTaintRule.
pub fn taint_rule_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_none() {
        return taint_rule(context, new);
    }
    let mut errors = ErrorList::new();
    super::conditions(&mut errors, at(new, "status"), &Path::new("status"));
    errors
}

fn taint(errors: &mut ErrorList, taint: &Value, path: &Path) {
    let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
    errors.invalid_each(&path.child("key"), key, names::label_key(key));
    errors.invalid_each(&path.child("value"), value, names::label_value(value));
    match effect {
        "" => errors.required(&path.child("effect"), ""),
        effect => one_of(errors, &path.child("effect"), effect, &["NoExecute", "NoSchedule", "None"]),
    }
}

/// Which nodes have the devices.
fn place(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let given: Vec<String> = [
        ("nodeName", has(spec, "nodeName")),
        ("nodeSelector", has(spec, "nodeSelector")),
        ("allNodes", flag(spec, "allNodes")),
        ("perDeviceNodeSelection", flag(spec, "perDeviceNodeSelection")),
    ]
    .into_iter()
    .filter(|(_, given)| *given)
    .map(|(field, _)| format!("`{field}`"))
    .collect();
    if has(spec, "nodeSelector") {
        let path = path.child("nodeSelector");
        node_terms(errors, at(spec, "nodeSelector"), &path);
        let terms = items(spec, "nodeSelector.nodeSelectorTerms");
        if terms.len() != 1 {
            let path = path.child("nodeSelectorTerms");
            errors.invalid(&path, terms.to_vec(), "must have exactly one node selector term");
        }
    }
    match given.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", given.join(", ")), format!("{ONE}, but multiple fields are set")),
    }
}

fn device(errors: &mut ErrorList, device: &Value, path: &Path) {
    let name = text(device, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    // A device's attributes stand in it, or, in older versions, one level deeper.
    let holder = if has(device, "basic") { at(device, "basic") } else { device };
    for list in ["attributes", "capacity"] {
        for (name, value) in entries(holder, list) {
            let of_list = path.child(list);
            match name.split_once('/') {
                Some((domain, own)) => {
                    errors.invalid_each(&of_list, domain, caseless_subdomain(domain));
                    identifier(errors, own, &of_list);
                }
                None => identifier(errors, name, &of_list),
            }
            if list == "attributes" {
                attribute(errors, value.as_object(), &of_list.key(name));
            }
        }
    }
    for (index, item) in items(holder, "taints").iter().enumerate() {
        taint(errors, item, &path.child("taints").index(index));
    }
}

fn attribute(errors: &mut ErrorList, attribute: Option<&Map<String, Value>>, path: &Path) {
    const FORMS: [&str; 8] = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let given: Vec<&str> =
        FORMS.into_iter().filter(|form| attribute.is_some_and(|map| map.contains_key(*form))).collect();
    let list = FORMS.map(|form| format!("`{form}`")).join(", ");
    match given.len() {
        0 => errors.invalid(path, "", format!("must specify one of: {list}")),
        1 => {}
        _ => {
            let detail = format!("must specify exactly one of: {list}");
            return errors.invalid(path, format!("{{{}}}", given.join(", ")), detail);
        }
    }
    for (form, value) in attribute.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let path = path.child(form);
        if matches!(form.as_str(), "string" | "version") && value.len() > TEXT {
            errors.too_long(&path, TEXT);
        }
        if form == "version" && !is_semantic(value) {
            errors.invalid(&path, value, "must be a string compatible with semver.org spec 2.0.0");
        }
    }
}

/// `1.2.3-pre+build`.
fn is_semantic(version: &str) -> bool {
    let (version, build) = version.split_once('+').map_or((version, None), |(version, build)| (version, Some(build)));
    let (core, pre) = version.split_once('-').map_or((version, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let words = |text: &str| {
        text.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
    };
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3 && parts.into_iter().all(number) && pre.is_none_or(words) && build.is_none_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions() {
        for (version, good) in
            [("1.2.3", true), ("1.2.3-rc.1+b", true), ("x", false), ("1.2", false), ("01.2.3", false)]
        {
            assert_eq!(is_semantic(version), good, "{version}");
        }
    }

    #[test]
    fn requests() {
        let faults = |given: Value| {
            let mut errors = ErrorList::new();
            request(&mut errors, &given, &Path::new("r"));
            errors.to_string()
        };
        let exact = json!({"deviceClassName": "dc", "allocationMode": "ExactCount", "count": 1});
        assert_eq!(faults(json!({"name": "a", "exactly": exact})), "");
        assert_eq!(
            faults(json!({"name": "a"})),
            "r: Required value: exactly one of `exactly` or `firstAvailable` is required"
        );
        assert_eq!(
            faults(json!({"name": "a", "exactly": {"deviceClassName": "dc", "allocationMode": "All", "count": 2}})),
            "r.exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"
        );
    }

    #[test]
    fn slices_are_somewhere() {
        let faults = |spec: Value| {
            let mut errors = ErrorList::new();
            place(&mut errors, &spec, &Path::new("s"));
            errors.to_string()
        };
        assert_eq!(faults(json!({"nodeName": "n"})), "");
        assert!(faults(json!({})).starts_with("s: Required value: exactly one of `nodeName`"));
        assert!(faults(json!({"nodeName": "n", "allNodes": true})).contains("\"{`nodeName`, `allNodes`}\""));
    }
}
