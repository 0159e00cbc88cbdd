//! The watch cache: per resource an immutable snapshot and a ring of recent events, fed from one watch of the store.
//!
//! One task ([`follower`]) follows the store's whole key space, so that all resources are known to have reached the same
//! revision: a consistent read waits until that task has passed the store's current revision, and nothing has to be asked
//! of quiet resources. Readers take the snapshot and never lock for longer than that. Watchers have no queue of
//! their own: each keeps its place in the shared ring; one that falls behind the ring's end is cut off.

pub mod entry;
pub mod follower;
pub mod frames;
pub mod snapshot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use pintle_store::Revision;
use tokio::sync::watch;

use self::entry::Entry;
use self::frames::Frames;
use self::snapshot::Snapshot;
use crate::registry::Rules;

/// Events that a resource remembers.
const RING: usize = 8192;
/// States that paged lists may still ask for, and for how long.
const RETAINED: usize = 16;
const RETAIN: Duration = Duration::from_secs(300);

/// What happened to an object.
#[derive(Debug, Clone)]
pub struct Event {
    /// Revision of the change.
    pub revision: Revision,
    /// The state after it; `None` after a deletion.
    pub now: Option<Arc<Entry>>,
    /// The state before it; `None` for a creation.
    pub before: Option<Arc<Entry>>,
}

/// One resource's cache.
#[derive(Debug)]
pub struct Cache {
    /// Prefix of its keys in the store, with a slash at the end.
    pub prefix: String,
    /// Selectable fields come from here.
    pub rules: &'static Rules,
    published: RwLock<Published>,
    /// Held while something is published: one at a time.
    publishing: Mutex<()>,
    /// Raised after each publication: what watchers wait for.
    changed: watch::Sender<u64>,
    /// Older states that paged lists still need.
    retained: Mutex<VecDeque<Retained>>,
    /// What watchers were sent last.
    pub frames: Frames,
}

#[derive(Debug)]
struct Retained {
    revision: Revision,
    since: Instant,
    snapshot: Arc<Snapshot>,
}

#[derive(Debug, Default)]
struct Published {
    snapshot: Arc<Snapshot>,
    /// Revision of the newest change in it.
    revision: Revision,
    ring: VecDeque<Arc<Event>>,
    /// Number of the ring's first event, counted since the start.
    first: u64,
    /// Changes up to this revision are no longer in the ring.
    forgotten: Revision,
}

/// A watcher's place in the ring.
#[derive(Debug)]
pub struct Cursor {
    next: u64,
    /// Changes up to here are not wanted, even if the cache has yet to hear of them.
    after: Revision,
    changed: watch::Receiver<u64>,
}

/// Why there is nothing (more) to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Changes since the wanted revision are no longer known; the oldest that is.
    Forgotten(Revision),
}

impl Cache {
    /// An empty cache of the keys under `prefix`.
    pub fn new(prefix: String, rules: &'static Rules) -> Self {
        let (published, publishing, retained, frames) = Default::default();
        Self { prefix, rules, published, publishing, changed: watch::channel(0).0, retained, frames }
    }

    /// Keeps a state for the next pages of a list.
    pub fn retain(&self, revision: Revision, snapshot: Arc<Snapshot>) {
        let mut retained = self.retained.lock();
        retained.retain(|old| old.since.elapsed() < RETAIN);
        if retained.iter().all(|old| old.revision != revision) {
            if retained.len() >= RETAINED {
                retained.pop_front();
            }
            retained.push_back(Retained { revision, since: Instant::now(), snapshot });
        }
    }

    /// The state at exactly this revision, if it was kept.
    pub fn retained(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        let retained = self.retained.lock();
        let found = retained.iter().find(|old| old.revision == revision && old.since.elapsed() < RETAIN)?;
        Some(found.snapshot.clone())
    }

