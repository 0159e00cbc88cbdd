//! YAML as upstream reads it: YAML 1.1 with Go's habits, turned into JSON, then decoded by schema.
//!
//! Duplicate keys are strict errors, all of them in one message; other complaints are fatal, in upstream's words.

mod resolve;

use std::collections::HashMap;

use libyaml_safer::{Error, ErrorKind, Event, EventData, Parser, ScalarStyle};

use super::{DecodeError, Decoded, json};
use crate::schema::{Object, Schema, StructType, Value};
use resolve::resolve;

/// As deep as JSON may be.
const MAX_DEPTH: usize = 400;
/// How many values aliases may add: more is an attack.
const MAX_ALIASED: usize = 100_000;

/// Any YAML as a JSON value, and the message of its duplicate keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The first document.
    pub value: Value,
    /// What strict decoding says of duplicate keys.
    pub duplicates: Option<String>,
}

/// Decodes an object of that type.
pub fn decode(schema: &Schema, ty: &StructType, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let document = parse(bytes)?;
    let mut text = Vec::with_capacity(bytes.len());
    json::encode_any(&document.value, &mut text);
    let mut decoded = json::decode(schema, ty, &text)?;
    if let Some(duplicates) = document.duplicates {
        decoded.strict_errors.insert(0, duplicates);
    }
    Ok(decoded)
}

/// Reads the first document of the stream.
pub fn parse(bytes: &[u8]) -> Result<Document, DecodeError> {
    let mut input = bytes;
    let mut parser = Parser::new();
    parser.set_input_string(&mut input);
    let mut composer = Composer::default();
    loop {
        let event = next(&mut parser)?.map_err(|error| DecodeError::Syntax(complaint(&error)))?;
        if composer.event(event).map_err(DecodeError::Syntax)? {
            return Ok(composer.finish());
        }
    }
}

/// The next event. The scanner panics on a tag that ends in a comma inside brackets (libyaml-safer 0.3.0; found by fuzzing): that is an
/// error of the input like its others.
fn next<R: std::io::BufRead>(parser: &mut Parser<R>) -> Result<Result<Event, Error>, DecodeError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parser.parse()))
        .map_err(|_| DecodeError::Syntax("yaml: did not find expected whitespace or line break".to_owned()))
}

/// An error as go-yaml words it, which counts lines in its own way.
fn complaint(error: &Error) -> String {
    let line = match (error.problem_mark(), error.context_mark()) {
        (Some(mark), _) if mark.line > 0 => mark.line + u64::from(error.kind() == ErrorKind::Scanner),
        (_, Some(mark)) => mark.line,
        _ => 0,
    };
    match line {
        0 => format!("yaml: {}", error.problem()),
        line => format!("yaml: line {line}: {}", error.problem()),
    }
}

/// An open list or map.
struct Frame {
    anchor: Option<String>,
    open: Open,
}

enum Open {
    List(Vec<Value>),
    Map {
        object: Object,
        key: Option<Key>,
        /// What `<<` brings: keys that the map has itself win.
        merged: Vec<Value>,
    },
}

enum Key {
    Plain(String),
    Merge,
}

#[derive(Default)]
struct Composer {
    stack: Vec<Frame>,
    anchors: HashMap<String, (Value, usize)>,
    aliased: usize,
    root: Value,
    duplicates: Vec<String>,
}

type Step<T> = Result<T, String>;

impl Composer {
    fn finish(self) -> Document {
        let duplicates = (!self.duplicates.is_empty())
            .then(|| format!("yaml: unmarshal errors:\n  {}", self.duplicates.join("\n  ")));
        Document { value: self.root, duplicates }
    }

    /// True when the document is complete.
    fn event(&mut self, event: Event) -> Step<bool> {
        let line = event.start_mark.line + 1;
        match event.data {
            EventData::DocumentEnd { .. } | EventData::StreamEnd => return Ok(true),
            EventData::Scalar { anchor, tag, value, style, .. } => {
                let plain = style == ScalarStyle::Plain;
                let merge = plain && value == "<<" && tag.is_none();
                let value = resolve(value, tag.as_deref(), plain)?;
                self.add(value, anchor, line, merge)?;
            }
            EventData::Alias { anchor } => self.alias(&anchor, line)?,
            EventData::SequenceStart { anchor, .. } => self.open(anchor, Open::List(Vec::new()))?,
            EventData::MappingStart { anchor, .. } => {
                self.open(anchor, Open::Map { object: Object::new(), key: None, merged: Vec::new() })?;
            }
            EventData::SequenceEnd | EventData::MappingEnd => self.close(line)?,
            _ => {}
        }
        Ok(false)
    }

    fn open(&mut self, anchor: Option<String>, open: Open) -> Step<()> {
        if self.stack.len() >= MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        self.stack.push(Frame { anchor, open });
        Ok(())
    }

    fn close(&mut self, line: u64) -> Step<()> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let value = match frame.open {
            Open::List(items) => Value::Array(items),
            Open::Map { mut object, merged, .. } => {
                for value in merged {
                    merge(&mut object, value)?;
                }
                Value::Object(object)
            }
        };
        self.add(value, frame.anchor, line, false)
    }

    fn alias(&mut self, anchor: &str, line: u64) -> Step<()> {
        let Some((value, size)) = self.anchors.get(anchor) else {
            return Err(format!("yaml: unknown anchor '{anchor}' referenced"));
        };
        self.aliased += size;
        if self.aliased > MAX_ALIASED {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        let value = value.clone();
        self.add(value, None, line, false)
    }

    fn add(&mut self, value: Value, anchor: Option<String>, line: u64, merge: bool) -> Step<()> {
        if let Some(anchor) = anchor {
            let size = count(&value);
            self.aliased += size;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.stack.last_mut().map(|frame| &mut frame.open) {
            None => self.root = value,
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map { object, key, merged }) => match key.take() {
                None if merge => *key = Some(Key::Merge),
                None => {
                    let name = resolve::key(value)?;
                    if object.contains_key(&name) {
                        self.duplicates.push(format!("line {line}: key {name:?} already set in map"));
                    }
                    // The place is taken at once: what is inside the value may be the same key's duplicate.
                    object.insert(name.clone(), Value::Null);
                    *key = Some(Key::Plain(name));
                }
                Some(Key::Merge) => merged.push(value),
                Some(Key::Plain(name)) => {
                    object.insert(name, value);
                }
            },
        }
        Ok(())
    }
}

/// Lays a merged map, or a list of them, under the map's own keys.
fn merge(object: &mut Object, value: Value) -> Step<()> {
    match value {
        Value::Object(more) => {
            for (key, value) in more {
                object.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(items) => items.into_iter().try_for_each(|item| match item {
            Value::Object(_) => merge(object, item),
            _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
        }),
        _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(object) => object.values().map(count).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
