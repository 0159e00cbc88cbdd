//! Patches and field ownership against what kube-apiserver v1.37 made of the same requests (golden/*.json).

use jiff::Timestamp;
use pintle_machinery::{
    Value,
    codec::json,
    defaults,
    managed_fields::{self, Write},
    normalize::normalize,
    patch,
};

struct Step<'a>(&'a Value);

impl Step<'_> {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn before(&self) -> Option<&Value> {
        Some(&self.0["before"]).filter(|before| !before.is_null())
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        let kind = self.0["after"]["kind"].as_str();
        match (kind, self.text("subresource")) {
            (Some("Deployment" | "Service"), "") => &["status"],
            (Some("Deployment"), "status") => &["spec", "metadata.labels"],
            _ => &[],
        }
    }
}

/// Without what differs by nature: times and what the server counts.
fn comparable(object: &Value, parts: &[&str]) -> Value {
    let mut out = serde_json::Map::new();
    for part in parts {
        out.insert((*part).to_owned(), object.pointer(part).cloned().unwrap_or(Value::Null));
    }
    let mut out = Value::Object(out);
    for entry in out.get_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
    }
    out
}

/// Fields whose defaults a kind's own rules give, or that the server allots after ownership is settled.
const RULED: [&str; 11] = [
    "defaultMode",
    "imagePullPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "targetPort",
    "replicas",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "resources",
];

fn without_ruled(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !RULED.contains(&key.as_str()));
            map.values_mut().for_each(without_ruled);
        }
        Value::Array(items) => items.iter_mut().for_each(without_ruled),
        _ => {}
    }
}

const CONTENT: [&str; 6] =
    ["/metadata/labels", "/metadata/annotations", "/metadata/finalizers", "/spec", "/data", "/status/conditions"];

#[test]
fn as_upstream() {
    check_all(include_str!("golden/writes.json"));
}

/// Directives where they do nothing or don't belong, items that can't be told apart, lists of none.
#[test]
fn odd_writes_as_upstream() {
    check_all(include_str!("golden/odd-writes.json"));
}

fn check_all(golden: &str) {
    let steps: Vec<Value> = serde_json::from_str(golden).expect("the golden file is JSON");
    let mut failures = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if let Err(difference) = check(&Step(step)) {
            failures.push(format!("step {index} ({} by {}): {difference}", step["op"], step["manager"]));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ\n{}", failures.len(), steps.len(), failures.join("\n"));
}

fn last_time(object: &Value) -> Timestamp {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let times = entries.filter_map(|entry| entry["time"].as_str()?.parse().ok());
    times.max().unwrap_or_default()
}

fn check(step: &Step<'_>) -> Result<(), String> {
    let schema = pintle_api::schema();
    let after = &step.0["after"];
    let sample = step.before().unwrap_or(if after["kind"] == "Status" { &step.0["body"] } else { after });
    let api_version = sample["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let ty = schema.kind(group, version, sample["kind"].as_str().unwrap_or_default()).ok_or("no such kind")?;
    let write = Write {
        schema,
        ty,
        manager: step.text("manager"),
        api_version,
        subresource: step.text("subresource"),
        reset_fields: step.reset_fields(),
        now: (step.text("subresource") != "scale").then(|| last_time(after)),
    };
    let old = step.before().cloned().unwrap_or_else(|| managed_fields::zero(schema, ty));
    let body = &step.0["body"];
    let bytes = body.to_string();
    let patched = match step.text("op") {
        "smp" => patch::strategic::apply(schema, ty, &old, bytes.as_bytes()),
        "merge" => patch::merge::apply(&old, bytes.as_bytes()),
        "json" => patch::json::apply(&old, bytes.as_bytes()),
        "apply" => managed_fields::apply(&write, &old, body, step.0["force"] == true),
        "create" => {
            let mut new = after.clone();
            new["metadata"].as_object_mut().expect("metadata").remove("managedFields");
            Ok(new)
        }
        _ => {
            let mut new = after.clone();
            new["metadata"]["managedFields"] = body["metadata"]["managedFields"].clone();
            Ok(new)
        }
    };
    let mut new = match patched {
        Ok(new) => new,
        Err(error) => {
            let status = error.status();
            let ours = (status.message.as_str(), serde_json::to_value(&status.details).unwrap_or_default());
            let theirs = (after["message"].as_str().unwrap_or_default(), after["details"].clone());
            return if ours == theirs { Ok(()) } else { Err(format!("ours: {ours:?}\ntheirs: {theirs:?}")) };
        }
    };
    if after["kind"] == "Status" {
        return Err(format!("we accept what upstream refuses: {}", after["message"]));
    }
    // As the server does, what the schema does not know goes.
    new = json::decode(schema, ty, json::with_fields_as_json(&new).to_string().as_bytes())
        .map_err(|error| error.to_string())?
        .value;
    defaults::apply(schema, ty, &mut new);
    normalize(schema, ty, &mut new);
    let mut owned = new.clone();
    if step.text("op") != "apply" {
        owned = after.clone();
        owned["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
        if step.before().is_none() && owned["kind"] == "Service" {
            let spec = owned["spec"].as_object_mut().expect("spec");
            spec.retain(|key, _| !key.starts_with("clusterIP") && !key.starts_with("ipFamil"));
        }
        managed_fields::update(&write, &old, &mut owned);
    }
    new["metadata"]["managedFields"] = owned["metadata"]["managedFields"].clone();
    let parts: Vec<&str> = match (step.text("op"), step.before()) {
        ("apply", None) => vec!["/metadata/managedFields"],
        _ => [&["/metadata/managedFields"], CONTENT.as_slice()].concat(),
    };
    let (mut ours, mut theirs) = (comparable(&json::with_fields_as_json(&new), &parts), comparable(after, &parts));
    for side in [&mut ours, &mut theirs] {
        side.as_object_mut().expect("an object").values_mut().for_each(without_ruled);
    }
    for part in parts {
        if ours[part] != theirs[part] {
            return Err(format!("{part}\n  ours:   {}\n  theirs: {}", ours[part], theirs[part]));
        }
    }
    Ok(())
}

/// What a patch takes away from where nothing was must not come to be.
#[test]
fn nulls_of_a_strategic_patch_are_not_values() {
    let schema = pintle_api::schema();
    let ty = schema.kind("", "v1", "Pod").unwrap();
    let pod = serde_json::json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "hostname": "h"}});
    let patch = br#"{"metadata":{"annotations":{"x":null}},"spec":{"nodeSelector":{"disk":null},"hostname":{"a":null},
        "containers":[{"name":"c","resources":{"limits":{"cpu":null}}}]}}"#;
    let patched = patch::strategic::apply(schema, ty, &pod, patch).unwrap();
    assert!(!patched.to_string().contains("null"), "{patched}");
    assert_eq!(patched["spec"]["nodeSelector"], serde_json::json!({}));
}
