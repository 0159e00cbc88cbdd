//! A writing process is killed, at random times and at each step of the write path. What it was told to be written must be
//! there, and what its watch showed must be, in order and without gaps. `PINTLE_CRASH_ROUNDS` for more than 30 rounds.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{Durability, Embedded, Options};
use crate::contract::{Revision, Store, WatchEvent};

const CHILD_DIR: &str = "PINTLE_STORE_CRASH_DIR";
const WRITERS: usize = 8;
/// Keys of each writer.
const KEYS: usize = 20;
/// The steps of the write path, and how often each is passed at most before the process ends there.
const POINTS: [(&str, u64); 6] =
    [("decided", 300), ("written", 300), ("committed", 300), ("published", 300), ("rewritten", 1), ("replaced", 1)];

const RELAXED: &str = "PINTLE_STORE_CRASH_RELAXED";

fn open(dir: &Path, durability: Durability) -> Embedded {
    // The file is written anew whenever most of it is free.
    Embedded::open(dir, Options { durability, rewrite_from: 1, ..Options::default() }).expect("open")
}

/// What is known of a key: the revision of its latest acknowledged write, and the value; `None` after a deletion.
type Acknowledged = HashMap<String, (Revision, Option<String>)>;

/// What one process told before it died.
#[derive(Default)]
struct Told {
    /// Revision at its opening.
    opened: Revision,
    writes: usize,
    /// Revisions that its watch showed.
    seen: Vec<Revision>,
}

#[tokio::test]
async fn kills_lose_nothing_that_was_acknowledged_or_seen() {
    let rounds = std::env::var("PINTLE_CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut acknowledged = Acknowledged::new();
    let (mut writes, mut seen) = (0, 0);
    for round in 0..rounds {
        let context = format!("round {round}");
        let told = run_and_kill(dir.path(), round, &mut acknowledged, Durability::Sync);
        let mut expected = told.opened;
        for revision in &told.seen {
            expected += 1;
            assert_eq!(*revision, expected, "{context}: the watch has a gap, a repetition or is out of order");
        }
        let store = open(dir.path(), Durability::Sync);
        let latest = acknowledged.values().map(|(revision, _)| *revision).max().unwrap_or(1);
        let revision = store.current_revision().await.expect("revision");
        assert!(revision >= latest && revision >= expected, "{context}: {revision} is older than {latest}, {expected}");
        for (key, known) in &acknowledged {
            check(&store, key, known, &context).await;
        }
        writes += told.writes;
        seen += told.seen.len();
    }
    println!("{rounds} kills, {writes} acknowledged writes, {seen} events seen: nothing lost");
    assert!(writes > rounds * 10 && seen > rounds * 10, "the writer hardly ran: {writes} writes, {seen} events");
}

/// Relaxed writes may be lost, but what they were given as revisions is never given again.
#[tokio::test]
async fn relaxed_revisions_are_given_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut latest = 0;
    let mut written = false;
    for round in 0..6 {
        let mut acknowledged = Acknowledged::new();
        let told = run_and_kill(dir.path(), round * 2, &mut acknowledged, Durability::Relaxed);
        assert!(told.opened >= latest, "round {round}: opened at {}, {latest} was given before", told.opened);
        latest = acknowledged.values().map(|(revision, _)| *revision).chain(told.seen).max().unwrap_or(latest);
        written |= latest > told.opened;
    }
    assert!(written, "the writer hardly ran");
}

/// One write of each writer may have arrived without having been acknowledged; nothing may have gone back.
async fn check(store: &Embedded, key: &str, (revision, value): &(Revision, Option<String>), context: &str) {
    let kv = store.get(key).await.expect("get");
    let later = kv.as_ref().is_some_and(|kv| kv.mod_revision > *revision);
    let same = match (&kv, value) {
        (Some(kv), Some(value)) => kv.mod_revision == *revision && kv.value.starts_with(value.as_bytes()),
        (None, None) => true,
        // The deletion that was not acknowledged.
        (None, Some(_)) => store.current_revision().await.expect("revision") > *revision && key.ends_with("/deleted"),
        (Some(_), None) => false,
    };
    assert!(same || later, "{context}: {key} should be {value:?} at {revision}, is {kv:?}");
}

