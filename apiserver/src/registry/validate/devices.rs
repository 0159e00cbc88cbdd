//! Errors of DeviceClasses, DeviceTaintRules and ResourceSlices, as far as they can be told without understanding expressions.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::{Map, Value};

use super::volumes::node_terms;
use super::{Faults, claims, expressions, one_of, request_policy, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, entries, flag, has, int, items, text};

/// Most selectors, requests, alternatives, constraints, configurations of one object.
const MOST: usize = 32;
const DEVICES: usize = 128;
/// The most devices where some have taints or take from counters.
const DEVICES_WITH_MORE: usize = 64;
const CONDITIONS: usize = 8;
const TEXT: usize = 64;
const NAME: usize = 32;
/// Longest name of a driver.
pub const DRIVER: usize = 63;
/// What such a name is.
pub const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                            characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
                            '[A-Za-z_][A-Za-z0-9_]*')";

/// DeviceClass.
pub fn class(_context: &Context<'_>, class: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(class, "spec");
    selectors(&mut errors, items(spec, "selectors"), &path.child("selectors"));
    let mut faults = Faults { told: errors, ..Faults::default() };
    claims::configurations(&mut faults, items(spec, "config"), None, &path.child("config"));
    if has(spec, "extendedResourceName") {
        extended_name(&mut faults.declared, text(spec, "extendedResourceName"), &path.child("extendedResourceName"));
    }
    faults.all()
}

/// The name under which containers ask for devices as for other resources.
fn extended_name(errors: &mut ErrorList, name: &str, path: &Path) {
    let domain = name.split_once('/').map(|(domain, _)| domain);
    match domain {
        None => {
            errors.invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'");
        }
        Some("kubernetes.io") => errors.invalid(path, name, "must not have \"kubernetes.io/\" domain"),
        Some(_) if name.starts_with("requests.") => errors.invalid(path, name, "must not have \"requests.\" prefix"),
        Some(domain) if domain.ends_with(".kubernetes.io") => {
            errors.invalid(path, name, "must not have \"kubernetes.io/\" domain");
        }
        Some(_) => {}
    }
    // It has to be one with the prefix that quotas give it.
    errors.invalid_each(path, name, names::qualified(&format!("requests.{name}")));
}

/// An update of a DeviceClass.
pub fn class_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    class(context, new)
}

/// Expressions that choose devices.
pub fn selectors(errors: &mut ErrorList, selectors: &[Value], path: &Path) {
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
        } else if let Some(fault) = expressions::fault(text(selector, "cel.expression"), &["device"]) {
            errors.invalid(&path.child("expression"), text(selector, "cel.expression"), fault);
        }
    }
}

/// The name of a driver, as slices and taints tell it.
pub fn driver(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > DRIVER {
        errors.too_long(path, DRIVER);
    }
    errors.invalid_each(path, name, names::dns1123_subdomain(&name.to_lowercase()));
}

/// A name that may have a domain before it.
fn attribute_name(errors: &mut ErrorList, name: &str, path: &Path) {
    match name.split_once('/') {
        None => identifier(errors, name, path),
        Some((domain, own)) => {
            match domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => errors.invalid_each(path, domain, names::dns1123_subdomain(&domain.to_lowercase())),
            }
            match own {
                "" => errors.invalid(path, "", "the name must not be empty"),
                own => identifier(errors, own, path),
            }
        }
    }
}

/// A name as programs have it.
pub fn identifier(errors: &mut ErrorList, name: &str, path: &Path) {
    if name.len() > NAME {
        errors.too_long(path, NAME);
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word);
    if !good {
        errors.invalid(path, name, C_IDENTIFIER);
    }
}

/// ResourceSlice.
pub fn slice(_context: &Context<'_>, slice: &Value) -> ErrorList {
    let mut faults = Faults::default();
    slice_spec(&mut faults, at(slice, "spec"), None);
    faults.all()
}

/// An update of a ResourceSlice: whose it is stays.
pub fn slice_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut faults = Faults::default();
    slice_spec(&mut faults, at(new, "spec"), Some(at(old, "spec")));
    faults.all()
}