    /// The state at an earlier revision, if all changes since are known: they are taken back one by one.
    pub fn at(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        let (snapshot, since) = {
            let published = self.published.read();
            let since = published.ring.iter().rev().take_while(|event| event.revision > revision);
            let since: Vec<Arc<Event>> = since.cloned().collect();
            (revision >= published.forgotten).then(|| (published.snapshot.clone(), since))?
        };
        let mut snapshot = (*snapshot).clone();
        for event in since {
            match (&event.before, &event.now) {
                (Some(before), _) => drop(snapshot.insert(before.clone())),
                (None, Some(now)) => drop(snapshot.remove(&now.key)),
                (None, None) => {}
            }
        }
        Some(Arc::new(snapshot))
    }

    /// Changes before this revision are not known.
    pub fn known_since(&self) -> Revision {
        self.published.read().forgotten
    }

    /// The present objects and the revision of the newest change in them.
    pub fn snapshot(&self) -> (Arc<Snapshot>, Revision) {
        let published = self.published.read();
        (published.snapshot.clone(), published.revision)
    }

    /// The present objects, and a cursor at the first event after them.
    pub fn snapshot_and_cursor(&self) -> (Arc<Snapshot>, Revision, Cursor) {
        let published = self.published.read();
        let next = published.first + published.ring.len() as u64;
        (
            published.snapshot.clone(),
            published.revision,
            Cursor { next, after: published.revision, changed: self.changed.subscribe() },
        )
    }

    /// A cursor at the first event after `revision`.
    pub fn cursor_after(&self, revision: Revision) -> Result<Cursor, Lost> {
        let published = self.published.read();
        if revision < published.forgotten {
            return Err(Lost::Forgotten(published.forgotten));
        }
        let skip = published.ring.partition_point(|event| event.revision <= revision);
        Ok(Cursor { next: published.first + skip as u64, after: revision, changed: self.changed.subscribe() })
    }

    /// The events at a cursor, at most `limit`, and moves it behind them. Empty: none yet.
    pub fn events(&self, cursor: &mut Cursor, limit: usize) -> Result<Vec<Arc<Event>>, Lost> {
        let published = self.published.read();
        let Some(skip) = cursor.next.checked_sub(published.first) else {
            return Err(Lost::Forgotten(published.forgotten));
        };
        let mut events: Vec<_> = published.ring.iter().skip(skip as usize).take(limit).cloned().collect();
        cursor.next += events.len() as u64;
        events.retain(|event| event.revision > cursor.after);
        Ok(events)
    }

    /// There are no events at the cursor.
    pub fn is_drained(&self, cursor: &Cursor) -> bool {
        let published = self.published.read();
        cursor.next >= published.first + published.ring.len() as u64
    }

    /// Gives a cache that was added later its objects as they were at a revision. False: it knows of a later change.
    fn fill(&self, snapshot: Snapshot, revision: Revision) -> bool {
        let _alone = self.publishing.lock();
        let known = self.published.read().revision;
        if known <= revision {
            self.replace(snapshot, revision);
        }
        known <= revision
    }

    /// Replaces everything; watchers have to start anew.
    fn reset(&self, snapshot: Snapshot, revision: Revision) {
        let _alone = self.publishing.lock();
        self.replace(snapshot, revision);
    }

    fn replace(&self, snapshot: Snapshot, revision: Revision) {
        {
            let mut published = self.published.write();
            published.first += published.ring.len() as u64 + 1;
            published.ring.clear();
            published.snapshot = Arc::new(snapshot);
            published.revision = revision;
            published.forgotten = revision;
        }
        self.changed.send_modify(|count| *count += 1);
    }

