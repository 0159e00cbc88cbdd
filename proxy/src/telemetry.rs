//! What the proxy tells about itself, under upstream's names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pintle_serving::health::Scope;
use pintle_serving::metrics::{Counter, Gauge, Histogram};
use pintle_serving::telemetry::{Beat, Switch, Telemetry};

/// Upper bounds in seconds: a millisecond, doubled fifteen times.
const SYNC_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// The proxy's metrics and checks.
pub struct Metrics {
    durations: Histogram<1>,
    last: Gauge<1>,
    queued: Gauge<1>,
    failures: Counter<1>,
    services: Gauge<1>,
    synced: Switch,
    applied: Beat,
    ready: Switch,
}

impl Metrics {
    /// Registers them; the rules must have been in order within `limit`.
    pub fn new(telemetry: &Telemetry, limit: Duration) -> Self {
        let metrics = &telemetry.metrics;
        let help = "SyncProxyRules latency in seconds.";
        let name = "kubeproxy_sync_proxy_rules_duration_seconds";
        let durations = metrics.histogram(name, help, ["ip_family"], &SYNC_BUCKETS);
        let help = "The last time proxy rules were successfully synced.";
        let last = metrics.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", help, ["ip_family"]);
        let help = "The last time a sync of proxy rules was queued.";
        let queued = metrics.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", help, ["ip_family"]);
        let help = "Cumulative proxy nftables sync failures.";
        let failures = metrics.counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", help, ["ip_family"]);
        let help = "Number of ports of Services that are served.";
        let services = metrics.gauge("pintle_proxy_service_ports", help, ["ip_family"]);
        let synced = telemetry.switch("informer-sync", Scope::Ready);
        let ready = telemetry.switch("first-sync", Scope::Ready);
        let applied = telemetry.beat("sync-proxy-rules", Scope::Live, limit);
        Self { durations, last, queued, failures, services, synced, applied, ready }
    }

    /// All caches have the present state.
    pub fn informers_synced(&self) {
        self.synced.turn_on();
    }

    /// Something changed, so that the rules are to be looked at.
    pub fn queued(&self, families: impl Iterator<Item = bool>) {
        families.for_each(|v6| self.queued.set([family(v6)], now()));
    }

    /// The rules of a family were brought up to date, or could not be.
    pub fn synced(&self, v6: bool, ports: usize, took: Duration, good: bool) {
        let family = family(v6);
        self.durations.observe([family], took.as_secs_f64());
        self.services.set([family], ports as f64);
        match good {
            true => self.last.set([family], now()),
            false => self.failures.inc([family]),
        }
    }

    /// All families are in order.
    pub fn in_order(&self) {
        self.applied.now();
        self.ready.turn_on();
    }
}

fn family(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
