//! Lines of a CRI log file, `<time> <stream> <tag> <message>`, and which of them a reader gets.

use bytes::{BufMut, BytesMut};
use jiff::Timestamp;

use super::{Options, options::Stream};

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stream: Stream,
    /// The message goes on in the next line of the file.
    partial: bool,
    message: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line without its end; `None` if it is none of the format.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        let stream = match parts.next()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // Tags are separated by colons; the first says whether the message is complete.
        let partial = match parts.next()?.split(|byte| *byte == b':').next()? {
            b"P" => true,
            b"F" => false,
            _ => return None,
        };
        Some(Self { time, stream, partial, message: parts.next().unwrap_or_default() })
    }
}

/// Turns lines of the file into what the reader gets.
#[derive(Debug)]
pub(super) struct Filter {
    since: Option<Timestamp>,
    stream: Option<Stream>,
    timestamps: bool,
    left: Option<u64>,
    /// The next message begins a line.
    fresh: bool,
}

impl Filter {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            since: options.since,
            stream: options.stream,
            timestamps: options.timestamps,
            left: options.limit,
            fresh: true,
        }
    }

    /// Whether the reader has got all that it asked for.
    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Adds what the reader gets of a line of the file.
    pub(super) fn apply(&mut self, raw: &[u8], out: &mut BytesMut) {
        let Some(line) = Line::parse(raw) else {
            return tracing::debug!(length = raw.len(), "line is not in CRI log format");
        };
        if self.stream.is_some_and(|stream| stream != line.stream) {
            return;
        }
        if let Some(since) = self.since
            && line.time.parse::<Timestamp>().is_ok_and(|time| time < since)
        {
            return;
        }
        let start = out.len();
        if self.timestamps && self.fresh {
            out.put_slice(line.time.as_bytes());
            out.put_u8(b' ');
        }
        out.put_slice(line.message);
        if !line.partial {
            out.put_u8(b'\n');
        }
        self.fresh = !line.partial;
        if let Some(left) = &mut self.left {
            let kept = ((out.len() - start) as u64).min(*left);
            out.truncate(start + kept as usize);
            *left -= kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "2026-01-01T00:00:00.000000001Z stdout F one\n\
        2026-01-01T00:00:01.5Z stderr F two two\n\
        nonsense\n\
        2026-01-01T00:00:02Z stdout P thr\n\
        2026-01-01T00:00:02Z stdout F ee\n\
        2026-01-01T02:00:03+02:00 stdout F \n";

    fn filter(options: Options) -> String {
        let mut filter = Filter::new(&options);
        let mut out = BytesMut::new();
        for line in FILE.lines() {
            filter.apply(line.as_bytes(), &mut out);
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn messages_are_put_together() {
        assert_eq!(filter(Options::default()), "one\ntwo two\nthree\n\n");
    }

    #[test]
    fn options_select() {
        let stderr = Options { stream: Some(Stream::Stderr), timestamps: true, ..Options::default() };
        assert_eq!(filter(stderr), "2026-01-01T00:00:01.5Z two two\n");
        let since = Options { since: Some("2026-01-01T00:00:02Z".parse().unwrap()), ..Options::default() };
        assert_eq!(filter(since.clone()), "three\n\n");
        assert_eq!(filter(Options { limit: Some(7), ..Options::default() }), "one\ntwo");
        assert_eq!(
            filter(Options { timestamps: true, ..since }),
            "2026-01-01T00:00:02Z three\n2026-01-01T02:00:03+02:00 \n"
        );
    }
}
