//! The database file: a redb table of records and one of counters.
//!
//! Record: create revision i64, mod revision i64, expiry in milliseconds since 1970 u64 (0: never), CRC-32 of key, these and
//! the value u32, value; little-endian.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::contract::Revision;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::Entry;

const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");
const COUNTERS: TableDefinition<&str, i64> = TableDefinition::new("counters");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Format of the tables.
const FORMAT_VERSION: i64 = 1;
/// Bytes before the value in a record.
const HEADER: usize = 28;
/// Page cache: only inner pages matter, values are read once, on opening.
const PAGE_CACHE: usize = 8 << 20;

/// A key and what it becomes; `None` for a deletion.
pub(super) type Change = (Arc<str>, Option<Entry>);

/// Opens the database.
pub(super) type Opener = Box<dyn Fn() -> std::result::Result<Database, redb::Error> + Send>;

/// Opens the database in a file.
pub(super) fn file(path: PathBuf) -> Opener {
    Box::new(move || Ok(Database::builder().set_cache_size(PAGE_CACHE).open(&path)?))
}

/// Makes the database file with the state of a snapshot: whole, or not at all.
pub(super) fn create(path: &Path, snapshot: &Snapshot) -> Result<()> {
    let new = path.with_extension("new");
    let context = format!("create {}", path.display());
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io(context)(e)),
        _ => {}
    }
    let made = Database::builder().create(&new).map_err(redb::Error::from).and_then(|db| fill(&db, snapshot));
    made.map_err(|e| failed(e, path))?;
    let parent = path.parent().unwrap_or(Path::new("."));
    let renamed = std::fs::rename(&new, path).and_then(|()| File::open(parent)?.sync_all());
    renamed.map_err(Error::io(context))
}

/// Writes a snapshot into a new database.
pub(super) fn fill(db: &Database, snapshot: &Snapshot) -> std::result::Result<(), redb::Error> {
    let tx = db.begin_write()?;
    {
        let mut records = tx.open_table(RECORDS)?;
        for (key, entry) in &snapshot.entries {
            records.insert(&**key, &encode(key, entry)[..])?;
        }
        let mut counters = tx.open_table(COUNTERS)?;
        counters.insert(REVISION, snapshot.revision)?;
        counters.insert(FORMAT, FORMAT_VERSION)?;
    }
    Ok(tx.commit()?)
}

/// The open database.
pub(super) struct Disk {
    opener: Opener,
    path: PathBuf,
    /// `None` after a failure, until it can be opened again.
    db: Option<Database>,
}

impl Disk {
    /// A database that is not open yet.
    pub(super) fn new(opener: Opener, path: PathBuf) -> Self {
        Self { opener, path, db: None }
    }

    /// Opens the database if necessary and reads all of it.
    pub(super) fn load(&mut self) -> Result<Snapshot> {
        self.guarded(read_all)
    }

    /// Writes changes and the revision in one transaction. After an error the database has to be [`reopened`](Self::reopen).
    pub(super) fn commit(&mut self, changes: &[Change], revision: Revision, durable: bool) -> Result<()> {
        let result = self.guarded(|db, path| write(db, changes, revision, durable).map_err(|e| failed(e, path)));
        if result.is_err() {
            self.db = None;
        }
        result
    }

    /// After a failure: opens the database anew and tells how far it got.
    pub(super) fn reopen(&mut self) -> Result<Revision> {
        self.db = None;
        self.guarded(|db, path| read_revision(db).map_err(|e| failed(e, path)))
    }

    /// Runs `action` on the open database. A panic of the database engine means that the file broke its invariants.
    fn guarded<T>(&mut self, action: impl FnOnce(&Database, &Path) -> Result<T>) -> Result<T> {
        let Self { opener, path, db } = self;
        let run = AssertUnwindSafe(|| {
            let open = match db.take() {
                Some(open) => open,
                None => open_existing(opener, path)?,
            };
            action(db.insert(open), path)
        });
        catch_unwind(run).unwrap_or_else(|_| Err(damaged(path, "the database engine gave up on its contents")))
    }
}

fn open_existing(opener: &Opener, path: &Path) -> Result<Database> {
    opener().map_err(|e| failed(e, path))
}

