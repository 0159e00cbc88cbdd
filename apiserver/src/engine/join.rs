//! Lists put together from what the cache holds: each item's bytes are copied, not made anew, and large lists are streamed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::table::{self, Include};
use super::{Call, present};
use crate::cache::entry::Entry;
use crate::codec::{self, ProtobufList};
use crate::http::body::{self, Body};
use crate::registry::Rules;

/// Answers smaller than this are sent in one piece with their length.
const ONE_PIECE: usize = 128 * 1024;
/// Size of the parts of larger ones. With each the connection's task is woken, on another core perhaps.
const PART: usize = 128 * 1024;

/// What an item of the list is.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// The object without kind and apiVersion.
    Object,
    /// Its metadata, with the v1 of the meta group or v1beta1.
    Metadata(&'static str),
    /// A row of a Table.
    Row {
        /// What it carries of the object.
        include: Include,
        /// The meta group's version.
        meta_version: &'static str,
        /// Where the cells come from.
        rules: &'static Rules,
        /// The time that ages are counted to.
        now: jiff::Timestamp,
    },
}

impl Item {
    fn write(self, entry: &Entry, out: &mut BytesMut) {
        match self {
            Self::Object => {
                out.extend_from_slice(b"{");
                entry.write_item(out);
            }
            Self::Metadata(version) => metadata(entry, version, out),
            Self::Row { include, meta_version, rules, now } => {
                let cells = Value::Array(table::cells(&entry.glance(), rules, now));
                out.extend_from_slice(b"{\"cells\":");
                out.extend_from_slice(cells.to_string().as_bytes());
                out.extend_from_slice(b",\"object\":");
                match include {
                    Include::None => out.extend_from_slice(b"null"),
                    Include::Metadata => metadata(entry, meta_version, out),
                    Include::Object => entry.write(out),
                }
                out.extend_from_slice(b"}");
            }
        }
    }
}

fn metadata(entry: &Entry, version: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    entry.write_metadata(out);
    out.extend_from_slice(b"}");
}

/// A list in JSON: the head up to its items' opening bracket, then the items.
pub fn json(head: String, entries: Vec<Arc<Entry>>, item: Item, content_type: &str) -> Response<Body> {
    let size: usize = entries.iter().map(|entry| entry.size()).sum();
    let mut parts = Join { head: Some(head), entries: entries.into_iter(), item, first: true, done: false };
    if size < ONE_PIECE {
        return present::bytes(StatusCode::OK, content_type, parts.part(usize::MAX));
    }
    let stream = futures::stream::iter(std::iter::from_fn(move || (!parts.done).then(|| parts.part(PART))));
    present::with_body(StatusCode::OK, content_type, body::stream(stream))
}

/// A list in protobuf.
pub fn protobuf(list: ProtobufList, content_type: &str) -> Response<Body> {
    let ProtobufList { head, messages, size } = list;
    let (mut head, mut messages) = (Some(head), messages.into_iter());
    let mut part = move |limit: usize| {
        let mut out = BytesMut::with_capacity(limit.min(size) + 16 * 1024);
        out.extend_from_slice(&head.take()?);
        while out.len() < limit {
            let Some(message) = messages.next() else {
                out.extend_from_slice(&codec::TAIL);
                return Some(out.freeze());
            };
            codec::item_head(&message, &mut out);
            out.extend_from_slice(&message);
        }
        // There is more: nothing of the head.
        head = Some(Vec::new());
        Some(out.freeze())
    };
    if size < ONE_PIECE {
        return present::bytes(StatusCode::OK, content_type, part(usize::MAX).unwrap_or_default());
    }
    present::with_body(
        StatusCode::OK,
        content_type,
        body::stream(futures::stream::iter(std::iter::from_fn(move || part(PART)))),
    )
}

/// The head of a list whose items are given to [`json`]: `empty` is the list without items, which are its last field.
pub fn head(call: &Call, empty: &Value) -> Result<String, ApiError> {
    let text = codec::encode(call.state.schema, empty, crate::http::negotiate::Encoding::Json, false)?;
    let text = String::from_utf8_lossy(&text);
    let head = text.trim_end().strip_suffix("]}").unwrap_or(&text);
    Ok(head.to_owned())
}

struct Join {
    head: Option<String>,
    entries: std::vec::IntoIter<Arc<Entry>>,
    item: Item,
    first: bool,
    done: bool,
}

impl Join {
    /// The next part, about `size` bytes long.
    fn part(&mut self, size: usize) -> Bytes {
        let mut out = BytesMut::with_capacity(size.min(PART + 16 * 1024));
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
        }
        while out.len() < size {
            let Some(entry) = self.entries.next() else {
                out.extend_from_slice(b"]}\n");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                out.extend_from_slice(b",");
            }
            self.item.write(&entry, &mut out);
        }
        out.freeze()
    }
}
