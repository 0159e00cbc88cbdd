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

use super::fail::point;
use crate::contract::Revision;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::Entry;

const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");
const COUNTERS: TableDefinition<&str, i64> = TableDefinition::new("counters");
const REVISION: &str = "revision";
/// Revisions up to here may have been given out without having been kept; 0 after an orderly end.
const RESERVED: &str = "reserved";
const FORMAT: &str = "format";
/// Format of the tables.
const FORMAT_VERSION: i64 = 1;
/// Bytes before the value in a record.
const HEADER: usize = 28;
/// Page cache: only inner pages matter, values are read once, on opening.
const PAGE_CACHE: usize = 8 << 20;

/// Entries that are written in one transaction when a file is built.
const BATCH: usize = 4096;

/// The store's numbers, written with every commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    /// Revision of the latest write.
    pub revision: Revision,
    /// Revisions up to here may be given out before the next durable commit; 0: none are.
    pub reserved: Revision,
}

/// A key and what it becomes; `None` for a deletion.
pub(super) type Change = (Arc<str>, Option<Entry>);

/// Opens the database.
pub(super) type Opener = Box<dyn Fn() -> std::result::Result<Database, redb::Error> + Send>;
/// Makes durable which file the database is in.
pub(super) type Keeper = Box<dyn Fn() -> io::Result<()> + Send>;

/// Opens the database in a file.
pub(super) fn file(path: PathBuf) -> Opener {
    Box::new(move || Ok(Database::builder().set_cache_size(PAGE_CACHE).open(&path)?))
}

/// Syncs the directory of a file.
pub(super) fn directory(path: PathBuf) -> Keeper {
    Box::new(move || sync_directory(&path))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes the database file with the state of a snapshot: whole, or not at all.
pub(super) fn create(path: &Path, snapshot: &Snapshot) -> Result<()> {
    let new = path.with_extension("new");
    drop(build(&new, snapshot)?);
    let renamed = std::fs::rename(&new, path).and_then(|()| sync_directory(path));
    renamed.map_err(not_in_place(path))
}

fn not_in_place(path: &Path) -> impl FnOnce(io::Error) -> Error {
    Error::io(format!("put {} in place", path.display()))
}

/// Writes a compact database with the state of a snapshot into a file of its own.
pub(super) fn build(path: &Path, snapshot: &Snapshot) -> Result<Database> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(format!("create {}", path.display()))(e));
        }
        _ => {}
    }
    let made = Database::builder().set_cache_size(PAGE_CACHE).create(path).map_err(redb::Error::from);
    let made = made.and_then(|mut db| {
        fill(&db, snapshot)?;
        db.compact()?;
        Ok(db)
    });
    made.map_err(|e| failed(e, path))
}

/// Writes a snapshot into a new database.
pub(super) fn fill(db: &Database, snapshot: &Snapshot) -> std::result::Result<(), redb::Error> {
    let mut entries = snapshot.entries.iter();
    loop {
        let mut tx = db.begin_write()?;
        let written = {
            let mut records = tx.open_table(RECORDS)?;
            let batch = entries.by_ref().take(BATCH);
            batch
                .map(|(key, entry)| records.insert(&**key, &encode(key, entry)[..]).map(drop))
                .collect::<std::result::Result<Vec<_>, _>>()?
                .len()
        };
        if written == BATCH {
            tx.set_durability(redb::Durability::None)?;
            tx.commit()?;
            continue;
        }
        {
            let mut counters = tx.open_table(COUNTERS)?;
            counters.insert(REVISION, snapshot.revision)?;
            counters.insert(FORMAT, FORMAT_VERSION)?;
        }
        return Ok(tx.commit()?);
    }
}

/// The open database.
pub(super) struct Disk {
    opener: Opener,
    keeper: Keeper,
    path: PathBuf,
    /// `None` after a failure, until it can be opened again.
    db: Option<Database>,
    /// Another file has been put in place, and after a crash the one before may be back.
    moved: bool,
}

