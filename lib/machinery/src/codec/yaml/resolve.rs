//! What a YAML scalar is: YAML 1.1 as go-yaml has it.

use serde_json::Number;

use crate::{codec::scalar, schema::Value};

const BINARY: &str = "tag:yaml.org,2002:binary";
const TEXT: &str = "tag:yaml.org,2002:str";

/// The JSON value of a scalar.
pub fn resolve(text: String, tag: Option<&str>, plain: bool) -> Result<Value, String> {
    match tag {
        Some(BINARY) => {
            let bytes =
                scalar::decode_base64(&text).map_err(|_| "yaml: !!binary value contains invalid base64 data")?;
            Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Some(TEXT | "!") => Ok(Value::String(text)),
        None if !plain => Ok(Value::String(text)),
        _ => plain_value(text),
    }
}

fn plain_value(text: String) -> Result<Value, String> {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err("json: unsupported value: +Inf".to_owned());
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err("json: unsupported value: -Inf".to_owned()),
        ".nan" | ".NaN" | ".NAN" => return Err("json: unsupported value: NaN".to_owned()),
        _ => {}
    }
    Ok(number(&text).unwrap_or(Value::String(text)))
}

fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return None;
    }
    let digits = text.replace('_', "");
    integer(&digits).or_else(|| float(&digits))
}

/// Go's integer literals: `0x`, `0o`, `0b`, and octal after a bare 0.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    i64::try_from(value).map(Value::from).or_else(|_| u64::try_from(value).map(Value::from)).ok()
}

fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|text| {
        digits(text.strip_prefix(['+', '-']).unwrap_or(text)) && !text.ends_with(['+', '-']) && !text.is_empty()
    });
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) || !exponent_fits {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}

/// A map's key as JSON has it: text.
pub fn key(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err("unsupported map key of type: %!s(<nil>), key: <nil>, value: <nil>".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: invalid map key".to_owned()),
    }
}
