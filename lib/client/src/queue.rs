//! A work queue of keys: each key waits at most once and is never handed to two workers at a time.

use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay of a failing key; doubled with each failure in a row.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest delay of a failing key.
const MAX_DELAY: Duration = Duration::from_secs(300);

struct Delayed<T> {
    at: Instant,
    key: T,
}
impl<T> PartialEq for Delayed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl<T> Eq for Delayed<T> {}
impl<T> PartialOrd for Delayed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Delayed<T> {
    // Reversed: the heap's top is the earliest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

struct State<T> {
    ready: VecDeque<T>,
    /// Keys in `ready`, or to be put there again when their worker is done.
    dirty: HashSet<T>,
    working: HashSet<T>,
    delayed: BinaryHeap<Delayed<T>>,
    failures: HashMap<T, u32>,
    closed: bool,
}

/// The queue; clones share it.
pub struct Queue<T> {
    state: Arc<Mutex<State<T>>>,
    wake: Arc<Notify>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), wake: self.wake.clone() }
    }
}

impl<T: Hash + Eq + Clone + Send> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Hash + Eq + Clone + Send> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            working: HashSet::new(),
            delayed: BinaryHeap::new(),
            failures: HashMap::new(),
            closed: false,
        };
        Self { state: Arc::new(Mutex::new(state)), wake: Arc::new(Notify::new()) }
    }

    /// Adds a key, to be worked on as soon as a worker is free. A key that waits already is not added twice; one that
    /// is being worked on is taken up again afterwards.
    pub fn add(&self, key: T) {
        let mut state = self.state.lock();
        if enqueue(&mut state, key) {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Adds a key after a delay.
    pub fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.delayed.push(Delayed { at: Instant::now() + delay, key });
        drop(state);
        // Whoever sleeps must look at its deadline again.
        self.wake.notify_one();
    }

    /// Adds a key after its back-off: 5 ms, doubled with each call since the last [`Queue::forget`], 5 min at most.
    pub fn add_rate_limited(&self, key: T) {
        let failures = {
            let mut state = self.state.lock();
            let n = state.failures.entry(key.clone()).or_insert(0);
            *n += 1;
            *n
        };
        let delay = BASE_DELAY.saturating_mul(1u32 << (failures - 1).min(20)).min(MAX_DELAY);
        self.add_after(key, delay);
    }

    /// Ends the back-off of a key.
    pub fn forget(&self, key: &T) {
        self.state.lock().failures.remove(key);
    }

    /// Number of times in a row that the key was rate limited.
    pub fn failures(&self, key: &T) -> u32 {
        self.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// The next key, marked as being worked on until [`Queue::done`]; `None` once the queue is closed.
    pub async fn next(&self) -> Option<T> {
        loop {
            let deadline = {
                let mut state = self.state.lock();
                if state.closed {
                    drop(state);
                    self.wake.notify_one();
                    return None;
                }
                let now = Instant::now();
                while state.delayed.peek().is_some_and(|d| d.at <= now) {
                    if let Some(due) = state.delayed.pop() {
                        enqueue(&mut state, due.key);
                    }
                }
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.working.insert(key.clone());
                    let more = !state.ready.is_empty() || !state.delayed.is_empty();
                    drop(state);
                    if more {
                        self.wake.notify_one();
                    }
                    return Some(key);
                }
                state.delayed.peek().map(|d| d.at)
            };
            match deadline {
                Some(at) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends the work on a key; if it was added meanwhile it becomes ready again.
    pub fn done(&self, key: &T) {
        let mut state = self.state.lock();
        state.working.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Number of keys that are ready.
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// True if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: every [`Queue::next`] returns `None`.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_waiters();
        self.wake.notify_one();
    }
}

/// Puts a key into the ready list unless it waits already or is being worked on; true if a worker is to be woken.
fn enqueue<T: Hash + Eq + Clone>(state: &mut State<T>, key: T) -> bool {
    if state.closed || !state.dirty.insert(key.clone()) || state.working.contains(&key) {
        return false;
    }
    state.ready.push_back(key);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_waits_once_and_is_not_handed_out_twice() {
        let q = Queue::new();
        q.add("a");
        q.add("a");
        assert_eq!(q.next().await, Some("a"));
        q.add("a");
        assert!(q.is_empty(), "being worked on");
        q.done(&"a");
        assert_eq!(q.next().await, Some("a"));
        q.done(&"a");
        assert!(q.is_empty());
    }

    #[tokio::test]
    async fn delays_are_kept_and_back_off_doubles() {
        let q = Queue::new();
        let start = Instant::now();
        q.add_after(1, Duration::from_millis(40));
        q.add_after(2, Duration::from_millis(10));
        assert_eq!(q.next().await, Some(2));
        assert_eq!(q.next().await, Some(1));
        assert!(start.elapsed() >= Duration::from_millis(40));
        q.done(&1);
        let start = Instant::now();
        for _ in 0..3 {
            q.add_rate_limited(1);
            assert_eq!(q.next().await, Some(1));
            q.done(&1);
        }
        assert!(start.elapsed() >= Duration::from_millis(35));
        q.forget(&1);
        assert_eq!(q.failures(&1), 0);
    }

    #[tokio::test]
    async fn closing_ends_every_worker() {
        let q: Queue<u8> = Queue::new();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let q = q.clone();
                tokio::spawn(async move { q.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        q.close();
        for w in workers {
            assert_eq!(w.await.unwrap(), None);
        }
    }
}
