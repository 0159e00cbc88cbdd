//! What the scheduler tells about itself, under upstream's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pintle_serving::health::Scope;
use pintle_serving::metrics::{Counter, Histogram, Kind};
use pintle_serving::telemetry::{Switch, Telemetry};

use crate::core::{Core, Effect};

/// Upper bounds in seconds: a millisecond, doubled fifteen times.
const ATTEMPT_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const VICTIM_BUCKETS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Sizes of the scheduler's own state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Pods that are ready to be scheduled.
    pub active: usize,
    /// Pods that pause after a failure.
    pub backoff: usize,
    /// Pods that wait for a change.
    pub unschedulable: usize,
    /// Pods that are held back by a gate.
    pub gated: usize,
    /// Nodes that are known.
    pub nodes: usize,
    /// Pods that have a node.
    pub pods: usize,
}

impl Sizes {
    fn to_array(self) -> [usize; 6] {
        [self.active, self.backoff, self.unschedulable, self.gated, self.nodes, self.pods]
    }
}

/// The scheduler's metrics and checks.
pub struct Metrics {
    attempts: Counter<2>,
    durations: Histogram<2>,
    preemptions: Counter<0>,
    victims: Histogram<0>,
    sizes: Arc<[AtomicUsize; 6]>,
    synced: [Switch; 2],
}

impl Metrics {
    /// Registers them.
    pub fn new(telemetry: &Telemetry) -> Self {
        let metrics = &telemetry.metrics;
        let help = "Number of attempts to schedule pods, by the result.";
        let attempts = metrics.counter("scheduler_schedule_attempts_total", help, ["result", "profile"]);
        let help = "Scheduling attempt latency in seconds (scheduling algorithm).";
        let name = "scheduler_scheduling_attempt_duration_seconds";
        let durations = metrics.histogram(name, help, ["result", "profile"], &ATTEMPT_BUCKETS);
        let help = "Total preemption attempts in the cluster till now.";
        let preemptions = metrics.counter("scheduler_preemption_attempts_total", help, []);
        let help = "Number of selected preemption victims.";
        let victims = metrics.histogram("scheduler_preemption_victims", help, [], &VICTIM_BUCKETS);
        let sizes: Arc<[AtomicUsize; 6]> = Arc::default();
        let shown = sizes.clone();
        metrics.collect("scheduler_sizes", move |text| {
            let value = |at: usize| shown[at].load(Ordering::Relaxed) as f64;
            text.family("scheduler_pending_pods", "Number of pending pods, by the queue type.", Kind::Gauge);
            for (at, queue) in ["active", "backoff", "unschedulable", "gated"].into_iter().enumerate() {
                text.sample("scheduler_pending_pods", &[("queue", queue)], value(at));
            }
            text.family("scheduler_cache_size", "Number of nodes and pods in the scheduler cache.", Kind::Gauge);
            for (at, kind) in ["nodes", "pods"].into_iter().enumerate() {
                text.sample("scheduler_cache_size", &[("type", kind)], value(4 + at));
            }
        });
        let synced = ["informer-sync", "sched-handler-sync"].map(|name| telemetry.switch(name, Scope::Ready));
        Self { attempts, durations, preemptions, victims, sizes, synced }
    }

    /// All caches have the present state.
    pub fn synced(&self) {
        self.synced.iter().for_each(Switch::turn_on);
    }

    /// An attempt took that long and had these effects; none: the pod was passed over. One with a binding counts when that
    /// is [written](Self::bound).
    pub fn attempt(&self, effects: &[Effect], took: Duration) {
        for effect in effects {
            match effect {
                Effect::Report { pod, .. } => self.count("unschedulable", pod.scheduler_name(), took),
                Effect::Evict { victims, .. } => {
                    self.preemptions.inc([]);
                    self.victims.observe([], victims.len() as f64);
                }
                Effect::Bind { .. } | Effect::Unpromise { .. } => {}
            }
        }
    }

    /// A binding was written, or could not be; the attempt took that long altogether.
    pub fn bound(&self, profile: &str, written: bool, took: Duration) {
        self.count(if written { "scheduled" } else { "error" }, profile, took);
    }

    fn count(&self, result: &str, profile: &str, took: Duration) {
        self.attempts.inc([result, profile]);
        self.durations.observe([result, profile], took.as_secs_f64());
    }

    /// Shows the present sizes.
    pub fn sizes(&self, core: &Core) {
        for (slot, value) in self.sizes.iter().zip(core.sizes().to_array()) {
            slot.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::pod::PodInfo;

    #[test]
    fn an_attempt_counts_once() {
        let telemetry = Telemetry::default();
        let metrics = Metrics::new(&telemetry);
        let pod = Arc::new(PodInfo::new(Arc::new(Pod::default())));
        for written in [true, false, true] {
            metrics.attempt(&[Effect::Bind { pod: pod.clone(), node: "n".into(), wishes: Vec::new() }], Duration::ZERO);
            metrics.bound("p", written, Duration::ZERO);
        }
        let text = telemetry.metrics.render();
        let mut counts =
            text.lines().filter(|line| line.starts_with("scheduler_schedule_attempts_total{")).collect::<Vec<_>>();
        counts.sort_unstable();
        let line = |result: &str, count| {
            format!("scheduler_schedule_attempts_total{{result=\"{result}\",profile=\"p\"}} {count}")
        };
        assert_eq!(counts, [line("error", 1), line("scheduled", 2)]);
    }
}
