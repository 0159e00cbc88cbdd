//! A store on top of another one that keeps other keys or values: renamed, encrypted, in another encoding.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store, WatchEvent};
use crate::error::{Error, Result};
use crate::watch::Watch;

/// What is kept of a key and a value. What a mapping does not say stays as it is.
#[async_trait]
pub trait Mapping: Send + Sync + 'static {
    /// The key, or the start of keys, under which it is kept.
    fn key_there<'a>(&self, key: &'a str) -> Cow<'a, str> {
        key.into()
    }

    /// The key that a kept one stands for.
    fn key_here(&self, key: String) -> String {
        key
    }

    /// The value as it is kept under this key.
    async fn value_there(&self, _key: &str, value: &Bytes) -> Result<Bytes> {
        Ok(value.clone())
    }

    /// The value that a kept one stands for; the key is already the one here. A value that would be kept otherwise today is marked
    /// [`stale`](KeyValue::stale).
    async fn value_here(&self, kv: KeyValue) -> Result<KeyValue> {
        Ok(kv)
    }

    /// The same for a watch, which also brings what was [`written`](Self::written) here.
    async fn watched(&self, kv: KeyValue) -> Result<KeyValue> {
        self.value_here(kv).await
    }

    /// This value was written at that revision.
    fn written(&self, _revision: Revision, _value: Bytes) {}
}

/// A store whose keys and values are kept in another one.
pub struct Mapped<M> {
    inner: Arc<dyn Store>,
    pub(crate) mapping: Arc<M>,
}

impl<M: Mapping> Mapped<M> {
    /// On top of `inner`.
    pub fn new(inner: Arc<dyn Store>, mapping: M) -> Self {
        Self { inner, mapping: Arc::new(mapping) }
    }

    async fn here(&self, mut kv: KeyValue) -> Result<KeyValue> {
        kv.key = self.mapping.key_here(kv.key);
        self.mapping.value_here(kv).await
    }

    async fn answered<T>(&self, answer: Result<T>) -> Result<T> {
        Err(match answer {
            Err(Error::Exists { key }) => Error::Exists { key: self.mapping.key_here(key) },
            Err(Error::Conflict { current: Some(kv) }) => Error::Conflict { current: Some(self.here(kv).await?) },
            other => return other,
        })
    }
}

/// One value that can't be read must not keep all others from being seen: it stays as it is kept.
fn unless_unreadable(kv: &mut KeyValue, read: Result<KeyValue>) {
    match read {
        Ok(read) => *kv = read,
        Err(error) => tracing::error!(key = kv.key, %error, "stored value can not be read"),
    }
}

#[async_trait]
impl<M: Mapping> Store for Mapped<M> {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        match self.inner.get(&self.mapping.key_there(key)).await? {
            Some(kv) => self.here(kv).await.map(Some),
            None => Ok(None),
        }
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        let there = |key: &str| self.mapping.key_there(key).into_owned();
        let options = ListOptions {
            prefix: there(&options.prefix),
            start_after: options.start_after.as_deref().map(there),
            limit: options.limit,
        };
        let mut listing = self.inner.list(options).await?;
        for kv in &mut listing.items {
            kv.key = self.mapping.key_here(std::mem::take(&mut kv.key));
            let read = self.mapping.value_here(kv.clone()).await;
            unless_unreadable(kv, read);
        }
        Ok(listing)
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        let kept = self.mapping.value_there(key, &value).await?;
        let created = self.inner.create(&self.mapping.key_there(key), kept, ttl).await;
        let revision = self.answered(created).await?;
        self.mapping.written(revision, value);
        Ok(revision)
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        let kept = self.mapping.value_there(key, &value).await?;
        let updated = self.inner.update(&self.mapping.key_there(key), kept, expected, ttl).await;
        let revision = self.answered(updated).await?;
        self.mapping.written(revision, value);
        Ok(revision)
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        let deleted = self.inner.delete(&self.mapping.key_there(key), expected).await;
        self.answered(deleted).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        let mapping = self.mapping.clone();
        let changes = self.inner.watch(&mapping.key_there(prefix), from).await?;
        Ok(Watch::new(changes.then(move |event| {
            let mapping = mapping.clone();
            async move {
                Ok(match event? {
                    WatchEvent::Put(mut kv) => {
                        kv.key = mapping.key_here(kv.key);
                        let read = mapping.watched(kv.clone()).await;
                        unless_unreadable(&mut kv, read);
                        WatchEvent::Put(kv)
                    }
                    WatchEvent::Delete { key, revision } => WatchEvent::Delete { key: mapping.key_here(key), revision },
                    progress => progress,
                })
            }
        })))
    }

    async fn request_progress(&self) -> Result<()> {
        self.inner.request_progress().await
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.inner.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    /// The copy has keys and values as they are kept.
    async fn snapshot(&self, writer: &mut (dyn Write + Send)) -> Result<Revision> {
        self.inner.snapshot(writer).await
    }
}