    /// Publishes changes, in order; those that the objects it began with show already are passed over.
    fn apply(&self, changes: Vec<Change>) {
        let _alone = self.publishing.lock();
        let (mut snapshot, known) = {
            let published = self.published.read();
            ((*published.snapshot).clone(), published.forgotten)
        };
        let mut events = Vec::with_capacity(changes.len());
        let mut newest = 0;
        for change in changes {
            let revision = change.revision();
            if revision <= known {
                continue;
            }
            newest = newest.max(revision);
            let event = match change {
                Change::Put(entry) => Event { revision, before: snapshot.insert(entry.clone()), now: Some(entry) },
                Change::Delete { key, .. } => match snapshot.remove(&key) {
                    Some(before) => Event { revision, before: Some(before), now: None },
                    None => continue,
                },
            };
            events.push(Arc::new(event));
        }
        {
            let mut published = self.published.write();
            published.snapshot = Arc::new(snapshot);
            published.revision = published.revision.max(newest);
            published.ring.extend(events);
            while published.ring.len() > RING {
                if let Some(event) = published.ring.pop_front() {
                    published.forgotten = event.revision;
                    published.first += 1;
                }
            }
        }
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Cursor {
    /// Waits until there may be new events. False: the cache is gone.
    pub async fn wait(&mut self) -> bool {
        self.changed.changed().await.is_ok()
    }
}

/// A change as the follower hands it over.
#[derive(Debug)]
enum Change {
    Put(Arc<Entry>),
    Delete { key: String, revision: Revision },
}

impl Change {
    fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(name: &str, revision: Revision) -> Change {
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}});
        let key = format!("/p/{name}");
        Change::Put(Arc::new(Entry::new(&key, revision, entry::serialize(&object).into(), &Rules::NONE).unwrap()))
    }

    #[tokio::test]
    async fn a_cursor_sees_each_event_once_and_in_order() {
        let cache = Cache::new("/p/".into(), &Rules::NONE);
        cache.apply(vec![put("a", 2), put("b", 3)]);
        let mut cursor = cache.cursor_after(2).unwrap();
        let revisions = |events: Vec<Arc<Event>>| events.iter().map(|event| event.revision).collect::<Vec<_>>();
        assert_eq!(revisions(cache.events(&mut cursor, 10).unwrap()), [3]);
        cache.apply(vec![put("a", 5), Change::Delete { key: "/p/b".into(), revision: 6 }]);
        assert!(cursor.wait().await);
        let events = cache.events(&mut cursor, 10).unwrap();
        assert!(events[1].now.is_none() && events[1].before.is_some());
        assert_eq!(revisions(events), [5, 6]);
        assert_eq!(cache.snapshot().0.len(), 1);
    }

    #[test]
    fn a_cursor_ahead_of_the_cache_skips_what_it_has_seen() {
        let cache = Cache::new("/p/".into(), &Rules::NONE);
        let mut cursor = cache.cursor_after(7).unwrap();
        cache.apply(vec![put("a", 6), put("b", 7), put("c", 8)]);
        let events = cache.events(&mut cursor, 10).unwrap();
        assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn a_cache_that_is_added_is_filled_with_nothing_older_than_it_has_seen() {
        let cache = Cache::new("/p/".into(), &Rules::NONE);
        let snapshot = |revision| match put("a", revision) {
            Change::Put(entry) => Snapshot::from_sorted(vec![entry]),
            Change::Delete { .. } => Snapshot::default(),
        };
        cache.apply(vec![put("b", 5)]);
        assert!(!cache.fill(snapshot(4), 4), "b is newer than the listing");
        assert!(cache.fill(snapshot(4), 6));
        cache.apply(vec![put("b", 5), put("c", 7)]);
        let names: Vec<String> = cache.snapshot().0.range("/p/", None).map(|entry| entry.key.to_string()).collect();
        assert_eq!(names, ["/p/a", "/p/c"]);
    }

    #[test]
    fn a_slow_watcher_is_cut_off_and_old_revisions_are_gone() {
        let cache = Cache::new("/p/".into(), &Rules::NONE);
        cache.apply(vec![put("a", 1)]);
        let mut cursor = cache.cursor_after(0).unwrap();
        for revision in 2..(RING as i64 + 10) {
            cache.apply(vec![put("a", revision)]);
        }
        assert!(matches!(cache.events(&mut cursor, 1), Err(Lost::Forgotten(_))));
        assert!(cache.cursor_after(3).is_err());
        assert!(cache.cursor_after(RING as i64).is_ok());
        cache.reset(Snapshot::default(), 20_000);
        assert!(cache.cursor_after(19_999).is_err());
        assert!(cache.cursor_after(20_000).is_ok());
    }
}
