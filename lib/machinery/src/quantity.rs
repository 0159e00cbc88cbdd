//! Resource quantities: `500m`, `1.5Gi`, `1e3`.
//!
//! A value is held in nano units, as fine as quantities get; finer fractions are rounded away from zero, values
//! beyond 10^27 whole units are cut there. Printing gives the canonical form of the format it came in.

use std::{cmp::Ordering, fmt, ops, str::FromStr};

const NANO: i128 = 1_000_000_000;
const LIMIT: i128 = 1_000_000_000_000_000_000_000_000_000 * NANO;

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `k`, `M`, `m` …
    DecimalSi,
    /// `Ki`, `Mi` …
    BinarySi,
    /// `e3`, `e6` …
    DecimalExponent,
}

/// An amount of a resource.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

/// Text that is no quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the right shape.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is none.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes of the powers of ten -9, -6, … 18.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, format: Format::DecimalSi };

    /// Whole units.
    pub fn new(value: i64, format: Format) -> Self {
        Self { nano: i128::from(value) * NANO, format }
    }

    /// Thousandths, as of CPUs.
    pub fn from_milli(value: i64, format: Format) -> Self {
        Self { nano: i128::from(value) * (NANO / 1000), format }
    }

    /// Whole units, rounded up.
    pub fn value(&self) -> i64 {
        clamp(div_away(self.nano, NANO))
    }

    /// Thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        clamp(div_away(self.nano, NANO / 1000))
    }

    /// As a float of whole units.
    pub fn as_f64(&self) -> f64 {
        self.nano as f64 / NANO as f64
    }

    /// The format in which it is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.nano.signum() as i32
    }

    /// Nothing at all.
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Whether the value has no fraction.
    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0
    }

    fn with(self, nano: i128, other: Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: nano.clamp(-LIMIT, LIMIT), format }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

/// The canonical form of a quantity's text.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    Ok(text.parse::<Quantity>()?.to_string())
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn div_away(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes() {
            [] => return Err(QuantityError::Format),
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(if number.is_empty() { QuantityError::Format } else { QuantityError::Numeric });
        }
        let (format, base, exponent) = parse_suffix(suffix)?;
        let magnitude = magnitude(whole, fraction, base, exponent);
        let nano = if negative { -magnitude } else { magnitude };
        Ok(Self { nano, format })
    }
}

fn parse_suffix(suffix: &str) -> Result<(Format, u32, i32), QuantityError> {
    if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
        return Ok((Format::BinarySi, 2, 10 * (index as i32 + 1)));
    }
    if let Some(index) = DECIMAL.iter().position(|known| *known == suffix) {
        return Ok((Format::DecimalSi, 10, 3 * (index as i32 - 3)));
    }
    let well_formed = suffix.bytes().all(|c| c.is_ascii_digit() || b"eEinumkKMGTP+-".contains(&c));
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    match exponent {
        Some(exponent) => Ok((Format::DecimalExponent, 10, exponent)),
        None if well_formed => Err(QuantityError::Suffix),
        None => Err(QuantityError::Format),
    }
}

