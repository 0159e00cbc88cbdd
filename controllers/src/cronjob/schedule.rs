//! Cron expressions: five fields, names, ranges, steps, lists, and the `@` short forms. Pure.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// Allowed values of a field and the names that some of them have.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of month", min: 1, max: 31, names: &[] },
    Field {
        name: "month",
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { name: "day of week", min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];
const SHORT: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// An expression that fits no day within so many years never does.
const YEARS: i16 = 5;

/// A set of small numbers, and whether the field was left open (`*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    bits: u64,
    open: bool,
}

impl Values {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|v| self.bits & (1 << v) != 0)
    }
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// By the calendar: minute, hour, day, month, weekday.
    Calendar(Box<[u64; 5]>, [bool; 2]),
    /// Every so many seconds.
    Every(i64),
}

/// Why an expression is no schedule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// The number of fields is wrong.
    #[error("expected exactly 5 fields, found {0}: {1}")]
    Fields(usize, String),
    /// A field is malformed.
    #[error("{0}: {1:?} is not allowed")]
    Value(&'static str, String),
}

impl Schedule {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        if let Some(every) = text.strip_prefix("@every ") {
            let seconds = duration(every).filter(|s| *s > 0);
            return seconds.map(Self::Every).ok_or_else(|| ScheduleError::Value("interval", every.to_owned()));
        }
        let text = SHORT.iter().find(|(short, _)| *short == text).map_or(text, |(_, long)| long);
        let parts: Vec<&str> = text.split_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(ScheduleError::Fields(parts.len(), text.to_owned()));
        }
        let mut bits = [0u64; 5];
        let mut open = [false; 2];
        for (at, (field, part)) in FIELDS.iter().zip(parts).enumerate() {
            let values = values(field, part)?;
            bits[at] = values.bits;
            match at {
                2 => open[0] = values.open,
                4 => open[1] = values.open,
                _ => {}
            }
        }
        Ok(Self::Calendar(Box::new(bits), open))
    }

    /// The first time after `after` that fits, on the clocks of a zone.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(seconds) => Timestamp::from_second(after.as_second() + seconds).ok(),
            Self::Calendar(bits, open) => next_calendar(bits, *open, after, zone),
        }
    }
}

fn next_calendar(bits: &[u64; 5], open: [bool; 2], after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let has = |at: usize, value: i8| Values { bits: bits[at], open: false }.has(value);
    let fits_day = |t: DateTime| {
        let weekday = t.weekday().to_sunday_zero_offset();
        let (day, week) = (has(2, t.day()), has(4, weekday));
        // Two restricted fields: one of them is enough.
        if open[0] || open[1] { day && week } else { day || week }
    };
    let start = zone.to_datetime(after);
    let mut t = start.with().second(0).subsec_nanosecond(0).build().ok()?.checked_add(Span::new().minutes(1)).ok()?;
    while t.year() <= start.year() + YEARS {
        if !has(3, t.month()) {
            let first = t.with().day(1).hour(0).minute(0).build().ok()?;
            t = first.checked_add(Span::new().months(1)).ok()?;
        } else if !fits_day(t) {
            let midnight = t.with().hour(0).minute(0).build().ok()?;
            t = midnight.checked_add(Span::new().days(1)).ok()?;
        } else if !has(1, t.hour()) {
            t = t.with().minute(0).build().ok()?.checked_add(Span::new().hours(1)).ok()?;
        } else if !has(0, t.minute()) {
            t = t.checked_add(Span::new().minutes(1)).ok()?;
        } else {
            let found = t.to_zoned(zone.clone()).ok()?;
            // A time that the clocks skip is not on the clock: go on behind the gap.
            if found.datetime() == t && found.timestamp() > after {
                return Some(found.timestamp());
            }
            t = t.checked_add(Span::new().minutes(1)).ok()?;
        }
    }
    None
}

fn values(field: &Field, text: &str) -> Result<Values, ScheduleError> {
    let mut all = Values { bits: 0, open: false };
    for part in text.split(',') {
        let one = range(field, part).ok_or_else(|| ScheduleError::Value(field.name, part.to_owned()))?;
        all.bits |= one.bits;
        all.open |= one.open;
    }
    Ok(all)
}

/// One entry of a list: `*`, `5`, `1-5`, each with an optional `/step`.
fn range(field: &Field, text: &str) -> Option<Values> {
    let (span, step) = match text.split_once('/') {
        Some((span, step)) => (span, Some(step.parse::<u32>().ok().filter(|s| *s > 0)?)),
        None => (text, None),
    };
    let star = span == "*" || span == "?";
    let (from, to) = match span.split_once('-') {
        _ if star => (field.min, field.max),
        Some((from, to)) => (number(field, from)?, number(field, to)?),
        None => {
            let from = number(field, span)?;
            (from, if step.is_some() { field.max } else { from })
        }
    };
    if from > to || from < field.min || to > field.max {
        return None;
    }
    let steps = (from..=to).step_by(usize::try_from(step.unwrap_or(1)).ok()?);
    let bits = steps.fold(0u64, |bits, value| bits | (1 << value));
    Some(Values { bits, open: star && step.unwrap_or(1) == 1 })
}

fn number(field: &Field, text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    if let Some(at) = field.names.iter().position(|n| *n == lower) {
        return u32::try_from(at).ok().map(|at| at + field.min);
    }
    text.parse().ok()
}

/// Seconds of `1h30m`, `90s`.
fn duration(text: &str) -> Option<i64> {
    let mut total = 0i64;
    let mut digits = String::new();
    for c in text.trim().chars() {
        let unit = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    digits.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(expression: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let after: Timestamp = after.parse().unwrap();
        Schedule::parse(expression).unwrap().next(after, &zone).map_or("never".to_owned(), |t| t.to_string())
    }

    #[test]
    fn next_times() {
        for (expression, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"),
            ("5 4 * * *", "2026-01-01T04:05:00Z", "2026-01-02T04:05:00Z"),
            ("0 0 1 * *", "2026-01-31T10:00:00Z", "2026-02-01T00:00:00Z"),
            ("0 0 31 * *", "2026-02-01T00:00:00Z", "2026-03-31T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 9 * * mon-fri", "2026-01-02T10:00:00Z", "2026-01-05T09:00:00Z"),
            ("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 ? * 5", "2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"),
            ("30 1-3,5 * * *", "2026-01-01T03:30:00Z", "2026-01-01T05:30:00Z"),
            ("0 0 30 feb *", "2026-01-01T00:00:00Z", "never"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"),
        ] {
            assert_eq!(next(expression, after, "UTC"), expected, "{expression} after {after}");
        }
    }

    #[test]
    fn zones_and_skipped_hours() {
        assert_eq!(next("0 8 * * *", "2026-07-01T00:00:00Z", "Europe/Berlin"), "2026-07-01T06:00:00Z");
        // 02:30 does not exist on 29 March 2026.
        assert_eq!(next("30 2 * * *", "2026-03-28T12:00:00Z", "Europe/Berlin"), "2026-03-30T00:30:00Z");
    }

    #[test]
    fn mistakes() {
        for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "x * * * *", "@every 5x"] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }
}
