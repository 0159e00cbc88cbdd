//! The watch verb: a place in the cache's ring of events, filtered and encoded for one client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use pintle_machinery::selector::field;
use pintle_machinery::status::{ApiError, Status};
use pintle_store::Revision;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::list_options::WatchOptions;
use super::present;
use super::table::{self, Include};
use super::{Answer, Call, read, storage_error};
use crate::cache::entry::Entry;
use crate::cache::frames::Key;
use crate::cache::{Cache, Cursor, Event, Lost};
use crate::codec;
use crate::http::body;
use crate::http::negotiate::{Accepted, Encoding, Form};

/// Bookmarks come about this often.
const BOOKMARK: Duration = Duration::from_secs(60);
/// A watch without `timeoutSeconds` ends after this time, and up to twice as much.
const SHORTEST: Duration = Duration::from_secs(1800);
/// Events looked at in one go.
const BATCH: usize = 256;
/// Bytes sent in one go.
const PART: usize = 64 * 1024;

/// The watch verb.
pub async fn watch(call: Call) -> Answer {
    let mut options = WatchOptions::parse(&call.query, &call.resource)?;
    if options.selection.fields.is_everything() && !call.info.name.is_empty() {
        // `/watch/…/NAME`, the older way to watch one object.
        let one = field::Selector::parse(&format!("metadata.name={}", call.info.name));
        options.selection.fields = one.map_err(|error| ApiError::BadRequest(error.to_string()))?;
    }
    let include = Include::parse(&call.query)?;
    let cache = read::cache(&call)?.clone();
    let content_type = call.accepted.content_type(true);
    let deadline = Instant::now() + timeout(&call);
    let next_bookmark = options.bookmarks.then(|| Instant::now() + BOOKMARK);
    let from_start = options.initial_events || (options.revision.unwrap_or(0) == 0 && !options.changes_only);
    let mut watcher = Watcher {
        prefix: call.resource.prefix(&call.info.namespace),
        deadline,
        next_bookmark,
        timer: Box::pin(tokio::time::sleep_until(next_bookmark.unwrap_or(deadline).min(deadline))),
        shutdown: Box::pin(call.state.shutdown.clone().cancelled_owned()),
        initial: VecDeque::new(),
        cursor: None,
        failed: None,
        headings: true,
        drained: false,
        announce: None,
        done: false,
        include,
        options,
        cache,
        call,
    };
    if from_start {
        watcher.start_with_present_objects().await?;
    } else {
        let now = || watcher.call.caches().revision();
        watcher.start_after(watcher.options.revision.filter(|revision| *revision > 0).unwrap_or_else(now));
    }
    let parts =
        futures::stream::unfold(
            watcher,
            |mut watcher| async move { watcher.next().await.map(|bytes| (bytes, watcher)) },
        );
    Ok(present::with_body(StatusCode::OK, &content_type, body::stream(parts)))
}

fn timeout(call: &Call) -> Duration {
    match call.query.number("timeoutSeconds").and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => SHORTEST.mul_f64(1.0 + rand::random::<f64>()),
    }
}

struct Watcher {
    call: Call,
    cache: Arc<Cache>,
    options: WatchOptions,
    prefix: String,
    include: Include,
    /// Present objects that are still to be sent.
    initial: VecDeque<Arc<Entry>>,
    /// Revision to announce once they are sent.
    announce: Option<Revision>,
    cursor: Option<Cursor>,
    failed: Option<ApiError>,
    headings: bool,
    /// The ring has been looked at to its end.
    drained: bool,
    deadline: Instant,
    /// `None`: the client wants none.
    next_bookmark: Option<Instant>,
    /// Wakes at the next of both.
    timer: Pin<Box<Sleep>>,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    done: bool,
}

