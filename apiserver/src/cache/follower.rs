//! The one task that follows the store and feeds all caches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use parking_lot::RwLock;
use pintle_store::{Error, ListOptions, Revision, Store, Watch, WatchEvent};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::entry::Entry;
use super::snapshot::Snapshot;
use super::{Cache, Change};

/// Prefix of all keys.
pub const ROOT: &str = "/registry/";
/// Changes that are published together at most.
const BATCH: usize = 512;
/// Pause before the store is asked again after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// A revision that has not come by itself within this time is asked for.
const ASK_AFTER: Duration = Duration::from_millis(20);
/// How long a consistent read waits for the cache.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a cache that is added is filled anew because others write.
const FILL_TRIES: usize = 100;

/// All caches by key prefix, and how far they are.
pub struct Caches {
    by_prefix: RwLock<Arc<BTreeMap<String, Arc<Cache>>>>,
    store: Arc<dyn Store>,
    revision: watch::Sender<Revision>,
}

impl Caches {
    /// Caches for these; [`Caches::run`] fills them.
    pub fn new(store: Arc<dyn Store>, caches: impl IntoIterator<Item = Arc<Cache>>) -> Self {
        let by_prefix = caches.into_iter().map(|cache| (cache.prefix.clone(), cache)).collect();
        Self { by_prefix: RwLock::new(Arc::new(by_prefix)), store, revision: watch::channel(0).0 }
    }

    /// One more cache, filled when this returns.
    ///
    /// It gets every change from the moment it is entered; a listing that is older than one of them is made again.
    pub async fn add(&self, cache: Arc<Cache>) -> Result<(), Error> {
        self.change_map(|map| drop(map.insert(cache.prefix.clone(), cache.clone())));
        for _ in 0..FILL_TRIES {
            let listing = self.store.list(ListOptions::prefix(&*cache.prefix)).await?;
            let items = listing.items.into_iter();
            let entries = items.filter_map(|kv| read(&kv.key, kv.mod_revision, kv.value, &cache)).collect();
            if cache.fill(Snapshot::from_sorted(entries), listing.revision) {
                return Ok(());
            }
        }
        self.remove(&cache.prefix);
        Err(Error::Storage(format!("{} changed faster than it could be read", cache.prefix)))
    }

    /// Forgets a cache.
    pub fn remove(&self, prefix: &str) {
        self.change_map(|map| drop(map.remove(prefix)));
    }

