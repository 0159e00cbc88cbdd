//! Label selectors: `a=b,c!=d,e in (x,y),!f` and the `LabelSelector` object.

use super::{Lookup, SelectorError};
use crate::{
    Value,
    field_path::{ErrorList, Path},
    names,
    status::quoted,
};
use std::{collections::BTreeSet, fmt};

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `in`: one of the values.
    In,
    /// `notin`: none of the values, or no such label.
    NotIn,
    /// `=` or `==`.
    Equals,
    /// `!=`: another value, or no such label.
    NotEquals,
    /// The label exists.
    Exists,
    /// `!`: the label doesn't exist.
    DoesNotExist,
    /// `>`: a larger integer.
    GreaterThan,
    /// `<`: a smaller integer.
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

impl Requirement {
    /// A checked requirement.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let mut errors = ErrorList::new();
        errors.invalid_each(&Path::new("key"), key, names::label_key(key));
        check_values(key, operator, &values, &mut errors);
        match errors.is_empty() {
            true => Ok(Self { key: key.into(), operator, values: values.into_iter().collect() }),
            false => Err(SelectorError(errors.to_string())),
        }
    }

    /// The label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The comparison.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it is compared with.
    pub fn values(&self) -> &BTreeSet<String> {
        &self.values
    }

    /// Whether labels meet it.
    pub fn matches(&self, labels: &impl Lookup) -> bool {
        let value = labels.lookup(&self.key);
        match self.operator {
            Operator::In | Operator::Equals => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(have, bound)| have > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(have, bound)| have < bound),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

fn check_values(key: &str, operator: Operator, values: &[String], errors: &mut ErrorList) {
    let path = Path::new("values");
    let list = || Value::from(values.to_vec());
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            errors.invalid(&path, list(), "for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Equals | Operator::NotEquals if values.len() != 1 => {
            errors.invalid(&path, list(), "exact-match compatibility requires one single value");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            errors.invalid(&path, list(), "values set must be empty for exists and does not exist");
        }
        Operator::GreaterThan | Operator::LessThan => {
            if values.len() != 1 {
                errors.invalid(&path, list(), "for 'Gt', 'Lt' operators, exactly one value is required");
            }
            for (index, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.invalid(&path.index(index), value.as_str(), detail);
                }
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        errors.invalid_each(&path.index(index).key(key), value, names::label_value(value));
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = || self.values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match self.operator {
            Operator::In => write!(f, "{} in ({})", self.key, values()),
            Operator::NotIn => write!(f, "{} notin ({})", self.key, values()),
            Operator::Equals => write!(f, "{}={}", self.key, values()),
            Operator::NotEquals => write!(f, "{}!={}", self.key, values()),
            Operator::Exists => f.write_str(&self.key),
            Operator::DoesNotExist => write!(f, "!{}", self.key),
            Operator::GreaterThan => write!(f, "{}>{}", self.key, values()),
            Operator::LessThan => write!(f, "{}<{}", self.key, values()),
        }
    }
}

/// All of several requirements, or nothing at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Ordered by key; `None` matches no object.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self { requirements: Some(Vec::new()) }
    }

    /// Matches no object.
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Objects that meet all of these.
    pub fn all_of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements: Some(requirements) }
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Parser::new(text).parse().map(Self::all_of)
    }

    /// From equality pairs, such as a Service's selector.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let requirement = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: BTreeSet::from([value.to_owned()]),
        };
        Self::all_of(pairs.into_iter().map(requirement).collect())
    }

    /// From a `LabelSelector` object: absent matches nothing, empty matches everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, SelectorError> {
        let Some(selector) = selector.and_then(Value::as_object) else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::In, vec![value])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(expression_requirement(expression)?);
        }
        Ok(Self::all_of(requirements))
    }

    /// Whether labels are selected.
    pub fn matches(&self, labels: &impl Lookup) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|requirement| requirement.matches(labels)))
    }

    /// Selects without looking.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// The requirements; `None` if nothing can match.
    pub fn requirements(&self) -> Option<&[Requirement]> {
        self.requirements.as_deref()
    }
}

fn expression_requirement(expression: &Value) -> Result<Requirement, SelectorError> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(SelectorError(format!("{} is not a valid label selector operator", quoted(other)))),
    };
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
    Requirement::new(text("key"), operator, values)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.requirements.iter().flatten().map(ToString::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Symbol(&'static str),
    Word(String),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Symbol(text) => text,
            Self::Word(text) => text,
            Self::End => "",
        }
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(text) if *text == symbol)
    }

    fn ends_requirement(&self) -> bool {
        *self == Self::End || self.is(",")
    }
}

