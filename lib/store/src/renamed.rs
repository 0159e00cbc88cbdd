//! Keys that are kept under another prefix.

use std::borrow::Cow;
use std::sync::Arc;

use crate::contract::Store;
use crate::mapped::{Mapped, Mapping};

/// A store in which keys under one prefix are kept under another one.
pub type Renamed = Mapped<Names>;

/// The two prefixes.
pub struct Names {
    here: String,
    there: String,
}

impl Renamed {
    /// Keys under `here` are kept under `there`. Both end in a slash.
    pub fn under(inner: Arc<dyn Store>, here: &str, there: &str) -> Self {
        Self::new(inner, Names { here: here.into(), there: there.into() })
    }
}

impl Mapping for Names {
    fn key_there<'a>(&self, key: &'a str) -> Cow<'a, str> {
        match key.strip_prefix(&self.here) {
            Some(rest) => format!("{}{rest}", self.there).into(),
            None => key.into(),
        }
    }

    fn key_here(&self, key: String) -> String {
        match key.strip_prefix(&self.there) {
            Some(rest) => format!("{}{rest}", self.here),
            None => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ListOptions, WatchEvent};
    use crate::error::Error;
    use crate::memory::Memory;

    #[tokio::test]
    async fn keys_are_renamed_both_ways() {
        let inner = Arc::new(Memory::default());
        let store = Renamed::under(inner.clone(), "/registry/", "/other/place/");
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
