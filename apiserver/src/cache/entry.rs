//! One object as the cache holds it: its JSON once, shared by all readers, and what selectors look at.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes};
use pintle_machinery::codec::json;
use pintle_machinery::selector::Lookup;
use pintle_store::Revision;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::registry::Rules;

/// An immutable object of one resource. Its bytes are the store's own: the resource version is put in when they are written
/// out.
#[derive(Debug)]
pub struct Entry {
    /// Key in the store.
    pub key: Box<str>,
    /// Revision of the write that the bytes show (for a deleted object: of the deletion).
    pub revision: Revision,
    /// JSON of the storage version in the form of [`serialize`], without `metadata.resourceVersion`.
    stored: Bytes,
    /// Where `"metadata"` starts in it: list items have neither kind nor apiVersion.
    metadata_at: usize,
    /// Where the metadata ends.
    metadata_end: usize,
    /// Where it is told who owns which field, which is much and rarely wanted.
    managed: Range<usize>,
    /// Labels.
    pub labels: Texts<Box<str>>,
    /// Selectable fields, metadata.name and metadata.namespace included.
    pub fields: Texts<&'static str>,
    /// Protobuf form of the storage version, made on first use.
    pub protobuf: OnceLock<Bytes>,
    /// The object as a value, for those that ask for it again and again.
    parsed: OnceLock<Arc<Value>>,
}

/// A few texts by name. Maps would take many times the room.
#[derive(Debug, Clone)]
pub struct Texts<K>(Box<[(K, Box<str>)]>);

impl<K: AsRef<str>> Texts<K> {
    /// The text of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other.as_ref() == name).map(|(_, text)| &**text)
    }
}

impl<K: AsRef<str>> Lookup for Texts<K> {
    fn lookup(&self, key: &str) -> Option<&str> {
        self.get(key)
    }
}

/// Who owns which field.
const MANAGED: &str = "managedFields";
/// How metadata starts.
const METADATA: &str = "\"metadata\":{";

impl Entry {
    /// Reads a stored value. Values that this server wrote are shared, others are rewritten; `None`: it is no object.
    pub fn new(key: &str, revision: Revision, stored: Bytes, rules: &Rules) -> Option<Self> {
        let (stored, metadata_at) = match metadata_of(&stored) {
            Some(at) => (stored, at),
            None => {
                let rewritten = Bytes::from(serialize(&serde_json::from_slice(&stored).ok()?));
                let at = metadata_of(&rewritten)?;
                (rewritten, at)
            }
        };
        let (metadata_end, managed) = json::spans(&stored, metadata_at + METADATA.len() - 1, MANAGED)?;
        let marks = json::parse_parts(&stored, Place::Marks, managed.clone()).ok()?;
        let labels = marks["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(name, value)| (name.as_str().into(), value.as_str().unwrap_or_default().into()));
        let labels = Texts(labels.collect());
        let fields = fields_of(&marks, rules);
        let (protobuf, parsed) = (OnceLock::new(), OnceLock::new());
        let key = key.into();
        Some(Self { key, revision, stored, metadata_at, metadata_end, managed, labels, fields, protobuf, parsed })
    }

    /// The same object at another revision: what a watcher gets when it leaves its view.
    pub fn at_revision(&self, revision: Revision) -> Self {
        Self {
            key: self.key.clone(),
            revision,
            stored: self.stored.clone(),
            metadata_at: self.metadata_at,
            metadata_end: self.metadata_end,
            managed: self.managed.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            protobuf: OnceLock::new(),
            parsed: OnceLock::new(),
        }
    }

    /// About how many bytes it is as JSON.
    pub fn size(&self) -> usize {
        self.stored.len() + "\"resourceVersion\":\"1234567890\",".len()
    }

    /// Writes the object as JSON.
    pub fn write(&self, out: &mut impl BufMut) {
        self.write_range(0, self.stored.len(), out);
    }

    /// Writes the object as an item of a list, without its opening brace, kind and apiVersion: `"metadata":…}`.
    pub fn write_item(&self, out: &mut impl BufMut) {
        self.write_range(self.metadata_at, self.stored.len(), out);
    }

    /// Writes the metadata alone: `{…}`.
    pub fn write_metadata(&self, out: &mut impl BufMut) {
        self.write_range(self.metadata_at + METADATA.len() - 1, self.metadata_end, out);
    }

    fn write_range(&self, from: usize, to: usize, out: &mut impl BufMut) {
        let at = self.metadata_at + METADATA.len();
        out.put_slice(&self.stored[from..at]);
        out.put_slice(version(self.revision, &self.stored[at..]).as_bytes());
        out.put_slice(&self.stored[at..to]);
    }

    /// The object as a value without the parts that no table shows.
    pub fn glance(&self) -> Value {
        self.versioned(glance(&self.stored, self.managed.clone()))
    }

    /// The object as a value.
    pub fn value(&self) -> Value {
        self.versioned(serde_json::from_slice(&self.stored).unwrap_or_default())
    }

    /// The same, parsed once and kept. For kinds of few objects.
    pub fn shared(&self) -> Arc<Value> {
        self.parsed.get_or_init(|| Arc::new(self.value())).clone()
    }

    fn versioned(&self, mut value: Value) -> Value {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), self.revision.to_string().into());
        }
        value
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