/// The nano units of `whole.fraction` times `base` to the `exponent`, cut at the limit.
fn magnitude(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let (decimal_shift, factor) = match base {
        2 => (9 - fraction.len() as i64, 1i128 << exponent),
        _ => (9 - fraction.len() as i64 + i64::from(exponent), 1),
    };
    // So many digits fit, times the factor; what follows only counts for rounding.
    let most = match (base, exponent) {
        (2, 40) => 26,
        (2, 50) => 23,
        (2, 60..) => 20,
        (2, _) => 27,
        _ => 36,
    };
    let (digits, decimal_shift, rest) = match digits.len().checked_sub(most).filter(|more| *more > 0) {
        None => (digits, decimal_shift, false),
        Some(more) => (&digits[..most], decimal_shift + more as i64, digits[most..].bytes().any(|c| c != b'0')),
    };
    let Ok(value) = digits.parse::<i128>() else { return LIMIT };
    let value = value.saturating_mul(factor);
    if decimal_shift >= 0 {
        let shift = u32::try_from(decimal_shift).ok().filter(|shift| *shift <= 38);
        let scaled = shift.and_then(|shift| value.checked_mul(10i128.pow(shift)));
        return scaled.unwrap_or(LIMIT).saturating_add(i128::from(rest)).min(LIMIT);
    }
    let divisor = u32::try_from(-decimal_shift).ok().filter(|shift| *shift <= 38).map(|shift| 10i128.pow(shift));
    match divisor {
        Some(divisor) => (value / divisor + i128::from(rest || value % divisor != 0)).min(LIMIT),
        None => 1,
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilo = 1024 * NANO;
        match self.format {
            Format::BinarySi if self.is_integer() && self.nano.abs() >= kilo => {
                let mut value = self.nano / NANO;
                let mut suffix = "";
                for next in BINARY {
                    if value % 1024 != 0 {
                        break;
                    }
                    value /= 1024;
                    suffix = next;
                }
                write!(f, "{value}{suffix}")
            }
            format => {
                let (mut value, mut step) = (self.nano, 0);
                if value == 0 {
                    return f.write_str("0");
                }
                while value % 1000 == 0 && step < DECIMAL.len() - 1 {
                    value /= 1000;
                    step += 1;
                }
                match (format, step) {
                    (Format::DecimalExponent, 3) => write!(f, "{value}"),
                    (Format::DecimalExponent, step) => write!(f, "{value}e{}", 3 * (step as i32 - 3)),
                    (_, step) => write!(f, "{value}{}", DECIMAL[step]),
                }
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(self.nano + other.nano, other)
    }
}

impl ops::Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(self.nano - other.nano, other)
    }
}

impl ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl ops::SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, |sum, quantity| sum + quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        let cases = [
            ("0", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("100m", "100m"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1.5Gi", "1536Mi"),
            ("1.1Ki", "1126400m"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("100e-3", "100e-3"),
            ("12e1", "120"),
            ("1E", "1E"),
            ("-1.5Gi", "-1536Mi"),
            ("+2", "2"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("1000000", "1M"),
            ("1234567", "1234567"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("123Mi", "123Mi"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("99999999999999999999", "99999999999999999999"),
            ("1.00001Ki", "1024010240u"),
            ("1e4", "10e3"),
            ("110", "110"),
        ];
        for (text, canon) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(canon), "{text}");
        }
    }

    #[test]
    fn bad_text() {
        let cases = [
            ("", QuantityError::Format),
            ("a", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1.2.3", QuantityError::Numeric),
            ("1KK", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1 Gi", QuantityError::Format),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Quantity>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn arithmetic() {
        let parse = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!((parse("1Gi") + parse("512Mi")).to_string(), "1536Mi");
        assert_eq!((parse("1") - parse("100m")).to_string(), "900m");
        assert_eq!((Quantity::ZERO + parse("1Ki")).to_string(), "1Ki");
        assert!(parse("1Ki") > parse("1k"));
        assert_eq!(parse("1Ki"), parse("1024"));
        assert_eq!(parse("1500m").value(), 2);
        assert_eq!(parse("1.5").milli_value(), 1500);
    }

    #[test]
    fn many_digits_of_large_units_are_not_cut() {
        let long: Quantity = "1111111115.08111111011111111111114Pi".parse().unwrap();
        let short: Quantity = "1111111115.08111111011Pi".parse().unwrap();
        assert!((long.as_f64() / short.as_f64() - 1.0).abs() < 1e-15, "{long:?} {short:?}");
        let canonical = canonical("1111111115.08111111011111111111114Pi").unwrap();
        assert_eq!(super::canonical(&canonical).as_ref(), Ok(&canonical));
    }
}
