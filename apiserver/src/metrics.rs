//! `/metrics`: requests by verb, resource and code with their durations, and the number of stored objects.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use parking_lot::Mutex;

use crate::http::info::RequestInfo;
use crate::state::State;

/// Upper bounds of the duration histogram, in seconds.
const BUCKETS: [f64; 10] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 5.0, 60.0];

type Key = (String, String, String, String, String);

/// Counters of requests.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(Key, u16), u64>>,
    durations: Mutex<BTreeMap<Key, Histogram>>,
}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// A request under way.
pub struct Observed {
    key: Key,
    start: Instant,
}

impl Metrics {
    /// A request begins.
    pub fn start(&self, info: &RequestInfo) -> Observed {
        let key = match info.is_resource {
            true => (
                info.verb.to_ascii_uppercase(),
                info.group.clone(),
                info.version.clone(),
                info.resource.clone(),
                info.subresource.clone(),
            ),
            false => (info.verb.to_ascii_uppercase(), String::new(), String::new(), String::new(), String::new()),
        };
        Observed { key, start: Instant::now() }
    }

    /// It has been answered. What names no served resource is not told apart: clients must not make the table grow.
    pub fn finish(&self, observed: Observed, code: u16) {
        let Observed { mut key, start } = observed;
        if code == 404 {
            key = (key.0, String::new(), String::new(), String::new(), String::new());
        }
        let seconds = start.elapsed().as_secs_f64();
        *self.requests.lock().entry((key.clone(), code)).or_default() += 1;
        let mut durations = self.durations.lock();
        let histogram = durations.entry(key).or_default();
        histogram.count += 1;
        histogram.sum += seconds;
        for (bucket, bound) in histogram.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    /// The text that is scraped.
    pub fn render(&self, state: &State) -> String {
        let mut out = String::new();
        // Writing into a String can't fail.
        out.push_str("# TYPE apiserver_request_total counter\n");
        for ((key, code), count) in self.requests.lock().iter() {
            let _ = writeln!(out, "apiserver_request_total{{code=\"{code}\",{}}} {count}", labels(key));
        }
        out.push_str("# TYPE apiserver_request_duration_seconds histogram\n");
        for (key, histogram) in self.durations.lock().iter() {
            let labels = labels(key);
            for (bucket, bound) in histogram.buckets.iter().zip(BUCKETS) {
                let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {bucket}");
            }
            let Histogram { count, sum, .. } = histogram;
            let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_sum{{{labels}}} {sum}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_count{{{labels}}} {count}");
        }
        out.push_str("# TYPE apiserver_storage_objects gauge\n");
        for resource in state.served().resources.iter() {
            if let Some(cache) = &resource.cache {
                let name = resource.group_resource();
                let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{name}\"}} {}", cache.snapshot().0.len());
            }
        }
        out
    }
}

fn labels((verb, group, version, resource, subresource): &Key) -> String {
    format!(
        "verb=\"{verb}\",group=\"{group}\",version=\"{version}\",resource=\"{resource}\",subresource=\"{subresource}\""
    )
}
