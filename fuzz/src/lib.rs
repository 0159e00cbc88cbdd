//! Fuzz targets: a function each that takes bytes and must neither panic nor take unbounded time or memory. What can be written
//! again after it was read must read as the same.
//!
//! `fuzz/run TARGET SECONDS` runs one guided by coverage; the crate's tests run the corpus and mutations of it in every `hack/test`.

use jiff::Timestamp;
use pintle_machinery::Value;
use pintle_machinery::codec::{cbor, json, protobuf, yaml};
use pintle_machinery::managed_fields::{self, Write};
use pintle_machinery::patch;
use pintle_machinery::quantity::{self, Quantity};
use pintle_machinery::schema::{Schema, StructType, text};
use pintle_machinery::selector::{field, label};

/// A function under test.
pub type Target = fn(&[u8]);

/// All of them by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("json", json_object),
    ("yaml", yaml_object),
    ("protobuf", protobuf_object),
    ("cbor", cbor_object),
    ("json-patch", json_patch),
    ("merge-patch", merge_patch),
    ("strategic-patch", strategic_patch),
    ("apply", apply),
    ("selector", selector),
    ("quantity", quantity),
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

fn schema() -> &'static Schema {
    pintle_api::schema()
}

/// A kind with lists of all sorts, maps, unions, quantities and times.
fn pod() -> &'static StructType {
    // It is part of every version's table.
    schema().kind("", "v1", "Pod").unwrap_or_else(|| unreachable!("Pod is built in"))
}

fn json_object(bytes: &[u8]) {
    if let Ok(decoded) = json::decode(schema(), pod(), bytes) {
        let mut once = Vec::new();
        json::encode(schema(), pod(), &decoded.value, &mut once);
        let again = json::decode(schema(), pod(), &once);
        let again = again.unwrap_or_else(|error| panic!("what was written is not read: {error}"));
        let mut twice = Vec::new();
        json::encode(schema(), pod(), &again.value, &mut twice);
        assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&twice));
    }
}

fn yaml_object(bytes: &[u8]) {
    let _ = yaml::decode(schema(), pod(), bytes);
}

fn protobuf_object(bytes: &[u8]) {
    // Without the envelope, so that the fuzzer need not find it.
    if let Ok(value) = protobuf::decode_message(schema(), pod(), bytes) {
        let Ok(written) = protobuf::encode_message(schema(), pod(), &value) else { return };
        let again = protobuf::decode_message(schema(), pod(), &written);
        let again = again.unwrap_or_else(|error| panic!("what was written is not read: {error}"));
        assert_eq!(protobuf::encode_message(schema(), pod(), &again).ok(), Some(written));
    }
    let _ = protobuf::decode(schema(), bytes);
}

fn cbor_object(bytes: &[u8]) {
    let _ = cbor::type_meta(bytes);
    if let Ok(value) = cbor::parse(bytes) {
        // No kind is known, so that nothing is left out.
        let Ok(nothing) = text::parse(&[]) else { return };
        let written = cbor::encode(&nothing, None, &value);
        assert_eq!(cbor::parse(&written).ok(), Some(value));
    }
    if let Ok(decoded) = cbor::decode(schema(), pod(), bytes) {
        let written = cbor::encode(schema(), Some(pod()), &decoded.value);
        let again = cbor::decode(schema(), pod(), &written);
        let again = again.unwrap_or_else(|error| panic!("what was written is not read: {error}"));
        assert_eq!(cbor::encode(schema(), Some(pod()), &again.value), written);
    }
}

/// A document and a patch: the text before and after the first zero byte. Without one, the patch is for a document of ours.
fn document_and_patch(bytes: &[u8]) -> (Value, &[u8]) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (serde_json::from_slice(&bytes[..at]).unwrap_or_default(), &bytes[at + 1..]),
        None => (sample(), bytes),
    }
}

fn sample() -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x", "y"]},
        "spec": {
            "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1, "protocol": "TCP"}], "env": [{"name": "E", "value": "1"}]},
                           {"name": "b", "image": "j"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

fn json_patch(bytes: &[u8]) {
    let (document, patch) = document_and_patch(bytes);
    let _ = patch::json::apply(&document, patch);
}

fn merge_patch(bytes: &[u8]) {
    let (document, patch) = document_and_patch(bytes);
    if let Ok(once) = patch::merge::apply(&document, patch) {
        // RFC 7396: applied again it changes nothing.
        assert_eq!(patch::merge::apply(&once, patch).ok(), Some(once));
    }
}

fn strategic_patch(bytes: &[u8]) {
    let (document, patch) = document_and_patch(bytes);
    let _ = patch::strategic::apply(schema(), pod(), &document, patch);
}

fn apply(bytes: &[u8]) {
    let (live, config) = document_and_patch(bytes);
    let Ok(decoded) = json::decode(schema(), pod(), config) else { return };
    let Ok(live) = json::decode(schema(), pod(), live.to_string().as_bytes()) else { return };
    let write = Write {
        schema: schema(),
        ty: pod(),
        manager: "fuzz",
        api_version: "v1",
        subresource: "",
        reset_fields: &["status"],
        now: Some(Timestamp::UNIX_EPOCH),
    };
    if let Ok(once) = managed_fields::apply(&write, &live.value, &decoded.value, true) {
        // Applied again it changes nothing.
        let twice = managed_fields::apply(&write, &once, &decoded.value, true);
        assert_eq!(twice.ok(), Some(once));
    }
}

fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(selector) = label::Selector::parse(text) {
        let written = selector.to_string();
        // Nothing but an empty value is written as no value, as upstream writes it, and that is not read.
        if written.contains("()") {
            return;
        }
        assert_eq!(label::Selector::parse(&written).map(|again| again.to_string()).ok(), Some(written));
    }
    let _ = field::Selector::parse(text);
}

fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(canonical) = quantity::canonical(text) {
        assert_eq!(quantity::canonical(&canonical).ok(), Some(canonical.clone()));
        if let (Ok(one), Ok(other)) = (text.parse::<Quantity>(), canonical.parse::<Quantity>()) {
            assert_eq!(one.value(), other.value());
        }
    }
}
