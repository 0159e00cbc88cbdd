//! What only etcd has to show: members that fail, TLS, several stores on one cluster. Needs etcd's binary in the directory
//! `PINTLE_UPSTREAM_BIN`.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Cluster, next};
use pintle_store::etcd::{Etcd, Options};
use pintle_store::{Error, ListOptions, Revision, Store, TlsFiles, WatchEvent};

const WRITERS: usize = 4;

/// What the writers know: the latest acknowledged value of each key, and all revisions that they were given.
#[derive(Default)]
struct Written {
    values: HashMap<String, (Revision, String)>,
    revisions: Vec<Revision>,
    failures: usize,
}

/// Three members lose one after the other, the leader among them, under writes and a watch: nothing that was acknowledged is
/// lost, and the watch shows every revision once and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn members_fail_under_load() {
    let mut cluster = Cluster::start(3);
    let store = Arc::new(cluster.store());
    let start = store.current_revision().await.expect("the cluster answers");
    let mut watch = store.watch("/w/", start).await.expect("watch");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer, stop.clone()))).collect();
    let watching = tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            match watch.recv().await.expect("open").expect("no error") {
                WatchEvent::Put(kv) if kv.key == "/w/end" => return seen,
                event @ WatchEvent::Put(_) => seen.push(event.revision()),
                _ => {}
            }
        }
    });
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let member = round % 3;
        // Killed, or stuck without a word: the connection stays open.
        if round < 3 {
            cluster.kill(member);
            tokio::time::sleep(Duration::from_millis(1000)).await;
            cluster.run(member);
        } else {
            cluster.signal(member, "-STOP");
            tokio::time::sleep(Duration::from_millis(1000)).await;
            cluster.signal(member, "-CONT");
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    let mut revisions = Vec::new();
    let mut failures = 0;
    for writer in writers {
        let written = writer.await.expect("writer");
        for (key, (revision, value)) in &written.values {
            let kv = store.get(key).await.expect("get").unwrap_or_else(|| panic!("{key} is lost"));
            let same = kv.mod_revision == *revision && kv.value == *value.as_bytes();
            assert!(same || kv.mod_revision > *revision, "{key} went back");
        }
        revisions.extend(written.revisions);
        failures += written.failures;
    }
    store.create("/w/end", "x".into(), None).await.expect("create");
    let seen = tokio::time::timeout(Duration::from_secs(30), watching).await.expect("in time").expect("watch");
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "repeated or out of order");
    assert!(revisions.iter().all(|revision| seen.binary_search(revision).is_ok()), "a write was not seen");
    println!("{} writes, {failures} failed, {} events seen", revisions.len(), seen.len());
    assert!(revisions.len() > 200, "hardly anything was written");
    assert!(failures * 20 < revisions.len(), "failures reach the clients: {failures} of {}", revisions.len());
}

async fn write(store: Arc<Etcd>, writer: usize, stop: Arc<AtomicBool>) -> Written {
    let mut written = Written::default();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let key = format!("/w/{writer}-{}", round % 10);
        let value = format!("{writer}-{round}");
        let result = match store.get(&key).await {
            Ok(Some(kv)) => store.update(&key, value.clone().into(), kv.mod_revision, None).await,
            Ok(None) => store.create(&key, value.clone().into(), None).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(revision) => {
                written.revisions.push(revision);
                written.values.insert(key, (revision, value));
            }
            // A key of its own: nobody else can have written it.
            Err(Error::Conflict { .. } | Error::Exists { .. }) => panic!("{key}: a write was done and not told"),
            Err(_) => written.failures += 1,
        }
    }
    written
}

/// An outage of the whole cluster: calls wait for a while, watches go on afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn an_outage_ends() {
    let mut cluster = Cluster::start(1);
    let store = Arc::new(cluster.store());
    let first = store.create("/a", "x".into(), None).await.expect("create");
    let mut watch = store.watch("/", first).await.expect("watch");
    cluster.kill(0);
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.create("/b", "x".into(), None).await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "it is tried again for a while");
    cluster.run(0);
    let second = waiting.await.expect("task").expect("written after the outage");
    assert_eq!(next(&mut watch).await.revision(), second);
    let third = store.create("/c", "x".into(), None).await.expect("create");
    assert_eq!(next(&mut watch).await.revision(), third, "the watch goes on");
    cluster.kill(0);
    let begin = Instant::now();
    assert!(store.get("/a").await.is_err(), "and given up in the end");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

