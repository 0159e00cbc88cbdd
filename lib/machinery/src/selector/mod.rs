//! Label and field selectors: their text, their object form, and whether they match.

pub mod field;
pub mod label;

/// Text values by key: the labels of an object.
pub trait Lookup {
    /// The value of a key, if there is one.
    fn lookup(&self, key: &str) -> Option<&str>;
}

impl Lookup for std::collections::BTreeMap<String, String> {
    fn lookup(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl Lookup for serde_json::Map<String, crate::Value> {
    fn lookup(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(crate::Value::as_str)
    }
}

impl<T: Lookup + ?Sized> Lookup for &T {
    fn lookup(&self, key: &str) -> Option<&str> {
        (**self).lookup(key)
    }
}

impl<T: Lookup> Lookup for Option<T> {
    fn lookup(&self, key: &str) -> Option<&str> {
        self.as_ref().and_then(|labels| labels.lookup(key))
    }
}

/// A selector that can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
