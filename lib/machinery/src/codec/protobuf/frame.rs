//! Watch streams in protobuf: each event is an envelope without kind, after its length as four bytes, big end first.

use super::{MAGIC, wire::Writer};

/// One event of a `;stream=watch` answer; `object` is the encoded object with its own envelope.
pub fn watch_event(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    let end = out.len();
    out.bytes(1, object);
    out.delimit(2, end);
    out.bytes(1, event.as_bytes());
    let message = out.finish();
    let mut frame = Vec::with_capacity(message.len() + 4);
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// Whether bytes begin like a protobuf object.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}
