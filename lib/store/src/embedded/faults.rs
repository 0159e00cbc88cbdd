//! A disk that fails and loses power on demand, and what the store makes of it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, StorageBackend};

use super::disk::{self, Disk};
use super::{Embedded, Options};
use crate::contract::Store;
use crate::error::Error;
use crate::snapshot::Snapshot;

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
            Some(0) => Err(io::Error::other("no space left (injected)")),
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
        Embedded::start(Disk::new(Box::new(move || medium.open()), path.clone()), path, None, Options::default())
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

fn value(random: &mut StdRng) -> Bytes {
    let size = random.random_range(1..6000);
    (0..size).map(|_| random.random::<u8>()).collect::<Vec<_>>().into()
}

/// Writes to ten keys until the disk fails; returns the acknowledged values of the keys, and the write in doubt.
async fn write_until_failure(store: &Embedded, random: &mut StdRng) -> (Vec<Option<Bytes>>, usize, Bytes) {
    let mut acknowledged = vec![None; 10];
    loop {
        let (at, value) = (random.random_range(0..10), value(random));
        let key = format!("/k/{at}");
        let result = match store.get(&key).await.expect("get") {
            Some(kv) => store.update(&key, value.clone(), kv.mod_revision, None).await,
            None => store.create(&key, value.clone(), None).await,
        };
        match result {
            Ok(_) => acknowledged[at] = Some(value),
            Err(Error::Storage(_)) => return (acknowledged, at, value),
            Err(e) => panic!("{e}"),
        }
    }
}

async fn values(store: &Embedded) -> Vec<Option<Bytes>> {
    let mut values = Vec::new();
    for at in 0..10 {
        values.push(store.get(&format!("/k/{at}")).await.expect("get").map(|kv| kv.value));
    }
    values
}

/// What was acknowledged is there; the write in doubt is there whole or not at all.
fn check(found: &[Option<Bytes>], acknowledged: &[Option<Bytes>], doubtful: (usize, &Bytes), context: &str) {
    for (at, (found, wanted)) in found.iter().zip(acknowledged).enumerate() {
        let arrived = at == doubtful.0 && found.as_ref() == Some(doubtful.1);
        assert!(found == wanted || arrived, "{context}: key {at} is wrong");
    }
}

#[tokio::test]
async fn power_cuts_lose_nothing_that_was_acknowledged() {
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Faulty::new();
        let store = disk.store().expect("open");
        disk.0.lock().fails_after = Some(random.random_range(20..400));
        let (acknowledged, at, doubtful) = write_until_failure(&store, &mut random).await;
        let revision = store.current_revision().await.expect("revision");
        let left = disk.0.lock().power_cut(&mut random);
        drop(store);

        let store = Faulty(Arc::new(Mutex::new(left))).store().expect("opens after a power cut");
        check(&values(&store).await, &acknowledged, (at, &doubtful), &format!("seed {seed}"));
        assert!(store.current_revision().await.expect("revision") >= revision);
        assert!(store.watch("/", revision - 1).await.is_err(), "history starts at the opening");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Faulty::new();
        let store = disk.store().expect("open");
        let mut watch = store.watch("/", 1).await.expect("watch");
        disk.0.lock().fails_after = Some(random.random_range(1..60));
        let (acknowledged, at, doubtful) = write_until_failure(&store, &mut random).await;
        assert!(matches!(store.create("/other", "x".into(), None).await, Err(Error::Storage(_))), "still full");
        check(&values(&store).await, &acknowledged, (at, &doubtful), "reads go on");

        disk.0.lock().fails_after = None;
        let revision = store.create("/other", "x".into(), None).await.expect("there is room again");
        for expected in 2..=revision {
            assert_eq!(watch.recv().await.expect("open").expect("ok").revision(), expected);
        }
        let kept = values(&store).await;
        check(&kept, &acknowledged, (at, &doubtful), "after the failure");
        drop(store);
        assert_eq!(values(&disk.store().expect("reopen")).await, kept);
    }
}
