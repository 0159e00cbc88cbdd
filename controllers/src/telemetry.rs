//! What the controllers tell about themselves: whether their caches are filled, whether a worker is stuck, and the metrics
//! of their work queues under upstream's names.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pintle_client::cache::{Cache, Cached};
use pintle_client::queue::{BOUNDS, Durations, Queue, Stats};
use pintle_serving::health::Scope;
use pintle_serving::metrics::{Kind, Text};
use pintle_serving::telemetry::Telemetry;

/// A key that is worked on for longer than this is stuck.
const STUCK: Duration = Duration::from_secs(600);

type Caches = Arc<Mutex<Vec<(String, Box<dyn Fn() -> bool + Send + Sync>)>>>;
type Queues = Arc<Mutex<Vec<(String, Box<dyn Fn() -> Stats + Send + Sync>)>>>;

/// The caches and queues of one controller manager.
#[derive(Clone, Default)]
pub struct Own {
    caches: Caches,
    queues: Queues,
}

impl Own {
    /// Registers checks and metrics over what will be added.
    pub fn new(telemetry: &Telemetry) -> Self {
        let own = Self::default();
        let caches = own.caches.clone();
        telemetry.checks.add("informer-sync", Scope::Ready, move || {
            let outcome = all_synced(&caches);
            async { outcome }
        });
        let queues = own.queues.clone();
        telemetry.checks.add("workqueues", Scope::Live, move || {
            let outcome = none_stuck(&queues);
            async { outcome }
        });
        let queues = own.queues.clone();
        telemetry.metrics.collect("workqueue", move |text| report(&queues, text));
        own
    }

    /// Adds a cache.
    pub fn add_cache<K: Cached>(&self, cache: &Cache<K>) {
        let cache = cache.clone();
        self.caches.lock().push((K::plural(&()).into_owned(), Box::new(move || cache.is_synced())));
    }

    /// Adds a queue, in the place of one of the same name.
    pub fn add_queue<T: Hash + Eq + Clone + Send + 'static>(&self, name: &str, queue: &Queue<T>) {
        let queue = queue.clone();
        let mut queues = self.queues.lock();
        queues.retain(|(known, _)| known != name);
        queues.push((name.to_owned(), Box::new(move || queue.stats())));
    }
}

fn all_synced(caches: &Caches) -> Result<(), String> {
    let caches = caches.lock();
    if caches.is_empty() {
        return Err("not started".to_owned());
    }
    let waiting: Vec<&str> = caches.iter().filter(|(_, synced)| !synced()).map(|(name, _)| name.as_str()).collect();
    if waiting.is_empty() { Ok(()) } else { Err(format!("not synced: {}", waiting.join(", "))) }
}

fn none_stuck(queues: &Queues) -> Result<(), String> {
    let queues = queues.lock();
    let stuck: Vec<&str> =
        queues.iter().filter(|(_, stats)| stats().longest > STUCK).map(|(name, _)| name.as_str()).collect();
    if stuck.is_empty() { Ok(()) } else { Err(format!("stuck: {}", stuck.join(", "))) }
}

/// Name, help, kind, and the value of one queue.
type Number = (&'static str, &'static str, Kind, fn(&Stats) -> f64);
const NUMBERS: [Number; 5] = [
    ("workqueue_adds_total", "Total number of adds handled by workqueue", Kind::Counter, |s| s.adds as f64),
    ("workqueue_depth", "Current depth of workqueue", Kind::Gauge, |s| s.depth as f64),
    ("workqueue_retries_total", "Total number of retries handled by workqueue", Kind::Counter, |s| s.retries as f64),
    (
        "workqueue_unfinished_work_seconds",
        "How many seconds of work has done that is in progress and hasn't been observed by work_duration.",
        Kind::Gauge,
        |s| s.unfinished.as_secs_f64(),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "How many seconds has the longest running processor for workqueue been running.",
        Kind::Gauge,
        |s| s.longest.as_secs_f64(),
    ),
];
/// Name, help, and the histogram of one queue.
type Times = (&'static str, &'static str, fn(&Stats) -> &Durations);
const TIMES: [Times; 2] = [
    (
        "workqueue_queue_duration_seconds",
        "How long in seconds an item stays in workqueue before being requested.",
        |s| &s.waited,
    ),
    ("workqueue_work_duration_seconds", "How long in seconds processing an item from workqueue takes.", |s| &s.worked),
];

fn report(queues: &Queues, text: &mut Text) {
    let all: Vec<(String, Stats)> = queues.lock().iter().map(|(name, stats)| (name.clone(), stats())).collect();
    for (name, help, kind, value) in NUMBERS {
        text.family(name, help, kind);
        all.iter().for_each(|(queue, stats)| text.sample(name, &[("name", queue)], value(stats)));
    }
    for (name, help, times) in TIMES {
        text.family(name, help, Kind::Histogram);
        for (queue, stats) in &all {
            let times = times(stats);
            text.distribution(name, &[("name", queue)], &BOUNDS, &times.buckets, times.sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues are made by the context, under a name.
    #[test]
    fn no_queue_is_left_out() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut made = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if std::fs::read_to_string(&path).unwrap().contains("Queue::new()")
                    || std::fs::read_to_string(&path).unwrap().contains("Queued::new()")
                {
                    made.push(path.file_name().unwrap().to_string_lossy().into_owned());
                }
            }
        }
        made.sort();
        assert_eq!(made, ["context.rs", "telemetry.rs"]);
    }

    #[tokio::test]
    async fn queues_and_caches_are_shown() {
        let telemetry = Telemetry::default();
        let own = Own::new(&telemetry);
        let ask = async |path| telemetry.checks.respond(path, Some("verbose")).await.unwrap().into_body();
        assert!(ask("/readyz").await.contains("[-]informer-sync failed"));
        assert!(ask("/livez").await.contains("[+]workqueues ok"));
        let queue: Queue<u8> = Queue::new();
        own.add_queue("things", &queue);
        queue.add(1);
        queue.add(2);
        let key = queue.next().await.unwrap();
        queue.done(&key);
        own.caches.lock().push(("pods".to_owned(), Box::new(|| true)));
        assert!(ask("/readyz").await.contains("[+]informer-sync ok"));
        own.caches.lock().push(("nodes".to_owned(), Box::new(|| false)));
        assert!(ask("/readyz").await.contains("[-]informer-sync failed"));
        let text = telemetry.metrics.render();
        for line in [
            "workqueue_adds_total{name=\"things\"} 2\n",
            "workqueue_depth{name=\"things\"} 1\n",
            "workqueue_work_duration_seconds_count{name=\"things\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
