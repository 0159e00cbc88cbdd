//! Times as the API writes them, and durations as people read them.

use jiff::Timestamp;

/// RFC 3339 with whole seconds, as `metav1.Time`.
pub fn format(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 with microseconds, as `metav1.MicroTime`.
pub fn format_micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Any RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A duration in at most two units, as the AGE column shows it.
pub fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s / MINUTE % 60, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s / HOUR % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// How long ago a time was, as a table cell.
pub fn age(time: Option<&str>, now: Timestamp) -> String {
    match time.and_then(parse) {
        // Parts of a second count downwards only when past the whole second, as the time itself has none.
        Some(time) => human((now.as_millisecond() - time.as_millisecond()).div_euclid(1000)),
        None => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let time = parse("2026-11-30T06:40:49.123456789+00:00").unwrap();
        assert_eq!(format(time), "2026-11-30T06:40:49Z");
        assert_eq!(format_micro(time), "2026-11-30T06:40:49.123456Z");
    }

    #[test]
    fn ages() {
        let hour = 3600;
        let day = 24 * hour;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (179 * 60 + 59, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 60, "3h1m"),
            (8 * hour, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
