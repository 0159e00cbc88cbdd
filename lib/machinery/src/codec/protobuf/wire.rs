//! Protobuf's wire format. Messages are written from their end, so that lengths are known when they are written.

/// A buffer that grows at its front.
#[derive(Debug, Default)]
pub struct Writer {
    data: Vec<u8>,
    start: usize,
}

/// How a value is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
}

impl Writer {
    /// With room for about so many bytes.
    pub fn with_capacity(size: usize) -> Self {
        Self { data: vec![0; size], start: size }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.data.len() - self.start
    }

    /// The bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.data.drain(..self.start);
        self.data
    }

    /// Puts bytes before all others.
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.start;
        self.start -= bytes.len();
        self.data[self.start..end].copy_from_slice(bytes);
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let used = self.len();
        let size = (used + more).next_power_of_two().max(512) * 2;
        let mut data = vec![0; size];
        data[size - used..].copy_from_slice(&self.data[self.start..]);
        self.data = data;
        self.start = size - used;
    }

    fn varint(&mut self, mut value: u64) {
        let mut bytes = [0; 10];
        let mut length = 0;
        loop {
            bytes[length] = (value & 0x7f) as u8 | 0x80;
            length += 1;
            value >>= 7;
            if value == 0 {
                break;
            }
        }
        bytes[length - 1] &= 0x7f;
        self.raw(&bytes[..length]);
    }

    fn tag(&mut self, number: u32, wire_type: WireType) {
        self.varint(u64::from(number) << 3 | wire_type as u64);
    }

    /// An integer field.
    pub fn integer(&mut self, number: u32, value: i64) {
        self.varint(value as u64);
        self.tag(number, WireType::Varint);
    }

    /// A float field.
    pub fn double(&mut self, number: u32, value: f64) {
        self.raw(&value.to_le_bytes());
        self.tag(number, WireType::Fixed64);
    }

    /// A field of bytes or text.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        self.raw(value);
        self.varint(value.len() as u64);
        self.tag(number, WireType::Delimited);
    }

    /// Makes what was written since the buffer had `end` bytes the field of that number.
    pub fn delimit(&mut self, number: u32, end: usize) {
        let length = self.len() - end;
        self.varint(length as u64);
        self.tag(number, WireType::Delimited);
    }
}

/// Reads fields of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// An integer or bool.
    Integer(i64),
    /// 64 bits.
    Fixed(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Scalar<'a> {
    /// The bytes, none for another form.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Scalar::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// The bytes as text.
    pub fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

const TRUNCATED: &str = "unexpected EOF";

impl<'a> Reader<'a> {
    /// Of a message's bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// The next field's number and value.
    pub fn field(&mut self) -> Result<Option<(u32, Scalar<'a>)>, String> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("proto: illegal tag {} (wire type {})", tag >> 3, tag & 7))?;
        let value = match tag & 7 {
            0 => Scalar::Integer(self.varint()? as i64),
            1 => Scalar::Fixed(u64::from_le_bytes(self.take(8)?.try_into().unwrap_or_default())),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
                Scalar::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Scalar::Fixed(0)
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok(Some((number, value)))
    }

    /// How many bytes are left.
    pub fn rest(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(TRUNCATED)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for (at, &byte) in self.bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (at * 7);
            if byte < 0x80 {
                self.bytes = &self.bytes[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.bytes.len() < 10 { TRUNCATED } else { "proto: integer overflow" }.to_owned())
    }
}
