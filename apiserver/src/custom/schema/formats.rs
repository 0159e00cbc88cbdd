//! The formats of text that are checked. Others mean nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;

/// Whether text is of that format; formats that are not known are everything.
pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some('3')),
        "uuid4" => uuid(text, Some('4')),
        "uuid5" => uuid(text, Some('5')),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "cidr" => text.parse::<ipnet::IpNet>().is_ok(),
        "mac" => is_mac(text),
        "hostname" => is_hostname(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && is_hostname(host)),
        "uri" => is_uri(text),
        "hexcolor" => text
            .strip_prefix('#')
            .is_some_and(|hex| matches!(hex.len(), 3 | 6) && hex.bytes().all(|b| b.is_ascii_hexdigit())),
        "k8s-short-name" => pintle_machinery::names::dns1123_label(text).is_empty(),
        "k8s-long-name" => pintle_machinery::names::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

/// RFC 3339, with or without a fraction.
fn is_date_time(text: &str) -> bool {
    let shape = text.len() >= 20 && matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' '));
    shape && text.parse::<jiff::Timestamp>().is_ok()
}

/// As Go writes durations, or a number of days or weeks with its unit.
fn is_duration(text: &str) -> bool {
    const LONG: [&str; 4] = ["d", "day", "w", "week"];
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let long = LONG.contains(&unit.trim().trim_end_matches('s')) && !number.is_empty();
    long || pintle_machinery::codec::scalar::parse_duration(text).is_ok()
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32
        && plain.bytes().all(|byte| byte.is_ascii_hexdigit())
        && version.is_none_or(|version| plain.chars().nth(12) == Some(version))
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

/// Something with a scheme, or a path from the root.
fn is_uri(text: &str) -> bool {
    let scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let clean = !text.chars().any(|c| c.is_control() || c == ' ');
    clean && (text.starts_with('/') || text.split_once(':').is_some_and(|(first, _)| scheme(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2026-11-30T20:33:52Z", "x"),
            ("date-time", "2026-11-30T20:33:52.5+01:00", "2026-11-30"),
            ("date", "2026-11-30", "2026-13-30"),
            ("duration", "1h30m", "x"),
            ("duration", "3 days", "days"),
            ("byte", "YQ==", "*"),
            ("uuid", "12345678-1234-1234-1234-123456789012", "x"),
            ("uuid4", "12345678-1234-4234-1234-123456789012", "12345678-1234-1234-1234-123456789012"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "x"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("hostname", "a.example.com", "_"),
            ("email", "a@b.c", "x"),
            ("uri", "https://a/b", "x"),
            ("hexcolor", "#fff", "fff"),
        ] {
            assert!(holds(format, good), "{format} {good}");
            assert!(!holds(format, bad), "{format} {bad}");
        }
        assert!(holds("nonsense", "anything"));
    }
}