/// Starts this test binary as the writer and kills it, or has it kill itself at a step.
fn run_and_kill(dir: &Path, round: usize, acknowledged: &mut Acknowledged, durability: Durability) -> Told {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--ignored", "--exact", "--nocapture", "embedded::crash::child"]).env(CHILD_DIR, dir);
    // Every other round at the next step.
    let point = (round % 2 == 1).then(|| POINTS[round / 2 % POINTS.len()]);
    if let Some((name, most)) = point {
        command.env("PINTLE_STORE_FAIL", format!("{name}:{}", rand::random_range(1..=most)));
    }
    if durability == Durability::Relaxed {
        command.env(RELAXED, "1");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start the writer");
    let output = BufReader::new(child.stdout.take().expect("stdout"));
    let reader = std::thread::spawn(move || {
        // Only whole lines count.
        let lines = output.split(b'\n').map_while(Result::ok);
        let mut lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
        lines.pop();
        lines
    });
    let patience = Duration::from_millis(rand::random_range(60..400));
    let begin = std::time::Instant::now();
    while begin.elapsed() < if point.is_some() { Duration::from_secs(3) } else { patience } {
        if child.try_wait().expect("wait").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait().expect("wait");
    note(reader.join().expect("reader"), acknowledged)
}

fn note(lines: Vec<String>, acknowledged: &mut Acknowledged) -> Told {
    let mut told = Told::default();
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["opened", revision] => told.opened = revision.parse().expect("revision"),
            ["seen", revision] => told.seen.push(revision.parse().expect("revision")),
            ["wrote", key, revision, value] => {
                told.writes += 1;
                let value = (value != "-").then(|| value.to_owned());
                acknowledged.insert(key.into(), (revision.parse().expect("revision"), value));
            }
            _ => {}
        }
    }
    told
}

/// Not a test: the process that is killed. Writes for ever and prints what was acknowledged and seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by kills_lose_nothing_that_was_acknowledged_or_seen"]
async fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let durability = if std::env::var_os(RELAXED).is_some() { Durability::Relaxed } else { Durability::Sync };
    let store = Arc::new(open(Path::new(&dir), durability));
    let opened = store.current_revision().await.expect("revision");
    let mut watch = store.watch("/", opened).await.expect("watch");
    print(&format!("\nopened {opened}\n"));
    (0..WRITERS).for_each(|writer| drop(tokio::spawn(write_for_ever(store.clone(), writer))));
    while let Some(event) = watch.recv().await {
        let event: WatchEvent = event.expect("the watch keeps up");
        print(&format!("seen {}\n", event.revision()));
    }
}

/// In one system call, so that a line is there whole or not at all.
fn print(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).expect("print");
}

async fn write_for_ever(store: Arc<Embedded>, writer: usize) {
    for round in 0usize.. {
        let at = round % KEYS;
        // One of a writer's keys is deleted in turn, the others only change.
        let key = if at == 0 { format!("/w{writer}/deleted") } else { format!("/w{writer}/{at}") };
        let mut value = format!("{writer}-{round}-{};", rand::random::<u64>());
        let marker = value.clone();
        value.push_str(&"x".repeat(rand::random_range(0..7000)));
        let result = match store.get(&key).await.expect("get") {
            Some(kv) if at == 0 => store.delete(&key, kv.mod_revision).await.map(|revision| (revision, "-".into())),
            Some(kv) => {
                store.update(&key, value.into(), kv.mod_revision, None).await.map(|revision| (revision, marker))
            }
            None => store.create(&key, value.into(), None).await.map(|revision| (revision, marker)),
        };
        let (revision, value): (Revision, String) = result.expect("write");
        print(&format!("wrote {key} {revision} {value}\n"));
    }
}
