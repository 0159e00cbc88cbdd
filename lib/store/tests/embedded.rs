//! What only the engine on disk has to show: restarts, locks, damage, space.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pintle_store::embedded::{Durability, Embedded, Options};
use pintle_store::snapshot::Snapshot;
use pintle_store::{Error, ListOptions, Store};

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Options::default()).expect("open")
}

#[tokio::test]
async fn everything_but_history_survives_a_restart() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = open(dir.path());
    let a = store.create("/a", "one".into(), None).await.expect("create");
    let b = store.create("/b", "x".into(), None).await.expect("create");
    let a2 = store.update("/a", "two".into(), a, None).await.expect("update");
    let gone = store.delete("/b", b).await.expect("delete");
    let before = store.list(ListOptions::default()).await.expect("list");
    drop(store);

    let store = open(dir.path());
    assert_eq!(store.list(ListOptions::default()).await.expect("list"), before);
    assert_eq!((before.items[0].create_revision, before.items[0].mod_revision, before.revision), (a, a2, gone));
    assert!(matches!(store.watch("/", gone - 1).await, Err(Error::Compacted { oldest, .. }) if oldest == gone));
    let mut watch = store.watch("/", gone).await.expect("from the opening revision");
    let next = store.create("/c", "x".into(), None).await.expect("create");
    assert_eq!(next, gone + 1, "revisions go on");
    assert_eq!(watch.recv().await.expect("open").expect("ok").revision(), next);
}

#[tokio::test]
async fn expiry_times_are_absolute() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = open(dir.path());
    store.create("/short", "x".into(), Some(Duration::from_millis(200))).await.expect("create");
    let last = store.create("/long", "x".into(), Some(Duration::from_secs(3600))).await.expect("create");
    drop(store);
    tokio::time::sleep(Duration::from_millis(250)).await;
    let store = open(dir.path());
    let mut watch = store.watch("/", last).await.expect("watch");
    let event = tokio::time::timeout(Duration::from_secs(5), watch.recv()).await.expect("expires after the restart");
    assert_eq!(event.expect("open").expect("ok").key(), Some("/short"));
    assert!(store.get("/long").await.expect("get").is_some());
}

#[tokio::test]
async fn a_second_opener_is_told() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = open(dir.path());
    let second = Embedded::open(dir.path(), Options::default()).expect_err("in use");
    assert!(matches!(second, Error::InUse(_)), "{second}");
    drop(store);
    open(dir.path());
}

#[tokio::test]
async fn relaxed_writes_are_there_after_an_orderly_end() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let options = Options { durability: Durability::Relaxed, ..Options::default() };
    let store = Embedded::open(dir.path(), options).expect("open");
    for i in 0..200 {
        store.create(&format!("/{i}"), "x".into(), None).await.expect("create");
    }
    drop(store);
    assert_eq!(open(dir.path()).list(ListOptions::default()).await.expect("list").items.len(), 200);
}

#[tokio::test]
async fn restores_a_snapshot_into_an_empty_directory() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = open(&dir.path().join("old"));
    for i in 0..100 {
        store.create(&format!("/k/{i:03}"), i.to_string().into(), None).await.expect("create");
    }
    let mut bytes = Vec::new();
    store.snapshot(&mut bytes).await.expect("snapshot");
    let snapshot = Snapshot::read(&bytes[..]).expect("valid");
    let old = store.list(ListOptions::default()).await.expect("list");

    Embedded::restore(dir.path().join("new"), &snapshot, 1000).expect("restore");
    let new = open(&dir.path().join("new")).list(ListOptions::default()).await.expect("list");
    assert_eq!((&new.items, new.revision), (&old.items, old.revision + 1000));
    let again = Embedded::restore(dir.path().join("new"), &snapshot, 0);
    assert!(matches!(again, Err(Error::Io { .. })), "never overwrites");
}

/// Damage anywhere in the file is an error that names it, or harmless; never a panic, never wrong data.
#[tokio::test]
async fn damage_is_reported() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = open(dir.path());
    for i in 0..50 {
        store.create(&format!("/k/{i:03}"), vec![i; 3000].into(), None).await.expect("create");
    }
    let wanted = store.list(ListOptions::default()).await.expect("list");
    drop(store);
    let file = dir.path().join("store.redb");
    let bytes = std::fs::read(&file).expect("read");
    let attempt = |contents: &[u8]| {
        std::fs::write(&file, contents).expect("write");
        Embedded::open(dir.path(), Options::default())
    };
    for (what, contents) in [("empty", &b""[..]), ("garbage", &[7; 100_000]), ("cut", &bytes[..bytes.len() / 3])] {
        let error = attempt(contents).expect_err(what);
        assert!(matches!(error, Error::Damaged { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains("store.redb is damaged"), "{error}");
    }
    let value = bytes.windows(3000).position(|w| w.iter().all(|b| *b == 17)).expect("a value in the file");
    let mut damaged = bytes.clone();
    damaged[value + 1500] ^= 1;
    let error = attempt(&damaged).expect_err("a flipped bit in a value");
    assert!(error.to_string().contains("/k/017"), "{error}");
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        match attempt(&damaged) {
            Ok(store) => assert_eq!(store.list(ListOptions::default()).await.expect("list"), wanted, "byte {at}"),
            Err(error) => assert!(matches!(error, Error::Damaged { .. } | Error::Storage(_)), "byte {at}: {error:?}"),
        }
    }
}

