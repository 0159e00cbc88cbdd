//! Paths to fields, and the faults found there.
//!
//! Wording follows upstream's field errors: clients show it and tests compare it.

use crate::{
    Value,
    status::{Cause, quoted},
};
use std::{collections::HashSet, fmt};

/// A path such as `spec.containers[0].ports[1].name` or `data[key]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// The path of a top-level field.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The empty path: the object itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A field below; several may be given with dots.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self([&self.0, ".", name].concat()) }
    }

    /// An entry of a list.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of a map.
    pub fn key(&self, key: &str) -> Self {
        Self([&self.0, "[", key, "]"].concat())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What sort of fault a [`FieldError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Refers to something that is not there.
    NotFound,
    /// Must be given.
    Required,
    /// Must be given once only.
    Duplicate,
    /// Breaks a rule.
    Invalid,
    /// Not one of the values known.
    NotSupported,
    /// Must not be given here or now.
    Forbidden,
    /// A string too long.
    TooLong,
    /// A list too long.
    TooMany,
    /// Our own trouble.
    Internal,
    /// A value of the wrong type.
    TypeInvalid,
}

impl Fault {
    /// The reason in a Status cause, and the words that start the message.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::TooLong => ("FieldValueTooLong", "Too long"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::Internal => ("InternalError", "Internal error"),
            Self::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// One fault at one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Sort of fault.
    pub fault: Fault,
    /// Where.
    pub field: String,
    /// The value found there.
    pub value: Value,
    /// How the value is shown, where not as its JSON.
    pub shown: Option<String>,
    /// More words.
    pub detail: String,
}

impl FieldError {
    /// From all parts.
    pub fn new(fault: Fault, path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { fault, field: path.to_string(), value: value.into(), shown: None, detail: detail.into() }
    }

    /// The same with other words for the value: Go's structs, for one, don't order their fields as JSON here does.
    pub fn shown_as(mut self, shown: impl Into<String>) -> Self {
        self.shown = Some(shown.into());
        self
    }

    /// The message without the field.
    pub fn body(&self) -> String {
        let mut text = self.fault.words().1.to_owned();
        if self.fault.shows_value() {
            text.push_str(": ");
            match (&self.shown, &self.value) {
                (Some(shown), _) => text.push_str(shown),
                (None, Value::String(value)) => text.push_str(&quoted(value)),
                (None, value) => text.push_str(&internal(value).to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// As a cause of a Status.
    pub fn cause(&self) -> Cause {
        Cause { reason: self.fault.words().0.into(), message: self.body(), field: self.field.clone() }
    }
}

/// What is at a path such as `spec.containers[0].name`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split(['.', '[']).try_fold(object, |value, step| match value {
        Value::Array(items) => items.get(step.strip_suffix(']')?.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// Sources of volumes whose fields have other names in upstream's internal structs.
const RENAMED: [(&str, &str, &str); 6] = [
    ("rbd", "monitors", "cephMonitors"),
    ("rbd", "image", "rbdImage"),
    ("rbd", "pool", "rbdPool"),
    ("rbd", "user", "radosUser"),
    ("glusterfs", "endpoints", "endpointsName"),
    ("azureDisk", "diskURI", "dataDiskURI"),
];

fn renamed(source: &str, value: &Value) -> Value {
    let Value::Object(fields) = internal(value) else { return value.clone() };
    let name = |name: String| {
        let row = RENAMED.iter().find(|(of, given, _)| *of == source && *given == name);
        row.map_or(name, |(_, _, shown)| (*shown).to_owned())
    };
    fields.into_iter().map(|(field, value)| (name(field), value)).collect()
}

/// A value as upstream's internal structs show it: an embedded object has its metadata's fields among its own, and no
/// version and kind.
fn internal(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(internal).collect(),
        Value::Object(fields) => {
            let embeds = ["metadata", "spec"].iter().any(|name| fields.get(*name).is_some_and(Value::is_object));
            let typed = fields.contains_key("apiVersion") && fields.contains_key("kind");
            let mut out = serde_json::Map::new();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("metadata", Value::Object(metadata)) => out.extend(metadata.clone()),
                    ("apiVersion" | "kind", _) if embeds && typed => {}
                    ("rbd" | "glusterfs" | "azureDisk", Value::Object(_)) => {
                        out.insert(name.clone(), renamed(name, value));
                    }
                    ("fieldsV1", Value::String(text)) => {
                        out.insert(name.clone(), serde_json::from_str(text).unwrap_or_default());
                    }
                    ("serviceAccount", Value::String(account)) if fields.contains_key("serviceAccountName") => {
                        out.insert("deprecatedServiceAccount".to_owned(), account.clone().into());
                    }
                    _ => drop(out.insert(name.clone(), internal(value))),
                }
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Faults in the order they were found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ErrorList(Vec<FieldError>);

impl ErrorList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }

    /// One more.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// All of another list.
    pub fn extend(&mut self, other: ErrorList) {
        self.0.extend(other.0);
    }

    /// The same without those that say the same of the same field again.
    pub fn once_each(self) -> Self {
        let mut seen = HashSet::new();
        self.into_iter().filter(|error| seen.insert(error.to_string())).collect()
    }

    /// Where the object at fault, as it was given, has an empty list or map, that is what is shown, not null.
    pub fn show_empty(&mut self, given: &Value) {
        let empty = |value: &Value| value == &Value::Array(Vec::new()) || value == &Value::Object(Default::default());
        for error in self.0.iter_mut().filter(|error| error.value.is_null() && error.shown.is_none()) {
            if let Some(value) = at(given, &error.field).filter(|value| empty(value)) {
                error.value = value.clone();
            }
        }
    }

    /// `Required value`.
    pub fn required(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::new(Fault::Required, path, Value::Null, detail));
    }

    /// `Invalid value: …`.
    pub fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::new(Fault::Invalid, path, value, detail));
    }

    /// `Invalid value: …` once for each of several details.
    pub fn invalid_each(&mut self, path: &Path, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(path, value, detail);
        }
    }

    /// `Forbidden`.
    pub fn forbidden(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::new(Fault::Forbidden, path, Value::Null, detail));
    }

    /// `Duplicate value: …`.
    pub fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(FieldError::new(Fault::Duplicate, path, value, ""));
    }

    /// `Not found: …`.
    pub fn not_found(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(FieldError::new(Fault::NotFound, path, value, ""));
    }

    /// `Unsupported value: …: supported values: …`, in the order given.
    pub fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        self.push(FieldError::new(Fault::NotSupported, path, value, detail));
    }

    /// `Too long: may not be more than … bytes`.
    pub fn too_long(&mut self, path: &Path, limit: usize) {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        self.push(FieldError::new(Fault::TooLong, path, Value::Null, format!("may not be more than {limit} {unit}")));
    }

    /// `Too many: …: must have at most … items`.
    pub fn too_many(&mut self, path: &Path, actual: usize, limit: usize) {
        let unit = if limit == 1 { "item" } else { "items" };
        self.push(FieldError::new(Fault::TooMany, path, actual, format!("must have at most {limit} {unit}")));
    }

    /// As causes of a Status: one each.
    pub fn causes(&self) -> Vec<Cause> {
        self.0.iter().map(FieldError::cause).collect()
    }
}

impl IntoIterator for ErrorList {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<FieldError> for ErrorList {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        Self(errors.into_iter().collect())
    }
}

/// One message alone, several in brackets; the same message is said once.
impl fmt::Display for ErrorList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen = HashSet::new();
        let messages: Vec<String> =
            self.0.iter().map(ToString::to_string).filter(|message| seen.insert(message.clone())).collect();
        match messages.as_slice() {
            [] => Ok(()),
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ApiError, GroupKind};
    use serde_json::json;

    #[test]
    fn bodies() {
        let path = Path::new("spec").child("ports").index(0).child("name");
        let mut errors = ErrorList::new();
        errors.required(&path, "");
        errors.required(&path, "must not be empty");
        errors.invalid(&path, "a\"b", "no");
        errors.invalid(&path, 5, "no");
        errors.invalid(&path, json!({"a": 1}), "no");
        errors.invalid(&path, Value::Null, "no");
        errors.not_supported(&path, "x", &["A", "B"]);
        errors.too_long(&path, 63);
        errors.too_many(&path, 5, 3);
        errors.duplicate(&path, "x");
        let bodies: Vec<String> = errors.iter().map(FieldError::body).collect();
        assert_eq!(
            bodies,
            [
                "Required value",
                "Required value: must not be empty",
                "Invalid value: \"a\\\"b\": no",
                "Invalid value: 5: no",
                "Invalid value: {\"a\":1}: no",
                "Invalid value: null: no",
                "Unsupported value: \"x\": supported values: \"A\", \"B\"",
                "Too long: may not be more than 63 bytes",
                "Too many: 5: must have at most 3 items",
                "Duplicate value: \"x\"",
            ]
        );
        assert_eq!(errors.iter().next().unwrap().field, "spec.ports[0].name");
    }

    #[test]
    fn embedded_objects_are_shown_as_internal_structs() {
        let claim = json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "v"}}]);
        let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "a"});
        let account = json!({"serviceAccount": "a", "serviceAccountName": "a"});
        let volume = json!({"rbd": {"image": "i", "fsType": "x"}});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"volumeClaim": claim}});
        let shown = |value: Value| FieldError::new(Fault::Invalid, &Path::root(), value, "no").body();
        assert_eq!(
            shown(template),
            r#"Invalid value: {"labels":{"a":"b"},"spec":{"volumeClaim":[{"spec":{"volumeName":"v"}}]}}: no"#
        );
        assert_eq!(shown(volume), r#"Invalid value: {"rbd":{"fsType":"x","rbdImage":"i"}}: no"#);
        assert_eq!(shown(account), r#"Invalid value: {"deprecatedServiceAccount":"a","serviceAccountName":"a"}: no"#);
        assert_eq!(shown(reference), r#"Invalid value: {"apiVersion":"v1","kind":"Pod","name":"a"}: no"#);
    }

    #[test]
    fn what_was_given_empty_is_shown_empty() {
        let given = json!({"spec": {"capacity": {}, "items": [{"scopes": []}], "name": "a"}});
        let mut errors = ErrorList::new();
        let paths = ["spec.capacity", "spec.items[0].scopes", "spec.items[1].scopes", "spec.name", "spec.other"];
        for path in paths {
            errors.invalid(&Path::new(path), Value::Null, "no");
        }
        errors.show_empty(&given);
        let shown: Vec<String> = errors.iter().map(|error| error.value.to_string()).collect();
        assert_eq!(shown, ["{}", "[]", "null", "null", "null"]);
    }

    #[test]
    fn status_lists_each_and_says_once() {
        let mut errors = ErrorList::new();
        errors.required(&Path::new("spec").child("a"), "");
        errors.required(&Path::new("spec").child("a"), "");
        errors.forbidden(&Path::new("data").key("k"), "no");
        let status = ApiError::invalid(&GroupKind::new("apps", "Deployment"), "x", errors).status();
        assert_eq!(
            status.message,
            "Deployment.apps \"x\" is invalid: [spec.a: Required value, data[k]: Forbidden: no]"
        );
        assert_eq!(status.details.unwrap().causes.len(), 3);
        let mut errors = ErrorList::new();
        ["a", "b", "a"].iter().for_each(|field| errors.required(&Path::new(field), ""));
        assert_eq!(errors.once_each().to_string(), "[a: Required value, b: Required value]");
    }
}
