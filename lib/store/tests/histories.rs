//! Random histories of concurrent clients, checked against a model: every answer must be one that a single map, written in
//! the order of revisions, could have given at some time while the client waited for it.

#![allow(clippy::print_stdout, reason = "the log of a test")]

mod common;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Subject, next};
use pintle_store::{Error, KeyValue, ListOptions, Revision, Store, WatchEvent};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const CLIENTS: usize = 8;
const OPERATIONS: usize = 60;
const KEYS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    run(common::memory().await, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded() {
    run(common::embedded().await, 15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn etcd() {
    run(common::etcd().await, 8).await;
}

/// A key's state: value and revisions.
type Version = Option<(String, Revision, Revision)>;

#[derive(Debug, Clone)]
enum Outcome {
    Created(String),
    Updated(String, Revision),
    Deleted(Revision),
    /// The key was there when it was to be created.
    Exists,
    /// The key was in this state, or what was read.
    Saw(Version),
    /// It was not at this revision, but in that state.
    Conflict(Revision, Version),
    Listed(Revision, BTreeMap<String, Version>),
}

#[derive(Debug, Clone)]
struct Operation {
    key: String,
    /// Ticks of a common clock.
    begin: u64,
    end: u64,
    /// Of the write, if it was one.
    revision: Option<Revision>,
    outcome: Outcome,
}

async fn run(subject: Subject, histories: usize) {
    let seed: u64 = std::env::var("PINTLE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(rand::random);
    println!("PINTLE_SEED={seed}");
    for history in 0..histories as u64 {
        let prefix = format!("/h{history}/");
        let start = subject.current_revision().await.expect("revision");
        let mut watch = subject.watch(&prefix, start).await.expect("watch");
        let clock = Arc::new(AtomicU64::new(0));
        let clients = (0..CLIENTS as u64).map(|client| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(history * 1000 + client));
            tokio::spawn(client_run(subject.store.clone(), clock.clone(), prefix.clone(), random))
        });
        let mut operations = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            operations.extend(client.await.expect("client"));
        }
        let model = Model::new(&operations);
        model.check(&operations, start);
        for (revision, key, version) in &model.log {
            let seen = match next(&mut watch).await {
                WatchEvent::Put(kv) => (kv.mod_revision, kv.key.clone(), version_of(Some(&kv))),
                WatchEvent::Delete { key, revision } => (revision, key, None),
                WatchEvent::Progress(_) => continue,
            };
            assert_eq!(seen, (*revision, key.clone(), version.clone()), "the watch shows another history");
        }
        assert!(model.log.len() > OPERATIONS, "hardly anything was written");
    }
}

async fn client_run(
    store: Arc<dyn Store>,
    clock: Arc<AtomicU64>,
    prefix: String,
    mut random: StdRng,
) -> Vec<Operation> {
    let mut known: HashMap<String, Revision> = HashMap::new();
    let mut operations = Vec::new();
    for at in 0..OPERATIONS {
        let key = format!("{prefix}{}", random.random_range(0..KEYS));
        let value = format!("{}-{at}", random.random::<u32>());
        let expected = known.get(&key).copied().unwrap_or(1);
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let (revision, outcome) = operate(&*store, &prefix, &key, value, expected, random.random_range(0..10)).await;
        let end = clock.fetch_add(1, Ordering::SeqCst);
        match &outcome {
            Outcome::Saw(Some((.., modified))) | Outcome::Conflict(_, Some((.., modified))) => {
                known.insert(key.clone(), *modified);
            }
            _ => known.extend(revision.map(|revision| (key.clone(), revision))),
        }
        operations.push(Operation { key, begin, end, revision, outcome });
    }
    operations
}

async fn operate(
    store: &dyn Store,
    prefix: &str,
    key: &str,
    value: String,
    expected: Revision,
    kind: u32,
) -> (Option<Revision>, Outcome) {
    let (result, done) = match kind {
        0 | 1 => (store.create(key, value.clone().into(), None).await, Outcome::Created(value)),
        2..=5 => (store.update(key, value.clone().into(), expected, None).await, Outcome::Updated(value, expected)),
        6 => (store.delete(key, expected).await, Outcome::Deleted(expected)),
        7 | 8 => return (None, Outcome::Saw(version_of(store.get(key).await.expect("get").as_ref()))),
        _ => {
            let listing = store.list(ListOptions::prefix(prefix)).await.expect("list");
            let items = listing.items.iter().map(|kv| (kv.key.clone(), version_of(Some(kv)))).collect();
            return (None, Outcome::Listed(listing.revision, items));
        }
    };
    match result {
        Ok(revision) => (Some(revision), done),
        Err(Error::Exists { .. }) => (None, Outcome::Exists),
        Err(Error::Conflict { current }) => (None, Outcome::Conflict(expected, version_of(current.as_ref()))),
        Err(error) => panic!("{error}"),
    }
}

fn version_of(kv: Option<&KeyValue>) -> Version {
    kv.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.create_revision, kv.mod_revision))
}