/// Stored bytes with the resource version put in. `None`: not in the form of [`serialize`].
pub fn splice(stored: &[u8], revision: Revision) -> Option<Bytes> {
    let at = metadata_of(stored)? + METADATA.len();
    let (head, rest) = stored.split_at(at);
    Some([head, version(revision, rest).as_bytes(), rest].concat().into())
}

/// Where `"metadata"` starts in stored bytes. `None`: not in the form of [`serialize`].
fn metadata_of(stored: &[u8]) -> Option<usize> {
    if !stored.starts_with(b"{\"kind\":\"") {
        return None;
    }
    let head = &stored[..stored.len().min(300)];
    head.windows(METADATA.len()).position(|window| window == METADATA.as_bytes())
}

/// The resource version as the first field of metadata that go on with `rest`.
fn version(revision: Revision, rest: &[u8]) -> String {
    format!("\"resourceVersion\":\"{revision}\"{}", if rest.starts_with(b"}") { "" } else { "," })
}

/// JSON as a value without the parts of metadata and pods that no table shows and that make most of their size. The managed fields may
/// be known to be at a place.
pub fn glance(json: &[u8], managed: Range<usize>) -> Value {
    json::parse_parts(json, Place::Object, managed).unwrap_or_default()
}

/// Where in an object a reader is, and so what it wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// What tables show of the object, or of a template in it.
    Object,
    Metadata,
    Spec,
    /// A list of containers, or one of them.
    Containers,
    /// Anywhere else: keys may be anybody's.
    Elsewhere,
    /// What selectors look at of the object: labels, and scalars at the top and one level below.
    Marks,
    MarkedMetadata,
    MarkedPart,
    /// Nothing but a scalar is wanted.
    Scalar,
}

impl json::Place for Place {
    fn field(self, name: &str) -> Option<Self> {
        Some(match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "spec") => Self::Spec,
            (Self::Spec, "template" | "jobTemplate") => Self::Object,
            (Self::Spec, "containers" | "initContainers" | "ephemeralContainers") => Self::Containers,
            (Self::Metadata, MANAGED) | (Self::Spec, "affinity" | "tolerations" | "volumes") => return None,
            (Self::Containers, "name" | "image" | "restartPolicy") => Self::Elsewhere,
            (Self::Containers, _) => return None,
            (Self::Marks, "metadata") => Self::MarkedMetadata,
            (Self::Marks, "data" | "binaryData") | (Self::Scalar, _) => return None,
            (Self::Marks, _) => Self::MarkedPart,
            (Self::MarkedMetadata, "labels") => Self::Elsewhere,
            (Self::MarkedMetadata | Self::MarkedPart, _) => Self::Scalar,
            _ => Self::Elsewhere,
        })
    }

    fn item(self) -> Option<Self> {
        match self {
            Self::Containers => Some(Self::Containers),
            Self::Marks | Self::MarkedMetadata | Self::MarkedPart | Self::Scalar => None,
            _ => Some(Self::Elsewhere),
        }
    }
}

