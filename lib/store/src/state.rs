//! The state that every engine has in memory: current values, history, watches, expiry times. Pure: time and durability are
//! the engines' business.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, WatchEvent};
use crate::error::{Error, Result};
use crate::history::{History, Window};
use crate::watch::{Watch, Watchers};

/// Largest value. The API's own limit is 3 MiB for a request; etcd's default is 1.5 MiB.
const MAX_VALUE: usize = 8 << 20;
/// Longest key.
const MAX_KEY: usize = 4096;
/// Revision of a store that was never written.
pub(crate) const FIRST_REVISION: Revision = 1;

/// Milliseconds since 1970.
pub(crate) type Instant = u64;

/// The current time.
pub(crate) fn now() -> Instant {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// When something written now with this time to live expires.
pub(crate) fn expiry(ttl: Option<Duration>) -> Option<Instant> {
    ttl.map(|ttl| now().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
}

/// What the store knows of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub value: Bytes,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    pub expires: Option<Instant>,
}

impl Entry {
    fn to_kv(&self, key: &str) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: self.value.clone(),
            mod_revision: self.mod_revision,
            create_revision: self.create_revision,
            stale: false,
        }
    }
}

/// A requested write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub key: Arc<str>,
    pub action: Action,
}

/// What a write does, and under which condition.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Create {
        value: Bytes,
        expires: Option<Instant>,
    },
    Update {
        value: Bytes,
        expires: Option<Instant>,
        expected: Revision,
    },
    Delete {
        expected: Revision,
    },
    /// Deletes the key if it is due and was not renewed since.
    Expire {
        due: Instant,
    },
}

impl Write {
    pub(crate) fn create(key: &str, value: Bytes, ttl: Option<Duration>) -> Self {
        Self { key: key.into(), action: Action::Create { value, expires: expiry(ttl) } }
    }

    pub(crate) fn update(key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Self {
        Self { key: key.into(), action: Action::Update { value, expires: expiry(ttl), expected } }
    }

    pub(crate) fn delete(key: &str, expected: Revision) -> Self {
        Self { key: key.into(), action: Action::Delete { expected } }
    }

    /// Bytes of the value to write.
    pub(crate) fn size(&self) -> usize {
        match &self.action {
            Action::Create { value, .. } | Action::Update { value, .. } => value.len(),
            Action::Delete { .. } | Action::Expire { .. } => 0,
        }
    }

    /// Decides the write against the current entry: the entry afterwards if it is done as `revision`, or why it is refused.
    pub(crate) fn decide(&self, current: Option<&Entry>, revision: Revision) -> Result<Option<Entry>> {
        let conflict = || Err(Error::Conflict { current: current.map(|entry| entry.to_kv(&self.key)) });
        match (&self.action, current) {
            (Action::Create { .. }, Some(_)) => Err(Error::Exists { key: self.key.to_string() }),
            (Action::Create { value, expires }, None) => {
                self.check_size()?;
                let value = value.clone();
                Ok(Some(Entry { value, create_revision: revision, mod_revision: revision, expires: *expires }))
            }
            (Action::Update { value, expires, expected }, Some(entry)) if entry.mod_revision == *expected => {
                self.check_size()?;
                let create_revision = entry.create_revision;
                Ok(Some(Entry { value: value.clone(), create_revision, mod_revision: revision, expires: *expires }))
            }
            (Action::Delete { expected }, Some(entry)) if entry.mod_revision == *expected => Ok(None),
            (Action::Expire { due }, Some(entry)) if entry.expires == Some(*due) => Ok(None),
            _ => conflict(),
        }
    }

    /// Refuses keys and values that are too large.
    pub(crate) fn check_size(&self) -> Result<()> {
        let parts = [("key", self.key.len(), MAX_KEY), ("value", self.size(), MAX_VALUE)];
        match parts.into_iter().find(|(_, size, limit)| size > limit) {
            Some((what, size, limit)) => Err(Error::TooLarge { what, size, limit }),
            None => Ok(()),
        }
    }
}

/// Everything a store holds.
#[derive(Debug)]
pub(crate) struct State {
    entries: BTreeMap<Arc<str>, Entry>,
    revision: Revision,
    history: History,
    watchers: Watchers,
    expiries: BTreeSet<(Instant, Arc<str>)>,
    bytes: usize,
}

impl State {
    /// A state whose history starts at `revision`.
    pub(crate) fn new(entries: BTreeMap<Arc<str>, Entry>, revision: Revision, window: Window) -> Self {
        let expiries = entries.iter().filter_map(|(key, entry)| Some((entry.expires?, key.clone()))).collect();
        let bytes = entries.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
        let history = History::new(window, revision);
        Self { entries, revision, history, watchers: Watchers::default(), expiries, bytes }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn entries(&self) -> &BTreeMap<Arc<str>, Entry> {
        &self.entries
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, key: &str) -> Option<KeyValue> {
        self.entries.get(key).map(|entry| entry.to_kv(key))
    }

    pub(crate) fn list(&self, options: &ListOptions) -> Listing {
        let start = match options.start_after.as_deref() {
            Some(after) if after >= options.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(options.prefix.as_str()),
        };
        let mut range = self
            .entries
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(options.prefix.as_str()));
        let limit = options.limit.unwrap_or(usize::MAX);
        let items: Vec<_> = range.by_ref().take(limit).map(|(key, entry)| entry.to_kv(key)).collect();
        let rest = range.count();
        Listing { count: items.len() + rest, more: rest > 0, revision: self.revision, items }
    }

