//! The key under which a controller finds an object.

use kube::{Resource, ResourceExt};

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, empty if the kind has none.
    pub ns: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(ns: impl Into<String>, name: impl Into<String>) -> Self {
        Self { ns: ns.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self { ns: object.namespace().unwrap_or_default(), name: object.name_any() }
    }

    /// The namespace as the caches want it.
    pub fn ns(&self) -> Option<&str> {
        Some(self.ns.as_str()).filter(|ns| !ns.is_empty())
    }
}
