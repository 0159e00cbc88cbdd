//! A disk that fails and loses power on demand, and what the store makes of it.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, StorageBackend};

use super::disk::{self, Disk};
use super::{Embedded, Options};
use crate::contract::{ListOptions, Revision, Store};
use crate::error::Error;
use crate::snapshot::Snapshot;
use crate::watch::Watch;

/// What a disk holds for sure, and the writes since that it may or may not hold.
#[derive(Debug, Default)]
struct Medium {
    data: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Operations until all fail.
    fails_after: Option<usize>,
}

impl Medium {
    fn operation(&mut self) -> Result<(), io::Error> {
        match &mut self.fails_after {
            Some(0) => Err(io::Error::new(io::ErrorKind::StorageFull, "injected")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What is left after a power cut: each write since the last sync arrived, did not, or arrived in part.
    fn power_cut(&self, random: &mut StdRng) -> Self {
        let mut data = self.synced.clone();
        for (offset, bytes) in &self.unsynced {
            let kept = match random.random_range(0..3) {
                0 => 0,
                1 => bytes.len(),
                _ => random.random_range(0..=bytes.len()) / 512 * 512,
            };
            data.resize(data.len().max(offset + kept), 0);
            data[*offset..offset + kept].copy_from_slice(&bytes[..kept]);
        }
        Self { synced: data.clone(), data, ..Self::default() }
    }
}

#[derive(Debug, Clone, Default)]
struct Faulty(Arc<Mutex<Medium>>);

impl Faulty {
    fn new() -> Self {
        let disk = Self::default();
        let db = disk.open().expect("new database");
        disk::fill(&db, &Snapshot::empty()).expect("first commit");
        drop(db);
        disk
    }

    fn open(&self) -> Result<Database, redb::Error> {
        Ok(Database::builder().create_with_backend(self.clone())?)
    }

    fn store(&self) -> Result<Embedded, Error> {
        let medium = self.clone();
        let path = PathBuf::from("faulty");
        let disk = Disk::new(Box::new(move || medium.open()), Box::new(|| Ok(())), path.clone());
        Embedded::start(disk, path, None, Options::default())
    }
}

impl StorageBackend for Faulty {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().data.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let medium = self.0.lock();
        let offset = offset as usize;
        let data = medium.data.get(offset..offset + out.len());
        out.copy_from_slice(data.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut medium = self.0.lock();
        medium.operation()?;
        medium.data.resize(len as usize, 0);
        let length = len as usize;
        medium.synced.resize(length, 0);
        medium.unsynced.retain(|(offset, bytes)| offset + bytes.len() <= length);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut medium = self.0.lock();
        medium.operation()?;
        medium.synced = medium.data.clone();
        medium.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut medium = self.0.lock();
        medium.operation()?;
        let offset = offset as usize;
        medium.data[offset..offset + data.len()].copy_from_slice(data);
        medium.unsynced.push((offset, data.to_vec()));
        Ok(())
    }
}

const WRITERS: usize = 4;
/// Keys of each writer.
const KEYS: usize = 4;

/// The value of a key after each write that was asked for, in order; all but the last are acknowledged for sure.
#[derive(Debug, Default)]
struct Written {
    acknowledged: HashMap<String, (Revision, Option<Bytes>)>,
    revisions: Vec<Revision>,
    /// The write that failed.
    doubtful: Option<(String, Option<Bytes>)>,
}

impl Written {
    /// What was acknowledged is there; the write in doubt is there whole or not at all.
    async fn check(&self, store: &Embedded, context: &str) {
        for (key, (_, wanted)) in &self.acknowledged {
            let found = store.get(key).await.expect("get").map(|kv| kv.value);
            let arrived = self.doubtful.as_ref().is_some_and(|(doubtful, value)| doubtful == key && *value == found);
            assert!(found == *wanted || arrived, "{context}: {key} is wrong");
        }
    }
}

/// Writes to its own keys until the disk fails.
async fn write_until_failure(store: Arc<Embedded>, writer: usize, seed: u64) -> Written {
    let mut random = StdRng::seed_from_u64(seed * 100 + writer as u64);
    let mut written = Written::default();
    loop {
        let key = format!("/{writer}/{}", random.random_range(0..KEYS));
        let size = random.random_range(1..6000);
        let value: Bytes = (0..size).map(|_| random.random::<u8>()).collect::<Vec<_>>().into();
        let (value, result) = match store.get(&key).await.expect("get") {
            Some(kv) if random.random_range(0..5) == 0 => (None, store.delete(&key, kv.mod_revision).await),
            Some(kv) => (Some(value.clone()), store.update(&key, value, kv.mod_revision, None).await),
            None => (Some(value.clone()), store.create(&key, value, None).await),
        };
        match result {
            Ok(revision) => {
                written.revisions.push(revision);
                written.acknowledged.insert(key, (revision, value));
            }
            Err(Error::ReadOnly(_)) => {
                written.doubtful = Some((key, value));
                return written;
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Several writers at once.
async fn write_all(store: &Arc<Embedded>, seed: u64) -> Vec<Written> {
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write_until_failure(store.clone(), writer, seed)));
    futures::future::join_all(writers).await.into_iter().map(|writer| writer.expect("writer")).collect()
}

/// The revisions that a watch shows until the store is closed: each one more than the one before.
async fn seen(mut watch: Watch, context: &str) -> Vec<Revision> {
    let mut seen = Vec::new();
    while let Some(event) = watch.recv().await {
        seen.push(event.expect("no error").revision());
        assert_eq!(seen.len() as Revision + 1, seen[seen.len() - 1], "{context}: a gap, a repetition or out of order");
    }
    seen
}

/// `PINTLE_POWER_CUTS` for more than 60.
#[tokio::test]
async fn power_cuts_lose_nothing_that_was_acknowledged_or_seen() {
    let cuts = std::env::var("PINTLE_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let (mut writes, mut events) = (0, 0);
    for seed in 0..cuts {
        let context = format!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Faulty::new();
        let store = Arc::new(disk.store().expect("open"));
        let watch = store.watch("/", 1).await.expect("watch");
        disk.0.lock().fails_after = Some(random.random_range(20..400));
        let written = write_all(&store, seed).await;
        let revision = store.current_revision().await.expect("revision");
        let left = disk.0.lock().power_cut(&mut random);
        drop(store);
        let seen = seen(watch, &context).await;

        let store = Faulty(Arc::new(Mutex::new(left))).store().expect("opens after a power cut");
        for written in &written {
            written.check(&store, &context).await;
            assert!(written.revisions.iter().all(|revision| seen.contains(revision)), "{context}: written, not seen");
            writes += written.revisions.len();
        }
        let opened = store.current_revision().await.expect("revision");
        assert!(opened >= revision && opened > seen.len() as Revision, "{context}: seen, but gone");
        assert!(store.watch("/", revision - 1).await.is_err(), "history starts at the opening");
        events += seen.len();
    }
    println!("{cuts} power cuts, {writes} acknowledged writes, {events} events seen: nothing lost");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Faulty::new();
        let store = Arc::new(disk.store().expect("open"));
        let mut watch = store.watch("/", 1).await.expect("watch");
        disk.0.lock().fails_after = Some(random.random_range(1..60));
        let written = write_all(&store, seed).await;
        assert!(matches!(store.create("/other", "x".into(), None).await, Err(Error::ReadOnly(_))), "still full");
        for written in &written {
            written.check(&store, "reads go on").await;
        }

        disk.0.lock().fails_after = None;
        let revision = store.create("/other", "x".into(), None).await.expect("there is room again");
        for expected in 2..=revision {
            assert_eq!(watch.recv().await.expect("open").expect("ok").revision(), expected);
        }
        let kept = store.list(ListOptions::default()).await.expect("list");
        for written in &written {
            written.check(&store, "after the failure").await;
        }
        drop(store);
        assert_eq!(disk.store().expect("reopen").list(ListOptions::default()).await.expect("list"), kept);
    }
}

/// After the rename the new file is the store, even if it is not known whether the directory is on the disk.
#[tokio::test]
async fn a_change_over_that_can_not_be_synced_loses_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join(super::DATABASE);
    disk::create(&path, &Snapshot::empty()).expect("new database");
    let (broken, tried) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let keeper = {
        let (broken, tried) = (broken.clone(), tried.clone());
        move || {
            tried.fetch_add(1, Ordering::SeqCst);
            if broken.load(Ordering::SeqCst) { Err(io::Error::other("injected")) } else { Ok(()) }
        }
    };
    let opened = Disk::new(disk::file(path.clone()), Box::new(keeper), path.clone());
    let options = Options { rewrite_from: 1, ..Options::default() };
    let store = Embedded::start(opened, path, None, options).expect("open");
    let mut acknowledged = Vec::new();
    let mut write = async |n: usize| {
        let key = format!("/{n}");
        let result = store.create(&key, "x".into(), None).await;
        if result.is_ok() {
            acknowledged.push(key);
        }
        result
    };
    let mut n = 0;
    while tried.load(Ordering::SeqCst) == 0 {
        n += 1;
        drop(write(n).await);
        assert!(n < 100_000, "the file is not written anew");
    }
    write(n + 1).await.expect_err("a durable write needs the directory on the disk");
    broken.store(false, Ordering::SeqCst);
    write(n + 1).await.expect("the disk is fine again");
    drop(store);
    let store = Embedded::open(dir.path(), Options::default()).expect("reopen");
    for key in &acknowledged {
        assert!(store.get(key).await.expect("get").is_some(), "{key} is lost");
    }
}
