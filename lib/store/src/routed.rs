//! Some keys in stores of their own, each with revisions of its own (kube-apiserver's `--etcd-servers-overrides`).

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store};
use crate::error::Result;
use crate::watch::Watch;

/// A store of whose keys some are kept elsewhere. Lists and watches of a prefix that is not within one that is kept elsewhere show the
/// main store's keys alone: who wants the others asks for [`Store::separate`].
pub struct Routed {
    main: Arc<dyn Store>,
    separate: Vec<(String, Arc<dyn Store>)>,
}

impl Routed {
    /// Keys under these prefixes are in these stores, all others in `main`.
    pub fn new(main: Arc<dyn Store>, separate: Vec<(String, Arc<dyn Store>)>) -> Self {
        Self { main, separate }
    }

    fn of(&self, key: &str) -> &Arc<dyn Store> {
        let found = self.separate.iter().find(|(prefix, _)| key.starts_with(prefix));
        found.map_or(&self.main, |(_, store)| store)
    }
}

#[async_trait]
impl Store for Routed {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        self.of(key).get(key).await
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        self.of(&options.prefix).list(options).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        self.of(key).create(key, value, ttl).await
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        self.of(key).update(key, value, expected, ttl).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        self.of(key).delete(key, expected).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        self.of(prefix).watch(prefix, from).await
    }

    async fn request_progress(&self) -> Result<()> {
        self.main.request_progress().await
    }

    async fn current_revision(&self) -> Result<Revision> {
        self.main.current_revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.main.compact(revision).await
    }

    async fn size(&self) -> Result<u64> {
        let mut size = self.main.size().await?;
        for (_, store) in &self.separate {
            size += store.size().await?;
        }
        Ok(size)
    }

    async fn snapshot(&self, writer: &mut (dyn Write + Send)) -> Result<Revision> {
        self.main.snapshot(writer).await
    }

    fn separate(&self) -> Vec<(String, Arc<dyn Store>)> {
        self.separate.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[tokio::test]
    async fn each_key_is_where_it_belongs() {
        let (main, events) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
        let store = Routed::new(main.clone(), vec![("/registry/events/".into(), events.clone())]);
        for at in 0..3 {
            store.create(&format!("/registry/pods/{at}"), "p".into(), None).await.unwrap();
        }
        let mut watch = store.watch("/registry/events/", 1).await.unwrap();
        let revision = store.create("/registry/events/e", "e".into(), None).await.unwrap();
        assert_eq!(revision, 2, "its revisions are its own");
        assert_eq!(store.current_revision().await.unwrap(), 4);
        assert_eq!(watch.recv().await.unwrap().unwrap().revision(), 2);
        let revision = store.update("/registry/events/e", "f".into(), revision, None).await.unwrap();
        assert!(main.get("/registry/events/e").await.unwrap().is_none());
        assert_eq!(store.get("/registry/events/e").await.unwrap().unwrap().value, "f");
        assert_eq!(store.list(ListOptions::prefix("/registry/")).await.unwrap().items.len(), 3);
        assert_eq!(store.list(ListOptions::prefix("/registry/events/")).await.unwrap().items.len(), 1);
        store.delete("/registry/events/e", revision).await.unwrap();
        assert!(events.get("/registry/events/e").await.unwrap().is_none());
        assert_eq!(store.separate().len(), 1);
    }
}
