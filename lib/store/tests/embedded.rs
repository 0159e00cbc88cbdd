//! What only the engine on disk has to show: restarts, crashes, locks, damage.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
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

const CHILD_DIR: &str = "PINTLE_STORE_CRASH_DIR";
const WRITERS: usize = 8;

/// Kills a writing process at random times; whatever it was told to be written must be there. `PINTLE_CRASH_ROUNDS` for more.
#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let rounds = std::env::var("PINTLE_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut acknowledged: HashMap<String, (i64, String)> = HashMap::new();
    let mut writes = 0;
    for round in 0..rounds {
        let lines = run_and_kill(dir.path(), Duration::from_millis(rand::random_range(20..400)));
        writes += lines.len();
        for line in lines {
            let [key, revision, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("line {line:?}") };
            acknowledged.insert(key.into(), (revision.parse().expect("revision"), value.into()));
        }
        let store = open(dir.path());
        let latest = acknowledged.values().map(|(revision, _)| *revision).max().unwrap_or(1);
        assert!(store.current_revision().await.expect("revision") >= latest, "round {round}");
        for (key, (revision, value)) in &acknowledged {
            let kv = store.get(key).await.expect("get").unwrap_or_else(|| panic!("round {round}: {key} is lost"));
            let found = (kv.mod_revision, String::from_utf8_lossy(&kv.value[..value.len()]).into_owned());
            // One write of each writer may have arrived without having been acknowledged.
            assert!(
                found == (*revision, value.clone()) || kv.mod_revision > *revision,
                "round {round}: {key} went back"
            );
        }
    }
    assert!(writes > rounds * 10, "the writer hardly ran: {writes} writes");
}

/// Starts this test binary as the writer, kills it, and returns the complete lines that it printed.
fn run_and_kill(dir: &Path, after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--ignored", "--exact", "--nocapture", "crash_child"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the writer");
    let mut output = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    while !line.ends_with("started\n") {
        line.clear();
        assert!(output.read_line(&mut line).expect("output") > 0, "the writer did not start");
    }
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        lines
    });
    std::thread::sleep(after);
    child.kill().expect("kill");
    child.wait().expect("wait");
    reader.join().expect("reader")
}

/// Not a test: the process that is killed. Writes for ever and prints what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by kill_9_loses_nothing_that_was_acknowledged"]
async fn crash_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let store = Arc::new(open(Path::new(&dir)));
    println!("\nstarted");
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write_for_ever(store.clone(), writer)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("writer");
    }
}

async fn write_for_ever(store: Arc<Embedded>, writer: usize) {
    for round in 0usize.. {
        let key = format!("/w{writer}/{}", round % 20);
        let mut value = format!("{writer}-{round}-{};", rand::random::<u64>());
        let marker = value.clone();
        value.push_str(&"x".repeat(rand::random_range(0..7000)));
        let result = match store.get(&key).await.expect("get") {
            Some(kv) => store.update(&key, value.into(), kv.mod_revision, None).await,
            None => store.create(&key, value.into(), None).await,
        };
        let line = format!("{key} {} {marker}\n", result.expect("write"));
        std::io::stdout().write_all(line.as_bytes()).expect("print");
    }
}
