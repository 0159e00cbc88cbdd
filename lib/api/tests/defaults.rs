//! Objects as they were sent to the real kube-apiserver v1.37.2 and as it answered them, without what it allocates.

use pintle_api::{defaults, schema};
use pintle_machinery::{
    codec::{TypeMeta, json},
    normalize::normalize,
    schema::Value,
};

/// What is not defaulting: allocated, or set by a strategy on creation.
const NOT_DEFAULTS: [(&str, &[&str]); 7] = [
    ("PersistentVolume", &["/metadata/finalizers"]),
    ("PersistentVolumeClaim", &["/metadata/finalizers", "/spec/dataSourceRef"]),
    ("VolumeAttributesClass", &["/metadata/finalizers"]),
    ("CSINode", &["/spec/drivers"]),
    (
        "Service",
        &[
            "/spec/clusterIP",
            "/spec/clusterIPs",
            "/spec/ipFamilies",
            "/spec/ipFamilyPolicy",
            "/spec/healthCheckNodePort",
        ],
    ),
    ("Job", &["/spec/selector", "/spec/template/metadata", "/metadata/labels"]),
    ("Namespace", &["/spec/finalizers"]),
];

fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(object)) = value.pointer_mut(parent) {
        object.remove(name);
    }
}

fn strip(kind: &str, value: &mut Value) {
    for pointer in ["/status", "/metadata/namespace", "/metadata/annotations"] {
        remove(value, pointer);
    }
    for (_, pointers) in NOT_DEFAULTS.iter().filter(|(of, _)| *of == kind) {
        pointers.iter().for_each(|pointer| remove(value, pointer));
    }
    if kind == "Service"
        && let Some(ports) = value.pointer_mut("/spec/ports").and_then(Value::as_array_mut)
    {
        ports.iter_mut().for_each(|port| remove(port, "/nodePort"));
    }
}

fn differences(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let (left, right) = (left.get(name).unwrap_or(&Value::Null), right.get(name).unwrap_or(&Value::Null));
                differences(&format!("{path}.{name}"), left, right, out);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            left.iter().zip(right).enumerate().for_each(|(at, (left, right))| {
                differences(&format!("{path}[{at}]"), left, right, out);
            });
        }
        (left, right) if left != right => out.push(format!("{path}: ours {left}, theirs {right}")),
        _ => {}
    }
}

#[test]
fn as_the_real_api_server() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).unwrap();
    assert!(cases.len() > 90);
    let mut found = Vec::new();
    for case in &cases {
        let mut theirs = case["defaulted"].clone();
        let meta = TypeMeta::of(&case["given"]);
        let (group, version) = meta.group_version();
        let ty = schema().kind(group, version, &meta.kind).unwrap();
        let sent = serde_json::to_vec(&case["given"]).unwrap();
        let decoded = json::decode(schema(), ty, &sent).unwrap();
        assert!(decoded.strict_errors.is_empty(), "{:?}", decoded.strict_errors);
        let mut ours = decoded.value;
        defaults::apply(ty, &mut ours);
        normalize(schema(), ty, &mut ours);
        let once = ours.clone();
        defaults::apply(ty, &mut ours);
        normalize(schema(), ty, &mut ours);
        assert_eq!(ours, once, "defaulting twice changes nothing");
        strip(&meta.kind, &mut ours);
        strip(&meta.kind, &mut theirs);
        differences(&meta.kind, &ours, &theirs, &mut found);
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}
