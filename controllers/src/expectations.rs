//! Guards against acting twice on a cache that lags behind our own writes.
//!
//! Before it creates or deletes children, a controller notes what it expects to see; while something is outstanding
//! for a key, the controller must not create or delete again. The change feed of the cache ticks the notes off. A note
//! that nobody ticks off (a lost answer) is dropped after [`TIMEOUT`].

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long an expectation may stay unmet.
pub const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Outstanding {
    creations: usize,
    deletions: HashSet<String>,
    since: Option<Instant>,
}

/// Expectations of one controller, by its own key.
pub struct Expectations<T> {
    outstanding: Arc<Mutex<HashMap<T, Outstanding>>>,
}

impl<T> Clone for Expectations<T> {
    fn clone(&self) -> Self {
        Self { outstanding: self.outstanding.clone() }
    }
}

impl<T> Default for Expectations<T> {
    fn default() -> Self {
        Self { outstanding: Arc::default() }
    }
}

impl<T: Hash + Eq + Clone> Expectations<T> {
    /// Notes `count` creations to be seen.
    pub fn expect_creations(&self, key: &T, count: usize) {
        let mut all = self.outstanding.lock();
        let entry = all.entry(key.clone()).or_default();
        entry.creations += count;
        entry.since = Some(Instant::now());
    }

    /// Notes the deletion of the child with this uid.
    pub fn expect_deletion(&self, key: &T, uid: &str) {
        let mut all = self.outstanding.lock();
        let entry = all.entry(key.clone()).or_default();
        entry.deletions.insert(uid.to_owned());
        entry.since = Some(Instant::now());
    }

    /// A child appeared (or its creation failed).
    pub fn saw_creation(&self, key: &T) {
        if let Some(entry) = self.outstanding.lock().get_mut(key) {
            entry.creations = entry.creations.saturating_sub(1);
        }
    }

    /// A child is going or gone (or its deletion failed).
    pub fn saw_deletion(&self, key: &T, uid: &str) {
        if let Some(entry) = self.outstanding.lock().get_mut(key) {
            entry.deletions.remove(uid);
        }
    }

    /// True if the cache shows everything that was written for the key.
    pub fn satisfied(&self, key: &T) -> bool {
        let mut all = self.outstanding.lock();
        let Some(entry) = all.get(key) else { return true };
        let met = entry.creations == 0 && entry.deletions.is_empty();
        let expired = entry.since.is_some_and(|since| since.elapsed() > TIMEOUT);
        if met || expired {
            all.remove(key);
        }
        met || expired
    }

    /// Drops everything noted for a key that is gone.
    pub fn forget(&self, key: &T) {
        self.outstanding.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_creations_block() {
        let e = Expectations::<u32>::default();
        assert!(e.satisfied(&1));
        e.expect_creations(&1, 2);
        e.saw_creation(&1);
        assert!(!e.satisfied(&1));
        assert!(e.satisfied(&2));
        e.saw_creation(&1);
        assert!(e.satisfied(&1));
    }

    #[test]
    fn deletions_are_by_uid() {
        let e = Expectations::<u32>::default();
        e.expect_deletion(&1, "a");
        e.saw_deletion(&1, "b");
        assert!(!e.satisfied(&1));
        e.saw_deletion(&1, "a");
        assert!(e.satisfied(&1));
    }

    #[test]
    fn forgotten_keys_do_not_block() {
        let e = Expectations::<u32>::default();
        e.expect_creations(&1, 2);
        e.forget(&1);
        assert!(e.satisfied(&1));
        e.saw_creation(&1);
    }
}
