//! What every engine does: the [`Store`] trait and the values that go in and out of it.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::watch::Watch;

/// Number of a write: strictly increasing over the whole store, one per write, kept over restarts. An empty store is at 1,
/// as etcd is, because 0 means "any" to the API's clients.
pub type Revision = i64;

/// A key with its current value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The full key.
    pub key: String,
    /// The value as it was written.
    pub value: Bytes,
    /// Revision of the latest write.
    pub mod_revision: Revision,
    /// Revision of the write that created the key.
    pub create_revision: Revision,
    /// The value is not in the form in which it would be written now (an old encryption key, another encoding): an update
    /// that changes nothing is worth writing.
    pub stale: bool,
}

/// Which keys [`Store::list`] returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Only keys that start with this.
    pub prefix: String,
    /// Only keys that come after this one.
    pub start_after: Option<String>,
    /// At most so many items.
    pub limit: Option<usize>,
}

impl ListOptions {
    /// All keys that start with `prefix`.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }
}

/// Answer of [`Store::list`], items in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The keys and values.
    pub items: Vec<KeyValue>,
    /// The revision of the store that the listing shows: a watch from here misses nothing.
    pub revision: Revision,
    /// The limit cut the listing off.
    pub more: bool,
    /// How many keys match prefix and `start_after`, those cut off by the limit included.
    pub count: usize,
}

/// A change under a watched prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// A key was created (then its two revisions are equal) or updated; its `mod_revision` is the event's revision.
    Put(KeyValue),
    /// A key was deleted or expired.
    Delete {
        /// The key.
        key: String,
        /// Revision of the deletion.
        revision: Revision,
    },
    /// All changes up to this revision have been delivered; see [`Store::request_progress`].
    Progress(Revision),
}

impl WatchEvent {
    /// The revision at which the event happened.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(kv) => kv.mod_revision,
            Self::Delete { revision, .. } | Self::Progress(revision) => *revision,
        }
    }

    /// The key concerned.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Put(kv) => Some(&kv.key),
            Self::Delete { key, .. } => Some(key),
            Self::Progress(_) => None,
        }
    }
}

/// A versioned, watchable map. See the crate documentation for what all engines guarantee.
///
/// A write whose future is dropped before it resolves may or may not happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The current value of `key`.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>>;

    /// The keys under a prefix in order, at the current revision.
    async fn list(&self, options: ListOptions) -> Result<Listing>;

    /// Writes a key that must not exist: `Error::Exists` otherwise. With `ttl` the store deletes it after that time.
    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision>;

    /// Replaces the value if the key is still at revision `expected`: `Error::Conflict` otherwise. The time to live starts
    /// anew, or ends with `None`.
    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision>;

    /// Deletes the key if it is still at revision `expected`: `Error::Conflict` otherwise. Returns the deletion's revision.
    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision>;

    /// The changes under `prefix` after revision `from`: first those that already happened, then each new one.
    /// `Error::Compacted` if some of them are no longer known. Dropping the watch ends it.
    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch>;

    /// Makes every open watch deliver a [`WatchEvent::Progress`] at the current revision or later, after all changes up to
    /// it, so that a reader who waits for a revision is not kept waiting by a quiet prefix.
    async fn request_progress(&self) -> Result<()>;

    /// The revision of the latest durable write.
    async fn current_revision(&self) -> Result<Revision>;

    /// Forgets the history up to `revision`: watches from before it get `Error::Compacted`.
    async fn compact(&self, revision: Revision) -> Result<()>;

    /// Bytes that the store takes: on disk if it is there, of keys and values otherwise.
    async fn size(&self) -> Result<u64>;

    /// Writes a consistent copy of the current state (see [`crate::snapshot`]) and returns its revision. Writes go on meanwhile.
    async fn snapshot(&self, writer: &mut (dyn Write + Send)) -> Result<Revision>;

    /// Prefixes of keys that are in stores of their own, and those: their revisions have nothing to do with this store's.
    fn separate(&self) -> Vec<(String, Arc<dyn Store>)> {
        Vec::new()
    }
}