impl Watcher {
    async fn start_with_present_objects(&mut self) -> Result<(), ApiError> {
        let reached = match self.options.revision {
            None => self.call.caches().consistent().await.map_err(storage_error)?,
            Some(0) => self.call.caches().revision(),
            Some(revision) => read::reach(&self.call, revision).await?,
        };
        let (snapshot, newest, cursor) = self.cache.snapshot_and_cursor();
        let selection = &self.options.selection;
        self.initial = snapshot.range(&self.prefix, None).filter(|entry| selection.matches(entry)).cloned().collect();
        self.cursor = Some(cursor);
        if self.options.initial_events && self.options.bookmarks {
            self.announce = Some(reached.max(newest));
        }
        Ok(())
    }

    fn start_after(&mut self, revision: Revision) {
        match self.cache.cursor_after(revision) {
            Ok(cursor) => self.cursor = Some(cursor),
            // The request itself is fine: the answer is an event.
            Err(Lost::Forgotten(oldest)) => {
                self.failed = Some(ApiError::Expired(format!("too old resource version: {revision} ({oldest})")));
            }
        }
    }

    /// The next bytes for the client; `None`: the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done {
                return None;
            }
            if let Some(error) = self.failed.take() {
                self.done = true;
                return Some(self.frame("ERROR", &error.status().to_value()));
            }
            let out = self.ready();
            if !out.is_empty() {
                return Some(out.bytes());
            }
            if self.failed.is_some() || !self.drained {
                continue;
            }
            let cursor = self.cursor.as_mut()?;
            tokio::select! {
                alive = cursor.wait() => if !alive { return None },
                () = &mut self.timer => {
                    if self.deadline <= Instant::now() {
                        return None;
                    }
                    return Some(self.bookmark());
                }
                () = &mut self.shutdown => return None,
            }
        }
    }

    /// What can be sent now.
    fn ready(&mut self) -> Out {
        let mut out = Out::default();
        while out.joined.len() < PART
            && let Some(entry) = self.initial.pop_front()
        {
            self.write(&mut out.joined, "ADDED", &entry);
        }
        if !self.initial.is_empty() {
            return out;
        }
        if let Some(revision) = self.announce.take() {
            out.push(self.bookmark_frame(revision, true));
        }
        let Some(cursor) = self.cursor.as_mut() else {
            self.drained = true;
            return out;
        };
        match self.cache.events(cursor, BATCH) {
            Ok(events) => {
                self.drained = self.cache.is_drained(cursor);
                for event in events {
                    self.event(&mut out, &event);
                }
            }
            // Too slow: the client has to list again.
            Err(Lost::Forgotten(_)) => {
                self.failed = Some(ApiError::Expired("The resourceVersion for the provided watch is too old.".into()));
            }
        }
        out
    }

    fn event(&mut self, out: &mut Out, event: &Event) {
        let selection = &self.options.selection;
        let wanted = |entry: &Option<Arc<Entry>>| {
            entry.as_ref().is_some_and(|entry| entry.key.starts_with(&self.prefix) && selection.matches(entry))
        };
        match (wanted(&event.before), wanted(&event.now), &event.before, &event.now) {
            (false, true, _, Some(now)) => self.push(out, "ADDED", now),
            (true, true, _, Some(now)) => self.push(out, "MODIFIED", now),
            (true, false, Some(before), _) => self.push(out, "DELETED", &before.at_revision(event.revision)),
            _ => {}
        }
    }

    /// An event as all watchers of this form see it.
    fn push(&mut self, out: &mut Out, kind: &'static str, entry: &Entry) {
        let Accepted { form, encoding, .. } = self.call.accepted;
        let shared = form == Form::Object && encoding != Encoding::Yaml && self.call.resource.serves_stored_form();
        if !shared {
            return self.write(out.join(), kind, entry);
        }
        let cache = self.cache.clone();
        let key = Key { revision: entry.revision, kind, encoding };
        let frame = cache.frames.get(key, || {
            let mut frame = Vec::with_capacity(entry.size() + 64);
            self.write(&mut frame, kind, entry);
            self.failed.take().map_or(Ok(frame), Err)
        });
        match frame {
            Ok(frame) => out.push(frame),
            Err(error) => self.failed = Some(error),
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, kind: &str, entry: &Entry) {
        let accepted = self.call.accepted;
        let resource = self.call.resource.clone();
        match (accepted.form, accepted.encoding) {
            (Form::Object, Encoding::Json) if resource.serves_stored_form() => {
                out.extend_from_slice(b"{\"type\":\"");
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(b"\",\"object\":");
                entry.write(out);
                out.extend_from_slice(b"}\n");
            }
            (Form::Object, Encoding::Protobuf) => match codec::protobuf_event(&self.call, kind, entry) {
                Ok(frame) => out.extend_from_slice(&frame),
                Err(error) => self.failed = Some(error),
            },
            (Form::Object, _) => {
                let mut value = entry.value();
                codec::to_served(&self.call, &mut value);
                out.extend_from_slice(&self.frame(kind, &value));
            }
            (Form::Table(v1), _) => {
                let value = entry.value();
                let meta = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                let headings = std::mem::take(&mut self.headings);
                let table = table::render(&self.call, &[value], meta, self.include, v1, headings);
                out.extend_from_slice(&self.frame(kind, &table));
            }
            (Form::Metadata(v1), _) => {
                out.extend_from_slice(&self.frame(kind, &present::partial_metadata(&entry.value(), v1)));
            }
        }
    }

    fn bookmark(&mut self) -> Bytes {
        self.bookmark_at(Instant::now() + BOOKMARK);
        // What has been published up to this revision is in the ring: once that is drained, all of it has been sent.
        let revision = self.call.caches().revision();
        let mut out = self.ready();
        if !self.drained {
            self.bookmark_at(Instant::now());
            return out.bytes();
        }
        out.push(self.bookmark_frame(revision, false));
        out.bytes()
    }

    fn bookmark_at(&mut self, time: Instant) {
        self.next_bookmark = Some(time);
        self.timer.as_mut().reset(time.min(self.deadline));
    }

    fn bookmark_frame(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let resource = self.call.resource.clone();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        match self.call.accepted.form {
            Form::Object => {
                codec::normalize(self.call.state.schema, &mut object);
                self.frame("BOOKMARK", &object)
            }
            Form::Table(v1) => {
                let meta = json!({"resourceVersion": revision.to_string()});
                let headings = std::mem::take(&mut self.headings);
                let table = table::render(&self.call, &[object], meta, self.include, v1, headings);
                self.frame("BOOKMARK", &table)
            }
            Form::Metadata(v1) => self.frame("BOOKMARK", &present::partial_metadata(&object, v1)),
        }
    }

    /// One event of any object in the client's encoding.
    fn frame(&self, kind: &str, object: &Value) -> Bytes {
        let schema = self.call.state.schema;
        match codec::watch_frame(schema, kind, object, self.call.accepted.encoding) {
            Ok(bytes) => bytes,
            Err(error) => {
                let status = match error {
                    ApiError::Other(status) => *status,
                    other => other.status(),
                };
                json_frame("ERROR", &status)
            }
        }
    }
}

/// What is sent in one go. One frame alone is not copied.
#[derive(Default)]
struct Out {
    /// The first frame, if nothing has been joined.
    only: Bytes,
    joined: Vec<u8>,
}

impl Out {
    fn is_empty(&self) -> bool {
        self.only.is_empty() && self.joined.is_empty()
    }

    /// For more than one frame.
    fn join(&mut self) -> &mut Vec<u8> {
        self.joined.extend_from_slice(&std::mem::take(&mut self.only));
        &mut self.joined
    }

    fn push(&mut self, frame: Bytes) {
        match self.is_empty() {
            true => self.only = frame,
            false => self.join().extend_from_slice(&frame),
        }
    }

    fn bytes(self) -> Bytes {
        if self.joined.is_empty() { self.only } else { self.joined.into() }
    }
}

fn json_frame(kind: &str, status: &Status) -> Bytes {
    let mut line = json!({"type": kind, "object": status.to_value()}).to_string();
    line.push('\n');
    line.into()
}
