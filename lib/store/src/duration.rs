//! Durations as Go writes them, in configuration files and flags.

use std::time::Duration;

/// Units and their seconds.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// `250ms`, `1h30m`, `1.5h`, `0`; nothing below zero.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() || text.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("90s", 90_000),
            ("250ms", 250),
            ("1m30.5s", 90_500),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "m", "5d", "1h30", ".s", "1.2.3s", "-5s", "99999999999999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
