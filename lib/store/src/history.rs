//! The recent events of a store, for watches that start in the past.

use std::collections::VecDeque;

use crate::contract::{Revision, WatchEvent};

/// How much history a store keeps in memory. Older events are forgotten when either limit is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Most events.
    pub events: usize,
    /// Most bytes of keys and values that the events refer to.
    pub bytes: usize,
}

impl Default for Window {
    /// Enough to cover the time between a list and the watch that follows it under a heavy load of writes.
    fn default() -> Self {
        Self { events: 8192, bytes: 16 << 20 }
    }
}

/// Ring of recent events in order of revision.
#[derive(Debug)]
pub(crate) struct History {
    window: Window,
    events: VecDeque<WatchEvent>,
    bytes: usize,
    /// All events after this revision are known.
    floor: Revision,
}

impl History {
    pub(crate) fn new(window: Window, floor: Revision) -> Self {
        Self { window, events: VecDeque::new(), bytes: 0, floor }
    }

    pub(crate) fn push(&mut self, event: WatchEvent) {
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.events.len() > self.window.events || self.bytes > self.window.bytes {
            self.pop();
        }
    }

    /// The oldest revision that a watch can start from.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    pub(crate) fn compact(&mut self, revision: Revision) {
        while self.events.front().is_some_and(|e| e.revision() <= revision) {
            self.pop();
        }
        self.floor = self.floor.max(revision);
    }

    /// The events after `from`, in order.
    pub(crate) fn after(&self, from: Revision) -> impl Iterator<Item = &WatchEvent> {
        let start = self.events.partition_point(|e| e.revision() <= from);
        self.events.range(start..)
    }

    fn pop(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= weight(&event);
            self.floor = event.revision();
        }
    }
}

/// What an event holds in memory. The value is often the current one, which is there anyway; it may outlive that.
fn weight(event: &WatchEvent) -> usize {
    match event {
        WatchEvent::Put(kv) => kv.key.len() + kv.value.len(),
        WatchEvent::Delete { key, .. } => key.len(),
        WatchEvent::Progress(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(revision: Revision) -> WatchEvent {
        WatchEvent::Delete { key: "/k".into(), revision }
    }

    fn revisions(history: &History, from: Revision) -> Vec<Revision> {
        history.after(from).map(WatchEvent::revision).collect()
    }

    #[test]
    fn forgets_the_oldest_beyond_either_limit() {
        for window in [Window { events: 2, bytes: 1000 }, Window { events: 1000, bytes: 5 }] {
            let mut history = History::new(window, 10);
            for revision in 11..=14 {
                history.push(deletion(revision));
            }
            assert_eq!((history.floor(), revisions(&history, 12)), (12, vec![13, 14]), "{window:?}");
            assert_eq!(revisions(&history, 13), [14]);
            assert_eq!(revisions(&history, 99), [0; 0]);
        }
    }

    #[test]
    fn compaction_moves_the_floor_even_without_events() {
        let mut history = History::new(Window::default(), 1);
        history.push(deletion(3));
        history.push(deletion(5));
        history.compact(4);
        assert_eq!((history.floor(), revisions(&history, 4)), (4, vec![5]));
        history.compact(2);
        assert_eq!(history.floor(), 4, "never back");
        history.compact(5);
        assert_eq!((history.floor(), history.bytes), (5, 0));
    }
}
