//! One object as the cache holds it: its JSON once, shared by all readers, and what selectors look at.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use pintle_store::Revision;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::registry::Rules;

/// An immutable object of one resource.
#[derive(Debug)]
pub struct Entry {
    /// Key in the store.
    pub key: Box<str>,
    /// Revision of the write that the bytes show (for a deleted object: of the deletion).
    pub revision: Revision,
    /// JSON of the storage version with `metadata.resourceVersion` in it.
    pub json: Bytes,
    /// Where `"metadata"` starts in `json`: list items have neither kind nor apiVersion.
    metadata_at: usize,
    /// Where the metadata ends.
    metadata_end: usize,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Selectable fields, metadata.name and metadata.namespace included.
    pub fields: BTreeMap<&'static str, String>,
    /// Protobuf form of the storage version, made on first use.
    pub protobuf: OnceLock<Bytes>,
}

impl Entry {
    /// Reads a stored value. Values that this server wrote are spliced, others are rewritten; `None`: it is no object.
    pub fn new(key: &str, revision: Revision, stored: &[u8], rules: &Rules) -> Option<Self> {
        let value: Value = serde_json::from_slice(stored).ok()?;
        let (json, metadata_at) = match splice(stored, revision) {
            Some(spliced) => spliced,
            None => splice(&serialize(&value), revision)?,
        };
        let labels = match &value["metadata"]["labels"] {
            Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().into())).collect(),
            _ => BTreeMap::new(),
        };
        let fields = fields_of(&value, rules);
        let metadata_end = object_end(&json, metadata_at);
        let protobuf = OnceLock::new();
        Some(Self { key: key.into(), revision, json, metadata_at, metadata_end, labels, fields, protobuf })
    }

    /// The same object at another revision: what a watcher gets when it leaves its view.
    pub fn at_revision(&self, revision: Revision) -> Self {
        let stored = without_revision(&self.json, self.metadata_at, self.revision);
        let (json, metadata_at) = splice(&stored, revision).unwrap_or((self.json.clone(), self.metadata_at));
        Self {
            key: self.key.clone(),
            revision,
            metadata_end: object_end(&json, metadata_at),
            json,
            metadata_at,
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            protobuf: OnceLock::new(),
        }
    }

    /// The object as an item of a list, without its opening brace, kind and apiVersion: `"metadata":…}`.
    pub fn item(&self) -> &[u8] {
        &self.json[self.metadata_at..]
    }

    /// The metadata alone: `{…}`.
    pub fn metadata(&self) -> &[u8] {
        &self.json[self.metadata_at + "\"metadata\":".len()..self.metadata_end]
    }

    /// The object as a value without the parts that no table shows.
    pub fn glance(&self) -> Value {
        glance(&self.json)
    }

    /// The object as a value.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// A stored object's bytes: kind, apiVersion and metadata lead, so that the revision can be put in without parsing.
pub fn serialize(object: &Value) -> Vec<u8> {
    // Writing into a Vec can't fail, and neither can a Value's keys, which are strings.
    serde_json::to_vec(&Ordered(object)).unwrap_or_default()
}

/// An object whose kind, apiVersion and metadata are written first.
pub struct Ordered<'a>(pub &'a Value);

const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];

impl serde::Serialize for Ordered<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(map) = self.0.as_object() else { return self.0.serialize(serializer) };
        let mut out = serializer.serialize_map(Some(map.len()))?;
        for name in FIRST {
            if let Some(value) = map.get(name) {
                out.serialize_entry(name, value)?;
            }
        }
        for (name, value) in map.iter().filter(|(name, _)| !FIRST.contains(&name.as_str())) {
            out.serialize_entry(name, value)?;
        }
        out.end()
    }
}

/// Stored bytes with the resource version put in, and where `"metadata"` starts. `None`: not in the form of [`serialize`].
pub fn splice(stored: &[u8], revision: Revision) -> Option<(Bytes, usize)> {
    const METADATA: &[u8] = b"\"metadata\":{";
    if !stored.starts_with(b"{\"kind\":\"") {
        return None;
    }
    let head = &stored[..stored.len().min(300)];
    let at = head.windows(METADATA.len()).position(|window| window == METADATA)?;
    let start = at + METADATA.len();
    let rest = &stored[start..];
    let text = format!("\"resourceVersion\":\"{revision}\"{}", if rest.starts_with(b"}") { "" } else { "," });
    let mut out = Vec::with_capacity(stored.len() + text.len());
    out.extend_from_slice(&stored[..start]);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(rest);
    Some((out.into(), at))
}

/// Where the first object that opens at or after `from` ends in well-formed JSON.
fn object_end(json: &[u8], from: usize) -> usize {
    let (mut depth, mut quoted, mut at) = (0_usize, false, from);
    while at < json.len() {
        match json[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    json.len()
}

/// JSON as a value without the parts of metadata and pods that no table shows and that make most of their size; they are skipped, not read.
pub fn glance(json: &[u8]) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(json);
    serde::de::DeserializeSeed::deserialize(Glance::Object, &mut reader).unwrap_or_default()
}

/// Where in an object a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Glance {
    /// The object, or a template in it.
    Object,
    Metadata,
    Spec,
    /// A list of containers, or one of them.
    Containers,
    /// Anywhere else: keys may be anybody's.
    Elsewhere,
}

