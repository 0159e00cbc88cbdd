//! The writer thread: decides waiting writes in order, makes them durable together, then visible, then acknowledges them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::oneshot;

use super::disk::{Change, Counters, Disk};
use super::fail::point;
use super::rewrite::Rewriter;
use super::{Durability, Options};
use crate::contract::Revision;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::{Entry, State, Write, now};

/// Most writes in a group.
const GROUP_WRITES: usize = 1024;
/// A group that has reached this many bytes takes no more writes.
const GROUP_BYTES: usize = 8 << 20;
/// When several write at a time, a small group waits so long for more: a commit costs many times what a write does.
const LINGER: Duration = Duration::from_millis(1);
/// A group of so many writes is not small.
const SMALL: usize = 8;
/// Longest time that a relaxed write stays off the disk.
const SYNC_AFTER: Duration = Duration::from_secs(1);
/// Revisions that relaxed writes may take before the next sync: many times what is possible.
const RESERVE: Revision = 10_000_000;
/// Longest wait for a request, when nothing else is to be done.
const IDLE: Duration = Duration::from_secs(3600);

/// A write that somebody waits for.
pub(super) struct Request {
    pub write: Write,
    pub reply: oneshot::Sender<Result<Revision>>,
}

/// Somebody who waits, and what they will be told once it is durable.
type Answer = (oneshot::Sender<Result<Revision>>, Result<Revision>);

/// Writes that are committed together.
struct Group {
    changes: Vec<Change>,
    /// Where `changes` has the latest state of a key.
    latest: HashMap<Arc<str>, usize>,
    /// Revision before the first change.
    base: Revision,
}

impl Group {
    fn new(base: Revision) -> Self {
        Self { changes: Vec::new(), latest: HashMap::new(), base }
    }

    fn revision(&self) -> Revision {
        self.base + self.changes.len() as Revision
    }

    /// Decides a write on top of the state and of the group's earlier writes.
    fn add(&mut self, state: &State, write: &Write) -> Result<Revision> {
        let current = match self.latest.get(&write.key) {
            Some(at) => self.changes[*at].1.as_ref(),
            None => state.entry(&write.key),
        };
        let revision = self.revision() + 1;
        let entry: Option<Entry> = write.decide(current, revision)?;
        self.latest.insert(write.key.clone(), self.changes.len());
        self.changes.push((write.key.clone(), entry));
        Ok(revision)
    }

    /// Makes the group visible.
    fn publish(self, state: &mut State) {
        for (revision, (key, entry)) in (self.base + 1..).zip(self.changes) {
            state.apply(key, entry, revision);
        }
    }
}

/// What the writer thread works with.
pub(super) struct Writer {
    state: Arc<RwLock<State>>,
    disk: Disk,
    requests: Receiver<Request>,
    durability: Durability,
    /// When relaxed writes have to be synced.
    sync_at: Option<Instant>,
    /// A group whose commit failed, and of which it is not known whether it is on the disk.
    doubtful: Option<Group>,
    /// The store takes no writes, and that has been told.
    refusing: bool,
    /// Up to here relaxed writes can be given revisions.
    reserved: Revision,
    /// Several write at a time: the last group was of more than one.
    crowded: bool,
    rewriter: Rewriter,
}