/// The map, and all that was ever in it.
struct Model {
    log: Vec<(Revision, String, Version)>,
    versions: HashMap<String, Vec<(Revision, Version)>>,
}

impl Model {
    /// Replays the writes in the order of their revisions; each one's condition must hold.
    fn new(operations: &[Operation]) -> Self {
        let mut writes: Vec<_> = operations.iter().filter_map(|op| Some((op.revision?, op))).collect();
        writes.sort_by_key(|(revision, _)| *revision);
        assert!(writes.windows(2).all(|pair| pair[0].0 < pair[1].0), "a revision was given twice");
        let mut model = Self { log: Vec::new(), versions: HashMap::new() };
        for (revision, op) in writes {
            let before = model.at(&op.key, revision - 1);
            let after = match (&op.outcome, before) {
                (Outcome::Created(value), None) => Some((value.clone(), revision, revision)),
                (Outcome::Updated(value, expected), Some((_, created, modified))) if modified == *expected => {
                    Some((value.clone(), created, revision))
                }
                (Outcome::Deleted(expected), Some((.., modified))) if modified == *expected => None,
                (outcome, before) => panic!("{outcome:?} at {revision} was done on {before:?}"),
            };
            model.log.push((revision, op.key.clone(), after.clone()));
            model.versions.entry(op.key.clone()).or_default().push((revision, after));
        }
        model
    }

    fn at(&self, key: &str, revision: Revision) -> Version {
        let versions = self.versions.get(key)?;
        versions[..versions.partition_point(|(at, _)| *at <= revision)].last()?.1.clone()
    }

    /// What a client may see of a key between two revisions.
    fn between(&self, key: &str, from: Revision, to: Revision) -> Vec<Version> {
        let later = self.versions.get(key).into_iter().flatten();
        let later = later.filter(|(at, _)| *at > from && *at <= to).map(|(_, version)| version.clone());
        std::iter::once(self.at(key, from)).chain(later).collect()
    }

    fn check(&self, operations: &[Operation], start: Revision) {
        for op in operations {
            let written = |condition: &dyn Fn(&Operation) -> bool| -> Vec<Revision> {
                operations.iter().filter(|other| condition(other)).filter_map(|other| other.revision).collect()
            };
            // Everything that was over before it began has been seen, nothing that began when it was over.
            let from = written(&|other| other.end < op.begin).into_iter().max().unwrap_or(start);
            let to = written(&|other| other.begin < op.end).into_iter().max().unwrap_or(start);
            let seen = |version: &Version| self.between(&op.key, from, to).contains(version);
            let possible = match &op.outcome {
                Outcome::Saw(version) => seen(version),
                Outcome::Exists => self.between(&op.key, from, to).iter().any(Option::is_some),
                Outcome::Conflict(expected, version) => {
                    seen(version) && version.as_ref().is_none_or(|(.., modified)| modified != expected)
                }
                Outcome::Listed(revision, items) => {
                    let all = self.versions.keys().map(|key| (key.clone(), self.at(key, *revision)));
                    let all: BTreeMap<_, _> = all.filter(|(_, version)| version.is_some()).collect();
                    *revision >= from && *revision <= to && all == *items
                }
                _ => op.revision.is_some_and(|revision| revision > from && revision <= to),
            };
            assert!(possible, "not possible between {from} and {to}: {op:?}");
        }
    }
}
