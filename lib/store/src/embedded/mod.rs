//! The engine on disk: one directory, one process, no server.
//!
//! All current values are in memory too, and reads are answered from there. Writes go to one writer thread, which decides
//! them in order, puts all that are waiting into one transaction of the database ([`disk`]), and only when that is durable
//! makes them visible and acknowledges them: many writers share one sync. The disk holds the current state and the revision;
//! history is in memory, so a watch can start at the revision at which the store was opened, or later. A file that has become
//! mostly free space is replaced by a compact one, built beside it while writes go on ([`rewrite`]). A full disk refuses
//! writes with [`Error::ReadOnly`] until there is room; reads go on.

#[cfg(test)]
mod crash;
mod disk;
mod fail;
#[cfg(test)]
mod faults;
mod rewrite;
mod writer;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::oneshot;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store};
use crate::error::{Error, Result};
use crate::history::Window;
use crate::snapshot::Snapshot;
use crate::state::{State, Write};
use crate::watch::Watch;
use disk::Disk;
use writer::{Request, Writer};

/// The database in the data directory.
const DATABASE: &str = "store.redb";
/// Held as long as the store is open.
const LOCK: &str = "lock";

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk.
    #[default]
    Sync,
    /// At once; it is on the disk within a second. A crash of the process or the machine loses the writes of at most the
    /// last second; revisions that were given out are never given out again. For tests and throw-away clusters.
    Relaxed,
}

/// How to open an [`Embedded`] store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// When a write is acknowledged.
    pub durability: Durability,
    /// How much history watches can start in.
    pub window: Window,
    /// A file of at least this many bytes is written anew when most of it is free space.
    pub rewrite_from: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::default(), window: Window::default(), rewrite_from: 16 << 20 }
    }
}

/// A store in a directory. Dropping it writes out what is pending and closes the directory.
#[derive(Debug)]
pub struct Embedded {
    state: Arc<RwLock<State>>,
    path: PathBuf,
    /// `None` only while dropping.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    _lock: Option<File>,
}

impl Embedded {
    /// Opens the store in `dir`, which is created if it does not exist. Blocks until all values are read.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let (lock, path) = prepare(dir.as_ref())?;
        if !path.exists() {
            disk::create(&path, &Snapshot::empty())?;
        }
        let disk = Disk::new(disk::file(path.clone()), disk::directory(path.clone()), path.clone());
        Self::start(disk, path, Some(lock), options)
    }

    /// Makes a new store in `dir` out of a snapshot. `bump` is added to the revision, so that clients that saw later
    /// revisions than the snapshot's find theirs in the past. Refuses to overwrite a store.
    pub fn restore(dir: impl AsRef<Path>, snapshot: &Snapshot, bump: Revision) -> Result<()> {
        let (_lock, path) = prepare(dir.as_ref())?;
        if path.exists() {
            let exists = io::Error::new(io::ErrorKind::AlreadyExists, "there is a store already");
            return Err(Error::io(format!("restore into {}", path.display()))(exists));
        }
        let mut snapshot = snapshot.clone();
        snapshot.revision += bump;
        disk::create(&path, &snapshot)
    }

    fn start(mut disk: Disk, path: PathBuf, lock: Option<File>, options: Options) -> Result<Self> {
        let loaded = disk.load()?;
        tracing::debug!(keys = loaded.keys(), revision = loaded.revision(), "store opened");
        let state = Arc::new(RwLock::new(State::new(loaded.entries, loaded.revision, options.window)));
        let (requests, incoming) = mpsc::channel();
        let writer = Writer::new(state.clone(), disk, incoming, options)?;
        let thread = std::thread::Builder::new().name("store-writer".into());
        let writer = thread.spawn(move || writer.run()).map_err(Error::io("start the writer thread"))?;
        Ok(Self { state, path, requests: Some(requests), writer: Some(writer), _lock: lock })
    }

    async fn write(&self, write: Write) -> Result<Revision> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(Error::Closed)?;
        requests.send(Request { write, reply }).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests = None;
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("store writer panicked");
        }
        self.state.write().close();
    }
}

/// Makes and locks the data directory; returns the lock and the path of the database.
fn prepare(dir: &Path) -> Result<(File, PathBuf)> {
    let context = |what: &str| format!("{what} {}", dir.display());
    std::fs::create_dir_all(dir).map_err(Error::io(context("create data directory")))?;
    let lock = OpenOptions::new().create(true).write(true).truncate(false).open(dir.join(LOCK));
    let lock = lock.map_err(Error::io(context("open the lock file in")))?;
    match lock.try_lock() {
        Ok(()) => Ok((lock, dir.join(DATABASE))),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(dir.into())),
        Err(TryLockError::Error(source)) => Err(Error::io(context("lock data directory"))(source)),
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        Ok(self.state.read().get(key))
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        Ok(self.state.read().list(&options))
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        self.write(Write::create(key, value, ttl)).await
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        self.write(Write::update(key, value, expected, ttl)).await
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        self.write(Write::delete(key, expected)).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        self.state.write().watch(prefix, from)
    }

    async fn request_progress(&self) -> Result<()> {
        self.state.write().progress();
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        Ok(self.state.read().revision())
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.state.write().compact(revision);
        Ok(())
    }

    async fn size(&self) -> Result<u64> {
        let metadata = std::fs::metadata(&self.path);
        metadata.map(|m| m.len()).map_err(Error::io(format!("size of {}", self.path.display())))
    }

    async fn snapshot(&self, writer: &mut (dyn io::Write + Send)) -> Result<Revision> {
        let copy = Snapshot::of(&self.state.read());
        copy.write(writer)
    }
}
