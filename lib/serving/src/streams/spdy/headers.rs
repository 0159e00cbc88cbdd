//! Header blocks: name/value pairs, compressed by one zlib stream per direction that is primed with the SPDY/3 dictionary.

use bytes::{Buf, BufMut, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::connection::Headers;

const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// A header block that is larger than this when unpacked is refused.
const MAX_BLOCK: usize = 256 * 1024;
const CHUNK: usize = 4096;

/// Compresses the header blocks of one direction.
pub(super) struct Packer(Compress);

impl Packer {
    /// A fresh zlib stream.
    pub(super) fn new() -> Result<Self, String> {
        let mut zlib = Compress::new(Compression::default(), true);
        zlib.set_dictionary(DICTIONARY).map_err(|error| error.to_string())?;
        Ok(Self(zlib))
    }

    /// One block.
    pub(super) fn pack(&mut self, headers: &Headers) -> Result<Bytes, String> {
        let mut plain = Vec::new();
        plain.put_u32(headers.len() as u32);
        for (name, value) in headers {
            put_string(&mut plain, &name.to_ascii_lowercase());
            put_string(&mut plain, value);
        }
        let mut out = Vec::with_capacity(CHUNK);
        let start = self.0.total_in();
        loop {
            out.reserve(CHUNK);
            let rest = &plain[(self.0.total_in() - start) as usize..];
            self.0.compress_vec(rest, &mut out, FlushCompress::Sync).map_err(|error| error.to_string())?;
            let done = (self.0.total_in() - start) as usize == plain.len();
            if done && out.len() < out.capacity() {
                return Ok(out.into());
            }
        }
    }
}

/// Unpacks the header blocks of one direction.
pub(super) struct Unpacker(Decompress);

impl Unpacker {
    /// A fresh zlib stream.
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// One block. An error leaves the stream unusable: the connection must end.
    pub(super) fn unpack(&mut self, block: &[u8]) -> Result<Headers, String> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(CHUNK);
        let start = self.0.total_in();
        loop {
            out.reserve(CHUNK);
            let rest = &block[(self.0.total_in() - start) as usize..];
            let before = (self.0.total_in(), out.len());
            match self.0.decompress_vec(rest, &mut out, FlushDecompress::Sync) {
                Ok(Status::StreamEnd) => return Err("the header stream ended".into()),
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|error| error.to_string())?;
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            }
            if out.len() > MAX_BLOCK {
                return Err("header block is too large".into());
            }
            let consumed = (self.0.total_in() - start) as usize == block.len();
            if consumed && out.len() < out.capacity() {
                return Ok(out);
            }
            if before == (self.0.total_in(), out.len()) {
                return Err("header block is incomplete".into());
            }
        }
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.put_u32(text.len() as u32);
    out.put_slice(text.as_bytes());
}

fn parse(mut plain: &[u8]) -> Result<Headers, String> {
    let count = take_u32(&mut plain)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = take_string(&mut plain)?;
        let value = take_string(&mut plain)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn take_u32(plain: &mut &[u8]) -> Result<usize, String> {
    plain.try_get_u32().map(|n| n as usize).map_err(|_| "header block is truncated".into())
}

fn take_string(plain: &mut &[u8]) -> Result<String, String> {
    let len = take_u32(plain)?;
    let Some((text, rest)) = plain.split_at_checked(len) else { return Err("header block is truncated".into()) };
    *plain = rest;
    String::from_utf8(text.to_vec()).map_err(|_| "header is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn blocks_share_one_stream_per_direction() {
        let (mut packer, mut unpacker) = (Packer::new().unwrap(), Unpacker::new());
        let first = packer.pack(&headers(&[("streamType", "stdin"), ("port", "80")])).unwrap();
        let second = packer.pack(&headers(&[("streamType", "stdin"), ("port", "80")])).unwrap();
        assert!(second.len() < first.len(), "the second block refers back to the first");
        let lower = headers(&[("streamtype", "stdin"), ("port", "80")]);
        assert_eq!(unpacker.unpack(&first).unwrap(), lower);
        assert_eq!(unpacker.unpack(&second).unwrap(), lower);
        let long = headers(&[("x", &"abcdefgh".repeat(3000)), ("y", "")]);
        assert_eq!(unpacker.unpack(&packer.pack(&long).unwrap()).unwrap(), long);
        assert!(unpacker.unpack(&packer.pack(&Headers::new()).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn the_dictionary_is_the_specified_one() {
        let mut zlib = Compress::new(Compression::default(), true);
        assert_eq!(zlib.set_dictionary(DICTIONARY).unwrap(), 0xe3c6_a7c2);
    }

    #[test]
    fn hostile_blocks_are_errors() {
        let mut packer = Packer::new().unwrap();
        let bomb = packer.pack(&headers(&[("x", &"a".repeat(MAX_BLOCK + 1))])).unwrap();
        assert!(bomb.len() < 2048);
        assert!(Unpacker::new().unpack(&bomb).is_err());
        assert!(Unpacker::new().unpack(b"nonsense").is_err());
        assert!(parse(&[0, 0, 0, 2, 0, 0, 0, 9]).is_err());
        assert!(parse(&[0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
