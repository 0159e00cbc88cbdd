//! Amounts of resources as integers, and what a pod asks for.
//!
//! CPU counts in milli-cores, everything else in whole units; parts of a unit round up, as upstream's `Value` and
//! `MilliValue` do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What a container without a CPU request counts for when nodes are compared.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// What a container without a memory request counts for when nodes are compared.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

type Quantities = BTreeMap<String, Quantity>;

/// Amounts by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU in milli-cores.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Local storage in bytes.
    pub ephemeral_storage: i64,
    /// Number of pods (only in what a node offers).
    pub pods: i64,
    /// Extended resources and huge pages.
    pub scalar: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a list of quantities.
    pub fn from_quantities(list: Option<&Quantities>) -> Resources {
        let mut out = Resources::default();
        for (name, quantity) in list.into_iter().flatten() {
            *out.slot(name) = amount(name, quantity);
        }
        out
    }

    fn slot(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.milli_cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            "pods" => &mut self.pods,
            other => self.scalar.entry(other.to_owned()).or_default(),
        }
    }

    /// The amount of one resource.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => self.pods,
            other => self.scalar.get(other).copied().unwrap_or(0),
        }
    }

    /// Adds the other amounts.
    pub fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes the other amounts away.
    pub fn sub(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_sub);
    }

    /// Raises each amount to at least the other's.
    pub fn max(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Resources, op: fn(i64, i64) -> i64) {
        self.milli_cpu = op(self.milli_cpu, other.milli_cpu);
        self.memory = op(self.memory, other.memory);
        self.ephemeral_storage = op(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = op(self.pods, other.pods);
        for (name, value) in &other.scalar {
            let slot = self.scalar.entry(name.clone()).or_default();
            *slot = op(*slot, *value);
        }
    }

    /// True if nothing is asked for.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalar.values().all(|v| *v == 0)
    }
}

fn amount(name: &str, quantity: &Quantity) -> i64 {
    parse_scaled(&quantity.0, if name == "cpu" { 3 } else { 0 }).unwrap_or(0)
}

/// A suffix as (base, exponent).
fn suffix_factor(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        exponent => (10, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// The quantity times 10^scale, rounded up; too large values saturate, malformed ones give nothing.
fn parse_scaled(text: &str, scale: i32) -> Option<i64> {
    let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (base, exponent) = suffix_factor(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut decimal = scale - i32::try_from(fraction.len()).ok()?;
    let mut value = mantissa;
    if base == 2 {
        value = value.saturating_mul(1i128 << exponent);
    } else {
        decimal += exponent;
    }
    let power = 10i128.checked_pow(decimal.unsigned_abs().min(38)).unwrap_or(i128::MAX);
    let value = if decimal >= 0 {
        value.saturating_mul(power)
    } else {
        value.div_euclid(power) + i128::from(value.rem_euclid(power) != 0)
    };
    Some(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

/// What a pod asks of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// The requests as written.
    pub exact: Resources,
    /// CPU in milli-cores, with the default for containers that ask for none.
    pub scored_cpu: i64,
    /// Memory in bytes, with the default for containers that ask for none.
    pub scored_memory: i64,
}

/// Sums up a pod's containers, init containers, sidecars, pod-level requests and overhead.
pub fn pod_requests(pod: &Pod) -> PodRequests {
    let exact = total(pod, false);
    let scored = total(pod, true);
    PodRequests { exact, scored_cpu: scored.milli_cpu, scored_memory: scored.memory }
}

fn total(pod: &Pod, with_defaults: bool) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let statuses = pod.status.as_ref();
    let regular = statuses.and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    let initial = statuses.and_then(|s| s.init_container_statuses.as_deref()).unwrap_or_default();
    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&container_requests(container, regular, with_defaults));
    }
    // An init container runs beside the sidecars that were started before it.
    let (mut peak, mut sidecars) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let mut own = container_requests(container, initial, with_defaults);
        if container.restart_policy.as_deref() == Some("Always") {
            sum.add(&own);
            sidecars.add(&own);
            peak.max(&sidecars);
        } else {
            own.add(&sidecars);
            peak.max(&own);
        }
    }
    sum.max(&peak);
    for (name, quantity) in spec.resources.iter().filter_map(|r| r.requests.as_ref()).flatten() {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            *sum.slot(name) = amount(name, quantity);
        }
    }
    sum.add(&Resources::from_quantities(spec.overhead.as_ref()));
    sum
}

fn container_requests(container: &Container, statuses: &[ContainerStatus], with_defaults: bool) -> Resources {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let mut out = Resources::from_quantities(requests);
    // While a resize is under way the larger of the wish and the reality counts.
    if let Some(status) = statuses.iter().find(|s| s.name == container.name) {
        out.max(&Resources::from_quantities(status.allocated_resources.as_ref()));
        out.max(&Resources::from_quantities(status.resources.as_ref().and_then(|r| r.requests.as_ref())));
    }
    if with_defaults {
        let has = |name: &str| requests.is_some_and(|r| r.contains_key(name));
        if !has("cpu") {
            out.milli_cpu = out.milli_cpu.max(DEFAULT_MILLI_CPU);
        }
        if !has("memory") {
            out.memory = out.memory.max(DEFAULT_MEMORY);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn quantities_round_up() {
        for (text, scale, want) in [
            ("100m", 3, Some(100)),
            ("1", 3, Some(1000)),
            ("0.5", 3, Some(500)),
            ("100u", 3, Some(1)),
            ("1.5Gi", 0, Some(1_610_612_736)),
            ("128e6", 0, Some(128_000_000)),
            ("1k", 0, Some(1000)),
            ("1500m", 0, Some(2)),
            ("100E", 0, Some(i64::MAX)),
            ("x", 0, None),
            ("1Zi", 0, None),
        ] {
            assert_eq!(parse_scaled(text, scale), want, "{text}");
        }
    }

    #[test]
    fn init_containers_and_sidecars_overlap_as_they_run() {
        let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "spec": {
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "a", "resources": {"requests": {"cpu": "300m"}}},
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "350m", "example.com/gpu": "2"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}}}, {"name": "d"}]}}));
        let got = pod_requests(&pod);
        assert_eq!(got.exact.milli_cpu, 460); // b beside s, plus overhead
        assert_eq!(got.exact.get("example.com/gpu"), 2);
        assert_eq!(got.exact.memory, 1 << 30);
        assert_eq!(got.scored_memory, (1 << 30) + 2 * DEFAULT_MEMORY); // containers c, d and sidecar s
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let pod = pod(serde_json::json!({"metadata": {"name": "p"}, "spec": {"resources": {"requests": {"cpu": "2"}},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m", "memory": "1Mi"}}}]}}));
        assert_eq!(pod_requests(&pod).exact.milli_cpu, 2000);
        assert_eq!(pod_requests(&pod).exact.memory, 1 << 20);
    }
}
