//! Gives space back: builds a compact file out of the state in memory while writes go on, then changes over to it.
//!
//! The only pause is the change-over: the changes since the beginning are written into the new file, and it is renamed over
//! the old one. Until then the old file is complete, afterwards the new one is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use redb::Database;

use super::disk::{self, Change};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::Entry;

/// How often the size is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// A file this many times as large as its data is written anew.
const FACTOR: u64 = 3;
/// Bytes that a record takes beside key and value, in its page and the pages above.
const OVERHEAD: u64 = 64;

/// When to write the file anew, and the file that is being built.
pub(super) struct Rewriter {
    from: u64,
    look_at: Instant,
    building: Option<Building>,
    /// Bytes written since the file was begun. Pages are rounded up and files grow by doubling, so that a young file may be
    /// many times as large as its data: what was written into it has to pay for writing it anew.
    written: u64,
    /// The most data that it has had.
    most: u64,
    /// Data that the file had when it was looked at last: what a file whose building begins then is built from.
    data: u64,
}

struct Building {
    done: Receiver<Result<Database>>,
    /// What has changed since it was begun.
    since: HashMap<Arc<str>, Option<Entry>>,
}

/// A file that has been built, and what it does not have yet.
pub(super) struct Built {
    pub db: Database,
    pub since: Vec<Change>,
}

impl Rewriter {
    pub(super) fn new(from: u64) -> Self {
        // What was written into the file that is opened is not known.
        Self { from, look_at: Instant::now(), building: None, written: u64::MAX, most: 0, data: 0 }
    }

    /// How long to wait at most before [`poll`](Self::poll) is called again.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.building.is_some().then_some(Duration::from_millis(10))
    }

    /// The size should be looked at.
    pub(super) fn looks(&mut self) -> bool {
        let due = self.building.is_none() && self.look_at <= Instant::now();
        if due {
            self.look_at = Instant::now() + LOOK;
        }
        due
    }

    /// A file of `size` bytes is to be written anew.
    pub(super) fn wants(&mut self, size: u64, bytes: u64, keys: u64) -> bool {
        self.data = bytes + keys * OVERHEAD;
        self.most = self.most.max(self.data);
        let (paid, shrunk) = (self.written >= size, self.data < self.most / 2);
        size >= self.from && size > FACTOR * self.data && (paid || shrunk)
    }

    /// Begins to build a file.
    pub(super) fn begin(&mut self, path: PathBuf, state: Snapshot) {
        let (sender, done) = sync_channel(1);
        let build = move || drop(sender.send(disk::build(&path, &state)));
        match std::thread::Builder::new().name("store-rewrite".into()).spawn(build) {
            Ok(_) => self.building = Some(Building { done, since: HashMap::new() }),
            Err(error) => self.failed(&Error::io("start a thread")(error)),
        }
    }

    /// Remembers what was written meanwhile.
    pub(super) fn note(&mut self, changes: &[Change]) {
        let bytes =
            |(key, entry): &Change| (key.len() + entry.as_ref().map_or(0, |entry| entry.value.len())) as u64 + OVERHEAD;
        self.written = self.written.saturating_add(changes.iter().map(bytes).sum());
        if let Some(building) = &mut self.building {
            building.since.extend(changes.iter().cloned());
        }
    }

    /// The file, when it is built.
    pub(super) fn poll(&mut self) -> Option<Built> {
        let done = self.building.as_ref()?.done.try_recv();
        match done {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.failed(&Error::Closed);
                None
            }
            Ok(Err(error)) => {
                self.failed(&error);
                None
            }
            Ok(Ok(db)) => {
                let since = self.building.take()?.since.into_iter().collect();
                Some(Built { db, since })
            }
        }
    }

    /// The file that was built is the store's from now on. It has had the data that it was built from: when much of that
    /// went while it was built, it is to be written anew once more.
    pub(super) fn adopted(&mut self) {
        (self.written, self.most) = (0, self.data);
    }

    /// It did not work: nothing is lost, and it is tried again.
    pub(super) fn failed(&mut self, error: &Error) {
        tracing::warn!(%error, "the store's file could not be written anew, trying again in {AGAIN:?}");
        self.building = None;
        self.look_at = Instant::now() + AGAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_followed_by_another_try() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("scratch");
        std::fs::create_dir(&path).expect("something in the way");
        let mut rewriter = Rewriter::new(1);
        assert!(rewriter.looks() && !rewriter.looks(), "once a second");
        let mut attempt = |path: PathBuf| {
            rewriter.begin(path, Snapshot::empty());
            rewriter.note(&[("/k".into(), None)]);
            let built = loop {
                match rewriter.poll() {
                    None if rewriter.patience().is_some() => std::thread::sleep(Duration::from_millis(1)),
                    built => break built,
                }
            };
            rewriter.look_at = Instant::now();
            assert!(rewriter.looks(), "it is looked at again");
            built.map(|built| built.since.len())
        };
        assert_eq!(attempt(path.clone()), None);
        std::fs::remove_dir(&path).expect("out of the way");
        assert_eq!(attempt(path), Some(1));
    }

    #[test]
    fn mostly_free_files_are_written_anew() {
        let mut rewriter = Rewriter::new(1000);
        assert!(!rewriter.wants(999, 0, 0), "too small to care");
        assert!(!rewriter.wants(3000, 1000, 0) && rewriter.wants(3001, 1000, 0));
    }

    #[test]
    fn a_young_file_is_written_anew_only_when_data_go() {
        let mut rewriter = Rewriter { written: 0, ..Rewriter::new(1000) };
        assert!(!rewriter.wants(5000, 1000, 0), "large, but nothing was written into it");
        assert!(!rewriter.wants(5000, 500, 0) && rewriter.wants(5000, 499, 0), "data went");
        let key = "k".repeat(4900);
        rewriter.note(&[(key.as_str().into(), None)]);
        assert!(!rewriter.wants(5000, 1000, 0), "4964 bytes are not enough");
        rewriter.note(&[("k".into(), None)]);
        assert!(rewriter.wants(5000, 1000, 0), "as much was written into it as it is large");
        rewriter.failed(&Error::Closed);
        assert!(rewriter.wants(5000, 1000, 0), "it still is the same file");
        rewriter.adopted();
        assert!(!rewriter.wants(5000, 1000, 0), "a new file");
    }

    #[test]
    fn data_that_go_while_a_file_is_built_are_seen() {
        let mut rewriter = Rewriter::new(1000);
        assert!(rewriter.wants(9000, 2000, 0));
        rewriter.adopted();
        assert!(!rewriter.wants(4000, 1000, 0), "half of it is there");
        assert!(rewriter.wants(4000, 999, 0));
    }
}
