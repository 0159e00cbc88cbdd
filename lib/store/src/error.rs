//! What can go wrong in a store.

use std::path::PathBuf;

use crate::contract::{KeyValue, Revision};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key to create is there already.
    #[error("key exists: {key}")]
    Exists {
        /// The key.
        key: String,
    },
    /// The key is not at the expected revision; nothing was written.
    #[error("key is not at the expected revision: {}", describe(.current.as_ref()))]
    Conflict {
        /// What the key holds now; `None` if it does not exist.
        current: Option<KeyValue>,
    },
    /// The history asked for is no longer known.
    #[error("revision {requested} has been compacted, the oldest to watch from is {oldest}")]
    Compacted {
        /// Where the watch should have started.
        requested: Revision,
        /// The oldest revision to watch from.
        oldest: Revision,
    },
    /// The watcher did not keep up with the changes and was cut off; it has to list again.
    #[error("watcher fell behind and was cut off")]
    Lagged,
    /// The value or key is larger than the store takes.
    #[error("{what} of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Key or value.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Another process has the data directory open.
    #[error("data directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The data on disk can't be read: what is damaged and what to do about it.
    #[error("{} is damaged: {reason}; restore a snapshot, or move the file away to start empty", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A snapshot can't be read.
    #[error("not a valid snapshot: {0}")]
    BadSnapshot(String),
    /// The store takes no writes at present, because there is no room; reads go on. It recovers when there is room.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// The store can't be opened as configured.
    #[error("{0}")]
    Config(String),
    /// A value can't be encrypted or decrypted.
    #[error("encryption at rest: {0}")]
    Encryption(String),
    /// The disk failed; whether the write happened is not known until the store is opened again.
    #[error("storage failed: {0}")]
    Storage(String),
    /// Reading or writing a file failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The store has been shut down.
    #[error("store is closed")]
    Closed,
}

impl Error {
    /// An I/O error with what was being done.
    pub(crate) fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }
}

fn describe(current: Option<&KeyValue>) -> String {
    match current {
        Some(kv) => format!("{} is at {}", kv.key, kv.mod_revision),
        None => "it does not exist".into(),
    }
}
