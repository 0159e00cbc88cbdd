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
    /// Keys, and since when they wait.
    ready: VecDeque<(T, Instant)>,
    /// Keys in `ready`, or to be put there again when their worker is done.
    dirty: HashSet<T>,
    /// Keys that are being worked on, and since when.
    working: HashMap<T, Instant>,
    seen: Seen,
    delayed: BinaryHeap<Delayed<T>>,
    failures: HashMap<T, u32>,
    closed: bool,
}

#[derive(Default)]
struct Seen {
    adds: u64,
    retries: u64,
    waited: Durations,
    worked: Durations,
}

/// What a queue tells about itself, for metrics.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Keys that are ready.
    pub depth: usize,
    /// Keys that became ready, ever.
    pub adds: u64,
    /// Keys that were put off after a failure, ever.
    pub retries: u64,
    /// How long all keys that are being worked on have been, in sum.
    pub unfinished: Duration,
    /// How long the longest has been.
    pub longest: Duration,
    /// Times from ready to taken.
    pub waited: Durations,
    /// Times from taken to done.
    pub worked: Durations,
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Times up to each of [`BOUNDS`] and above the one before; the last is beyond all of them.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// Their sum in seconds.
    pub sum: f64,
}

/// Upper bounds in seconds.
pub const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

impl Durations {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }
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
            working: HashMap::new(),
            seen: Seen::default(),
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
            state.seen.retries += 1;
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
                if let Some((key, since)) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.working.insert(key.clone(), now);
                    state.seen.waited.add(now - since);
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
        let now = Instant::now();
        if let Some(since) = state.working.remove(key) {
            state.seen.worked.add(now - since);
        }
        if state.dirty.contains(key) {
            state.ready.push_back((key.clone(), now));
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

    /// What the queue has seen up to now.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        let now = Instant::now();
        let running = || state.working.values().map(|since| now - *since);
        Stats {
            depth: state.ready.len(),
            adds: state.seen.adds,
            retries: state.seen.retries,
            unfinished: running().sum(),
            longest: running().max().unwrap_or_default(),
            waited: state.seen.waited.clone(),
            worked: state.seen.worked.clone(),
        }
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
    if state.closed || !state.dirty.insert(key.clone()) {
        return false;
    }
    state.seen.adds += 1;
    if state.working.contains_key(&key) {
        return false;
    }
    state.ready.push_back((key, Instant::now()));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stats_tell_what_happened() {
        let queue = Queue::new();
        queue.add(1);
        queue.add(1);
        queue.add(2);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(queue.next().await, Some(1));
        queue.add(1);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let stats = queue.stats();
        assert_eq!((stats.depth, stats.adds, stats.retries), (1, 3, 0));
        assert!(stats.longest >= Duration::from_millis(20) && stats.unfinished == stats.longest, "{stats:?}");
        assert!(stats.waited.sum >= 0.02 && stats.worked.sum == 0.0, "{stats:?}");
        queue.done(&1);
        queue.add_rate_limited(1);
        let stats = queue.stats();
        assert_eq!((stats.depth, stats.retries, stats.worked.buckets.iter().sum::<u64>()), (2, 1, 1));
        assert!(stats.worked.sum >= 0.02 && stats.unfinished.is_zero(), "{stats:?}");
    }

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
