//! Reading resource quantities as integers.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffixes and the powers that they stand for: (text, base, exponent).
const SUFFIXES: [(&str, i128, u32); 15] = [
    ("Ki", 1024, 1),
    ("Mi", 1024, 2),
    ("Gi", 1024, 3),
    ("Ti", 1024, 4),
    ("Pi", 1024, 5),
    ("Ei", 1024, 6),
    ("k", 1000, 1),
    ("M", 1000, 2),
    ("G", 1000, 3),
    ("T", 1000, 4),
    ("P", 1000, 5),
    ("E", 1000, 6),
    ("m", 1000, 0),
    ("u", 1000, 0),
    ("n", 1000, 0),
];
/// Units of the fixed-point form that a quantity is read into.
const NANO: i128 = 1_000_000_000;

/// The quantity in billionths, or `None` if it is malformed.
pub fn nano(text: &str) -> Option<i128> {
    let text = text.trim();
    for (suffix, base, exponent) in SUFFIXES {
        if let Some(number) = text.strip_suffix(suffix) {
            let unit = match suffix {
                "m" => NANO / 1000,
                "u" => NANO / 1_000_000,
                "n" => 1,
                _ => NANO.checked_mul(base.checked_pow(exponent)?)?,
            };
            return decimal(number, unit);
        }
    }
    match text.find(['e', 'E']) {
        Some(at) => {
            let exponent: i32 = text[at + 1..].parse().ok()?;
            let factor = 10_i128.checked_pow(exponent.unsigned_abs())?;
            let unit = if exponent < 0 { NANO / factor } else { NANO.checked_mul(factor)? };
            decimal(&text[..at], unit)
        }
        None => decimal(text, NANO),
    }
}

/// `number × unit`, where the number has an optional sign and fraction.
fn decimal(number: &str, unit: i128) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        value = value.checked_add(fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale)?;
    }
    Some(if negative { -value } else { value })
}

fn up(value: i128, unit: i128) -> i64 {
    i64::try_from(value.div_euclid(unit) + i128::from(value.rem_euclid(unit) != 0)).unwrap_or(i64::MAX)
}

/// The quantity in whole units, rounded up; zero if it is malformed.
pub fn value(q: &Quantity) -> i64 {
    up(nano(&q.0).unwrap_or(0), NANO)
}

/// The quantity in thousandths, rounded up; zero if it is malformed.
pub fn milli(q: &Quantity) -> i64 {
    up(nano(&q.0).unwrap_or(0), NANO / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let cases = [
            ("100m", 1, 100),
            ("1", 1, 1000),
            ("1.5", 2, 1500),
            ("0.1", 1, 100),
            ("64Mi", 64 << 20, (64 << 20) * 1000),
            ("1e3", 1000, 1_000_000),
            ("2k", 2000, 2_000_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("", 0, 0),
            ("x", 0, 0),
            (".5", 1, 500),
            ("100u", 1, 1),
        ];
        for (text, whole, thousandths) in cases {
            let q = Quantity(text.to_owned());
            assert_eq!((value(&q), milli(&q)), (whole, thousandths), "{text}");
        }
    }
}