fn slice_spec(faults: &mut Faults, spec: &Value, old: Option<&Value>) {
    let path = Path::new("spec");
    driver(&mut faults.told, text(spec, "driver"), &path.child("driver"));
    pool(&mut faults.told, at(spec, "pool"), &path.child("pool"));
    let fixed = [
        ("pool.name", path.child("pool").child("name")),
        ("driver", path.child("driver")),
        ("nodeName", path.child("nodeName")),
    ];
    for (field, path) in fixed {
        if let Some(old) = old {
            unchanged(&mut faults.told, &path, at(spec, field), at(old, field));
        }
    }
    place(&mut faults.told, spec, &path);
    if has(spec, "sharedCounters") && has(spec, "devices") {
        faults.told.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = items(spec, "devices");
    let of_devices = path.child("devices");
    let more = |device: &Value| ["taints", "consumesCounters"].iter().any(|list| !items(device, list).is_empty());
    let most = if devices.iter().any(more) { DEVICES_WITH_MORE } else { DEVICES };
    if devices.len() > most {
        faults.declared.too_many(&of_devices, devices.len(), most);
    } else {
        let mut taken = HashSet::new();
        for (index, device) in devices.iter().enumerate() {
            if !taken.insert(text(device, "name")) {
                faults.declared.duplicate(&of_devices.index(index), text(device, "name"));
            }
        }
        for (index, device) in devices.iter().enumerate() {
            self::device(faults, device, flag(spec, "perDeviceNodeSelection"), &of_devices.index(index));
        }
    }
    counters(faults, items(spec, "sharedCounters"), &path.child("sharedCounters"));
}

/// What devices take from.
fn counters(faults: &mut Faults, sets: &[Value], path: &Path) {
    const SETS: usize = 8;
    const MOST: usize = 32;
    if sets.len() > SETS {
        return faults.declared.too_many(path, sets.len(), SETS);
    }
    let mut taken = HashSet::new();
    for (index, set) in sets.iter().enumerate().filter(|(_, set)| !taken.insert(text(set, "name"))) {
        let shown = format!("{{\"name\":{},\"counters\":{}}}", at(set, "name"), at(set, "counters"));
        faults.declared.push(FieldError::new(Fault::Duplicate, &path.index(index), Value::Null, "").shown_as(shown));
    }
    for (index, set) in sets.iter().enumerate() {
        let path = path.index(index);
        let name = text(set, "name");
        match name {
            "" => faults.declared.required(&path.child("name"), ""),
            name => faults.declared.invalid_each(&path.child("name"), name, names::dns1123_label(name)),
        }
        let path = path.child("counters");
        let own = at(set, "counters").as_object().map_or(0, Map::len);
        match own {
            0 => faults.declared.required(&path, ""),
            many if many > MOST => faults.told.too_many(&path, many, MOST),
            _ => {}
        }
        for (name, _) in entries(set, "counters") {
            faults.declared.invalid_each(&path, name, names::dns1123_label(name));
        }
    }
}

/// The name of a pool: parts between slashes.
pub fn pool_name(errors: &mut ErrorList, name: &str, path: &Path) {
    const LONGEST: usize = 253;
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > LONGEST {
        errors.too_long(path, LONGEST);
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
    if has(selector, "driver") {
        driver(&mut errors, text(selector, "driver"), &of_selector.child("driver"));
    }
    if has(selector, "pool") {
        pool_name(&mut errors, text(selector, "pool"), &of_selector.child("pool"));
    }
    if has(selector, "device") {
        let name = text(selector, "device");
        errors.invalid_each(&of_selector.child("device"), name, names::dns1123_label(name));
    }
    let mut faults = Faults { told: errors, ..Faults::default() };
    taint(&mut faults, at(rule, "spec.taint"), &path.child("taint"));
    faults.all()
}

/// An update of a DeviceTaintRule.
pub fn taint_rule_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_none() {
        return taint_rule(context, new);
    }
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    super::conditions(&mut errors, at(new, "status"), &path);
    let conditions = items(new, "status.conditions").len();
    if conditions > CONDITIONS {
        errors.too_many(&path.child("conditions"), conditions, CONDITIONS);
    }
    errors
}

/// A change of its effect is a new taint, unless the time was told.
pub fn taint_rule_prepare(context: &Context<'_>, new: &mut Value, old: &Value) {
    let (after, before) = (at(new, "spec.taint"), at(old, "spec.taint"));
    let changed = text(after, "effect") != text(before, "effect");
    if changed && text(after, "timeAdded") == text(before, "timeAdded") && has(new, "spec.taint") {
        new["spec"]["taint"]["timeAdded"] = crate::engine::meta::timestamp(context.now).into();
    }
}

fn taint(faults: &mut Faults, taint: &Value, path: &Path) {
    let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
    faults.told.invalid_each(&path.child("key"), key, names::label_key(key));
    faults.told.invalid_each(&path.child("value"), value, names::label_value(value));
    match effect {
        "" => faults.declared.required(&path.child("effect"), ""),
        effect => one_of(&mut faults.declared, &path.child("effect"), effect, &["NoExecute", "NoSchedule", "None"]),
    }
}

/// Which nodes have the devices.
fn place(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let given: Vec<String> = [
        ("nodeName", !text(spec, "nodeName").is_empty()),
        ("nodeSelector", has(spec, "nodeSelector")),
        ("allNodes", flag(spec, "allNodes")),
        ("perDeviceNodeSelection", flag(spec, "perDeviceNodeSelection")),
    ]
    .into_iter()
    .filter(|(_, given)| *given)
    .map(|(field, _)| format!("`{field}`"))
    .collect();
    node_name(errors, spec, path);
    if has(spec, "nodeSelector") {
        let path = path.child("nodeSelector");
        node_terms(errors, at(spec, "nodeSelector"), &path);
        let terms = items(spec, "nodeSelector.nodeSelectorTerms");
        if terms.len() != 1 {
            let path = path.child("nodeSelectorTerms");
            let shown: Vec<&str> = terms.iter().map(|_| "{\"MatchExpressions\":null,\"MatchFields\":null}").collect();
            let shown = if terms.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) };
            let empty = |term: &Value| term.as_object().is_none_or(|term| term.is_empty());
            let error =
                FieldError::new(Fault::Invalid, &path, terms.to_vec(), "must have exactly one node selector term");
            errors.push(if terms.iter().all(empty) { error.shown_as(shown) } else { error });
        }
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        if at(spec, field) == &Value::Bool(false) {
            errors.invalid(&path.child(field), false, "must be either unset or set to true");
        }
    }
    match given.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", given.join(", ")), format!("{ONE}, but multiple fields are set")),
    }
}

