//! The query of a log request.

use jiff::{SignedDuration, Timestamp};

use crate::server::query::Query;

/// Which of a container's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What part of a log is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::server) struct Options {
    pub(in crate::server) follow: bool,
    pub(in crate::server) previous: bool,
    pub(in crate::server) timestamps: bool,
    /// Only the last so many lines.
    pub(in crate::server) tail: Option<u64>,
    /// Only lines from then on.
    pub(in crate::server) since: Option<Timestamp>,
    /// Only so many bytes.
    pub(in crate::server) limit: Option<u64>,
    /// Only one stream.
    pub(in crate::server) stream: Option<Stream>,
}

/// Why a query is no good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Invalid {
    /// A value can't be read.
    Undecodable,
    /// A value breaks the rules.
    Forbidden,
}

impl Options {
    /// Reads a query at the time `now`.
    pub(in crate::server) fn parse(query: &Query, now: Timestamp) -> Result<Self, Invalid> {
        let tail = number(query, "tailLines", 0)?;
        let limit = number(query, "limitBytes", 1)?;
        let seconds = number(query, "sinceSeconds", 1)?;
        let time = match query.get("sinceTime").filter(|text| !text.is_empty()) {
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| Invalid::Undecodable)?),
            None => None,
        };
        if seconds.is_some() && time.is_some() {
            return Err(Invalid::Forbidden);
        }
        let ago = |seconds: u64| now.checked_sub(SignedDuration::from_secs(seconds as i64)).unwrap_or(Timestamp::MIN);
        let stream = match query.get("stream") {
            None | Some("" | "All") => None,
            Some("Stdout") => Some(Stream::Stdout),
            Some("Stderr") => Some(Stream::Stderr),
            Some(_) => return Err(Invalid::Forbidden),
        };
        if stream.is_some() && tail.is_some() {
            return Err(Invalid::Forbidden);
        }
        Ok(Self {
            follow: flag(query, "follow"),
            previous: flag(query, "previous"),
            timestamps: flag(query, "timestamps"),
            tail,
            since: time.or(seconds.map(ago)),
            limit,
            stream,
        })
    }
}

fn number(query: &Query, name: &str, least: i64) -> Result<Option<u64>, Invalid> {
    let Some(text) = query.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let number: i64 = text.parse().map_err(|_| Invalid::Undecodable)?;
    if number < least { Err(Invalid::Forbidden) } else { Ok(Some(number as u64)) }
}

/// A bool in a query: there without a value means yes, as do all values but `false` and `0`.
fn flag(query: &Query, name: &str) -> bool {
    query.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Options, Invalid> {
        Options::parse(&Query::parse(Some(query)), "2026-01-01T00:01:00Z".parse().unwrap())
    }

    #[test]
    fn queries_are_read() {
        let minute: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let options = parse("follow=true&tailLines=5&sinceSeconds=60&timestamps=true&previous=false").unwrap();
        let expected =
            Options { follow: true, timestamps: true, tail: Some(5), since: Some(minute), ..Options::default() };
        assert_eq!(options, expected);
        assert_eq!(parse("sinceTime=2026-01-01T00:00:00Z").unwrap().since, Some(minute));
        assert_eq!(parse("stream=Stderr").unwrap().stream, Some(Stream::Stderr));
        assert_eq!(parse("stream=All&tailLines=1").unwrap().tail, Some(1));
    }

    #[test]
    fn bad_queries_are_told_apart() {
        for query in ["tailLines=x", "sinceTime=yesterday"] {
            assert_eq!(parse(query), Err(Invalid::Undecodable), "{query}");
        }
        for query in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "stream=x",
            "stream=Stdout&tailLines=1",
        ] {
            assert_eq!(parse(query), Err(Invalid::Forbidden), "{query}");
        }
    }
}