    /// Does one write: `entry` is the key's new state, `None` for a deletion.
    pub(crate) fn apply(&mut self, key: Arc<str>, entry: Option<Entry>, revision: Revision) {
        let old = match &entry {
            Some(entry) => self.entries.insert(key.clone(), entry.clone()),
            None => self.entries.remove(&key),
        };
        self.account(&key, old.as_ref(), entry.as_ref());
        let event = match entry {
            Some(entry) => WatchEvent::Put(entry.to_kv(&key)),
            None => WatchEvent::Delete { key: key.to_string(), revision },
        };
        self.revision = revision;
        self.watchers.publish(&event);
        self.history.push(event);
    }

    pub(crate) fn watch(&mut self, prefix: &str, from: Revision) -> Result<Watch> {
        let oldest = self.history.floor();
        if from < oldest {
            return Err(Error::Compacted { requested: from, oldest });
        }
        let concerns = |e: &&WatchEvent| e.key().is_some_and(|key| key.starts_with(prefix));
        let past = self.history.after(from).filter(concerns).cloned().collect();
        Ok(self.watchers.open(prefix, from, past))
    }

    pub(crate) fn progress(&mut self) {
        self.watchers.publish(&WatchEvent::Progress(self.revision));
    }

    pub(crate) fn compact(&mut self, revision: Revision) {
        self.history.compact(revision.min(self.revision));
    }

    /// When the next key expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(due, _)| *due)
    }

    /// Deletions of the keys that have expired, at most `limit`.
    pub(crate) fn expired(&self, now: Instant, limit: usize) -> Vec<Write> {
        let due = self.expiries.iter().take_while(|(due, _)| *due <= now).take(limit);
        due.map(|(due, key)| Write { key: key.clone(), action: Action::Expire { due: *due } }).collect()
    }

    /// Ends all watches.
    pub(crate) fn close(&mut self) {
        self.watchers.close();
    }

    fn account(&mut self, key: &Arc<str>, old: Option<&Entry>, new: Option<&Entry>) {
        if let Some(old) = old {
            self.bytes -= key.len() + old.value.len();
            if let Some(expires) = old.expires {
                self.expiries.remove(&(expires, key.clone()));
            }
        }
        if let Some(new) = new {
            self.bytes += key.len() + new.value.len();
            if let Some(expires) = new.expires {
                self.expiries.insert((expires, key.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mod_revision: Revision, expires: Option<Instant>) -> Entry {
        Entry { value: "old".into(), create_revision: 2, mod_revision, expires }
    }

    #[test]
    fn decides_by_the_current_entry() {
        let write = |action| Write { key: "/k".into(), action };
        let create = write(Action::Create { value: "new".into(), expires: None });
        let update = write(Action::Update { value: "new".into(), expires: Some(9), expected: 5 });
        let delete = write(Action::Delete { expected: 5 });
        let expire = write(Action::Expire { due: 7 });
        let (at5, at6, due7) = (entry(5, None), entry(6, None), entry(6, Some(7)));
        let new = |create_revision, expires| Entry { value: "new".into(), create_revision, mod_revision: 10, expires };

        assert_eq!(create.decide(None, 10).expect("free"), Some(new(10, None)));
        assert!(matches!(create.decide(Some(&at5), 10), Err(Error::Exists { .. })));
        assert_eq!(update.decide(Some(&at5), 10).expect("matches"), Some(new(2, Some(9))));
        assert_eq!(delete.decide(Some(&at5), 10).expect("matches"), None);
        assert_eq!(expire.decide(Some(&due7), 10).expect("due"), None);
        for (write, current) in [(&update, Some(&at6)), (&update, None), (&delete, Some(&at6)), (&expire, Some(&at5))] {
            match write.decide(current, 10) {
                Err(Error::Conflict { current: reported }) => {
                    assert_eq!(reported.map(|kv| kv.mod_revision), current.map(|e| e.mod_revision))
                }
                other => panic!("{write:?} on {current:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn refuses_what_is_too_large() {
        let large = Write::create("/k", vec![0; MAX_VALUE + 1].into(), None);
        assert!(matches!(large.decide(None, 1), Err(Error::TooLarge { what: "value", .. })));
        let long = Write::create(&"k".repeat(MAX_KEY + 1), Bytes::new(), None);
        assert!(matches!(long.decide(None, 1), Err(Error::TooLarge { what: "key", .. })));
    }

    #[test]
    fn accounts_for_bytes_and_expiries() {
        let mut state = State::new(BTreeMap::new(), 1, Window::default());
        state.apply("/a".into(), Some(entry(2, Some(50))), 2);
        state.apply("/b".into(), Some(entry(3, Some(40))), 3);
        assert_eq!((state.bytes(), state.next_expiry()), (10, Some(40)));
        assert_eq!(state.expired(45, 9).len(), 1);
        assert_eq!(state.expired(50, 1).len(), 1);
        state.apply("/b".into(), Some(entry(4, None)), 4);
        state.apply("/a".into(), None, 5);
        assert_eq!((state.bytes(), state.next_expiry(), state.revision()), (5, None, 5));
    }
}