/// Servers that share an etcd compact it in turn: once an interval, not once an interval each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn one_server_at_a_time_compacts() {
    let cluster = Cluster::start(1);
    let interval = Duration::from_millis(500);
    let options = Options { compaction_interval: interval, ..Options::new(cluster.urls()) };
    let servers: Vec<_> = (0..3).map(|_| Etcd::new(&options).expect("store")).collect();
    let old = servers[0].create("/a", "1".into(), None).await.expect("create");
    let new = servers[0].update("/a", "2".into(), old, None).await.expect("update");
    let last = servers[0].update("/a", "3".into(), new, None).await.expect("update");
    let begin = Instant::now();
    tokio::time::sleep(interval * 6).await;
    assert!(matches!(servers[1].watch("/", old).await, Err(Error::Compacted { oldest, .. }) if oldest >= last));
    let kv = servers[2].get("compact_rev_key").await.expect("get").expect("the key that servers agree on");
    let turns = kv.mod_revision - last;
    let most = begin.elapsed().as_millis() / interval.as_millis() + 1;
    assert!(turns >= 2 && turns as u128 <= most, "{turns} compactions, {most} intervals");
    // What is older than the compaction is there all the same, and can be watched from now on.
    let listing = servers[1].list(ListOptions::prefix("/")).await.expect("list");
    assert_eq!(listing.items[0].mod_revision, last);
    let mut watch = servers[1].watch("/", listing.revision).await.expect("watch");
    let after = servers[0].create("/b", "x".into(), None).await.expect("create");
    assert_eq!(next(&mut watch).await.revision(), after);
}

/// Compaction fails as long as etcd is away, and goes on when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn compaction_outlives_an_outage() {
    let mut cluster = Cluster::start(1);
    let interval = Duration::from_millis(300);
    let store = Etcd::new(&Options { compaction_interval: interval, ..Options::new(cluster.urls()) }).expect("store");
    store.create("/a", "1".into(), None).await.expect("create");
    cluster.kill(0);
    // Longer than a call is tried: at least one turn has failed.
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.run(0);
    let old = store.create("/b", "1".into(), None).await.expect("create");
    store.update("/b", "2".into(), old, None).await.expect("update");
    for _ in 0..200 {
        if matches!(store.watch("/", old - 1).await, Err(Error::Compacted { .. })) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not compacted any more");
}

/// Keys that end at about the same time share a lease, so they end in one step, which the watch shows whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn keys_share_leases() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    let mut last = 1;
    for i in 0..50 {
        last = store.create(&format!("/{i:02}"), "x".into(), Some(Duration::from_secs(2))).await.expect("create");
    }
    let mut watch = store.watch("/", last).await.expect("watch");
    let mut ends = Vec::new();
    while ends.len() < 50 {
        match next(&mut watch).await {
            WatchEvent::Delete { revision, .. } => ends.push(revision),
            other => panic!("{other:?}"),
        }
    }
    ends.dedup();
    assert!(ends.len() <= 5, "{} steps", ends.len());
    assert_eq!(store.list(ListOptions::default()).await.expect("list").items.len(), 0);
}

/// The connection is encrypted and both sides show certificates; a wrong authority is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs upstream's etcd"]
async fn tls() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let pki = Pki::make(dir.path());
    let cluster = Cluster::start_with_tls(&pki.files("server"));
    let store = |tls: TlsFiles| Etcd::new(&Options { tls, ..Options::new(cluster.urls()) }).expect("store");
    let good = store(pki.files("client"));
    let revision = good.create("/a", "x".into(), None).await.expect("create");
    let mut watch = good.watch("/", revision).await.expect("watch");
    let next_revision = good.update("/a", "y".into(), revision, None).await.expect("update");
    assert_eq!(next(&mut watch).await.revision(), next_revision);
    let anonymous = TlsFiles { cert: None, key: None, ..pki.files("client") };
    let distrustful = TlsFiles { ca: Some(pki.files("client").cert.expect("certificate")), ..pki.files("client") };
    for (what, tls) in [("no client certificate", anonymous), ("another authority", distrustful)] {
        let error = store(tls).get("/a").await.expect_err(what);
        assert!(error.to_string().contains("etcd"), "{what}: {error}");
    }
}

/// An authority and two certificates.
struct Pki(std::path::PathBuf);

impl Pki {
    fn make(dir: &std::path::Path) -> Self {
        let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "test-ca");
        let key = rcgen::KeyPair::generate().expect("key");
        let certificate = authority.self_signed(&key).expect("certificate");
        std::fs::write(dir.join("ca.crt"), certificate.pem()).expect("write");
        let issuer = rcgen::Issuer::new(authority, key);
        for name in ["server", "client"] {
            let mut subject =
                rcgen::CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).expect("names");
            subject.distinguished_name.push(rcgen::DnType::CommonName, name);
            subject.extended_key_usages =
                vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let key = rcgen::KeyPair::generate().expect("key");
            let certificate = subject.signed_by(&key, &issuer).expect("certificate");
            std::fs::write(dir.join(format!("{name}.crt")), certificate.pem()).expect("write");
            std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).expect("write");
        }
        Self(dir.to_owned())
    }

    fn files(&self, name: &str) -> TlsFiles {
        let file = |name: String| Some(self.0.join(name));
        TlsFiles { ca: file("ca.crt".into()), cert: file(format!("{name}.crt")), key: file(format!("{name}.key")) }
    }
}