fn write(db: &Database, changes: &[Change], revision: Revision, durable: bool) -> std::result::Result<(), redb::Error> {
    let mut tx = db.begin_write()?;
    if !durable {
        tx.set_durability(redb::Durability::None)?;
    }
    {
        let mut records = tx.open_table(RECORDS)?;
        for (key, entry) in changes {
            match entry {
                Some(entry) => drop(records.insert(&**key, &encode(key, entry)[..])?),
                None => drop(records.remove(&**key)?),
            }
        }
        tx.open_table(COUNTERS)?.insert(REVISION, revision)?;
    }
    Ok(tx.commit()?)
}

fn read_revision(db: &Database) -> std::result::Result<Revision, redb::Error> {
    let counters = db.begin_read()?.open_table(COUNTERS)?;
    Ok(counters.get(REVISION)?.map_or(0, |revision| revision.value()))
}

fn read_all(db: &Database, path: &Path) -> Result<Snapshot> {
    let fail = |e| failed(e, path);
    let revision = read_revision(db).map_err(fail)?;
    let tx = db.begin_read().map_err(|e| fail(e.into()))?;
    let counters = tx.open_table(COUNTERS).map_err(|e| fail(e.into()))?;
    let format = counters.get(FORMAT).map_err(|e| fail(e.into()))?.map(|format| format.value());
    if format != Some(FORMAT_VERSION) {
        return Err(damaged(path, format!("format {format:?} is not the supported one, {FORMAT_VERSION}")));
    }
    let records = tx.open_table(RECORDS).map_err(|e| fail(e.into()))?;
    let mut entries = BTreeMap::new();
    for record in records.iter().map_err(|e| fail(e.into()))? {
        let (key, value) = record.map_err(|e| fail(e.into()))?;
        let key: Arc<str> = key.value().into();
        let entry = decode(&key, value.value()).ok_or_else(|| damaged(path, format!("checksum of {key} is wrong")))?;
        if entry.mod_revision > revision {
            return Err(damaged(path, format!("{key} is newer than the store")));
        }
        entries.insert(key, entry);
    }
    Ok(Snapshot { revision, entries })
}

fn encode(key: &str, entry: &Entry) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + entry.value.len());
    record.extend(entry.create_revision.to_le_bytes());
    record.extend(entry.mod_revision.to_le_bytes());
    record.extend(entry.expires.unwrap_or(0).to_le_bytes());
    record.extend(checksum(key, &record, &entry.value).to_le_bytes());
    record.extend(&entry.value);
    record
}

fn decode(key: &str, record: &[u8]) -> Option<Entry> {
    let (head, rest) = record.split_at_checked(HEADER - 4)?;
    let (sum, value) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*sum) != checksum(key, head, value) {
        return None;
    }
    let number = |at: usize| head.get(at..at + 8)?.try_into().ok().map(i64::from_le_bytes);
    let expires = Some(number(16)? as u64).filter(|expires| *expires != 0);
    let value = Bytes::copy_from_slice(value);
    Some(Entry { value, create_revision: number(0)?, mod_revision: number(8)?, expires })
}

fn checksum(key: &str, head: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [key.as_bytes(), head, value] {
        hasher.update(part);
    }
    hasher.finalize()
}

fn damaged(path: &Path, reason: impl Into<String>) -> Error {
    Error::Damaged { path: path.into(), reason: reason.into() }
}

/// Tells damage from a failing disk.
fn failed(error: redb::Error, path: &Path) -> Error {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    match error {
        redb::Error::DatabaseAlreadyOpen => Error::InUse(path.into()),
        redb::Error::Io(e) if !matches!(e.kind(), InvalidData | UnexpectedEof) => {
            Error::io(path.display().to_string())(e)
        }
        redb::Error::Corrupted(_)
        | redb::Error::Io(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. } => damaged(path, error.to_string()),
        error => Error::Storage(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_checked() {
        let entry = Entry { value: "value".into(), create_revision: 3, mod_revision: 5, expires: Some(7) };
        let record = encode("/k", &entry);
        assert_eq!(decode("/k", &record), Some(entry));
        assert_eq!(decode("/other", &record), None);
        for at in 0..record.len() {
            let mut wrong = record.clone();
            wrong[at] ^= 1;
            assert_eq!(decode("/k", &wrong), None, "byte {at}");
            assert_eq!(decode("/k", &record[..at]), None, "cut at {at}");
        }
    }
}
