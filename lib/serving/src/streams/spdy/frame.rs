//! Frame layout of SPDY/3.1: pure encoding and decoding.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Every frame starts with this many bytes.
pub(super) const HEAD: usize = 8;
/// A control frame longer than this is refused.
pub(super) const MAX_CONTROL: usize = 64 * 1024;
const VERSION: u16 = 3;
const FIN: u8 = 1;
const ID_MASK: u32 = 0x7fff_ffff;

mod kind {
    pub const SYN_STREAM: u16 = 1;
    pub const SYN_REPLY: u16 = 2;
    pub const RST_STREAM: u16 = 3;
    pub const PING: u16 = 6;
    pub const GOAWAY: u16 = 7;
    pub const HEADERS: u16 = 8;
    pub const WINDOW_UPDATE: u16 = 9;
}

/// Status codes of RST_STREAM that this side sends.
pub(super) mod reset {
    /// The peer broke the rules of this stream.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// No such stream.
    pub const INVALID_STREAM: u32 = 2;
    /// The stream was not taken up.
    pub const REFUSED: u32 = 3;
    /// The sender of the stream gave up.
    pub const CANCEL: u32 = 5;
}

/// The first eight bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Payload of a stream.
    Data { stream: u32, fin: bool, len: usize },
    /// Anything else.
    Control { kind: u16, flags: u8, len: usize },
}

impl Head {
    /// Reads a frame's head; `Err` names what is wrong.
    pub(super) fn parse(raw: [u8; HEAD]) -> Result<Self, String> {
        let mut reader = &raw[..];
        let word = reader.get_u32();
        let tail = reader.get_u32();
        let (flags, len) = ((tail >> 24) as u8, (tail & 0x00ff_ffff) as usize);
        if word & !ID_MASK == 0 {
            return Ok(Self::Data { stream: word & ID_MASK, fin: flags & FIN != 0, len });
        }
        let version = ((word & ID_MASK) >> 16) as u16;
        if version != VERSION {
            return Err(format!("SPDY version {version} is not supported"));
        }
        if len > MAX_CONTROL {
            return Err(format!("control frame of {len} bytes is too long"));
        }
        Ok(Self::Control { kind: (word & 0xffff) as u16, flags, len })
    }
}

/// A control frame; header blocks still compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// Opens a stream.
    SynStream { stream: u32, fin: bool, block: Bytes },
    /// Accepts a stream.
    SynReply { stream: u32, fin: bool, block: Bytes },
    /// Ends a stream at once.
    Reset { stream: u32, status: u32 },
    /// Asks for (or answers with) the same id.
    Ping { id: u32 },
    /// No further streams.
    GoAway { last: u32, status: u32 },
    /// Further headers of a stream.
    Headers { stream: u32, fin: bool, block: Bytes },
    /// Credit for a stream.
    WindowUpdate { stream: u32, delta: u32 },
    /// Settings, or a frame type that this version does not know: to be ignored.
    Ignored,
}

impl Control {
    /// Reads the body of a control frame.
    pub(super) fn parse(kind: u16, flags: u8, mut body: Bytes) -> Result<Self, String> {
        let need = match kind {
            kind::SYN_STREAM => 10,
            kind::SYN_REPLY | kind::HEADERS | kind::PING => 4,
            kind::RST_STREAM | kind::GOAWAY | kind::WINDOW_UPDATE => 8,
            // SETTINGS carry nothing that this side acts on; unknown types are to be skipped.
            _ => return Ok(Self::Ignored),
        };
        if body.len() < need {
            return Err(format!("control frame {kind} of {} bytes is too short", body.len()));
        }
        let fin = flags & FIN != 0;
        let first = body.get_u32() & ID_MASK;
        Ok(match kind {
            kind::SYN_STREAM => {
                body.advance(6); // associated stream, priority, slot
                Self::SynStream { stream: first, fin, block: body }
            }
            kind::SYN_REPLY => Self::SynReply { stream: first, fin, block: body },
            kind::HEADERS => Self::Headers { stream: first, fin, block: body },
            kind::RST_STREAM => Self::Reset { stream: first, status: body.get_u32() },
            kind::GOAWAY => Self::GoAway { last: first, status: body.get_u32() },
            kind::WINDOW_UPDATE => Self::WindowUpdate { stream: first, delta: body.get_u32() & ID_MASK },
            _ => Self::Ping { id: first },
        })
    }

