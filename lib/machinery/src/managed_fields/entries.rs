//! The entries of `metadata.managedFields` and their form on the wire.

use super::set::FieldSet;
use crate::{Value, time};
use jiff::Timestamp;
use serde_json::{Map, json};

/// The most Update entries kept; older ones are put together.
const MAX_UPDATE_ENTRIES: usize = 10;
/// Who owns what the entries put together owned.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub manager: String,
    /// How.
    pub operation: Operation,
    /// In which version the fields are named.
    pub api_version: String,
    /// Through which subresource; empty for the object itself.
    pub subresource: String,
    /// When last.
    pub time: Option<Timestamp>,
    /// What.
    pub fields: FieldSet,
}

impl Entry {
    fn decode(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Self {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: time::parse(&text("time")),
            fields: FieldSet::decode(entry.get("fieldsV1")?),
        })
    }

    fn encode(&self) -> Value {
        let mut out = Map::new();
        out.insert("manager".into(), self.manager.as_str().into());
        let operation = if self.operation == Operation::Apply { "Apply" } else { "Update" };
        out.insert("operation".into(), operation.into());
        out.insert("apiVersion".into(), self.api_version.as_str().into());
        if let Some(time) = self.time {
            out.insert("time".into(), time::format(time).into());
        }
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.fields.encode());
        if !self.subresource.is_empty() {
            out.insert("subresource".into(), self.subresource.as_str().into());
        }
        Value::Object(out)
    }
}

fn list(object: &Value) -> Option<&Vec<Value>> {
    object.pointer("/metadata/managedFields").and_then(Value::as_array)
}

/// The entries of an object; none if one of them is malformed.
pub fn of(object: &Value) -> Vec<Entry> {
    let entries: Option<Vec<Entry>> = list(object).into_iter().flatten().map(Entry::decode).collect();
    entries.unwrap_or_default()
}

/// The entries that a request sets itself, an explicit reset included.
pub fn of_request(object: &Value) -> Option<Vec<Entry>> {
    let given = list(object).filter(|given| !given.is_empty())?;
    if given.len() == 1 && given[0] == json!({}) {
        return Some(Vec::new());
    }
    let entries: Option<Vec<Entry>> = given.iter().map(Entry::decode).collect();
    entries.filter(|entries| !entries.is_empty())
}

/// Removes the entries from an object.
pub fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Gives an object the entries of another as they are.
pub fn carry_over(from: &Value, to: &mut Value) {
    strip(to);
    if let (Some(given), Some(metadata)) = (list(from), to.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("managedFields".into(), given.clone().into());
    }
}

/// Puts entries into an object, in order, without empty ones.
pub fn put(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        let time = |entry: &Entry| entry.time.map(Timestamp::as_second);
        (a.operation, time(a), &a.manager, &a.api_version, &a.subresource).cmp(&(
            b.operation,
            time(b),
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    strip(object);
    if entries.is_empty() {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".into(), entries.iter().map(Entry::encode).collect());
    }
}

/// Puts the oldest Update entries together when there are too many.
pub fn cap(entries: &mut Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    while entries.iter().filter(|entry| entry.operation == Operation::Update).count() > MAX_UPDATE_ENTRIES {
        let oldest = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.operation == Operation::Update && entry.manager != ANCIENT)
            .min_by_key(|(_, entry)| (entry.time, entry.manager.clone()))
            .map(|(index, _)| index);
        let Some(oldest) = oldest else { return };
        let old = entries.remove(oldest);
        let same = |entry: &&mut Entry| entry.manager == ANCIENT && entry.api_version == old.api_version;
        match entries.iter_mut().find(same) {
            Some(ancient) => {
                ancient.fields = std::mem::take(&mut ancient.fields).union(old.fields);
                ancient.time = ancient.time.max(old.time);
            }
            None => entries.push(Entry { manager: ANCIENT.into(), subresource: String::new(), ..old }),
        }
    }
}