fn node_name(errors: &mut ErrorList, holder: &Value, path: &Path) {
    let path = path.child("nodeName");
    match text(holder, "nodeName") {
        _ if !has(holder, "nodeName") => {}
        "" => errors.invalid(&path, "", "must be either unset or set to a non-empty string"),
        node => errors.invalid_each(&path, node, names::dns1123_subdomain(node)),
    }
}

/// Which nodes have one device, where that is told of each.
fn device_place(errors: &mut ErrorList, device: &Value, each: bool, path: &Path) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                       set to true in the ResourceSlice spec";
    const NOT_HERE: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                            true in the ResourceSlice spec";
    let told = ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| has(device, field));
    if !each {
        if told {
            errors.invalid(path, Value::Null, NOT_HERE);
        }
        return;
    }
    node_name(errors, device, path);
    if has(device, "nodeSelector") {
        node_terms(errors, at(device, "nodeSelector"), &path.child("nodeSelector"));
    }
    if at(device, "allNodes") == &Value::Bool(false) {
        errors.invalid(&path.child("allNodes"), false, "must be either unset or set to true");
    }
    let given: Vec<&str> = [
        ("`nodeName`", !text(device, "nodeName").is_empty()),
        ("`nodeSelector`", has(device, "nodeSelector")),
        ("`allNodes`", flag(device, "allNodes")),
    ]
    .into_iter()
    .filter_map(|(field, given)| given.then_some(field))
    .collect();
    match given.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", given.join(", ")), ONE),
    }
}

