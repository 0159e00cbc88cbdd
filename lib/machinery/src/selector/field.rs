//! Field selectors: `metadata.name=x,status.phase!=Running`.

use super::SelectorError;
use std::fmt;

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    /// Path of the field.
    pub field: String,
    /// Whether the value must be equal (or else different).
    pub equal: bool,
    /// The value compared with.
    pub value: String,
}

/// All of several terms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    terms: Vec<Term>,
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text).into_iter().filter(|part| !part.is_empty()) {
            let Some((field, operator, value)) = split_term(part) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            terms.push(Term { field: field.into(), equal: operator != "!=", value: unescape(value)? });
        }
        Ok(Self { terms })
    }

    /// The terms in order.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Selects without looking.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a field must have, if the selector pins it.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether an object is selected, given its fields; absent ones are "".
    pub fn matches(&self, field: impl Fn(&str) -> Option<String>) -> bool {
        self.terms.iter().all(|term| (field(&term.field).unwrap_or_default() == term.value) == term.equal)
    }
}

/// Splits at commas without a backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if !escaped && c == ',' {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    parts.push(&text[start..]);
    parts
}

/// Field, operator and value: the first operator found parts them.
fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    let operators = ["!=", "==", "="];
    term.char_indices().find_map(|(at, _)| {
        let operator = operators.into_iter().find(|operator| term[at..].starts_with(operator))?;
        Some((&term[..at], operator, &term[at + operator.len()..]))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(SelectorError(format!("invalid field selector: invalid escape sequence: \\{c}")));
                }
                None => return Err(SelectorError("invalid field selector: invalid escape sequence: \\".into())),
            },
            ',' | '=' => {
                return Err(SelectorError(format!("invalid field selector: unescaped character in value: {c}")));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_matches_prints() {
        let get = |field: &str| (field == "status.phase").then(|| "Running".to_owned());
        let cases = [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase==Running,metadata.name=", true),
            ("status.phase!=Running", false),
            ("spec.nodeName!=x", true),
        ];
        for (text, matches) in cases {
            assert_eq!(Selector::parse(text).unwrap().matches(get), matches, "{text}");
        }
        let selector = Selector::parse("a=x\\,y,b!=z").unwrap();
        assert_eq!(selector.terms()[0].value, "x,y");
        assert_eq!(selector.to_string(), "a=x\\,y,b!=z");
        assert_eq!(selector.exact("a"), Some("x,y"));
    }

    #[test]
    fn errors() {
        let cases = [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: ="),
            ("a=\\n", "invalid field selector: invalid escape sequence: \\n"),
        ];
        for (text, message) in cases {
            assert_eq!(Selector::parse(text).unwrap_err().0, message);
        }
    }
}
