//! Upstream's golden files: k8s.io/api ships each kind in JSON, YAML and protobuf, of this release and earlier ones.
//! Decoding and encoding must give the same bytes. Skipped, and said so, where the Go module is not in the cache.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use pintle_api::{resources, schema};
use pintle_machinery::{
    codec::{TypeMeta, json, protobuf, yaml},
    normalize::normalize,
    schema::Value,
};

const MODULE: &str = "k8s.io/api@v0.37.2";

fn testdata() -> Option<PathBuf> {
    let out = Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    let folder = Path::new(String::from_utf8(out.stdout).ok()?.trim()).join(MODULE).join("testdata");
    folder.is_dir().then_some(folder)
}

/// JSON without the spaces between its tokens.
fn compact(text: &[u8]) -> Vec<u8> {
    let (mut out, mut quoted, mut escaped) = (Vec::new(), false, false);
    for &byte in text {
        if quoted || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
        if byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && byte == b'\\' && !escaped;
    }
    out
}

struct Sample {
    name: String,
    folder: PathBuf,
}

impl Sample {
    /// What the sample is after a round trip: of older releases there is a file of its own where it differs.
    fn expected(&self, format: &str) -> Vec<u8> {
        let after = self.folder.join(format!("{}.after_roundtrip.{format}", self.name));
        std::fs::read(after).unwrap_or_else(|_| self.given(format))
    }

    fn given(&self, format: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(format!("{}.{format}", self.name))).unwrap()
    }

    fn check(&self) -> Result<(), String> {
        let given = self.given("json");
        let meta = json::type_meta(&given).map_err(|error| error.to_string())?;
        let (group, version) = meta.group_version();
        let ty = schema().kind(group, version, &meta.kind).ok_or("no such kind")?;
        let decoded = json::decode(schema(), ty, &given).map_err(|error| error.to_string())?;
        let mut value = decoded.value;
        normalize(schema(), ty, &mut value);
        let mut text = Vec::new();
        json::encode(schema(), ty, &value, &mut text);
        same_text("json", &text, &compact(&self.expected("json")))?;

        let decoded = protobuf::decode(schema(), &self.given("pb")).map_err(|error| error.to_string())?;
        let mut from_protobuf = decoded.value;
        normalize(schema(), ty, &mut from_protobuf);
        same_value("protobuf", &from_protobuf, &value)?;
        let bytes = protobuf::encode(schema(), &value).map_err(|error| error.to_string())?;
        if bytes != self.expected("pb") {
            let again = protobuf::decode(schema(), &bytes).map_err(|error| error.to_string())?;
            same_value("own protobuf", &again.value, &value)?;
            return Err("protobuf: other bytes of the same value".to_owned());
        }

        let decoded = yaml::decode(schema(), ty, &self.given("yaml")).map_err(|error| error.to_string())?;
        let mut from_yaml = decoded.value;
        normalize(schema(), ty, &mut from_yaml);
        same_value("yaml", &from_yaml, &value)
    }
}

fn same_text(what: &str, ours: &[u8], theirs: &[u8]) -> Result<(), String> {
    let at = ours.iter().zip(theirs).take_while(|(left, right)| left == right).count();
    if at == ours.len() && at == theirs.len() {
        return Ok(());
    }
    let around =
        |text: &[u8]| String::from_utf8_lossy(&text[at.saturating_sub(60)..text.len().min(at + 40)]).into_owned();
    Err(format!("{what}: ours …{}… theirs …{}…", around(ours), around(theirs)))
}

fn same_value(what: &str, ours: &Value, theirs: &Value) -> Result<(), String> {
    let write = |value: &Value| {
        let mut text = Vec::new();
        json::encode_any(value, &mut text);
        text
    };
    same_text(what, &write(ours), &write(theirs))
}

/// The kinds that are served, with group and version, as the golden files are named.
fn served() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for resource in resources() {
        let kinds = resource.subresources.iter().map(|sub| sub.kind.clone()).chain([resource.gvk()]);
        for kind in kinds {
            let group = if kind.group.is_empty() { "core" } else { &kind.group };
            names.insert(format!("{group}.{}.{}", kind.version, kind.kind));
        }
    }
    names
}

fn samples(folder: &Path) -> Vec<Sample> {
    let served = served();
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .filter(|name| served.contains(name))
        .collect();
    names.sort();
    names.into_iter().map(|name| Sample { name, folder: folder.to_owned() }).collect()
}

#[test]
fn every_kind_of_every_release() {
    let Some(testdata) = testdata() else {
        eprintln!("skipped: {MODULE} is not in the Go module cache");
        return;
    };
    let mut failures = Vec::new();
    let mut checked = 0;
    for release in ["HEAD", "v1.36.0", "v1.35.0", "v1.34.0", "v1.33.0"] {
        let samples = samples(&testdata.join(release));
        assert!(samples.len() > 60, "{release} has few samples: {}", samples.len());
        for sample in samples {
            checked += 1;
            if let Err(error) = sample.check() {
                failures.push(format!("{release} {}: {error}", sample.name));
            }
        }
    }
    println!("{checked} samples");
    assert!(failures.is_empty(), "{} of {checked}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn protobuf_round_trip_of_an_empty_object() {
    let value: Value = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
    let bytes = protobuf::encode(schema(), &value).unwrap();
    let envelope = protobuf::envelope(&bytes).unwrap();
    assert_eq!(envelope.type_meta, TypeMeta { api_version: "v1".into(), kind: "Pod".into() });
    let ty = schema().kind("", "v1", "Pod").unwrap();
    let mut decoded = protobuf::decode(schema(), &bytes).unwrap().value;
    let mut normal = value;
    normalize(schema(), ty, &mut decoded);
    normalize(schema(), ty, &mut normal);
    assert_eq!(decoded, normal);
}
