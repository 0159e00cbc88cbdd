//! Devices and requests for them: in v1beta1 flat or wrapped where v1 is the other.

use serde_json::{Map, Value, json};

/// What a request for devices of one class says, and v1 has in a field of its own.
const EXACTLY: [&str; 8] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
];

/// v1beta1 into v1 (and v1beta2, which has the same form).
pub fn to_v1(object: &mut Value) {
    requests(object, |request| {
        let taken = take(request, |key| EXACTLY.contains(&key));
        if taken.values().any(|value| !is_nothing(value)) {
            request.insert("exactly".into(), Value::Object(taken));
        }
    });
    devices(object, |device| {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    });
}

/// The way back.
pub fn from_v1(object: &mut Value) {
    requests(object, |request| {
        if let Some(Value::Object(exactly)) = request.remove("exactly") {
            request.extend(exactly);
        }
        request.entry("deviceClassName").or_insert_with(|| json!(""));
    });
    devices(object, |device| {
        let basic = take(device, |key| key != "name");
        device.insert("basic".into(), Value::Object(basic));
    });
}

/// Every request of a claim, or of a claim's template.
fn requests(object: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    let Some(mut inner) = object.get_mut("spec") else { return };
    if inner.get("spec").is_some() {
        inner = &mut inner["spec"];
    }
    let list = inner.get_mut("devices").and_then(|devices| devices.get_mut("requests"));
    let list = list.and_then(Value::as_array_mut).into_iter().flatten();
    list.filter_map(Value::as_object_mut).for_each(&mut change);
}

/// Every device of a slice.
fn devices(object: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    let devices = object.get_mut("spec").and_then(|spec| spec.get_mut("devices")).and_then(Value::as_array_mut);
    devices.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut change);
}

/// Takes the fields of an object whose names are chosen.
fn take(object: &mut Map<String, Value>, chosen: impl Fn(&str) -> bool) -> Map<String, Value> {
    let (taken, left) = std::mem::take(object).into_iter().partition(|(key, _)| chosen(key));
    *object = left;
    taken
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_both_ways() {
        let flat = json!({"spec": {"devices": {"requests": [
            {"name": "a", "deviceClassName": "c", "allocationMode": "All"},
            {"name": "b", "deviceClassName": "", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}]}}});
        let v1 = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}]}}});
        let mut object = flat.clone();
        to_v1(&mut object);
        assert_eq!(object, v1);
        from_v1(&mut object);
        assert_eq!(object, flat);
        let mut template = json!({"spec": {"metadata": {}, "spec": flat["spec"]}});
        to_v1(&mut template);
        assert_eq!(template["spec"]["spec"], v1["spec"]);
    }

    #[test]
    fn devices_go_both_ways() {
        let wrapped = json!({"spec": {"devices": [{"name": "d", "basic": {"attributes": {"x": {"int": 1}}}},
                                                   {"name": "e", "basic": {}}]}});
        let v1 = json!({"spec": {"devices": [{"name": "d", "attributes": {"x": {"int": 1}}}, {"name": "e"}]}});
        let mut object = wrapped.clone();
        to_v1(&mut object);
        assert_eq!(object, v1);
        from_v1(&mut object);
        assert_eq!(object, wrapped);
    }
}
