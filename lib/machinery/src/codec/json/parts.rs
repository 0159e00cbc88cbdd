//! Some parts of a JSON object as a value: what is not wanted is passed over, not built.

use std::ops::Range;

use super::scan::{Form, Scanner};
use crate::codec::DecodeError;
use crate::schema::{Object, Value};

/// Where in an object a reader is, and so what it wants.
pub trait Place: Copy {
    /// The place of a field; `None`: it is not wanted.
    fn field(self, name: &str) -> Option<Self>;

    /// The place of a list's items; `None`: the list counts as null.
    fn item(self) -> Option<Self>;
}

/// Reads what is wanted from this place on. What is not wanted has to be well-formed. `known` is where some value is, if that is known.
pub fn parse_parts(bytes: &[u8], place: impl Place, known: Range<usize>) -> Result<Value, DecodeError> {
    let mut scanner = Scanner::passing(bytes, known);
    let value = read(&mut scanner, place).and_then(|value| scanner.end().map(|()| value));
    value.map_err(DecodeError::Syntax)
}

/// Where an object ends that begins at `from` in well-formed JSON, and where one of its fields has its value.
pub fn spans(bytes: &[u8], from: usize, field: &str) -> Option<(usize, Range<usize>)> {
    let mut scanner = Scanner::passing(bytes.get(from..)?, 0..0);
    let mut found = from..from;
    if scanner.form().ok()? != Form::Object {
        return None;
    }
    scanner.enter().ok()?;
    let mut first = true;
    while let Some(key) = scanner.key(first).ok()? {
        first = false;
        scanner.form().ok()?;
        let start = scanner.at();
        scanner.pass().ok()?;
        if key == field {
            found = from + start..from + scanner.at();
        }
    }
    Some((from + scanner.at(), found))
}

fn read(scanner: &mut Scanner<'_>, place: impl Place) -> Result<Value, String> {
    match scanner.form()? {
        Form::Object => {
            scanner.enter()?;
            let mut object = Object::new();
            let mut first = true;
            while let Some(key) = scanner.key(first)? {
                first = false;
                match place.field(&key) {
                    None => scanner.pass()?,
                    Some(place) => {
                        let value = read(scanner, place)?;
                        object.insert(key.into_owned(), value);
                    }
                }
            }
            Ok(Value::Object(object))
        }
        Form::Array => {
            let Some(place) = place.item() else { return scanner.pass().map(|()| Value::Null) };
            scanner.enter()?;
            let mut items = Vec::new();
            while scanner.item(items.is_empty())? {
                items.push(read(scanner, place)?);
            }
            Ok(Value::Array(items))
        }
        _ => scanner.value(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Names in the top and what lists have below them.
    #[derive(Clone, Copy)]
    struct Named(bool);

    impl Place for Named {
        fn field(self, name: &str) -> Option<Self> {
            (name != "skipped").then_some(Named(name == "list"))
        }

        fn item(self) -> Option<Self> {
            self.0.then_some(self)
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_there() {
        let text = br#"{"skipped":{"a\"}":["}",{"b":"\\"}]},"list":[{"skipped":1,"x":"y"},[2]],"other":[1,{"z":[]}],"last":null}"#;
        let want = json!({"list": [{"x": "y"}, [2]], "other": null, "last": null});
        assert_eq!(parse_parts(text, Named(false), 0..0).unwrap(), want);
        let (end, skipped) = spans(text, 0, "skipped").unwrap();
        assert_eq!((end, &text[skipped.clone()]), (text.len(), &br#"{"a\"}":["}",{"b":"\\"}]}"#[..]));
        assert_eq!(parse_parts(text, Named(false), skipped).unwrap(), want);
        assert!(parse_parts(&text[..40], Named(false), 0..0).is_err());
        assert_eq!(spans(b"12 {\"a\":[\"}\"]} {", 3, "b"), Some((14, 3..3)));
        assert_eq!((spans(b"{\"a", 0, "a"), spans(b"[1]", 0, "a")), (None, None));
    }
}