    /// Appends the frame.
    pub(super) fn write(&self, out: &mut BytesMut) {
        match self {
            Self::SynStream { stream, fin, block } => {
                control_head(out, kind::SYN_STREAM, *fin, 10 + block.len());
                out.put_u32(*stream);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(block);
            }
            Self::SynReply { stream, fin, block } => with_block(out, kind::SYN_REPLY, *stream, *fin, block),
            Self::Headers { stream, fin, block } => with_block(out, kind::HEADERS, *stream, *fin, block),
            Self::Reset { stream, status } => two_words(out, kind::RST_STREAM, *stream, *status),
            Self::GoAway { last, status } => two_words(out, kind::GOAWAY, *last, *status),
            Self::WindowUpdate { stream, delta } => two_words(out, kind::WINDOW_UPDATE, *stream, *delta),
            Self::Ping { id } => {
                control_head(out, kind::PING, false, 4);
                out.put_u32(*id);
            }
            Self::Ignored => {}
        }
    }
}

/// The head of a data frame.
pub(super) fn data_head(stream: u32, fin: bool, len: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&(stream & ID_MASK).to_be_bytes());
    head[4..].copy_from_slice(&(len as u32 & 0x00ff_ffff).to_be_bytes());
    head[4] = if fin { FIN } else { 0 };
    head
}

fn control_head(out: &mut BytesMut, kind: u16, fin: bool, len: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    out.put_u32(len as u32 | if fin { u32::from(FIN) << 24 } else { 0 });
}

fn with_block(out: &mut BytesMut, kind: u16, stream: u32, fin: bool, block: &Bytes) {
    control_head(out, kind, fin, 4 + block.len());
    out.put_u32(stream);
    out.put_slice(block);
}

fn two_words(out: &mut BytesMut, kind: u16, first: u32, second: u32) {
    control_head(out, kind, false, 8);
    out.put_u32(first);
    out.put_u32(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reparse(frame: &Control) -> Control {
        let mut out = BytesMut::new();
        frame.write(&mut out);
        let head = Head::parse(out[..HEAD].try_into().unwrap()).unwrap();
        let Head::Control { kind, flags, len } = head else { panic!("not a control frame") };
        assert_eq!(len, out.len() - HEAD);
        Control::parse(kind, flags, out.freeze().slice(HEAD..)).unwrap()
    }

    #[test]
    fn control_frames_round_trip() {
        let block = Bytes::from_static(b"block");
        for frame in [
            Control::SynStream { stream: 5, fin: true, block: block.clone() },
            Control::SynReply { stream: 5, fin: false, block: block.clone() },
            Control::Headers { stream: 7, fin: true, block },
            Control::Reset { stream: 9, status: reset::CANCEL },
            Control::Ping { id: 3 },
            Control::GoAway { last: 11, status: 0 },
            Control::WindowUpdate { stream: 1, delta: 65536 },
        ] {
            assert_eq!(reparse(&frame), frame);
        }
    }

    #[test]
    fn the_wire_layout_is_the_specified_one() {
        let mut out = BytesMut::new();
        Control::Reset { stream: 1, status: 3 }.write(&mut out);
        assert_eq!(&out[..], [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(data_head(3, true, 258), [0, 0, 0, 3, 1, 0, 1, 2]);
    }

    #[test]
    fn bad_frames_are_errors() {
        assert!(Head::parse([0x80, 2, 0, 1, 0, 0, 0, 0]).is_err(), "version 2");
        assert!(Head::parse([0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]).is_err(), "too long");
        assert!(Control::parse(kind::SYN_STREAM, 0, Bytes::from_static(&[0; 9])).is_err(), "too short");
        assert_eq!(Control::parse(99, 0, Bytes::new()), Ok(Control::Ignored));
    }
}
