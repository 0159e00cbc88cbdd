//! Scalars that are text in JSON but more than text: times, durations, quantities, base64.

use base64::{Engine as _, alphabet, engine};
use jiff::Timestamp;

use crate::{quantity, time};

/// Go's standard base64: padding required, bits past the end of the data ignored.
const BASE64: engine::GeneralPurpose = engine::GeneralPurpose::new(
    &alphabet::STANDARD,
    engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A time as JSON has it: UTC, whole seconds or microseconds.
pub fn time_text(seconds: i64, nanos: i32, micro: bool) -> Option<String> {
    let stamp = Timestamp::new(seconds, nanos).ok()?;
    Some(if micro { time::format_micro(stamp) } else { time::format(stamp) })
}

/// Seconds and nanoseconds of a time's text.
pub fn time_parts(text: &str) -> Option<(i64, i32)> {
    let stamp = time::parse(text)?;
    let (seconds, nanos) = (stamp.as_second(), stamp.subsec_nanosecond());
    Some(if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) })
}

/// The same time as Go writes it; an error in Go's words.
pub fn canonical_time(text: &str, micro: bool) -> Result<String, String> {
    if is_canonical_time(text.as_bytes(), micro) && time::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    // Go's layout of a MicroTime wants the fraction to be there.
    let parts = time_parts(text).filter(|_| !micro || text.contains('.'));
    parts.and_then(|(seconds, nanos)| time_text(seconds, nanos, micro)).ok_or_else(|| {
        let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
        let (value, element) = match time_complaint(text) {
            (rest, "Z07:00") if micro => (rest, ".000000"),
            complaint => complaint,
        };
        format!("parsing time {text:?} as {layout:?}: cannot parse {value:?} as {element:?}")
    })
}

fn is_canonical_time(text: &[u8], micro: bool) -> bool {
    let length = if micro { 27 } else { 20 };
    text.len() == length && text.last() == Some(&b'Z') && text.get(10) == Some(&b'T')
}

/// The rest of the text at which Go's parser stops and the layout's element that it wanted there.
fn time_complaint(text: &str) -> (&str, &'static str) {
    const ELEMENTS: [(&str, usize); 11] = [
        ("2006", 4),
        ("-", 1),
        ("01", 2),
        ("-", 1),
        ("02", 2),
        ("T", 1),
        ("15", 2),
        (":", 1),
        ("04", 2),
        (":", 1),
        ("05", 2),
    ];
    let mut rest = text;
    for (element, length) in ELEMENTS {
        let fits = rest.get(..length).is_some_and(|part| match element.as_bytes()[0] {
            first if first.is_ascii_digit() => part.bytes().all(|byte| byte.is_ascii_digit()),
            _ => part == element,
        });
        if !fits {
            return (rest, element);
        }
        rest = &rest[length..];
    }
    (rest, "Z07:00")
}

/// A quantity in canonical form; an error in upstream's words.
pub fn canonical_quantity(text: &str) -> Result<String, String> {
    quantity::canonical(text.trim()).map_err(|error| error.to_string())
}

/// Bytes of base64 text; an error in Go's words.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    let plain;
    let text = if text.contains(['\r', '\n']) {
        plain = text.replace(['\r', '\n'], "");
        &plain
    } else {
        text
    };
    BASE64.decode(text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// Base64 text of bytes.
pub fn encode_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Nanoseconds of a Go duration text such as `1h2m3.5s`; an error in Go's words.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit_length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
            return Err(invalid());
        }
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let size = unit_nanos(unit).ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        total += whole * size;
        if !fraction.is_empty() {
            let digits: String = fraction.chars().take(18).collect();
            let value: i128 = digits.parse().map_err(|_| invalid())?;
            total += value * size / 10_i128.pow(digits.len() as u32);
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A duration as Go writes it.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let decimal = |value: u64, size: u64, unit: &str| {
        let text = format!("{}.{:0width$}", value / size, value % size, width = size.ilog10() as usize);
        let text =
            if size == 1 { value.to_string() } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() };
        format!("{sign}{text}{unit}")
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => decimal(nanos, 1, "ns"),
        1_000..1_000_000 => decimal(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(nanos, 1_000_000, "ms"),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000, "s");
            let seconds = seconds.trim_start_matches('-');
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_whole() {
        assert_eq!(canonical_time("2020-01-01T02:00:00.9+02:00", false).unwrap(), "2020-01-01T00:00:00Z");
        assert_eq!(canonical_time("2020-01-01T00:00:00.5Z", true).unwrap(), "2020-01-01T00:00:00.500000Z");
        assert!(
            canonical_time("2020-01-01T00:00:00Z", true).unwrap_err().ends_with(r#"cannot parse "Z" as ".000000""#)
        );
        let error = canonical_time("x", false).unwrap_err();
        assert_eq!(error, r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#);
    }

    #[test]
    fn durations_as_in_go() {
        for (text, nanos) in [
            ("1h0m0s", 3_600_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("-2ms", -2_000_000),
            ("1µs", 1_000),
            ("7ns", 7),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos));
            assert_eq!(format_duration(nanos), text);
        }
        assert_eq!(parse_duration("1").unwrap_err(), "time: missing unit in duration \"1\"");
        assert_eq!(parse_duration("1y").unwrap_err(), "time: unknown unit \"y\" in duration \"1y\"");
    }

    #[test]
    fn base64_as_in_go() {
        assert_eq!(decode_base64("AQ\nI=").unwrap(), [1, 2]);
        assert_eq!(decode_base64("AQ$I").unwrap_err(), "illegal base64 data at input byte 2");
    }
}