/// Longest first.
const SYMBOLS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(mut text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        if text.is_empty() {
            return out;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            out.push(Token::Symbol(symbol));
            text = &text[symbol.len()..];
        } else {
            let end = text.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(text.len());
            out.push(Token::Word(text[..end].into()));
            text = &text[end..];
        }
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    fn new(text: &str) -> Self {
        Self { tokens: tokens(text).into_iter().peekable() }
    }

    fn peek(&mut self) -> Token {
        self.tokens.peek().cloned().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn parse(mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                Token::Word(_) => {}
                token if token.is("!") => {}
                token => return Err(unexpected(&token, "!, identifier, or 'end of string'")),
            }
            let requirement = self.requirement();
            requirements
                .push(requirement.map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?);
            match self.take() {
                Token::End => return Ok(requirements),
                token if token.is(",") => {
                    let next = self.peek();
                    if !matches!(next, Token::Word(_)) && !next.is("!") {
                        return Err(unexpected(&next, "identifier after ','"));
                    }
                }
                token => return Err(unexpected(&token, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.take();
        let negated = token.is("!");
        if negated {
            token = self.take();
        }
        let Token::Word(key) = token else { return Err(unexpected(&token, "identifier")) };
        let mut errors = ErrorList::new();
        errors.invalid_each(&Path::new("key"), &key, names::label_key(&key));
        if !errors.is_empty() {
            return Err(SelectorError(errors.to_string()));
        }
        if negated {
            return Requirement::new(&key, Operator::DoesNotExist, Vec::new());
        }
        if self.peek().ends_requirement() {
            return Requirement::new(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let token = self.take();
        Ok(match token.text() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            _ => return Err(unexpected(&token, "in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if self.peek().ends_requirement() {
            return Ok(String::new());
        }
        match self.take() {
            Token::Word(value) => Ok(value),
            token => Err(unexpected(&token, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.take();
        if !open.is("(") {
            return Err(SelectorError(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = Vec::new();
        if self.peek().is(")") {
            self.take();
            return Ok(values);
        }
        loop {
            match self.peek() {
                Token::Word(value) => {
                    self.take();
                    values.push(value);
                }
                token if token.is(",") || token.is(")") => values.push(String::new()),
                token if values.is_empty() => return Err(unexpected(&token, "',', ')' or identifier")),
                token => return Err(unexpected(&token, "',', or identifier")),
            }
            match self.take() {
                token if token.is(")") => return Ok(values),
                token if token.is(",") => {}
                token => return Err(unexpected(&token, "',' or ')'")),
            }
        }
    }
}

fn unexpected(token: &Token, expected: &str) -> SelectorError {
    SelectorError(format!("found '{}', expected: {expected}", token.text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn matching() {
        let have = labels(&[("a", "b"), ("n", "5"), ("e", "")]);
        let cases = [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            ("a=c", false),
            ("a!=c", true),
            ("z!=c", true),
            ("a", true),
            ("!a", false),
            ("! z", true),
            ("a in (b, c)", true),
            ("a in (c)", false),
            ("z notin (c)", true),
            ("a notin (b)", false),
            ("n>4", true),
            ("n<5", false),
            ("e=", true),
            ("e in (,x)", true),
            ("a=b,n", true),
            ("a=b,!n", false),
            ("in=x", false),
        ];
        for (text, matches) in cases {
            assert_eq!(Selector::parse(text).unwrap().matches(&have), matches, "{text}");
        }
    }

    #[test]
    fn errors() {
        let cases = [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            (
                "a>1x",
                "unable to parse requirement: values[0]: Invalid value: \"1x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ];
        for (text, message) in cases {
            assert_eq!(Selector::parse(text).unwrap_err().0, message, "{text}");
        }
    }

    #[test]
    fn objects_and_text() {
        let object = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"}]});
        let selector = Selector::from_object(Some(&object)).unwrap();
        assert_eq!(selector.to_string(), "a in (b),c notin (x,y),!d");
        assert!(selector.matches(&labels(&[("a", "b")])));
        assert!(!selector.matches(&labels(&[("a", "b"), ("c", "x")])));
        assert!(Selector::from_object(Some(&json!({}))).unwrap().is_everything());
        assert!(!Selector::from_object(None).unwrap().matches(&labels(&[])));
        let bad = json!({"matchExpressions": [{"key": "c", "operator": "Foo"}]});
        assert_eq!(Selector::from_object(Some(&bad)).unwrap_err().0, "\"Foo\" is not a valid label selector operator");
    }
}
