//! A store whose keys are kept under another prefix in another store.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store, WatchEvent};
use crate::error::{Error, Result};
use crate::watch::Watch;

/// Keys under `ours` here are keys under `theirs` there.
pub struct Renamed {
    inner: Arc<dyn Store>,
    names: Arc<Names>,
}

struct Names {
    ours: String,
    theirs: String,
}

impl Names {
    fn there(&self, key: &str) -> String {
        exchange(key, &self.ours, &self.theirs)
    }

    fn here(&self, key: &str) -> String {
        exchange(key, &self.theirs, &self.ours)
    }

    fn kv(&self, mut kv: KeyValue) -> KeyValue {
        kv.key = self.here(&kv.key);
        kv
    }

    fn error(&self, error: Error) -> Error {
        match error {
            Error::Exists { key } => Error::Exists { key: self.here(&key) },
            Error::Conflict { current } => Error::Conflict { current: current.map(|kv| self.kv(kv)) },
            other => other,
        }
    }
}

fn exchange(key: &str, from: &str, to: &str) -> String {
    match key.strip_prefix(from) {
        Some(rest) => format!("{to}{rest}"),
        None => key.to_owned(),
    }
}

impl Renamed {
    /// Both prefixes end in a slash.
    pub fn new(inner: Arc<dyn Store>, ours: &str, theirs: &str) -> Self {
        Self { inner, names: Arc::new(Names { ours: ours.into(), theirs: theirs.into() }) }
    }
}

#[async_trait]
impl Store for Renamed {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        Ok(self.inner.get(&self.names.there(key)).await?.map(|kv| self.names.kv(kv)))
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        let start_after = options.start_after.map(|key| self.names.there(&key));
        let options = ListOptions { prefix: self.names.there(&options.prefix), start_after, limit: options.limit };
        let mut listing = self.inner.list(options).await?;
        listing.items = listing.items.into_iter().map(|kv| self.names.kv(kv)).collect();
        Ok(listing)
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        self.inner.create(&self.names.there(key), value, ttl).await.map_err(|error| self.names.error(error))
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        let result = self.inner.update(&self.names.there(key), value, expected, ttl).await;
        result.map_err(|error| self.names.error(error))
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        self.inner.delete(&self.names.there(key), expected).await.map_err(|error| self.names.error(error))
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        let names = self.names.clone();
        let changes = self.inner.watch(&self.names.there(prefix), from).await?;
        Ok(Watch::new(changes.map(move |event| {
            event.map(|event| match event {
                WatchEvent::Put(kv) => WatchEvent::Put(names.kv(kv)),
                WatchEvent::Delete { key, revision } => WatchEvent::Delete { key: names.here(&key), revision },
                progress => progress,
            })
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

    /// The copy has the keys as they are there.
    async fn snapshot(&self, writer: &mut (dyn io::Write + Send)) -> Result<Revision> {
        self.inner.snapshot(writer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[tokio::test]
    async fn keys_are_renamed_both_ways() {
        let inner = Arc::new(Memory::default());
        let store = Renamed::new(inner.clone(), "/registry/", "/other/place/");
        let mut watch = store.watch("/registry/", 1).await.expect("watch");
        let revision = store.create("/registry/a/b", "x".into(), None).await.expect("create");
        assert!(inner.get("/other/place/a/b").await.expect("get").is_some());
        inner.create("/registry/a/foreign", "x".into(), None).await.expect("create");
        let kv = store.get("/registry/a/b").await.expect("get").expect("there");
        assert_eq!(kv.key, "/registry/a/b");
        let options = ListOptions { start_after: Some("/registry/a/a".into()), ..ListOptions::prefix("/registry/a/") };
        assert_eq!(store.list(options).await.expect("list").items, std::slice::from_ref(&kv));
        assert_eq!(watch.recv().await.expect("open").expect("ok"), WatchEvent::Put(kv));
        let exists = store.create("/registry/a/b", "x".into(), None).await.expect_err("exists");
        assert!(matches!(exists, Error::Exists { key } if key == "/registry/a/b"));
        let conflict = store.delete("/registry/a/b", 1).await.expect_err("conflict");
        assert!(matches!(conflict, Error::Conflict { current: Some(kv) } if kv.key == "/registry/a/b"));
        let deleted = store.delete("/registry/a/b", revision).await.expect("delete");
        let event = watch.recv().await.expect("open").expect("ok");
        assert_eq!(event, WatchEvent::Delete { key: "/registry/a/b".into(), revision: deleted });
    }
}