impl Writer {
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        disk: Disk,
        requests: Receiver<Request>,
        options: Options,
    ) -> Result<Self> {
        let (durability, rewriter) = (options.durability, Rewriter::new(options.rewrite_from));
        let (sync_at, doubtful, refusing, reserved, crowded) = (None, None, false, 0, false);
        let mut writer =
            Self { state, disk, requests, durability, sync_at, doubtful, refusing, reserved, crowded, rewriter };
        if durability == Durability::Relaxed {
            writer.reserve();
            let counters = writer.counters(writer.state.read().revision());
            writer.disk.commit(&[], counters, true)?;
        }
        Ok(writer)
    }

    /// Runs until the store is dropped.
    pub(super) fn run(mut self) {
        loop {
            match self.requests.recv_timeout(self.patience()) {
                Ok(first) => self.handle(first),
                Err(RecvTimeoutError::Timeout) => self.write(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.sync_at.is_some_and(|at| at <= Instant::now()) {
                self.reserve();
                self.sync();
            }
            self.tend();
        }
        if self.durability == Durability::Relaxed {
            self.reserved = 0;
            self.sync();
        }
    }

    fn reserve(&mut self) {
        self.reserved = self.state.read().revision() + RESERVE;
    }

    fn counters(&self, revision: Revision) -> Counters {
        Counters { revision, reserved: self.reserved }
    }

    /// Keeps the file from growing.
    fn tend(&mut self) {
        if let Some(built) = self.rewriter.poll() {
            let counters = self.counters(self.state.read().revision());
            let before = self.disk.size();
            match self.disk.adopt(built.db, &built.since, counters) {
                Ok(()) => {
                    self.rewriter.adopted();
                    tracing::info!(before, after = self.disk.size(), "the store's file was written anew");
                }
                Err(error) => self.rewriter.failed(&error),
            }
        }
        if self.doubtful.is_none() && self.rewriter.looks() {
            let size = self.disk.size();
            let state = self.state.read();
            if self.rewriter.wants(size, state.bytes() as u64, state.entries().len() as u64) {
                self.rewriter.begin(self.disk.scratch(), Snapshot::of(&state));
            }
        }
    }

    /// How long to wait for a request: until something expires or has to be synced.
    fn patience(&self) -> Duration {
        let expiry = self.state.read().next_expiry().map(|due| Duration::from_millis(due.saturating_sub(now())));
        let sync = self.sync_at.map(|at| at.saturating_duration_since(Instant::now()));
        // A disk that failed is not asked in a busy loop.
        let expiry = expiry.map(|wait| if self.doubtful.is_some() { wait.max(SYNC_AFTER) } else { wait });
        expiry.into_iter().chain(sync).chain(self.rewriter.patience()).min().unwrap_or(IDLE).min(IDLE)
    }

    /// Handles a request and all that wait behind it.
    fn handle(&mut self, first: Request) {
        let mut requests = vec![first];
        self.gather(&mut requests);
        if self.crowded && requests.len() < SMALL {
            std::thread::sleep(LINGER);
            self.gather(&mut requests);
        }
        self.crowded = requests.len() > 1;
        self.write(requests);
    }

    /// Adds the requests that wait.
    fn gather(&self, requests: &mut Vec<Request>) {
        let mut bytes: usize = requests.iter().map(|request| request.write.size()).sum();
        while requests.len() < GROUP_WRITES && bytes < GROUP_BYTES {
            let Ok(next) = self.requests.try_recv() else { break };
            bytes += next.write.size();
            requests.push(next);
        }
    }

    /// Decides, commits, publishes and answers, expiries included.
    fn write(&mut self, requests: Vec<Request>) {
        if let Err(error) = self.settle() {
            self.refuse(&error);
            requests.into_iter().for_each(|request| answer(request.reply, Err(again(&error))));
            return;
        }
        if std::mem::take(&mut self.refusing) {
            tracing::info!("the store can be written again");
        }
        let (group, replies) = self.decide(requests);
        point("decided");
        let committed = if group.changes.is_empty() { Ok(()) } else { self.commit(group) };
        point("published");
        for (reply, result) in replies {
            let result = match &committed {
                Ok(()) => result,
                Err(error) => Err(again(error)),
            };
            answer(reply, result);
        }
    }

    /// Tells once that writes are refused.
    fn refuse(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.refusing, true) {
            tracing::error!(%error, "the store can not be written, reads go on");
        }
    }

    fn decide(&self, requests: Vec<Request>) -> (Group, Vec<Answer>) {
        let state = self.state.read();
        let mut group = Group::new(state.revision());
        let decided = requests.into_iter().map(|r| (r.reply, group.add(&state, &r.write))).collect();
        for expired in state.expired(now(), GROUP_WRITES) {
            // Refused if a write of this group renewed the key.
            let _ = group.add(&state, &expired);
        }
        (group, decided)
    }

    fn commit(&mut self, group: Group) -> Result<()> {
        let durable = self.durability == Durability::Sync;
        let (end, counters) = (group.revision(), self.counters(group.revision()));
        if let Err(error) = self.disk.commit(&group.changes, counters, durable) {
            self.doubtful = Some(group);
            // It may be there all the same, or there may be room again: then nobody has to know.
            if self.settle().is_ok() && self.state.read().revision() == end {
                return Ok(());
            }
            self.refuse(&error);
            return Err(error);
        }
        point("committed");
        if !durable {
            self.sync_at.get_or_insert_with(|| Instant::now() + SYNC_AFTER);
        }
        self.rewriter.note(&group.changes);
        group.publish(&mut self.state.write());
        Ok(())
    }

    /// After a failed commit: opens the database again and finds out whether the group is there. Nobody was told that it is,
    /// but the next writes build on what the disk has.
    fn settle(&mut self) -> Result<()> {
        let Some(group) = &self.doubtful else { return Ok(()) };
        let (base, end) = (group.base, group.revision());
        let found = self.disk.reopen()?;
        tracing::warn!(found, base, end, "store reopened after a failure");
        if found == end {
            if let Some(group) = self.doubtful.take() {
                self.rewriter.note(&group.changes);
                group.publish(&mut self.state.write());
            }
        } else if found == base {
            self.doubtful = None;
        } else if self.durability == Durability::Relaxed && found < base {
            // The writes since the last sync were in the database that failed; they are still in memory.
            self.restore_from_memory()?;
            self.doubtful = None;
        } else {
            return Err(Error::Storage(format!("disk is at revision {found}, not {base} or {end}: restart")));
        }
        Ok(())
    }

    fn restore_from_memory(&mut self) -> Result<()> {
        let state = Snapshot::of(&self.state.read());
        let counters = self.counters(state.revision());
        let db = super::disk::build(&self.disk.scratch(), &state)?;
        self.disk.adopt(db, &[], counters)
    }

    fn sync(&mut self) {
        self.sync_at = None;
        let revision = self.state.read().revision();
        if self.doubtful.is_some() {
            return;
        }
        if let Err(error) = self.disk.commit(&[], self.counters(revision), true) {
            self.refuse(&error);
            self.doubtful = Some(Group::new(revision));
        }
    }
}

/// The same failure for one more who waits.
fn again(error: &Error) -> Error {
    match error {
        Error::ReadOnly(reason) => Error::ReadOnly(reason.clone()),
        other => Error::Storage(other.to_string()),
    }
}

/// Answers a request; nobody may be waiting any more.
fn answer(reply: oneshot::Sender<Result<Revision>>, result: Result<Revision>) {
    let _ = reply.send(result);
}
