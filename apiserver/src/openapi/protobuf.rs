//! Documents in protobuf, by the tables of messages.

use std::io;

use serde_json::Value;

use super::document::Sink;
use super::gnostic::Shape;

/// Takes a document and gives its message.
pub struct Protobuf {
    /// The messages that are open, the outermost first: its shape, the field of the one around that it is for, its bytes.
    open: Vec<(&'static Shape, u32, Vec<u8>)>,
}

impl Protobuf {
    /// A document of that shape.
    pub fn new(shape: &'static Shape) -> Self {
        Self { open: vec![(shape, 0, Vec::new())] }
    }

    /// The message, when all is written.
    pub fn finish(mut self) -> Vec<u8> {
        self.open.pop().map(|(.., bytes)| bytes).unwrap_or_default()
    }
}

impl Sink for Protobuf {
    fn open(&mut self, key: &str) -> io::Result<()> {
        let Some((Shape::Message(fields, _), ..)) = self.open.last() else {
            return Err(io::Error::other("only messages are opened"));
        };
        let found = fields.iter().find(|(name, ..)| *name == key);
        let (_, number, shape) = found.ok_or_else(|| io::Error::other(format!("no field for {key}")))?;
        self.open.push((shape, *number, Vec::new()));
        Ok(())
    }

    fn entry(&mut self, key: &str, value: &Value) -> io::Result<()> {
        let Some((shape, _, out)) = self.open.last_mut() else { return Ok(()) };
        match shape {
            Shape::Entries(number, inner) => named(key, value, *number, inner, out),
            Shape::Message(fields, extensions) => member(key, value, fields, *extensions, out),
            _ => return Err(io::Error::other(format!("{key} is in nothing that has keys"))),
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some((_, number, bytes)) = self.open.pop()
            && let Some((.., outer)) = self.open.last_mut()
        {
            delimited(number, &bytes, outer);
        }
        Ok(())
    }
}

type Fields = &'static [(&'static str, u32, &'static Shape)];

fn member(key: &str, value: &Value, fields: Fields, extensions: u32, out: &mut Vec<u8>) {
    match fields.iter().find(|(name, ..)| *name == key) {
        Some((_, number, shape)) => field(*number, value, shape, out),
        None if extensions != 0 && key.starts_with("x-") => named(key, value, extensions, &Shape::Any, out),
        None => {}
    }
}

/// A message of a name and a value.
fn named(key: &str, value: &Value, number: u32, shape: &'static Shape, out: &mut Vec<u8>) {
    let mut entry = Vec::new();
    delimited(1, key.as_bytes(), &mut entry);
    field(2, value, shape, &mut entry);
    delimited(number, &entry, out);
}

fn field(number: u32, value: &Value, shape: &'static Shape, out: &mut Vec<u8>) {
    match shape {
        Shape::Text => delimited(number, value.as_str().unwrap_or_default().as_bytes(), out),
        Shape::Bool if value == &Value::Bool(true) => {
            varint(u64::from(number) << 3, out);
            varint(1, out);
        }
        Shape::Bool => {}
        Shape::Number => {
            varint(u64::from(number) << 3 | 1, out);
            out.extend(value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Shape::List(item) => value.as_array().into_iter().flatten().for_each(|one| field(number, one, item, out)),
        _ => {
            let mut inner = Vec::new();
            message(value, shape, &mut inner);
            delimited(number, &inner, out);
        }
    }
}

/// The bytes of a message.
fn message(value: &Value, shape: &'static Shape, out: &mut Vec<u8>) {
    let entries = || value.as_object().into_iter().flatten();
    match shape {
        Shape::Any => {
            let yaml = serde_yaml_ng::to_string(value).unwrap_or_default();
            delimited(2, yaml.as_bytes(), out);
        }
        Shape::Message(fields, extensions) => {
            entries().for_each(|(key, value)| member(key, value, fields, *extensions, out));
        }
        Shape::Entries(number, inner) => entries().for_each(|(key, value)| named(key, value, *number, inner, out)),
        Shape::Inside(number, inner) => field(*number, value, inner, out),
        Shape::Choice(choose) => match choose(value) {
            (0, _) => {}
            // A scalar of a choice is told even if it is the zero one.
            (number, Shape::Bool) => {
                varint(u64::from(number) << 3, out);
                varint(u64::from(value == &Value::Bool(true)), out);
            }
            (number, inner) => field(number, value, inner, out),
        },
        Shape::Text | Shape::Bool | Shape::Number | Shape::List(_) => {}
    }
}

fn delimited(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
