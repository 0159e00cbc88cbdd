//! Watch events as bytes: each is made once for all watchers that want it in the same form. Watchers of a resource are at about the
//! same place, so a few frames are enough.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use pintle_store::Revision;

use crate::http::negotiate::Encoding;

/// So many bytes are kept, and so many frames.
const BYTES: usize = 1 << 20;
const FRAMES: usize = 64;

/// Which event, and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The change.
    pub revision: Revision,
    /// `ADDED`, `MODIFIED` or `DELETED`: not every watcher sees the same in a change.
    pub kind: &'static str,
    /// How it is written.
    pub encoding: Encoding,
}

/// The latest frames of a resource.
#[derive(Debug, Default)]
pub struct Frames(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    frames: VecDeque<(Key, Bytes)>,
    bytes: usize,
}

impl Frames {
    /// A frame, made if it is not there.
    pub fn get<E>(&self, key: Key, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Bytes, E> {
        let mut kept = self.0.lock();
        if let Some((_, frame)) = kept.frames.iter().rev().find(|(other, _)| *other == key) {
            return Ok(frame.clone());
        }
        // Made under the lock: others are about to want it too.
        let frame = Bytes::from(make()?);
        kept.bytes += frame.len();
        kept.frames.push_back((key, frame.clone()));
        while kept.bytes > BYTES || kept.frames.len() > FRAMES {
            let Some((_, old)) = kept.frames.pop_front() else { break };
            kept.bytes -= old.len();
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_made_once_and_memory_is_bounded() {
        let frames = Frames::default();
        let key = |revision| Key { revision, kind: "ADDED", encoding: Encoding::Json };
        let make = |key, byte: u8| frames.get(key, || Ok::<_, ()>(vec![byte; 100_000])).unwrap();
        assert_eq!(make(key(1), 1)[0], 1);
        assert_eq!(make(key(1), 2)[0], 1);
        assert_eq!(make(Key { kind: "MODIFIED", ..key(1) }, 3)[0], 3);
        for revision in 2..30 {
            make(key(revision), 4);
        }
        assert!(frames.0.lock().bytes <= BYTES);
        assert_eq!(make(key(1), 5)[0], 5);
        assert_eq!(frames.get(key(50), || Err("no")), Err("no"));
    }
}