impl Glance {
    /// The place of a field; none if it is skipped.
    fn field(self, name: &str) -> Option<Self> {
        Some(match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "spec") => Self::Spec,
            (Self::Spec, "template" | "jobTemplate") => Self::Object,
            (Self::Spec, "containers" | "initContainers" | "ephemeralContainers") => Self::Containers,
            (Self::Metadata, "managedFields") | (Self::Spec, "affinity" | "tolerations") => return None,
            (
                Self::Containers,
                "env" | "envFrom" | "volumeMounts" | "livenessProbe" | "readinessProbe" | "startupProbe" | "lifecycle",
            ) => return None,
            _ => Self::Elsewhere,
        })
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Glance {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Glance {
    type Value = Value;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        let place = if self == Self::Containers { self } else { Self::Elsewhere };
        while let Some(item) = items.next_element_seed(place)? {
            out.push(item);
        }
        Ok(out.into())
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = serde_json::Map::new();
        while let Some(key) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.field(&key) {
                None => drop(entries.next_value::<serde::de::IgnoredAny>()?),
                Some(place) => drop(out.insert(key.into_owned(), entries.next_value_seed(place)?)),
            }
        }
        Ok(out.into())
    }
}

fn without_revision(json: &[u8], metadata_at: usize, revision: Revision) -> Vec<u8> {
    let start = metadata_at + "\"metadata\":{".len();
    let text = format!("\"resourceVersion\":\"{revision}\"");
    let mut end = start;
    if json[start..].starts_with(text.as_bytes()) {
        end += text.len();
        if json.get(end) == Some(&b',') {
            end += 1;
        }
    }
    [&json[..start], &json[end..]].concat()
}

/// Values of the selectable fields of an object.
pub fn fields_of(object: &Value, rules: &Rules) -> BTreeMap<&'static str, String> {
    let own = rules.fields.iter().map(|field| {
        let value = match rules.field_value.and_then(|value| value(object, field)) {
            Some(value) => value,
            None => text_at(object, field),
        };
        (*field, value)
    });
    own.chain(["metadata.name", "metadata.namespace"].map(|field| (field, text_at(object, field)))).collect()
}

fn text_at(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |value, part| &value[part]) {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}},
               "data": {"metadata": {"z": "1"}}})
    }

    #[test]
    fn revision_is_spliced_and_exchanged() {
        let entry = Entry::new("/registry/pods/n/a", 7, &serialize(&pod()), &Rules::NONE).unwrap();
        assert_eq!(entry.value()["metadata"]["resourceVersion"], "7");
        assert!(
            entry.json.starts_with(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\",")
        );
        assert!(entry.item().starts_with(b"\"metadata\":{\"resourceVersion\":\"7\","));
        let later = entry.at_revision(12);
        let mut want = entry.value();
        want["metadata"]["resourceVersion"] = json!("12");
        assert_eq!(later.value(), want);
        assert_eq!(entry.labels["x"], "y");
        assert_eq!(entry.fields["metadata.name"], "a");
    }

    #[test]
    fn metadata_is_cut_out() {
        let mut object = pod();
        object["metadata"]["annotations"] = json!({"odd": "}\"{\\", "}": "{"});
        object["spec"] = json!({"affinity": {}, "nodeName": "n", "selector": {"env": "prod", "lifecycle": "x"},
            "template": {"spec": {"containers": [{"name": "c", "env": [{"a": 1}]}]}}});
        object["data"] = json!({"env": "1", "tolerations": "2", "managedFields": "3"});
        let entry = Entry::new("k", 7, &serialize(&object), &Rules::NONE).unwrap();
        let cut: Value = serde_json::from_slice(entry.metadata()).unwrap();
        assert_eq!(cut, entry.value()["metadata"]);
        let later: Value = serde_json::from_slice(entry.at_revision(1000).metadata()).unwrap();
        assert_eq!(later["resourceVersion"], "1000");
        let mut shown = entry.value();
        shown["spec"] = json!({"nodeName": "n", "selector": {"env": "prod", "lifecycle": "x"},
            "template": {"spec": {"containers": [{"name": "c"}]}}});
        assert_eq!(entry.glance(), shown);
    }

    #[test]
    fn foreign_bytes_are_rewritten() {
        let foreign = serde_json::to_vec(&pod()).unwrap();
        let entry = Entry::new("k", 3, &foreign, &Rules::NONE).unwrap();
        assert_eq!(entry.value()["metadata"]["resourceVersion"], "3");
        assert!(Entry::new("k", 3, b"\x00\x01", &Rules::NONE).is_none());
    }
}
