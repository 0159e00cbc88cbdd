//! Data items one after the other, and whether bytes are such at all.

use std::borrow::Cow;

use super::MAX_DEPTH;

/// More elements than that are refused at sight, as upstream does.
const MAX_ELEMENTS: u64 = 2_147_483_647;
const MAX_PAIRS: u64 = 2_097_152;

/// Ends what has no length.
const BREAK: u8 = 0xff;

/// What upstream says of bytes that end too early.
const SHORT: &str = "unexpected EOF";

/// Kinds of data items, by the first three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// 0, 1, …
    Unsigned,
    /// -1, -2, …
    Negative,
    /// Bytes, which upstream takes for text as well.
    Bytes,
    /// UTF-8.
    Text,
    /// A list.
    Array,
    /// Pairs.
    Map,
    /// Something about the item behind it.
    Tag,
    /// Truth values, null, floats.
    Simple,
}

impl Major {
    fn of(first: u8) -> Self {
        match first >> 5 {
            0 => Self::Unsigned,
            1 => Self::Negative,
            2 => Self::Bytes,
            3 => Self::Text,
            4 => Self::Array,
            5 => Self::Map,
            6 => Self::Tag,
            _ => Self::Simple,
        }
    }

    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "positive integer",
            Self::Negative => "negative integer",
            Self::Bytes => "byte string",
            Self::Text => "UTF-8 text string",
            Self::Array => "array",
            Self::Map => "map",
            Self::Tag => "tag",
            Self::Simple => "primitives",
        }
    }
}

/// The beginning of a data item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// What it is.
    pub major: Major,
    /// Its low five bits.
    pub info: u8,
    /// The number in it or behind it: a value, a length, a tag.
    pub argument: u64,
}

impl Head {
    /// It ends with a break rather than after a number of elements.
    pub fn is_indefinite(self) -> bool {
        self.info == 31
    }
}

/// A place in bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// How far it has come.
    pub at: usize,
}

impl<'a> Reader<'a> {
    /// At the beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(SHORT)?;
        self.at += taken.len();
        Ok(taken)
    }

    /// What the next item is, without going on.
    pub fn peek(&self) -> Result<Head, String> {
        Reader { bytes: self.bytes, at: self.at }.head()
    }

    /// The next item's head.
    pub fn head(&mut self) -> Result<Head, String> {
        let first = self.take(1)?[0];
        let (major, info) = (Major::of(first), first & 31);
        let argument = match info {
            0..=23 => u64::from(info),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
            31 if matches!(major, Major::Bytes | Major::Text | Major::Array | Major::Map | Major::Simple) => 0,
            _ => return Err(format!("cbor: invalid additional information {info} for type {}", major.name())),
        };
        Ok(Head { major, info, argument })
    }

    /// The bytes of a string whose head has been read; one without a length comes in parts.
    pub fn string(&mut self, head: Head) -> Result<Cow<'a, [u8]>, String> {
        if !head.is_indefinite() {
            return self.take(head.argument).map(Cow::Borrowed);
        }
        let mut all = Vec::new();
        while !self.at_break() {
            let part = self.head()?;
            all.extend_from_slice(self.take(part.argument)?);
        }
        self.at += 1;
        Ok(Cow::Owned(all))
    }

    fn at_break(&self) -> bool {
        self.bytes.get(self.at).is_none_or(|byte| *byte == BREAK)
    }

    /// Whether another element follows, of a list or map whose head has been read and that has had so many of them.
    pub fn more(&mut self, head: Head, had: u64) -> bool {
        if !head.is_indefinite() {
            return had < head.argument;
        }
        let end = self.at_break();
        self.at += usize::from(end);
        !end
    }

    /// Goes past an item.
    pub fn skip(&mut self) -> Result<(), String> {
        self.walk(0)
    }

    fn walk(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("cbor: exceeded max nested level {MAX_DEPTH}"));
        }
        let head = self.head()?;
        match head.major {
            Major::Unsigned | Major::Negative => Ok(()),
            Major::Bytes | Major::Text => self.walk_string(head),
            Major::Array | Major::Map => self.walk_elements(head, depth),
            Major::Tag if matches!(head.argument, 2 | 3) => Err(refused(Major::Tag, "bignum")),
            Major::Tag => self.walk(depth + 1),
            Major::Simple => walk_simple(head),
        }
    }

    fn walk_string(&mut self, head: Head) -> Result<(), String> {
        if !head.is_indefinite() {
            return self.take(head.argument).map(drop);
        }
        loop {
            if self.bytes.get(self.at) == Some(&BREAK) {
                self.at += 1;
                return Ok(());
            }
            let part = self.head()?;
            if part.major != head.major || part.is_indefinite() {
                return Err(format!(
                    "cbor: wrong element type {} for indefinite-length {}",
                    part.major.name(),
                    head.major.name()
                ));
            }
            self.take(part.argument)?;
        }
    }

    fn walk_elements(&mut self, head: Head, depth: usize) -> Result<(), String> {
        let pairs = head.major == Major::Map;
        let (limit, what, of) = match pairs {
            true => (MAX_PAIRS, "key-value pairs", "map"),
            false => (MAX_ELEMENTS, "elements", "array"),
        };
        if head.argument > limit {
            return Err(format!("cbor: exceeded max number of {what} {limit} for CBOR {of}"));
        }
        let mut had = 0;
        while self.more(head, had) {
            self.walk(depth + 1)?;
            if pairs {
                self.walk(depth + 1)?;
            }
            had += 1;
        }
        if self.at > self.bytes.len() { Err(SHORT.to_owned()) } else { Ok(()) }
    }
}

fn walk_simple(head: Head) -> Result<(), String> {
    if head.is_indefinite() {
        return Err("cbor: unexpected \"break\" code".to_owned());
    }
    match (head.info, float(head)) {
        (24, _) if head.argument < 32 => {
            Err(format!("cbor: invalid simple value {} for type primitives", head.argument))
        }
        (_, Some(float)) if float.is_nan() => Err(refused(Major::Simple, "floating-point NaN")),
        (_, Some(float)) if float.is_infinite() => Err(refused(Major::Simple, "floating-point infinity")),
        _ => Ok(()),
    }
}

/// What upstream says of items that it does not take.
pub fn refused(major: Major, what: &str) -> String {
    format!("cbor: data item of cbor type {} is not accepted by protocol: {what}", major.name())
}

/// The float that an item is, if it is one.
pub fn float(head: Head) -> Option<f64> {
    let bits = head.argument;
    match head.info {
        25 => Some(half(bits)),
        26 => Some(f64::from(f32::from_bits(u32::try_from(bits).unwrap_or_default()))),
        27 => Some(f64::from_bits(bits)),
        _ => None,
    }
}

/// A float of 16 bits.
fn half(bits: u64) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 31, (bits & 1023) as f64);
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent as i32 - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Whether bytes are one data item, and nothing else.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Err("EOF".to_owned());
    }
    let mut reader = Reader::new(bytes);
    reader.walk(0)?;
    match bytes.len() - reader.at {
        0 => Ok(()),
        rest => Err(format!("cbor: {rest} bytes of extraneous data starting at index {}", reader.at)),
    }
}