/// Writers that run at the same time, so that they share syncs.
async fn in_parallel<F: Future<Output = ()> + Send + 'static>(tasks: impl Iterator<Item = F>) {
    let mut running = tokio::task::JoinSet::new();
    for task in tasks {
        if running.len() >= 64 {
            running.join_next().await.expect("a task").expect("no panic");
        }
        running.spawn(task);
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
}

async fn shrinks_below(store: &Embedded, limit: u64) {
    let mut size = store.size().await.expect("size");
    for _ in 0..100 {
        if size <= limit {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        // A store that is not written does not look at its file.
        let kv = store.get("/tick").await.expect("get").expect("there");
        store.update("/tick", "x".into(), kv.mod_revision, None).await.expect("update");
        size = store.size().await.expect("size");
    }
    panic!("the file keeps {size} bytes, not {limit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_comes_back_after_deletions_and_nothing_else_does() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(open(dir.path()));
    store.create("/tick", "x".into(), None).await.expect("create");
    let create = |i: u32| {
        let store = store.clone();
        async move {
            store.create(&format!("/k/{i:05}"), vec![i as u8; 4000].into(), None).await.expect("create");
        }
    };
    in_parallel((0..6000).map(create)).await;
    assert!(store.size().await.expect("size") > 24 << 20);
    let kept = |i: &u32| i.is_multiple_of(20);
    let delete = |i: u32| {
        let store = store.clone();
        async move {
            let key = format!("/k/{i:05}");
            let kv = store.get(&key).await.expect("get").expect("there");
            store.delete(&key, kv.mod_revision).await.expect("delete");
        }
    };
    in_parallel((0..6000).filter(|i| !kept(i)).map(delete)).await;
    // Smaller files are not written anew.
    shrinks_below(&store, 16 << 20).await;
    store.compact(store.current_revision().await.expect("revision")).await.expect("compact");
    let before = store.list(ListOptions::default()).await.expect("list");
    assert_eq!(before.items.len(), 301);
    drop(store);
    assert_eq!(open(dir.path()).list(ListOptions::default()).await.expect("list"), before, "deleted keys stay deleted");
}

/// Leases that are renewed for ever, while readers never read on: the file stays within three times its data, and nothing
/// is run for each key. `PINTLE_LEASE_UPDATES` for more than 40,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_do_not_grow_the_file() {
    const LEASES: u32 = 5000;
    let updates = std::env::var("PINTLE_LEASE_UPDATES").ok().and_then(|n| n.parse().ok()).unwrap_or(40_000);
    let dir = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(open(dir.path()));
    store.create("/tick", "x".into(), None).await.expect("create");
    let ttl = Some(Duration::from_secs(3600));
    let create = |i: u32| {
        let store = store.clone();
        async move {
            store.create(&format!("/leases/{i}"), vec![7; 1000].into(), ttl).await.expect("create");
        }
    };
    in_parallel((0..LEASES).map(create)).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(store.watch("/", store.current_revision().await.expect("revision")).await.expect("watch"));
    }
    let renew = |i: u32| {
        let store = store.clone();
        async move {
            let key = format!("/leases/{}", i % LEASES);
            let kv = store.get(&key).await.expect("get").expect("there");
            match store.update(&key, vec![i as u8; 1000].into(), kv.mod_revision, ttl).await {
                Ok(_) | Err(Error::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    in_parallel((0..updates).map(renew)).await;
    // Other tests of this process have theirs.
    let threads = std::fs::read_dir("/proc/self/task").expect("tasks").count();
    assert!(threads < 100, "{threads} threads for {LEASES} leases");
    let live = u64::from(LEASES) * 1014;
    shrinks_below(&store, (3 * live).max(16 << 20)).await;
    println!("{updates} renewals of {LEASES} leases: {} bytes for {live}", store.size().await.expect("size"));
}

/// A small file system fills up: writes are refused with a reason, reads go on, and when there is room so do writes.
#[tokio::test]
async fn a_full_file_system_refuses_writes_until_there_is_room() {
    let dir = tempfile::tempdir().expect("temporary directory");
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let _mounted = Tmpfs::mount(dir.path());
    std::fs::write(dir.path().join("ballast"), vec![0; 2 << 20]).expect("ballast");
    let store = open(dir.path());
    let mut written = Vec::new();
    let error = loop {
        let key = format!("/{:05}", written.len());
        match store.create(&key, vec![1; 8000].into(), None).await {
            Ok(_) => written.push(key),
            Err(error) => break error,
        }
        assert!(written.len() < 10_000, "the file system does not fill up");
    };
    assert!(matches!(&error, Error::ReadOnly(reason) if reason.contains("store.redb")), "{error:?}");
    assert!(matches!(store.create("/more", vec![1; 8000].into(), None).await, Err(Error::ReadOnly(_))));
    for key in &written {
        assert!(store.get(key).await.expect("reads go on").is_some());
    }
    std::fs::remove_file(dir.path().join("ballast")).expect("make room");
    store.create("/more", "x".into(), None).await.expect("there is room again");
    let before = store.list(ListOptions::default()).await.expect("list");
    drop(store);
    assert_eq!(open(dir.path()).list(ListOptions::default()).await.expect("list"), before);
}

struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: &Path) -> Self {
        let status =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=12m", "none"]).arg(path).status();
        assert!(status.is_ok_and(|status| status.success()), "a file system can be mounted");
        Self(path.into())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
