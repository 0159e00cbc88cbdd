//! The contract, run over every engine by the same code.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{Subject, next, window};
use pintle_store::snapshot::Snapshot;
use pintle_store::{Error, ListOptions, Revision, Store, Watch, WatchEvent};

/// One test function per engine and per case.
macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        contract!(@engine memory [] $($case)*);
        contract!(@engine embedded [] $($case)*);
        contract!(@engine etcd [#[ignore = "needs upstream's etcd"]] $($case)*);
    };
    (@engine $engine:ident $attributes:tt $($case:ident)*) => {
        mod $engine { $( contract!(@case $engine $attributes $case); )* }
    };
    (@case $engine:ident [$(#[$attribute:meta])*] $case:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        $(#[$attribute])*
        async fn $case() {
            super::$case(super::common::$engine().await).await;
        }
    };
}

contract!(
    starts_empty,
    create_update_delete,
    refuses_wrong_revisions,
    lists_in_order_and_in_pages,
    watches_from_now_and_from_the_past,
    watch_keeps_to_its_prefix,
    watch_joins_past_and_present_without_gap,
    progress_comes_after_the_changes,
    compacts,
    window_is_bounded,
    expires,
    renewal_and_removal_of_ttl,
    racing_updates_lose_nothing,
    racing_creates_have_one_winner,
    large_values,
    snapshots,
    revisions_go_on_after_a_restart,
    keys_of_any_kind,
);

async fn nothing(watch: &mut Watch) {
    let event = tokio::time::timeout(Duration::from_millis(50), watch.recv()).await;
    assert!(event.is_err(), "unexpected {event:?}");
}

fn keys(listing: &pintle_store::Listing) -> Vec<&str> {
    listing.items.iter().map(|kv| kv.key.as_str()).collect()
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    store.create(key, Bytes::copy_from_slice(value.as_bytes()), None).await.expect("create")
}

async fn starts_empty(store: Subject) {
    assert_eq!(store.current_revision().await.expect("revision"), 1);
    assert_eq!(store.get("/a").await.expect("get"), None);
    let listing = store.list(ListOptions::default()).await.expect("list");
    assert_eq!((listing.items.len(), listing.revision, listing.more, listing.count), (0, 1, false, 0));
}

async fn create_update_delete(store: Subject) {
    let created = put(&*store, "/a", "one").await;
    let updated = store.update("/a", "two".into(), created, None).await.expect("update");
    let kv = store.get("/a").await.expect("get").expect("there");
    assert_eq!((kv.create_revision, kv.mod_revision, &kv.value[..]), (created, updated, &b"two"[..]));
    assert!(updated > created && created > 1);
    let deleted = store.delete("/a", updated).await.expect("delete");
    assert!(deleted > updated);
    assert_eq!(store.get("/a").await.expect("get"), None);
    assert_eq!(store.current_revision().await.expect("revision"), deleted);
    let again = put(&*store, "/a", "three").await;
    assert_eq!(store.get("/a").await.expect("get").expect("there").create_revision, again);
}

async fn refuses_wrong_revisions(store: Subject) {
    let created = put(&*store, "/a", "one").await;
    assert!(matches!(store.create("/a", "x".into(), None).await, Err(Error::Exists { .. })));
    let stale = [
        store.update("/a", "x".into(), created - 1, None).await,
        store.update("/a", "x".into(), created + 1, None).await,
        store.delete("/a", 0).await,
    ];
    for result in stale {
        match result {
            Err(Error::Conflict { current: Some(kv) }) => {
                assert_eq!((kv.mod_revision, &kv.value[..]), (created, &b"one"[..]))
            }
            other => panic!("{other:?}"),
        }
    }
    for result in [store.update("/b", "x".into(), created, None).await, store.delete("/b", created).await] {
        assert!(matches!(result, Err(Error::Conflict { current: None })), "{result:?}");
    }
    assert_eq!(store.current_revision().await.expect("revision"), created, "refused writes take no revision");
}

async fn lists_in_order_and_in_pages(store: Subject) {
    for key in ["/b/2", "/a/9", "/b/10", "/b/1", "/bc", "/c"] {
        put(&*store, key, key).await;
    }
    let all = store.list(ListOptions::prefix("/b/")).await.expect("list");
    assert_eq!((keys(&all), all.more, all.count), (vec!["/b/1", "/b/10", "/b/2"], false, 3));
    let page = |start_after: Option<&str>, limit| ListOptions {
        prefix: "/b/".into(),
        start_after: start_after.map(Into::into),
        limit: Some(limit),
    };
    let first = store.list(page(None, 2)).await.expect("list");
    assert_eq!((keys(&first), first.more, first.count), (vec!["/b/1", "/b/10"], true, 3));
    let second = store.list(page(Some("/b/10"), 2)).await.expect("list");
    assert_eq!((keys(&second), second.more, second.count), (vec!["/b/2"], false, 1));
    let before = store.list(page(Some("/a"), 9)).await.expect("list");
    assert_eq!(before.items.len(), 3, "a start before the prefix");
    assert_eq!(all.revision, store.current_revision().await.expect("revision"));
}

async fn watches_from_now_and_from_the_past(store: Subject) {
    let created = put(&*store, "/a", "one").await;
    let mut now = store.watch("/", created).await.expect("watch");
    let updated = store.update("/a", "two".into(), created, None).await.expect("update");
    let deleted = store.delete("/a", updated).await.expect("delete");
    let mut past = store.watch("/", created - 1).await.expect("watch");
    let mut later = store.watch("/", updated).await.expect("watch");

    let WatchEvent::Put(kv) = next(&mut past).await else { panic!("creation") };
    assert_eq!((kv.mod_revision, kv.create_revision), (created, created));
    for watch in [&mut past, &mut now] {
        let WatchEvent::Put(kv) = next(watch).await else { panic!("update") };
        assert_eq!((&kv.value[..], kv.mod_revision, kv.create_revision), (&b"two"[..], updated, created));
    }
    for watch in [&mut past, &mut now, &mut later] {
        assert_eq!(next(watch).await, WatchEvent::Delete { key: "/a".into(), revision: deleted });
        nothing(watch).await;
    }
}

async fn watch_keeps_to_its_prefix(store: Subject) {
    let mut pods = store.watch("/pods/", 1).await.expect("watch");
    put(&*store, "/pods", "x").await;
    put(&*store, "/podsecurity/a", "x").await;
    let wanted = put(&*store, "/pods/a", "x").await;
    put(&*store, "/q", "x").await;
    assert_eq!(next(&mut pods).await.revision(), wanted);
    nothing(&mut pods).await;
}

/// Watches that start at any time while a writer runs see each later revision exactly once.
async fn watch_joins_past_and_present_without_gap(store: Subject) {
    const WRITES: Revision = 500;
    let writer = tokio::spawn({
        let store = store.store.clone();
        async move {
            let mut revision = put(&*store, "/w", "0").await;
            for i in 1..WRITES {
                revision = store.update("/w", i.to_string().into(), revision, None).await.expect("update");
            }
            revision
        }
    });
    let mut watchers = Vec::new();
    while !writer.is_finished() {
        let from = store.current_revision().await.expect("revision");
        let from = (from - 3).max(1);
        let mut watch = store.watch("/w", from).await.expect("watch");
        watchers.push(tokio::spawn(async move {
            for expected in from + 1..=1 + WRITES {
                assert_eq!(next(&mut watch).await.revision(), expected);
            }
            nothing(&mut watch).await;
        }));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(writer.await.expect("writer"), 1 + WRITES);
    for watcher in watchers {
        watcher.await.expect("no gap, no repeat");
    }
}

async fn progress_comes_after_the_changes(store: Subject) {
    let mut busy = store.watch("/busy/", 1).await.expect("watch");
    let mut quiet = store.watch("/quiet/", 1).await.expect("watch");
    let revision = put(&*store, "/busy/a", "x").await;
    store.request_progress().await.expect("progress");
    assert_eq!(next(&mut busy).await.key(), Some("/busy/a"));
    assert_eq!(next(&mut busy).await, WatchEvent::Progress(revision));
    assert_eq!(next(&mut quiet).await, WatchEvent::Progress(revision));
}

async fn compacts(store: Subject) {
    let first = put(&*store, "/a", "x").await;
    let second = put(&*store, "/b", "x").await;
    let third = put(&*store, "/c", "x").await;
    store.compact(second).await.expect("compact");
    match store.watch("/", first).await {
        Err(Error::Compacted { requested, oldest }) => assert_eq!((requested, oldest), (first, second)),
        other => panic!("{other:?}"),
    }
    let mut watch = store.watch("/", second).await.expect("from the compacted revision on");
    assert_eq!(next(&mut watch).await.revision(), third);
    store.compact(third + 100).await.expect("compact");
    store.watch("/", third).await.expect("the present can always be watched");
    assert!(store.get("/a").await.expect("get").is_some(), "compaction forgets history, not keys");
}

async fn window_is_bounded(store: Subject) {
    if !store.windowed {
        return;
    }
    let mut revision = put(&*store, "/a", "0").await;
    for _ in 0..window().events {
        revision = store.update("/a", "x".into(), revision, None).await.expect("update");
    }
    assert!(matches!(store.watch("/", 1).await, Err(Error::Compacted { .. })));
    let oldest = revision - window().events as Revision;
    let mut watch = store.watch("/", oldest).await.expect("watch");
    assert_eq!(next(&mut watch).await.revision(), oldest + 1);
}

async fn expires(store: Subject) {
    let mut watch = store.watch("/", 1).await.expect("watch");
    let kept = put(&*store, "/kept", "x").await;
    let long = store.create("/long", "x".into(), Some(Duration::from_secs(3600))).await.expect("create");
    let begin = std::time::Instant::now();
    let short = store.create("/short", "x".into(), Some(store.ttl)).await.expect("create");
    for expected in [kept, long, short] {
        assert_eq!(next(&mut watch).await.revision(), expected);
    }
    assert!(store.get("/short").await.expect("get").is_some());
    assert_eq!(next(&mut watch).await, WatchEvent::Delete { key: "/short".into(), revision: short + 1 });
    let lived = begin.elapsed();
    assert!(lived >= store.ttl && lived < store.ttl + store.late, "lived {lived:?}");
    assert_eq!(store.get("/short").await.expect("get"), None);
    assert!(store.get("/long").await.expect("get").is_some());
    let again = store.create("/short", "x".into(), Some(Duration::from_millis(1))).await.expect("create");
    assert_eq!(next(&mut watch).await.revision(), again);
    assert_eq!(next(&mut watch).await.revision(), again + 1, "the timer starts again");
}

async fn renewal_and_removal_of_ttl(store: Subject) {
    let ttl = Some(store.ttl * 2);
    let renewed = store.create("/renewed", "x".into(), ttl).await.expect("create");
    let freed = store.create("/freed", "x".into(), ttl).await.expect("create");
    store.update("/renewed", "y".into(), renewed, Some(Duration::from_secs(3600))).await.expect("update");
    store.update("/freed", "y".into(), freed, None).await.expect("update");
    tokio::time::sleep(store.ttl * 2 + store.late / 2).await;
    assert!(store.get("/renewed").await.expect("get").is_some());
    assert!(store.get("/freed").await.expect("get").is_some());
}

/// Tasks increment counters by compare-and-swap, retrying on conflict: the sums must be right and revisions unique.
async fn racing_updates_lose_nothing(store: Subject) {
    const TASKS: usize = 16;
    const ROUNDS: usize = 25;
    for key in ["/n/0", "/n/1"] {
        put(&*store, key, "0").await;
    }
    let start = store.current_revision().await.expect("revision");
    let tasks = (0..TASKS).map(|task| {
        let store = store.store.clone();
        tokio::spawn(async move {
            let key = format!("/n/{}", task % 2);
            let mut revisions = Vec::new();
            while revisions.len() < ROUNDS {
                let kv = store.get(&key).await.expect("get").expect("there");
                let value: usize = std::str::from_utf8(&kv.value).expect("text").parse().expect("number");
                match store.update(&key, (value + 1).to_string().into(), kv.mod_revision, None).await {
                    Ok(revision) => revisions.push(revision),
                    Err(Error::Conflict { current: Some(now) }) => assert!(now.mod_revision > kv.mod_revision),
                    Err(e) => panic!("{e}"),
                }
            }
            revisions
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await.expect("task"));
    }
    all.sort_unstable();
    let expected: Vec<_> = (start + 1..=start + (TASKS * ROUNDS) as Revision).collect();
    assert_eq!(all, expected);
    for key in ["/n/0", "/n/1"] {
        let kv = store.get(key).await.expect("get").expect("there");
        assert_eq!(kv.value, (TASKS * ROUNDS / 2).to_string());
    }
}

async fn racing_creates_have_one_winner(store: Subject) {
    let tasks = (0..32).map(|task| {
        let store = store.store.clone();
        tokio::spawn(async move { (task, store.create("/one", task.to_string().into(), None).await) })
    });
    let mut winners = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        match task.await.expect("task") {
            (task, Ok(revision)) => winners.push((task, revision)),
            (_, Err(Error::Exists { .. })) => {}
            (_, Err(e)) => panic!("{e}"),
        }
    }
    let kv = store.get("/one").await.expect("get").expect("there");
    assert_eq!(winners.len(), 1);
    assert_eq!((winners[0].0.to_string(), winners[0].1), (String::from_utf8_lossy(&kv.value).into(), kv.mod_revision));
}

async fn large_values(store: Subject) {
    let value = Bytes::from((0..1_500_000u32).map(|i| i as u8).collect::<Vec<_>>());
    let mut watch = store.watch("/", 1).await.expect("watch");
    let created = store.create("/large", value.clone(), None).await.expect("create");
    assert_eq!(store.get("/large").await.expect("get").expect("there").value, value);
    let WatchEvent::Put(kv) = next(&mut watch).await else { panic!("put") };
    assert_eq!(kv.value, value);
    let mut tries = 0;
    while store.size().await.expect("size") < 1_500_000 {
        tries += 1;
        assert!(tries < 50, "the size does not show the value");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let too_large = Bytes::from(vec![0; 9 << 20]);
    assert!(matches!(store.update("/large", too_large, created, None).await, Err(Error::TooLarge { .. })));
    // Between the limits: it depends on the engine, but the answer is one of two.
    match store.update("/large", Bytes::from(vec![0; 3 << 20]), created, None).await {
        Ok(_) | Err(Error::TooLarge { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

async fn snapshots(store: Subject) {
    let entries: BTreeMap<_, _> = (0..50).map(|i| (format!("/k/{i:03}"), i.to_string())).collect();
    for (key, value) in &entries {
        put(&*store, key, value).await;
    }
    let mut bytes = Vec::new();
    let revision = store.snapshot(&mut bytes).await.expect("snapshot");
    let snapshot = Snapshot::read(&bytes[..]).expect("valid");
    assert_eq!((snapshot.revision(), snapshot.keys()), (revision, 50));
    assert_eq!(revision, store.current_revision().await.expect("revision"));
}

async fn revisions_go_on_after_a_restart(store: Subject) {
    let mut last = 1;
    let mut subject = store;
    for round in 0..3 {
        let mut watch = subject.watch("/", last).await.expect("the present can be watched");
        let revision = put(&*subject, &format!("/{round}"), "x").await;
        assert!(revision > last);
        assert_eq!(next(&mut watch).await.revision(), revision);
        let before = subject.list(ListOptions::default()).await.expect("list");
        last = revision;
        drop(watch);
        match subject.reopen() {
            Some(opened) => subject = opened,
            None => return,
        }
        assert_eq!(subject.list(ListOptions::default()).await.expect("list"), before);
    }
    if let Some(second) = subject.second() {
        let revision = put(&*second, "/second", "x").await;
        assert_eq!(revision, last + 1);
        assert_eq!(subject.get("/second").await.expect("get").expect("there").mod_revision, revision);
    }
}

/// Order is that of bytes; a prefix ends where it ends.
async fn keys_of_any_kind(store: Subject) {
    let mut all = ["/a", "/a/", "/a/\u{7f}", "/a/é", "/a/\u{10ffff}", "/a0", "/a/b/c/d", "/A", "/a/ b", "/a/-"];
    for key in all {
        put(&*store, key, key).await;
    }
    all.sort_unstable_by_key(|key| key.as_bytes());
    assert_eq!(keys(&store.list(ListOptions::default()).await.expect("list")), all);
    let under: Vec<_> = all.iter().copied().filter(|key| key.starts_with("/a/")).collect();
    assert_eq!(keys(&store.list(ListOptions::prefix("/a/")).await.expect("list")), under);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let options = ListOptions { prefix: "/a/".into(), start_after: after.clone(), limit: Some(2) };
        let page = store.list(options).await.expect("list");
        paged.extend(page.items.iter().map(|kv| kv.key.clone()));
        after = paged.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(paged, under);
}