    fn change_map(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Cache>>)) {
        let mut map = self.by_prefix.write();
        change(Arc::make_mut(&mut map));
    }

    /// All changes up to here have been published.
    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Waits until the first listing is in the caches.
    pub async fn ready(&self) {
        let _ = self.revision.subscribe().wait_for(|revision| *revision > 0).await;
    }

    /// Waits until the caches show what the store held when this was called; the revision that they have then.
    pub async fn consistent(&self) -> Result<Revision, Error> {
        let current = self.store.current_revision().await?;
        if self.revision() >= current {
            return Ok(self.revision());
        }
        match self.wait_for(current).await {
            Some(revision) => Ok(revision),
            None => Err(Error::Storage("the watch cache did not reach the current revision in time".into())),
        }
    }

    /// Waits (bounded) until the caches have reached a revision. A revision of which the watch brings nothing, because it
    /// belongs to keys of others, is asked for.
    pub async fn wait_for(&self, revision: Revision) -> Option<Revision> {
        let mut receiver = self.revision.subscribe();
        let end = tokio::time::Instant::now() + READ_TIMEOUT;
        while tokio::time::Instant::now() < end {
            let wait = receiver.wait_for(|reached| *reached >= revision);
            let reached = tokio::time::timeout(ASK_AFTER, wait).await.map(|reached| reached.map(|reached| *reached));
            match reached {
                Ok(Ok(reached)) => return Some(reached),
                Ok(Err(_)) => return None,
                Err(_) => self.store.request_progress().await.ok()?,
            }
        }
        None
    }

    /// Follows the store until shutdown.
    pub async fn run(&self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let followed = tokio::select! {
                result = self.follow() => result,
                () = shutdown.cancelled() => return,
            };
            match followed {
                Err(Error::Closed) => return,
                Err(error) => warn!(%error, "following the store failed, listing again"),
                Ok(()) => debug!("the store ended the watch, listing again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow(&self) -> Result<(), Error> {
        let listing = self.store.list(ListOptions::prefix(ROOT)).await?;
        let items = listing.items.into_iter().map(|kv| (kv.key, kv.mod_revision, kv.value));
        self.load(items, listing.revision);
        let mut watch = self.store.watch(ROOT, listing.revision).await?;
        while let Some(event) = watch.recv().await {
            self.publish(event?, &mut watch)?;
        }
        Ok(())
    }

    fn load(&self, items: impl Iterator<Item = (String, Revision, Bytes)>, revision: Revision) {
        let mut by_cache: BTreeMap<&str, Vec<Arc<Entry>>> = BTreeMap::new();
        let map = self.map();
        for (key, mod_revision, value) in items {
            let Some(cache) = cache_of(&map, &key) else { continue };
            if let Some(entry) = read(&key, mod_revision, value, cache) {
                by_cache.entry(&cache.prefix).or_default().push(entry);
            }
        }
        for (prefix, cache) in map.iter() {
            let entries = by_cache.remove(prefix.as_str()).unwrap_or_default();
            cache.reset(Snapshot::from_sorted(entries), revision);
        }
        self.revision.send_replace(revision);
    }

    /// Publishes an event and those that are already queued behind it.
    fn publish(&self, first: WatchEvent, watch: &mut Watch) -> Result<(), Error> {
        let map = self.map();
        let mut changes: BTreeMap<&str, (&Arc<Cache>, Vec<Change>)> = BTreeMap::new();
        let mut newest = 0;
        let mut next = Some(Ok(first));
        let mut failed = Ok(());
        let mut taken = 0;
        while let Some(event) = next.take() {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            };
            newest = newest.max(event.revision());
            if let Some((cache, change)) = change(&map, event) {
                changes.entry(&cache.prefix).or_insert_with(|| (cache, Vec::new())).1.push(change);
            }
            taken += 1;
            if taken < BATCH {
                next = watch.recv().now_or_never().flatten();
            }
        }
        for (cache, changes) in changes.into_values() {
            cache.apply(changes);
        }
        self.revision.send_if_modified(|revision| {
            let raised = newest > *revision;
            *revision = newest.max(*revision);
            raised
        });
        failed
    }

    fn map(&self) -> Arc<BTreeMap<String, Arc<Cache>>> {
        self.by_prefix.read().clone()
    }
}

fn change(map: &BTreeMap<String, Arc<Cache>>, event: WatchEvent) -> Option<(&Arc<Cache>, Change)> {
    match event {
        WatchEvent::Put(kv) => {
            let cache = cache_of(map, &kv.key)?;
            Some((cache, Change::Put(read(&kv.key, kv.mod_revision, kv.value, cache)?)))
        }
        WatchEvent::Delete { key, revision, .. } => {
            let cache = cache_of(map, &key)?;
            Some((cache, Change::Delete { key, revision }))
        }
        WatchEvent::Progress(_) => None,
    }
}

/// An entry of a stored value; one that is no object is left out.
fn read(key: &str, revision: Revision, value: Bytes, cache: &Cache) -> Option<Arc<Entry>> {
    let entry = Entry::new(key, revision, value, cache.rules).map(Arc::new);
    if entry.is_none() {
        warn!(key, "stored value is not an object, left out");
    }
    entry
}

fn cache_of<'a>(map: &'a BTreeMap<String, Arc<Cache>>, key: &str) -> Option<&'a Arc<Cache>> {
    let (prefix, cache) = map.range::<str, _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
    key.starts_with(prefix.as_str()).then_some(cache)
}
