//! The writer thread: decides waiting writes in order, makes them durable together, then visible, then acknowledges them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::oneshot;

use super::Durability;
use super::disk::{Change, Disk};
use crate::contract::Revision;
use crate::error::{Error, Result};
use crate::state::{Entry, State, Write, now};

/// Most writes in a group.
const GROUP_WRITES: usize = 1024;
/// A group that has reached this many bytes takes no more writes.
const GROUP_BYTES: usize = 8 << 20;
/// Longest time that a relaxed write stays off the disk.
const SYNC_AFTER: Duration = Duration::from_secs(1);
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
}

impl Writer {
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        disk: Disk,
        requests: Receiver<Request>,
        durability: Durability,
    ) -> Self {
        Self { state, disk, requests, durability, sync_at: None, doubtful: None }
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
                self.sync();
            }
        }
        if self.sync_at.is_some() {
            self.sync();
        }
    }

    /// How long to wait for a request: until something expires or has to be synced.
    fn patience(&self) -> Duration {
        let expiry = self.state.read().next_expiry().map(|due| Duration::from_millis(due.saturating_sub(now())));
        let sync = self.sync_at.map(|at| at.saturating_duration_since(Instant::now()));
        // A disk that failed is not asked in a busy loop.
        let expiry = expiry.map(|wait| if self.doubtful.is_some() { wait.max(SYNC_AFTER) } else { wait });
        expiry.into_iter().chain(sync).min().unwrap_or(IDLE).min(IDLE)
    }

    /// Handles a request and all that wait behind it.
    fn handle(&mut self, first: Request) {
        let mut bytes = first.write.size();
        let mut requests = vec![first];
        while requests.len() < GROUP_WRITES && bytes < GROUP_BYTES {
            let Ok(next) = self.requests.try_recv() else { break };
            bytes += next.write.size();
            requests.push(next);
        }
        self.write(requests);
    }

    /// Decides, commits, publishes and answers, expiries included.
    fn write(&mut self, requests: Vec<Request>) {
        if let Err(error) = self.settle() {
            tracing::error!(%error, "store can not be written");
            let text = error.to_string();
            requests.into_iter().for_each(|request| answer(request.reply, Err(Error::Storage(text.clone()))));
            return;
        }
        let (group, replies) = self.decide(requests);
        let committed = if group.changes.is_empty() { Ok(()) } else { self.commit(group) };
        for (reply, result) in replies {
            let result = match &committed {
                Ok(()) => result,
                Err(error) => Err(Error::Storage(error.to_string())),
            };
            answer(reply, result);
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
        if let Err(error) = self.disk.commit(&group.changes, group.revision(), durable) {
            tracing::error!(%error, "commit failed");
            self.doubtful = Some(group);
            return Err(error);
        }
        if !durable {
            self.sync_at.get_or_insert_with(|| Instant::now() + SYNC_AFTER);
        }
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
        match self.doubtful.take() {
            Some(group) if found == end => group.publish(&mut self.state.write()),
            Some(group) if found != base => {
                self.doubtful = Some(group);
                return Err(Error::Storage(format!("disk is at revision {found}, not {base} or {end}: restart")));
            }
            _ => {}
        }
        Ok(())
    }

    fn sync(&mut self) {
        self.sync_at = None;
        let revision = self.state.read().revision();
        if self.doubtful.is_some() {
            return;
        }
        if let Err(error) = self.disk.commit(&[], revision, true) {
            tracing::error!(%error, "sync failed");
            self.doubtful = Some(Group::new(revision));
        }
    }
}

/// Answers a request; nobody may be waiting any more.
fn answer(reply: oneshot::Sender<Result<Revision>>, result: Result<Revision>) {
    let _ = reply.send(result);
}
