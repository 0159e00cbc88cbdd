//! What is told about probes at `/metrics/probes`, under upstream's names.

use std::time::Duration;

use pintle_serving::metrics::{Counter, Histogram, Registry};

use crate::pods::memory::ProbeKind;

/// Upper bounds in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Where the pod's uid, and its name and namespace, stand among the labels.
const UID: usize = 5;
const POD: [usize; 2] = [2, 3];

/// Whose probe it is.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Startup, liveness or readiness.
    pub kind: ProbeKind,
    /// Name of the container.
    pub container: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

/// Counts of one kubelet's probes.
pub struct Metrics {
    /// Where they are shown.
    pub registry: Registry,
    total: Counter<6>,
    took: Histogram<4>,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::default();
        let help = "Cumulative number of a liveness, readiness or startup probe for a container by result.";
        let labels = ["probe_type", "container", "pod", "namespace", "result", "pod_uid"];
        let total = registry.counter("prober_probe_total", help, labels);
        let help = "Duration in seconds for a probe response.";
        let labels = ["probe_type", "container", "pod", "namespace"];
        let took = registry.histogram("prober_probe_duration_seconds", help, labels, &BUCKETS);
        Self { registry, total, took }
    }
}

impl Metrics {
    /// A probe was answered after that time.
    pub fn observe(&self, of: Of<'_>, success: bool, took: Duration) {
        let Of { container, pod, namespace, uid, .. } = of;
        let result = if success { "successful" } else { "failed" };
        self.total.inc([of.kind.title(), container, pod, namespace, result, uid]);
        self.took.observe([of.kind.title(), container, pod, namespace], took.as_secs_f64());
    }

    /// The pod is gone, and with it what was told about it.
    pub fn forget(&self, namespace: &str, pod: &str, uid: &str) {
        self.total.retain(|labels| labels[UID] != uid);
        self.took.retain(|labels| POD.map(|at| labels[at].as_str()) != [pod, namespace]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_live_as_long_as_their_pod() {
        let metrics = Metrics::default();
        let of = |pod, uid| Of { kind: ProbeKind::Readiness, container: "c", pod, namespace: "n", uid };
        metrics.observe(of("a", "1"), true, Duration::from_millis(20));
        metrics.observe(of("a", "1"), false, Duration::from_millis(20));
        metrics.observe(of("b", "2"), true, Duration::from_millis(20));
        let text = metrics.registry.render();
        let line = |pod, result, uid| {
            let labels = format!("probe_type=\"Readiness\",container=\"c\",pod=\"{pod}\",namespace=\"n\"");
            format!("prober_probe_total{{{labels},result=\"{result}\",pod_uid=\"{uid}\"}} 1\n")
        };
        for line in [line("a", "successful", "1"), line("a", "failed", "1"), line("b", "successful", "2")] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("prober_probe_duration_seconds_count{probe_type=\"Readiness\",container=\"c\",pod=\"a\",namespace=\"n\"} 2\n"));
        metrics.forget("n", "a", "1");
        let text = metrics.registry.render();
        assert!(!text.contains("pod=\"a\"") && text.contains(&line("b", "successful", "2")), "{text}");
    }
}
