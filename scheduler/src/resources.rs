//! Amounts of resources as integers, and what a pod asks for.
//!
//! CPU counts in milli-cores, everything else in whole units; parts of a unit round up, as upstream's `Value` and
//! `MilliValue` do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pintle_machinery::quantity;

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

/// A malformed quantity, which the API does not let through, counts as nothing.
fn amount(name: &str, quantity: &Quantity) -> i64 {
    let Ok(quantity) = quantity.0.parse::<quantity::Quantity>() else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
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
        for (name, text, want) in [
            ("cpu", "100m", 100),
            ("cpu", "1", 1000),
            ("cpu", "100u", 1),
            ("memory", "1.5Gi", 1_610_612_736),
            ("memory", "1500m", 2),
            ("memory", "100E", i64::MAX),
            ("memory", "x", 0),
        ] {
            assert_eq!(amount(name, &Quantity(text.to_owned())), want, "{text}");
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
