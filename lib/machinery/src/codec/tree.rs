//! JSON that is read once and dropped: a tree that borrows its strings.

use std::borrow::Cow;

use serde_json::Number;

use crate::schema::Value;

/// A JSON value. An object's entries are in the order of the text.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string; the text's own if nothing in it is escaped.
    String(Cow<'a, str>),
    /// The text of an object that nobody has looked into.
    Text(Cow<'a, str>),
    /// A list.
    Array(Vec<Tree<'a>>),
    /// An object.
    Object(Entries<'a>),
}

/// An object's entries.
pub type Entries<'a> = Vec<(Cow<'a, str>, Tree<'a>)>;

/// The value of a key.
pub fn get<'t, 'a>(entries: &'t Entries<'a>, key: &str) -> Option<&'t Tree<'a>> {
    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

impl<'a> From<&'a Value> for Tree<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::String(Cow::Borrowed(text)),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(object) => {
                Self::Object(object.iter().map(|(key, value)| (Cow::Borrowed(key.as_str()), value.into())).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::parse_borrowed;

    #[test]
    fn strings_are_the_texts_own() {
        let text = r#"{"b":[1,-2,1.5,null,true],"a":"plain","c\n":"es\"caped"}"#;
        let tree = parse_borrowed(text.as_bytes()).unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        let Tree::Object(entries) = &tree else { panic!("{tree:?}") };
        assert_eq!(entries.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["b", "a", "c\n"]);
        assert!(matches!(get(entries, "a"), Some(Tree::String(Cow::Borrowed("plain")))));
        assert!(matches!(get(entries, "c\n"), Some(Tree::String(Cow::Owned(text))) if text == "es\"caped"));
        let Tree::Object(of_value) = Tree::from(&value) else { panic!("{value}") };
        assert_eq!(of_value.len(), entries.len());
        assert!(of_value.iter().all(|(key, value)| get(entries, key) == Some(value)));
        assert!(parse_borrowed(br#"{"a":}"#).is_err());
    }
}
