//! One document in its forms: made when first asked for, kept compressed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use pintle_machinery::schema::Schema;

use super::custom;
use super::descriptions::{Descriptions, Texts};
use super::document::{Document, Json, Sink};
use super::endpoints::Maker;
use super::gnostic::{DOCUMENT_V2, DOCUMENT_V3};
use super::protobuf::Protobuf;
use super::schemas::Notation;
use crate::resource::Resource;

/// Documents leave in pieces of that size.
const PIECE: usize = 64 * 1024;

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    Json,
    /// Protobuf.
    Protobuf,
}

/// One document.
pub struct Page {
    schema: &'static Schema,
    notation: Notation,
    /// The resources by path: `apis/apps/v1`.
    parts: BTreeMap<String, Vec<Arc<Resource>>>,
    hash: Kept<String>,
    json: Kept<Bytes>,
    protobuf: Kept<Bytes>,
}

/// What is made when first asked for, once. A failure is told, and the next who asks makes it anew.
struct Kept<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if let Some(value) = self.value.get() {
            return Ok(value.clone());
        }
        let _turn = self.making.lock();
        match self.value.get() {
            Some(value) => Ok(value.clone()),
            None => make().map(|value| self.value.get_or_init(|| value).clone()),
        }
    }
}

impl Page {
    /// A document of these paths and resources.
    pub fn new(schema: &'static Schema, notation: Notation, parts: BTreeMap<String, Vec<Arc<Resource>>>) -> Self {
        let (hash, json, protobuf) = Default::default();
        Self { schema, notation, parts, hash, json, protobuf }
    }

    /// The form that a media type stands for.
    pub fn form(&self, media_type: &str) -> Option<Form> {
        match media_type {
            "application/json" | "application/*" | "*/*" => Some(Form::Json),
            other if other.replace('@', ".") == self.media_type(Form::Protobuf) => Some(Form::Protobuf),
            _ => None,
        }
    }

    /// The media type of a form.
    pub fn media_type(&self, form: Form) -> &'static str {
        match (form, self.notation) {
            (Form::Json, _) => "application/json",
            (Form::Protobuf, Notation::V2) => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            (Form::Protobuf, Notation::V3) => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        }
    }

    /// A hash of the document in JSON, which comes to be with it.
    pub fn hash(&self) -> io::Result<String> {
        self.hash.get(|| {
            let (json, hash) = self.made_json()?;
            self.json.get(|| Ok(json))?;
            Ok(hash)
        })
    }

    /// The hash alone, with the descriptions at hand.
    pub fn hash_with(&self, descriptions: &Descriptions<'_>) -> io::Result<String> {
        self.hash.get(|| self.write_json(descriptions, io::sink()).map(|(_, hash)| hash))
    }

    /// JSON, compressed.
    pub fn json(&self) -> io::Result<Bytes> {
        self.hash()?;
        self.json.get(|| self.made_json().map(|(json, _)| json))
    }

    fn made_json(&self) -> io::Result<(Bytes, String)> {
        let encoder = GzEncoder::new(Vec::new(), Compression::default());
        let (encoder, hash) = self.write_json(&Texts::unpack().index(), encoder)?;
        Ok((compact(encoder.finish()?), hash))
    }

    /// Protobuf, compressed.
    pub fn protobuf(&self) -> io::Result<Bytes> {
        let shape = match self.notation {
            Notation::V2 => &DOCUMENT_V2,
            Notation::V3 => &DOCUMENT_V3,
        };
        self.protobuf.get(|| {
            let mut sink = Protobuf::new(shape);
            self.write(&Texts::unpack().index(), &mut sink)?;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&sink.finish())?;
            encoder.finish().map(compact)
        })
    }

    fn write_json<W: Write>(&self, descriptions: &Descriptions<'_>, out: W) -> io::Result<(W, String)> {
        let mut json = Json::new(Hashed { out, digest: ring::digest::Context::new(&ring::digest::SHA512) })?;
        self.write(descriptions, &mut json)?;
        let Hashed { out, digest } = json.finish()?;
        Ok((out, digest.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect()))
    }

    fn write(&self, descriptions: &Descriptions<'_>, sink: &mut impl Sink) -> io::Result<()> {
        let maker = Maker { schema: self.schema, descriptions };
        let mut endpoints: Vec<_> =
            self.parts.iter().flat_map(|(key, resources)| maker.document(key, resources)).collect();
        endpoints.sort_by(|left, right| left.path.cmp(&right.path));
        let resources = || self.parts.values().flatten();
        let custom = custom::schemas(resources(), self.notation);
        let all_custom = resources().next().is_some() && resources().all(|resource| resource.custom.is_some());
        let info = if all_custom { custom::INFO } else { super::document::INFO };
        let versions = self.versions();
        Document { schema: self.schema, descriptions, endpoints, versions, custom, info }.write(self.notation, sink)
    }

    /// A document of one version tells only of its own options kinds and the core group's.
    fn versions(&self) -> Option<Vec<(String, String)>> {
        let own = self.parts.values().flatten().map(|resource| (resource.group.clone(), resource.version.clone()));
        let versions = own.chain([(String::new(), "v1".to_owned())]);
        (self.notation == Notation::V3).then(|| versions.collect())
    }
}

/// Without room to spare: it stays.
fn compact(made: Vec<u8>) -> Bytes {
    made.into_boxed_slice().into()
}

/// The bytes of a compressed form, in pieces.
pub fn unpacked(compressed: Bytes) -> impl Iterator<Item = Bytes> {
    let mut decoder = GzDecoder::new(bytes::Buf::reader(compressed));
    std::iter::from_fn(move || {
        let mut piece = vec![0; PIECE];
        // It was compressed here: reading doesn't fail.
        let read = decoder.read(&mut piece).unwrap_or_default();
        piece.truncate(read);
        (read > 0).then(|| piece.into())
    })
}

/// How many bytes that is: gzip's last four bytes tell.
pub fn size(compressed: &[u8]) -> u32 {
    compressed.last_chunk().map_or(0, |size| u32::from_le_bytes(*size))
}

/// Hashes what passes through.
struct Hashed<W> {
    out: W,
    digest: ring::digest::Context,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_is_kept_is_made_once_and_failures_are_not_kept() {
        let kept = Kept::<u32>::default();
        assert!(kept.get(|| Err(io::Error::other("no"))).is_err());
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kept.get(|| panic!("no"))));
        assert!(panics.is_err());
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| kept.get(|| Ok(made.fetch_add(1, Ordering::SeqCst) + 7)).unwrap());
            }
        });
        assert_eq!((kept.get(|| Ok(0)).unwrap(), made.into_inner()), (7, 1));
    }
}