/// Conditions under which a device is bound, and those under which that has failed.
pub fn binding(faults: &mut Faults, holder: &Value, path: &Path) {
    const MOST: usize = 4;
    let lists = [("bindingConditions", "bindingFailureConditions"), ("bindingFailureConditions", "bindingConditions")];
    let first = items(holder, "bindingConditions");
    for (field, _) in lists {
        let (own, path) = (items(holder, field), path.child(field));
        if own.len() > MOST {
            faults.declared.too_many(&path, own.len(), MOST);
        }
        for (index, condition) in own.iter().enumerate() {
            let (path, name) = (path.index(index), condition.as_str().unwrap_or_default());
            faults.told.invalid_each(&path, name, names::qualified(name));
            if own[..index].contains(condition) {
                faults.told.duplicate(&path, name);
            }
            if field == "bindingFailureConditions" && first.contains(condition) {
                faults.told.invalid(&path, name, "bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    for (field, needed) in lists {
        if !items(holder, field).is_empty() && items(holder, needed).is_empty() {
            let detail = format!("{needed} are required to use {field}");
            faults.told.invalid(&path.child(needed), Value::Null, detail);
        }
    }
}

fn device(faults: &mut Faults, device: &Value, each: bool, path: &Path) {
    const TAINTS: usize = 16;
    const ALL: usize = 32;
    let name = text(device, "name");
    faults.told.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    // A device's attributes stand in it, or, in older versions, one level deeper.
    let holder = if has(device, "basic") { at(device, "basic") } else { device };
    let size = |list: &str| at(holder, list).as_object().map_or(0, Map::len);
    let all = size("attributes") + size("capacity");
    if all > ALL {
        let detail = format!("the total number of attributes and capacities must not exceed {ALL}");
        faults.told.invalid(path, all, detail);
    }
    for list in ["attributes", "capacity"] {
        for (name, value) in entries(holder, list) {
            attribute_name(&mut faults.told, name, &path.child(list));
            let path = path.child(list).key(name);
            match list {
                "attributes" => attribute(faults, value.as_object(), &path),
                _ => request_policy::check(&mut faults.told, value, flag(holder, "allowMultipleAllocations"), &path),
            }
        }
    }
    consumption(faults, items(holder, "consumesCounters"), &path.child("consumesCounters"));
    device_place(&mut faults.told, holder, each, path);
    let taints = items(holder, "taints");
    if taints.len() > TAINTS {
        faults.declared.too_many(&path.child("taints"), taints.len(), TAINTS);
    }
    for (index, item) in taints.iter().enumerate() {
        taint(faults, item, &path.child("taints").index(index));
    }
    binding(faults, holder, path);
}

/// What a device takes from counters.
fn consumption(faults: &mut Faults, sets: &[Value], path: &Path) {
    const SETS: usize = 2;
    const MOST: usize = 32;
    if sets.len() > SETS {
        return faults.declared.too_many(path, sets.len(), SETS);
    }
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].iter().any(|before| text(before, "counterSet") == text(set, "counterSet")) {
            let shown = format!("{{\"counterSet\":{},\"counters\":{}}}", at(set, "counterSet"), at(set, "counters"));
            faults
                .declared
                .push(FieldError::new(Fault::Duplicate, &path.index(index), Value::Null, "").shown_as(shown));
        }
    }
    for (index, set) in sets.iter().enumerate() {
        let path = path.index(index);
        match text(set, "counterSet") {
            "" => faults.declared.required(&path.child("counterSet"), ""),
            name => faults.declared.invalid_each(&path.child("counterSet"), name, names::dns1123_label(name)),
        }
        let path = path.child("counters");
        match at(set, "counters").as_object().map_or(0, Map::len) {
            0 => faults.declared.required(&path, ""),
            many if many > MOST => faults.told.too_many(&path, many, MOST),
            _ => {}
        }
        for (name, _) in entries(set, "counters") {
            faults.declared.invalid_each(&path, name, names::dns1123_label(name));
        }
    }
}

fn attribute(faults: &mut Faults, attribute: Option<&Map<String, Value>>, path: &Path) {
    const FORMS: [&str; 8] = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let given: Vec<&str> =
        FORMS.into_iter().filter(|form| attribute.is_some_and(|map| map.contains_key(*form))).collect();
    let list = FORMS.map(|form| format!("`{form}`")).join(", ");
    match given.len() {
        0 => faults.declared.invalid(path, "", format!("must specify one of: {list}")),
        1 => {}
        _ => {
            let detail = format!("must specify exactly one of: {list}");
            faults.declared.invalid(path, format!("{{{}}}", given.join(", ")), detail);
        }
    }
    for (form, value) in attribute.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let path = path.child(form);
        if matches!(form.as_str(), "string" | "version") && value.len() > TEXT {
            faults.told.too_long(&path, TEXT);
        }
        if form == "version" && !is_semantic(value) {
            faults.told.invalid(&path, value, "must be a string compatible with semver.org spec 2.0.0");
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
    fn slices() {
        let faults = |more: Value| {
            let mut spec = json!({"driver": "d.e", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            slice(&Context::ANY, &json!({"spec": spec})).to_string()
        };
        for (given, expected) in [
            (json!({}), ""),
            (json!({"driver": ""}), "spec.driver: Required value"),
            (json!({"allNodes": false}), "spec.allNodes: Invalid value: false: must be either unset or set to true"),
            (
                json!({"devices": [], "sharedCounters": []}),
                "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed",
            ),
            (
                json!({"sharedCounters": [{}]}),
                "[spec.sharedCounters[0].name: Required value, spec.sharedCounters[0].counters: Required value]",
            ),
            (
                json!({"devices": [{"name": "a", "allNodes": true}]}),
                "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            (
                json!({"devices": [{"name": "a", "consumesCounters": [{"counterSet": "s"}, {"counterSet": "s", "counters": {"c": {}}}]}]}),
                "[spec.devices[0].consumesCounters[1]: Duplicate value: {\"counterSet\":\"s\",\"counters\":{\"c\":{}}}, spec.devices[0].consumesCounters[0].counters: Required value]",
            ),
            (
                json!({"devices": [{"name": "a", "bindingConditions": ["x"]}]}),
                "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
            ),
            (
                json!({"devices": [{"name": "a", "taints": [{"key": "a"}]}, {"name": "a"}]}),
                "[spec.devices[1]: Duplicate value: \"a\", spec.devices[0].taints[0].effect: Required value]",
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
    }

    #[test]
    fn a_taint_is_new_by_its_effect() {
        let rule =
            |effect: &str, time: &str| json!({"spec": {"taint": {"key": "a/b", "effect": effect, "timeAdded": time}}});
        let old = rule("NoExecute", "2020-01-02T03:04:05Z");
        for (effect, time, expected) in [
            ("NoExecute", "2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("None", "2020-01-02T03:04:05Z", "1970-01-01T00:00:00Z"),
            ("None", "2021-01-02T03:04:05Z", "2021-01-02T03:04:05Z"),
        ] {
            let mut new = rule(effect, time);
            taint_rule_prepare(&Context::ANY, &mut new, &old);
            assert_eq!(new["spec"]["taint"]["timeAdded"], expected, "{effect} {time}");
        }
    }

    #[test]
    fn extended_names() {
        for (name, expected) in [
            ("example.com/gpu", ""),
            ("cpu", "a name must be a domain-prefixed path, such as 'example.com/my-prop'"),
            ("requests.a/b", "must not have \"requests.\" prefix"),
            ("kubernetes.io/x", "must not have \"kubernetes.io/\" domain"),
        ] {
            let mut errors = ErrorList::new();
            extended_name(&mut errors, name, &Path::new("p"));
            assert_eq!(
                errors.iter().map(|error| error.detail.as_str()).collect::<Vec<_>>().join(" "),
                expected,
                "{name}"
            );
        }
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