impl Disk {
    /// A database that is not open yet.
    pub(super) fn new(opener: Opener, keeper: Keeper, path: PathBuf) -> Self {
        Self { opener, keeper, path, db: None, moved: false }
    }

    /// Opens the database if necessary and reads all of it.
    pub(super) fn load(&mut self) -> Result<Snapshot> {
        self.guarded(read_all)
    }

    /// Writes changes and the numbers in one transaction. After an error the database has to be [`reopened`](Self::reopen).
    pub(super) fn commit(&mut self, changes: &[Change], counters: Counters, durable: bool) -> Result<()> {
        let kept = if durable { self.keep_place() } else { Ok(()) };
        let result = kept
            .and_then(|()| self.guarded(|db, path| write(db, changes, counters, durable).map_err(|e| failed(e, path))));
        if result.is_err() {
            self.db = None;
        }
        result
    }

    /// After a failure: opens the database anew and tells how far it got.
    pub(super) fn reopen(&mut self) -> Result<Revision> {
        self.db = None;
        self.guarded(|db, path| read_counters(db).map(|counters| counters.revision).map_err(|e| failed(e, path)))
    }

    /// Bytes of the file; 0 if it is none.
    pub(super) fn size(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// The file to build another one in.
    pub(super) fn scratch(&self) -> PathBuf {
        self.path.with_extension("compact")
    }

    /// Goes on with a database that was [built](build) in the scratch file, once these changes since are in it. After an error
    /// it may have done so all the same; then no durable commit succeeds before the change-over is durable too.
    pub(super) fn adopt(&mut self, db: Database, changes: &[Change], counters: Counters) -> Result<()> {
        write(&db, changes, counters, true).map_err(|e| failed(e, &self.path))?;
        point("rewritten");
        std::fs::rename(self.scratch(), &self.path).map_err(not_in_place(&self.path))?;
        (self.db, self.moved) = (Some(db), true);
        self.keep_place()?;
        point("replaced");
        Ok(())
    }

    fn keep_place(&mut self) -> Result<()> {
        if self.moved {
            (self.keeper)().map_err(not_in_place(&self.path))?;
            self.moved = false;
        }
        Ok(())
    }

    /// Runs `action` on the open database. A panic of the database engine means that the file broke its invariants.
    fn guarded<T>(&mut self, action: impl FnOnce(&Database, &Path) -> Result<T>) -> Result<T> {
        let Self { opener, path, db, .. } = self;
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

fn write(db: &Database, changes: &[Change], now: Counters, durable: bool) -> std::result::Result<(), redb::Error> {
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
        let mut counters = tx.open_table(COUNTERS)?;
        counters.insert(REVISION, now.revision)?;
        match now.reserved {
            0 => drop(counters.remove(RESERVED)?),
            reserved => drop(counters.insert(RESERVED, reserved)?),
        }
    }
    point("written");
    Ok(tx.commit()?)
}

fn read_counters(db: &Database) -> std::result::Result<Counters, redb::Error> {
    let counters = db.begin_read()?.open_table(COUNTERS)?;
    let read = |name| counters.get(name).map(|found| found.map_or(0, |number| number.value()));
    Ok(Counters { revision: read(REVISION)?, reserved: read(RESERVED)? })
}

fn read_all(db: &Database, path: &Path) -> Result<Snapshot> {
    let fail = |e| failed(e, path);
    let Counters { revision, reserved } = read_counters(db).map_err(fail)?;
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
    if reserved > revision {
        tracing::warn!(revision, reserved, "the store was not closed in order: the latest relaxed writes may be lost");
    }
    Ok(Snapshot { revision: revision.max(reserved), entries })
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
    use io::ErrorKind::{InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
    match error {
        redb::Error::Io(e) if matches!(e.kind(), StorageFull | QuotaExceeded) => {
            Error::ReadOnly(format!("{}: {e}", path.display()))
        }
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