/// Values of the selectable fields of an object.
pub fn fields_of(object: &Value, rules: &Rules) -> Texts<&'static str> {
    let own = rules.fields.iter().map(|field| {
        let value = match rules.field_value.and_then(|value| value(object, field)) {
            Some(value) => value,
            None => text_at(object, field),
        };
        (*field, value.into_boxed_str())
    });
    let named = ["metadata.name", "metadata.namespace"].map(|field| (field, text_at(object, field).into_boxed_str()));
    Texts(own.chain(named).collect())
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

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn revision_is_spliced_and_exchanged() {
        let entry = Entry::new("/registry/pods/n/a", 7, serialize(&pod()).into(), &Rules::NONE).unwrap();
        assert_eq!(entry.value()["metadata"]["resourceVersion"], "7");
        let json = written(|out| entry.write(out));
        assert!(json.starts_with("{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\","));
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), entry.value());
        assert_eq!(splice(&serialize(&pod()), 7).unwrap(), json);
        let item = written(|out| entry.write_item(out));
        assert!(item.starts_with("\"metadata\":{\"resourceVersion\":\"7\",") && json.ends_with(&item));
        let bare = Entry::new("k", 7, serialize(&json!({"kind": "K", "metadata": {}})).into(), &Rules::NONE).unwrap();
        assert_eq!(written(|out| bare.write(out)), "{\"kind\":\"K\",\"metadata\":{\"resourceVersion\":\"7\"}}");
        let later = entry.at_revision(12);
        let mut want = entry.value();
        want["metadata"]["resourceVersion"] = json!("12");
        assert_eq!(later.value(), want);
        assert_eq!(entry.labels.get("x"), Some("y"));
        assert_eq!(entry.fields.get("metadata.name"), Some("a"));
    }

    #[test]
    fn selectors_see_what_they_saw_in_the_whole_object() {
        let mut object = pod();
        object["spec"] = json!({"nodeName": "n", "containers": [{"nodeName": "x"}], "a": {"nodeName": "y"}});
        object["status"] = json!({"phase": "Running", "podIPs": [{"ip": "1"}]});
        object["type"] = json!("t");
        let marks = json::parse_parts(&serialize(&object), Place::Marks, 0..0).unwrap();
        let metadata = json!({"name": "a", "namespace": "n", "labels": {"x": "y"}});
        let spec = json!({"nodeName": "n", "containers": null, "a": {}});
        let status = json!({"phase": "Running", "podIPs": null});
        let want = json!({"apiVersion": "v1", "kind": "Pod", "type": "t", "metadata": metadata, "spec": spec, "status": status});
        assert_eq!(marks, want);
    }

    #[test]
    fn metadata_is_cut_out() {
        let mut object = pod();
        object["metadata"]["annotations"] = json!({"odd": "}\"{\\", "}": "{"});
        object["spec"] = json!({"affinity": {}, "nodeName": "n", "selector": {"env": "prod", "lifecycle": "x"},
            "template": {"spec": {"containers": [{"name": "c", "env": [{"a": 1}]}]}}});
        object["data"] = json!({"env": "1", "tolerations": "2", "managedFields": "3"});
        let entry = Entry::new("k", 7, serialize(&object).into(), &Rules::NONE).unwrap();
        let cut: Value = serde_json::from_str(&written(|out| entry.write_metadata(out))).unwrap();
        assert_eq!(cut, entry.value()["metadata"]);
        let later = entry.at_revision(1000);
        let later: Value = serde_json::from_str(&written(|out| later.write_metadata(out))).unwrap();
        assert_eq!(later["resourceVersion"], "1000");
        let mut shown = entry.value();
        shown["spec"] = json!({"nodeName": "n", "selector": {"env": "prod", "lifecycle": "x"},
            "template": {"spec": {"containers": [{"name": "c"}]}}});
        assert_eq!(entry.glance(), shown);
    }

    #[test]
    fn foreign_bytes_are_rewritten() {
        let foreign = serde_json::to_vec(&pod()).unwrap();
        let entry = Entry::new("k", 3, foreign.into(), &Rules::NONE).unwrap();
        assert_eq!(entry.value()["metadata"]["resourceVersion"], "3");
        assert!(Entry::new("k", 3, Bytes::from_static(b"\x00\x01"), &Rules::NONE).is_none());
    }
}
