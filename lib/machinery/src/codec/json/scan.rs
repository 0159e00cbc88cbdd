//! A JSON scanner whose complaints are in the words of Go's encoding/json, because clients see them.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Number;

use crate::codec::tree::{Entries, Tree};
use crate::schema::{Object, Value};

/// Where an object has what is rarely looked into and often large: who owns which field.
const FIELDS: &str = "fieldsV1";

/// How deep values may nest: far beyond any API object, far below the stack's end.
pub const MAX_DEPTH: usize = 400;

/// Reads tokens from bytes.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    /// The same, if it is UTF-8.
    text: Option<&'a str>,
    at: usize,
    depth: usize,
    /// A value of which it is known where it begins and ends.
    known: Range<usize>,
}

/// The form of the next value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// A digit or `-`.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`
    Null,
}

impl Form {
    /// As Go's messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Object => "object",
            Form::Array => "array",
            Form::String => "string",
            Form::Number => "number",
            Form::Bool => "bool",
            Form::Null => "null",
        }
    }
}

type Scanned<T> = Result<T, String>;

impl<'a> Scanner<'a> {
    /// Over these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Scanner { bytes, text: std::str::from_utf8(bytes).ok(), at: 0, depth: 0, known: 0..0 }
    }

    /// Over well-formed bytes of which little is looked at; it may be known that one value is just this part.
    pub fn passing(bytes: &'a [u8], known: Range<usize>) -> Self {
        Scanner { bytes, text: None, at: 0, depth: 0, known }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// What stands where something else must: the byte, or the end.
    fn unexpected(&self, context: &str) -> String {
        match self.bytes.get(self.at) {
            Some(&byte) => format!("invalid character {} {context}", quoted(byte)),
            None => "unexpected end of JSON input".to_owned(),
        }
    }

    /// The form of the next value.
    pub fn form(&mut self) -> Scanned<Form> {
        self.space();
        Ok(match self.bytes.get(self.at) {
            Some(b'{') => Form::Object,
            Some(b'[') => Form::Array,
            Some(b'"') => Form::String,
            Some(b'-' | b'0'..=b'9') => Form::Number,
            Some(b't' | b'f') => Form::Bool,
            Some(b'n') => Form::Null,
            _ => return Err(self.unexpected("looking for beginning of value")),
        })
    }

    /// Enters an object or array.
    pub fn enter(&mut self) -> Scanned<()> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err("exceeded max depth".to_owned()) } else { Ok(()) }
    }

    /// The next key of the object, past its colon; none at the object's end, which is then left.
    pub fn key(&mut self, first: bool) -> Scanned<Option<Cow<'a, str>>> {
        self.space();
        match self.bytes.get(self.at) {
            Some(b'}') => {
                self.leave();
                return Ok(None);
            }
            Some(b',') if !first => {
                self.at += 1;
                self.space();
            }
            _ if !first => return Err(self.unexpected("after object key:value pair")),
            _ => {}
        }
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        self.space();
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(Some(key))
    }

    /// Whether the array has another item; at its end it is left.
    pub fn item(&mut self, first: bool) -> Scanned<bool> {
        self.space();
        match self.bytes.get(self.at) {
            Some(b']') => {
                // `[1,]` is caught below: after a comma a value must begin.
                self.leave();
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                self.form()?;
                Ok(true)
            }
            _ if first => Ok(true),
            _ => Err(self.unexpected("after array element")),
        }
    }

    fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// A string, at its opening quote.
    pub fn string(&mut self) -> Scanned<Cow<'a, str>> {
        let start = self.at + 1;
        let end = start + plain(&self.bytes[start..]);
        match self.bytes.get(end) {
            Some(b'"') => {
                self.at = end + 1;
                Ok(self.slice(start, end))
            }
            Some(b'\\') => self.escaped(start, end).map(Cow::Owned),
            Some(_) => {
                self.at = end;
                Err(self.unexpected("in string literal"))
            }
            None => {
                self.at = end;
                Err(self.unexpected(""))
            }
        }
    }

    /// A part between ASCII characters.
    fn slice(&self, start: usize, end: usize) -> Cow<'a, str> {
        match self.text.and_then(|text| text.get(start..end)) {
            Some(text) => Cow::Borrowed(text),
            None => String::from_utf8_lossy(&self.bytes[start..end]),
        }
    }

    /// The text of the next value, whatever it is.
    pub fn text(&mut self) -> Scanned<Cow<'a, str>> {
        self.space();
        let start = self.at;
        self.skip()?;
        Ok(self.slice(start, self.at))
    }

    /// The rest of a string whose first escape is at `at`.
    fn escaped(&mut self, start: usize, at: usize) -> Scanned<String> {
        let mut text = self.bytes[start..at].to_vec();
        self.at = at;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&text).into_owned());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut text)?;
                }
                Some(0..0x20) | None => return Err(self.unexpected("in string literal")),
                Some(&byte) => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Scanned<()> {
        let plain = match self.bytes.get(self.at) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let character = self.unicode()?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        text.push(plain);
        self.at += 1;
        Ok(())
    }

    /// The character of four hex digits, or of a surrogate pair; a lone surrogate is replaced as Go does.
    fn unicode(&mut self) -> Scanned<char> {
        let first = self.hex()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        let before = self.at;
        if first < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Scanned<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).and_then(|&byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(code)
    }

    /// A number's text.
    pub fn number(&mut self) -> Scanned<&'a str> {
        let start = self.at;
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Scanned<()> {
        match self.bytes.get(self.at) {
            Some(b'0'..=b'9') => {
                self.digits();
                Ok(())
            }
            _ => Err(self.unexpected(context)),
        }
    }

    /// `true`, `false` or `null`, at its first letter; true for `true`.
    pub fn literal(&mut self) -> Scanned<bool> {
        let word: &str = match self.bytes[self.at] {
            b't' => "true",
            b'f' => "false",
            _ => "null",
        };
        for letter in word.bytes() {
            if self.bytes.get(self.at) != Some(&letter) {
                return Err(self.unexpected(&format!("in literal {word} (expecting {})", quoted(letter))));
            }
            self.at += 1;
        }
        Ok(word == "true")
    }

    /// Passes over the next value.
    pub fn skip(&mut self) -> Scanned<()> {
        match self.form()? {
            Form::String => self.string().map(drop),
            Form::Number => self.number().map(drop),
            Form::Bool | Form::Null => self.literal().map(drop),
            Form::Object => {
                self.enter()?;
                let mut first = true;
                while self.key(first)?.is_some() {
                    self.skip()?;
                    first = false;
                }
                Ok(())
            }
            Form::Array => {
                self.enter()?;
                let mut first = true;
                while self.item(first)? {
                    self.skip()?;
                    first = false;
                }
                Ok(())
            }
        }
    }

    /// Passes over the next value of a text that is known to be well-formed.
    pub fn pass(&mut self) -> Scanned<()> {
        match self.form()? {
            _ if self.at == self.known.start && !self.known.is_empty() => {
                self.at = self.known.end;
                return Ok(());
            }
            Form::String => return self.pass_string(),
            Form::Object | Form::Array => {}
            _ => return self.skip(),
        }
        let mut depth = 0_usize;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.pass_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.unexpected(""))
    }

    fn pass_string(&mut self) -> Scanned<()> {
        self.at += 1;
        loop {
            self.at += self.bytes.get(self.at..).map_or(0, plain);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.unexpected("")),
            }
        }
    }

    /// Where it is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next value, whatever it is.
    pub fn value(&mut self) -> Scanned<Value> {
        Ok(match self.form()? {
            Form::String => Value::String(self.string()?.into_owned()),
            Form::Number => number_value(self.number()?),
            Form::Bool => Value::Bool(self.literal()?),
            Form::Null => {
                self.literal()?;
                Value::Null
            }
            Form::Object => {
                self.enter()?;
                let mut object = Object::new();
                while let Some(key) = self.key(object.is_empty())? {
                    let value = self.value()?;
                    object.insert(key.into_owned(), value);
                }
                Value::Object(object)
            }
            Form::Array => {
                self.enter()?;
                let mut items = Vec::new();
                while self.item(items.is_empty())? {
                    items.push(self.value()?);
                }
                Value::Array(items)
            }
        })
    }

    /// The same for a value at a path: whole floats are integers, and duplicate keys are told.
    pub fn free(&mut self, path: &str, duplicates: &mut Vec<String>) -> Scanned<Value> {
        Ok(match self.form()? {
            Form::Number => whole(self.number()?),
            Form::Object => {
                self.enter()?;
                let mut object = Object::new();
                let mut first = true;
                while let Some(key) = self.key(first)? {
                    first = false;
                    let below = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                    let value = self.free(&below, duplicates)?;
                    if object.insert(key.into_owned(), value).is_some() {
                        duplicates.push(format!("duplicate field \"{below}\""));
                    }
                }
                Value::Object(object)
            }
            Form::Array => {
                self.enter()?;
                let mut items = Vec::new();
                while self.item(items.is_empty())? {
                    let value = self.free(&format!("{path}[{}]", items.len()), duplicates)?;
                    items.push(value);
                }
                Value::Array(items)
            }
            _ => self.value()?,
        })
    }

    /// The same that lends its strings; objects by the name of [`FIELDS`] stay text.
    pub fn tree(&mut self) -> Scanned<Tree<'a>> {
        Ok(match self.form()? {
            Form::String => Tree::String(self.string()?),
            Form::Number => match number_value(self.number()?) {
                Value::Number(number) => Tree::Number(number),
                _ => Tree::Null,
            },
            Form::Bool => Tree::Bool(self.literal()?),
            Form::Null => {
                self.literal()?;
                Tree::Null
            }
            Form::Object => {
                self.enter()?;
                let mut entries = Entries::new();
                while let Some(key) = self.key(entries.is_empty())? {
                    let value = match &*key {
                        FIELDS if self.form()? == Form::Object => Tree::Text(self.text()?),
                        _ => self.tree()?,
                    };
                    entries.push((key, value));
                }
                Tree::Object(entries)
            }
            Form::Array => {
                self.enter()?;
                let mut items = Vec::new();
                while self.item(items.is_empty())? {
                    items.push(self.tree()?);
                }
                Tree::Array(items)
            }
        })
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Scanned<()> {
        self.space();
        if self.at < self.bytes.len() { Err(self.unexpected("after top-level value")) } else { Ok(()) }
    }
}

/// How many bytes there are before the first that a string has escaped, or that ends it.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    // Of eight bytes at once: the highest bit of each that is less than `limit`, which is at most 128.
    let less = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES << 7);
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..at + 8).and_then(|chunk| chunk.try_into().ok()) {
        let word = u64::from_le_bytes(chunk);
        let found =
            less(word, 0x20) | less(word ^ (ONES * u64::from(b'"')), 1) | less(word ^ (ONES * u64::from(b'\\')), 1);
        if found != 0 {
            // Borrows make false finds only behind a true one.
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    rest.map_or(bytes.len(), |found| at + found)
}

/// A number: an integer if it is written as one and fits.
pub fn number_value(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// A number; a whole float as Go writes it, without a fraction.
pub fn whole(text: &str) -> Value {
    let value = number_value(text);
    match value.as_f64() {
        Some(float) if value.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
        _ => value,
    }
}

/// A byte as Go quotes it in messages.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        7 => "'\\a'".to_owned(),
        8 => "'\\b'".to_owned(),
        11 => "'\\v'".to_owned(),
        12 => "'\\f'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
