//! A consistent copy of a store in one stream: `PINTLE-STORE-1\n`, records, and a SHA-256 of everything before it.
//!
//! All integers are little-endian. Header: revision i64, number of records u64. Record: key length u32, value length u32,
//! create revision i64, mod revision i64, expiry in milliseconds since 1970 u64 (0: never), key, value.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::contract::{KeyValue, Revision};
use crate::error::{Error, Result};
use crate::mapped::Mapping;
use crate::state::{Entry, FIRST_REVISION, State};

const MAGIC: &[u8; 15] = b"PINTLE-STORE-1\n";
/// No key or value is larger; keeps a damaged length from allocating memory.
const MAX_PART: u32 = 64 << 20;

/// The state of a store at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) entries: BTreeMap<Arc<str>, Entry>,
}

impl Snapshot {
    pub(crate) fn of(state: &State) -> Self {
        Self { revision: state.revision(), entries: state.entries().clone() }
    }

    /// A store that was never written.
    pub(crate) fn empty() -> Self {
        Self { revision: FIRST_REVISION, entries: BTreeMap::new() }
    }

    /// The revision that the copy shows.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.value.len() as u64).sum()
    }

    /// Only the keys under `prefix`, as keys under `new`.
    pub fn moved(&self, prefix: &str, new: &str) -> Self {
        let entries = self.entries.iter().filter_map(|(key, entry)| {
            let key = format!("{new}{}", key.strip_prefix(prefix)?);
            Some((key.into(), entry.clone()))
        });
        Self { revision: self.revision, entries: entries.collect() }
    }

    /// The same copy with other values.
    pub fn map_values(&self, mut change: impl FnMut(&str, Bytes) -> Result<Bytes>) -> Result<Self> {
        let entries = self.entries.iter().map(|(key, entry)| {
            let value = change(key, entry.value.clone())?;
            Ok((key.clone(), Entry { value, ..entry.clone() }))
        });
        Ok(Self { revision: self.revision, entries: entries.collect::<Result<_>>()? })
    }

    /// The copy of a store beneath a mapping as it is on top of it. A value that can't be read is an error.
    pub async fn here(&self, mapping: &dyn Mapping) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for (key, entry) in &self.entries {
            let (value, key) = (entry.value.clone(), mapping.key_here(key.to_string()));
            let (mod_revision, create_revision) = (entry.mod_revision, entry.create_revision);
            let kv = mapping.value_here(KeyValue { key, value, mod_revision, create_revision, stale: false }).await?;
            entries.insert(kv.key.into(), Entry { value: kv.value, ..entry.clone() });
        }
        Ok(Self { revision: self.revision, entries })
    }

    /// The copy as a mapping keeps it.
    pub async fn there(&self, mapping: &dyn Mapping) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for (key, entry) in &self.entries {
            let value = mapping.value_there(key, &entry.value).await?;
            entries.insert(mapping.key_there(key).into(), Entry { value, ..entry.clone() });
        }
        Ok(Self { revision: self.revision, entries })
    }

    /// Writes the copy and returns its revision.
    pub fn write(&self, writer: &mut (dyn Write + Send)) -> Result<Revision> {
        let mut out = Hashing { inner: &mut *writer, hash: Sha256::new() };
        self.write_records(&mut out).map_err(Error::io("write snapshot"))?;
        let digest = out.hash.finalize();
        writer.write_all(&digest).and_then(|()| writer.flush()).map_err(Error::io("write snapshot"))?;
        Ok(self.revision)
    }

    fn write_records(&self, out: &mut impl Write) -> std::io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&self.revision.to_le_bytes())?;
        out.write_all(&(self.entries.len() as u64).to_le_bytes())?;
        for (key, entry) in &self.entries {
            out.write_all(&(key.len() as u32).to_le_bytes())?;
            out.write_all(&(entry.value.len() as u32).to_le_bytes())?;
            out.write_all(&entry.create_revision.to_le_bytes())?;
            out.write_all(&entry.mod_revision.to_le_bytes())?;
            out.write_all(&entry.expires.unwrap_or(0).to_le_bytes())?;
            out.write_all(key.as_bytes())?;
            out.write_all(&entry.value)?;
        }
        Ok(())
    }

    /// Reads a copy and verifies it.
    pub fn read(reader: impl Read) -> Result<Self> {
        let mut input = Hashing { inner: reader, hash: Sha256::new() };
        if &input.take::<15>()? != MAGIC {
            return Err(bad("it does not start as one"));
        }
        let revision = input.i64()?;
        let count = input.u64()?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (key, entry) = input.record()?;
            entries.insert(key, entry);
        }
        let expected = input.hash.clone().finalize();
        if input.take::<32>()?[..] != expected[..] {
            return Err(bad("checksum does not match"));
        }
        Ok(Self { revision, entries })
    }
}

fn bad(reason: impl Into<String>) -> Error {
    Error::BadSnapshot(reason.into())
}

/// Passes bytes on and hashes them.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buf)?;
        self.hash.update(&buf[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Hashing<T> {
    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inner.read_exact(buf).map_err(|e| bad(e.to_string()))?;
        self.hash.update(buf);
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut buf = [0; N];
        self.fill(&mut buf)?;
        Ok(buf)
    }

    fn i64(&mut self) -> Result<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn part(&mut self, len: u32) -> Result<Vec<u8>> {
        if len > MAX_PART {
            return Err(bad("a record is too large"));
        }
        let mut buf = vec![0; len as usize];
        self.fill(&mut buf)?;
        Ok(buf)
    }

    fn record(&mut self) -> Result<(Arc<str>, Entry)> {
        let (key_len, value_len) = (u32::from_le_bytes(self.take()?), u32::from_le_bytes(self.take()?));
        let (create_revision, mod_revision) = (self.i64()?, self.i64()?);
        let expires = Some(self.u64()?).filter(|expires| *expires != 0);
        let key = String::from_utf8(self.part(key_len)?).map_err(|_| bad("a key is not UTF-8"))?;
        let value = Bytes::from(self.part(value_len)?);
        Ok((key.into(), Entry { value, create_revision, mod_revision, expires }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Snapshot {
        let entry = |expires| Entry { value: "value".into(), create_revision: 3, mod_revision: 7, expires };
        let entries = [("/a".into(), entry(None)), ("/b".into(), entry(Some(99)))].into();
        Snapshot { revision: 9, entries }
    }

    #[test]
    fn reads_what_it_wrote() {
        let mut bytes = Vec::new();
        assert_eq!(sample().write(&mut bytes).expect("write"), 9);
        assert_eq!(Snapshot::read(&bytes[..]).expect("read"), sample());
    }

    #[test]
    fn keys_move_and_values_change() {
        let moved = sample().moved("/", "/new/");
        assert_eq!(moved.entries.keys().map(|key| &**key).collect::<Vec<_>>(), ["/new/a", "/new/b"]);
        assert_eq!((sample().moved("/b", "/c").keys(), sample().bytes()), (1, 10));
        let changed = sample().map_values(|key, _| Ok(Bytes::copy_from_slice(key.as_bytes()))).expect("changed");
        assert_eq!((&changed.entries["/a"].value[..], changed.entries["/b"].expires), (&b"/a"[..], Some(99)));
    }

    #[test]
    fn any_damage_is_noticed() {
        let mut bytes = Vec::new();
        sample().write(&mut bytes).expect("write");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Snapshot::read(&damaged[..]).is_err(), "byte {at}");
            assert!(Snapshot::read(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
