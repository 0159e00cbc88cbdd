//! The text of a FieldsV1 object, one level at a time. It is compact JSON: nobody puts blanks between its tokens.

use std::borrow::Cow;

/// Whether a level has the element `.`, which says that the path up to it is a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Dot<'a> {
    /// No.
    Absent,
    /// It comes first, as it is written; what follows it.
    First(&'a str),
    /// It may be elsewhere, here or below.
    Perhaps,
}

/// Looks for the element `.` in the inside of an object.
pub(super) fn dot(inside: &str) -> Dot<'_> {
    const DOT: &str = r#"".":"#;
    match inside.strip_prefix(DOT).and_then(|rest| rest.strip_prefix("{}")) {
        Some("") => Dot::First(""),
        Some(rest) => match rest.strip_prefix(',') {
            Some(rest) => Dot::First(rest),
            None => Dot::Perhaps,
        },
        None if inside.starts_with(DOT) || inside.contains(r#",".":"#) => Dot::Perhaps,
        None => Dot::Absent,
    }
}

/// The entries of an object's inside: elements and the texts of their values. What is no JSON ends them.
pub(super) fn entries(inside: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    let mut rest = inside;
    std::iter::from_fn(move || {
        let text = rest.strip_prefix(',').unwrap_or(rest);
        let key = string(text)?;
        let value = text.get(key..)?.strip_prefix(':')?;
        let end = value_end(value);
        let (value, behind) = value.split_at_checked(end)?;
        rest = behind;
        Some((unescaped(text.get(..key)?)?, value))
    })
}

/// How long the string is that a text begins with, quotes included.
fn string(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn unescaped(quoted: &str) -> Option<Cow<'_, str>> {
    match quoted.contains('\\') {
        true => serde_json::from_str(quoted).ok().map(Cow::Owned),
        false => quoted.get(1..quoted.len() - 1).map(Cow::Borrowed),
    }
}

/// How long the value is that a text begins with.
fn value_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += string(&text[at..]).map_or(bytes.len(), |length| length - 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return at + 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_level_at_a_time() {
        let inside = r#""f:a":{"f:b":{}},"k:{\"x\":\"},\"}":{},"f:c":3,"f:d":["]"],"f:e":"{""#;
        let got: Vec<_> = entries(inside).collect();
        let want =
            [("f:a", r#"{"f:b":{}}"#), (r#"k:{"x":"},"}"#, "{}"), ("f:c", "3"), ("f:d", r#"["]"]"#), ("f:e", r#""{""#)];
        assert_eq!(got.iter().map(|(element, value)| (&**element, *value)).collect::<Vec<_>>(), want);
        assert_eq!(entries("").count() + entries("nonsense").count() + entries(r#""f:a"#).count(), 0);
    }

    #[test]
    fn the_dot() {
        assert_eq!(dot(r#"".":{}"#), Dot::First(""));
        assert_eq!(dot(r#"".":{},"f:a":{}"#), Dot::First(r#""f:a":{}"#));
        assert_eq!(dot(r#""f:a":{}"#), Dot::Absent);
        assert_eq!(dot(r#""f:a":{},".":{}"#), Dot::Perhaps);
        assert_eq!(dot(r#"".":{"f:z":{}},"f:a":{}"#), Dot::Perhaps);
    }
}
