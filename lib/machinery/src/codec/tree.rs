//! JSON that is read once and dropped: a tree that borrows its strings.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
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

impl<'de> Deserialize<'de> for Tree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Number::from_f64(value).map(Tree::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Tree::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Tree::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut entries = Entries::new();
        while let Some(Key(key)) = access.next_key()? {
            entries.push((key, access.next_value()?));
        }
        Ok(Tree::Object(entries))
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Tree::deserialize(deserializer)? {
            Tree::String(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("an object's keys are strings")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_the_texts_own() {
        let text = r#"{"b":[1,-2,1.5,null,true],"a":"plain","c\n":"es\"caped"}"#;
        let tree: Tree<'_> = serde_json::from_str(text).unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        let Tree::Object(entries) = &tree else { panic!("{tree:?}") };
        assert_eq!(entries.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["b", "a", "c\n"]);
        assert!(matches!(get(entries, "a"), Some(Tree::String(Cow::Borrowed("plain")))));
        assert!(matches!(get(entries, "c\n"), Some(Tree::String(Cow::Owned(text))) if text == "es\"caped"));
        let Tree::Object(of_value) = Tree::from(&value) else { panic!("{value}") };
        assert_eq!(of_value.len(), entries.len());
        assert!(of_value.iter().all(|(key, value)| get(entries, key) == Some(value)));
        assert!(serde_json::from_str::<Tree<'_>>(r#"{"a":}"#).is_err());
    }
}
