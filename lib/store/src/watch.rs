//! The reading end of a watch and the registry of the writing ends.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::contract::{Revision, WatchEvent};
use crate::error::{Error, Result};

/// Undelivered live events that a watcher may pile up before it is cut off.
const QUEUE: usize = 16 * 1024;

/// The changes under a prefix, in order. Ends after an error; ends without one when the store is closed.
pub struct Watch(BoxStream<'static, Result<WatchEvent>>);

impl Watch {
    /// A watch out of any stream of changes.
    pub fn new(changes: impl Stream<Item = Result<WatchEvent>> + Send + 'static) -> Self {
        Self(changes.boxed())
    }

    /// The next event; `None` at the end. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Result<WatchEvent>> {
        self.0.next().await
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

/// The reading end of a watch of [`Watchers`].
struct Queue {
    events: mpsc::Receiver<WatchEvent>,
    lagged: Arc<AtomicBool>,
}

impl Stream for Queue {
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match ready!(self.events.poll_recv(cx)) {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if self.lagged.swap(false, Ordering::AcqRel) => Poll::Ready(Some(Err(Error::Lagged))),
            None => Poll::Ready(None),
        }
    }
}

/// The writing end of one watch.
#[derive(Debug)]
struct Watcher {
    prefix: String,
    /// Only events after this are wanted.
    from: Revision,
    sender: mpsc::Sender<WatchEvent>,
    lagged: Arc<AtomicBool>,
}

impl Watcher {
    fn wants(&self, event: &WatchEvent) -> bool {
        event.revision() > self.from && event.key().is_none_or(|key| key.starts_with(&self.prefix))
    }

    /// False if the watch has ended: the reader is gone, or is too slow and gets cut off.
    fn send(&self, event: &WatchEvent) -> bool {
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lagged.store(true, Ordering::Release);
                false
            }
        }
    }
}

/// All open watches of a store.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    /// Opens a watch that starts with `past`, which are events under `prefix` after `from`.
    pub(crate) fn open(&mut self, prefix: &str, from: Revision, past: Vec<WatchEvent>) -> Watch {
        let (sender, events) = mpsc::channel(QUEUE + past.len());
        let lagged = Arc::new(AtomicBool::new(false));
        let watcher = Watcher { prefix: prefix.into(), from, sender, lagged: lagged.clone() };
        for event in &past {
            watcher.send(event);
        }
        self.0.retain(|watcher| !watcher.sender.is_closed());
        self.0.push(watcher);
        Watch::new(Queue { events, lagged })
    }

    /// Delivers an event to those who want it, and forgets the watches that have ended.
    pub(crate) fn publish(&mut self, event: &WatchEvent) {
        self.0.retain(|watcher| if watcher.wants(event) { watcher.send(event) } else { !watcher.sender.is_closed() });
    }

    /// Ends all watches.
    pub(crate) fn close(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_what_fits_and_then_an_error() {
        let mut watchers = Watchers::default();
        let mut watch = watchers.open("/", 0, Vec::new());
        let last = QUEUE as Revision + 1;
        for revision in 1..=last {
            watchers.publish(&WatchEvent::Delete { key: "/a".into(), revision });
        }
        assert_eq!(watchers.len(), 0);
        for revision in 1..last {
            assert_eq!(watch.recv().await.expect("event").expect("ok").revision(), revision);
        }
        assert!(matches!(watch.recv().await, Some(Err(Error::Lagged))));
        assert!(watch.recv().await.is_none());
    }

    #[tokio::test]
    async fn dropped_watches_are_forgotten() {
        let mut watchers = Watchers::default();
        (0..1000).for_each(|_| drop(watchers.open("/a/", 0, Vec::new())));
        assert_eq!(watchers.len(), 1);
        drop(watchers.open("/a/", 0, Vec::new()));
        let _kept = watchers.open("/b/", 0, Vec::new());
        watchers.publish(&WatchEvent::Delete { key: "/c".into(), revision: 1 });
        assert_eq!(watchers.len(), 1);
    }
}
