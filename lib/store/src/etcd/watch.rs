//! A watch: one stream from a member, opened again at another one after a failure, from where it was.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::client::Client;
use super::key_value;
use crate::contract::{Revision, WatchEvent};
use crate::error::{Error, Result};
use crate::grpc::{self, Failure};
use crate::messages::{Event, WatchAction, WatchCreate, WatchProgress, WatchRequest, WatchResponse};

/// Events that may wait for the reader; then etcd has to keep them.
pub(super) const QUEUE: usize = 4096;
/// Pause before a watch is opened again.
const RETRY: Duration = Duration::from_millis(100);
/// etcd does not answer a request for progress while a watch is behind: it is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The kind of an event that is a deletion.
const DELETION: i32 = 1;

/// What a watch looks at.
#[derive(Debug, Clone)]
pub(super) struct Range {
    pub key: Bytes,
    pub end: Bytes,
}

/// A watch in progress.
pub(super) struct Follower {
    client: Arc<Client>,
    range: Range,
    /// All changes up to here have been delivered.
    seen: Revision,
    events: mpsc::Sender<Result<WatchEvent>>,
    /// Somebody wants to know how far the watch is.
    asked: mpsc::UnboundedReceiver<()>,
    /// They have not been answered yet.
    waiting: bool,
}

/// Why a stream ended.
enum End {
    /// It can go on at another member.
    Broken(String),
    /// Nobody reads any more.
    Unread,
    /// It can't go on.
    Error(Error),
}

impl Follower {
    pub(super) fn new(
        client: Arc<Client>,
        range: Range,
        from: Revision,
        events: mpsc::Sender<Result<WatchEvent>>,
        asked: mpsc::UnboundedReceiver<()>,
    ) -> Self {
        Self { client, range, seen: from, events, asked, waiting: false }
    }

    /// Delivers changes until the reader is gone or a part of the history is.
    pub(super) async fn run(mut self) {
        loop {
            let (member, channel) = self.client.member();
            match self.stream(channel).await {
                End::Unread => return,
                End::Error(error) => {
                    let _ = self.events.send(Err(error)).await;
                    return;
                }
                End::Broken(reason) => {
                    tracing::info!(member, reason, seen = self.seen, "etcd watch broke off, opening it again");
                    self.client.give_up(member);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = self.events.closed() => return,
            }
        }
    }

    async fn stream(&mut self, channel: tonic::transport::Channel) -> End {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let create = WatchCreate {
            key: self.range.key.clone(),
            range_end: self.range.end.clone(),
            start_revision: self.seen + 1,
            progress_notify: true,
            fragment: true,
        };
        let _ = requests.send(request(WatchAction::Create(create)));
        let opened =
            grpc::streaming(channel, "/etcdserverpb.Watch/Watch", UnboundedReceiverStream::new(outgoing)).await;
        let mut answers: tonic::Streaming<WatchResponse> = match opened {
            Ok(answers) => answers,
            Err(failure) => return End::Broken(failure.text()),
        };
        let mut fragments = Vec::new();
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                Some(()) = self.asked.recv(), if !self.waiting => {
                    self.ask(&requests);
                    continue;
                }
                () = tokio::time::sleep(ASK_AGAIN), if self.waiting => {
                    self.ask(&requests);
                    continue;
                }
                () = self.events.closed() => return End::Unread,
            };
            match answer {
                None => return End::Broken("the stream ended".into()),
                Some(Err(status)) => return End::Broken(Failure::of(status).text()),
                Some(Ok(answer)) => {
                    if let Some(end) = self.take(answer, &mut fragments).await {
                        return end;
                    }
                }
            }
        }
    }

    fn ask(&mut self, requests: &mpsc::UnboundedSender<WatchRequest>) {
        while self.asked.try_recv().is_ok() {}
        self.waiting = true;
        let _ = requests.send(request(WatchAction::Progress(WatchProgress {})));
    }

    /// Delivers an answer; parts of one revision are delivered together, so that a watch never goes on in the middle of it.
    async fn take(&mut self, answer: WatchResponse, fragments: &mut Vec<Event>) -> Option<End> {
        if answer.canceled {
            return Some(self.cancelled(&answer));
        }
        let progress = answer.events.is_empty() && !answer.created && !answer.fragment && fragments.is_empty();
        if progress {
            self.waiting = false;
            // A progress report may come from a member that is behind what this watch has delivered.
            let revision = answer.header.map_or(0, |header| header.revision).max(self.seen);
            self.seen = revision;
            return self.deliver(WatchEvent::Progress(revision)).await;
        }
        fragments.extend(answer.events);
        if answer.fragment {
            return None;
        }
        for event in std::mem::take(fragments).into_iter().filter_map(change) {
            let revision = event.revision();
            if let Some(end) = self.deliver(event).await {
                return Some(end);
            }
            self.seen = self.seen.max(revision);
        }
        None
    }

    fn cancelled(&self, answer: &WatchResponse) -> End {
        match answer.compact_revision {
            0 => End::Broken(format!("cancelled: {}", answer.cancel_reason)),
            oldest => End::Error(Error::Compacted { requested: self.seen, oldest }),
        }
    }

    async fn deliver(&self, event: WatchEvent) -> Option<End> {
        self.events.send(Ok(event)).await.err().map(|_| End::Unread)
    }
}

fn request(action: WatchAction) -> WatchRequest {
    WatchRequest { request: Some(action) }
}

fn change(event: Event) -> Option<WatchEvent> {
    let pair = event.kv?;
    if event.kind != DELETION {
        return key_value(pair).map(WatchEvent::Put);
    }
    let key = String::from_utf8(pair.key.into()).ok()?;
    Some(WatchEvent::Delete { key, revision: pair.mod_revision })
}
