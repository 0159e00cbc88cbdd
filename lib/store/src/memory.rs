//! The model: the whole store in memory, gone with the process. For tests and for controller authors.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store};
use crate::error::{Error, Result};
use crate::history::Window;
use crate::snapshot;
use crate::state::{FIRST_REVISION, State, Write, now};
use crate::watch::Watch;

/// A store in memory. Clones are the same store.
#[derive(Debug, Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Wakes the expiry thread: a write may have brought the next expiry forward.
    timer: Condvar,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// The expiry thread is running.
    expiring: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Window::default())
    }
}

impl Memory {
    /// An empty store.
    pub fn new(window: Window) -> Self {
        let state = State::new(BTreeMap::new(), FIRST_REVISION, window);
        let inner = Mutex::new(Inner { state, expiring: false });
        Self { shared: Arc::new(Shared { inner, timer: Condvar::new() }) }
    }

    fn write(&self, write: Write) -> Result<Revision> {
        let mut inner = self.shared.inner.lock();
        let state = &mut inner.state;
        let revision = state.revision() + 1;
        let entry = write.decide(state.entry(&write.key), revision)?;
        let timed = entry.as_ref().is_some_and(|entry| entry.expires.is_some());
        state.apply(write.key, entry, revision);
        if timed && std::mem::replace(&mut inner.expiring, true) {
            self.shared.timer.notify_one();
        } else if timed {
            self.start_expiry()?;
        }
        Ok(revision)
    }

    /// Starts the thread that deletes expired keys. It ends when nothing is left to expire, or with the store.
    fn start_expiry(&self) -> Result<()> {
        let store = Arc::downgrade(&self.shared);
        let thread = std::thread::Builder::new().name("store-expiry".into());
        thread.spawn(move || while expire(&store) {}).map(drop).map_err(Error::io("start the expiry thread"))
    }
}

/// Longest sleep of the expiry thread, so that it notices the end of the store.
const NAP: Duration = Duration::from_secs(1);

/// Deletes what has expired and sleeps until the next is due; false when there is nothing more to do.
fn expire(store: &Weak<Shared>) -> bool {
    let Some(shared) = store.upgrade() else { return false };
    let mut inner = shared.inner.lock();
    let state = &mut inner.state;
    for write in state.expired(now(), usize::MAX) {
        let revision = state.revision() + 1;
        state.apply(write.key, None, revision);
    }
    let Some(due) = state.next_expiry() else {
        inner.expiring = false;
        return false;
    };
    let wait = Duration::from_millis(due.saturating_sub(now())).min(NAP);
    shared.timer.wait_for(&mut inner, wait);
    true
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        Ok(self.shared.inner.lock().state.get(key))
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        Ok(self.shared.inner.lock().state.list(&options))
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        self.write(Write::create(key, value, ttl))
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        self.write(Write::update(key, value, expected, ttl))
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        self.write(Write::delete(key, expected))
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        self.shared.inner.lock().state.watch(prefix, from)
    }

    async fn request_progress(&self) -> Result<()> {
        self.shared.inner.lock().state.progress();
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        Ok(self.shared.inner.lock().state.revision())
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.shared.inner.lock().state.compact(revision);
        Ok(())
    }

    async fn size(&self) -> Result<u64> {
        Ok(self.shared.inner.lock().state.bytes() as u64)
    }

    async fn snapshot(&self, writer: &mut (dyn io::Write + Send)) -> Result<Revision> {
        let copy = snapshot::Snapshot::of(&self.shared.inner.lock().state);
        copy.write(writer)
    }
}
