//! Requests and limits as control-group values.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use pintle_cri::messages::LinuxContainerResources;

use crate::pods::spec::{self, Kind, Qos};
use crate::quantity;

const SHARES_PER_CPU: i64 = 1024;
const MIN_SHARES: i64 = 2;
/// Length of the period of the CPU quota in microseconds.
pub const QUOTA_PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1000;

/// CPU shares of a request in thousandths of a CPU.
pub fn shares(milli: i64) -> i64 {
    (milli * SHARES_PER_CPU / 1000).clamp(MIN_SHARES, 262_144)
}

/// CPU quota of a limit in thousandths of a CPU; zero is no limit.
pub fn quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli * QUOTA_PERIOD / 1000).max(MIN_QUOTA) }
}

fn get(resources: Option<&ResourceRequirements>, limit: bool, name: &str, read: fn(&Q) -> i64) -> Option<i64> {
    let resources = resources?;
    let map = if limit { resources.limits.as_ref() } else { resources.requests.as_ref() };
    map?.get(name).map(read)
}
type Q = k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// CPU request in thousandths; a limit without request counts as one.
fn cpu_request(r: Option<&ResourceRequirements>) -> i64 {
    get(r, false, "cpu", quantity::milli).or_else(|| get(r, true, "cpu", quantity::milli)).unwrap_or(0)
}

/// Score by which the kernel picks what to kill when memory runs out.
pub fn oom_score(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    const GUARANTEED: i64 = -997;
    const BEST_EFFORT: i64 = 1000;
    if spec::spec(pod).priority.unwrap_or(0) >= 2_000_000_000 {
        return GUARANTEED;
    }
    match spec::qos(pod) {
        Qos::Guaranteed => GUARANTEED,
        Qos::BestEffort => BEST_EFFORT,
        Qos::Burstable => {
            let request = get(container.resources.as_ref(), false, "memory", quantity::value).unwrap_or(0);
            let share = 1000_i128 * i128::from(request) / i128::from(memory_capacity.max(1));
            let score = 1000 - i64::try_from(share).unwrap_or(1000);
            score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

/// A container's control-group values.
pub fn for_container(pod: &Pod, container: &Container, memory_capacity: i64, unified: bool) -> LinuxContainerResources {
    let r = container.resources.as_ref();
    let group = [("memory.oom.group".to_owned(), "1".to_owned())];
    LinuxContainerResources {
        cpu_shares: shares(cpu_request(r)),
        cpu_quota: quota(get(r, true, "cpu", quantity::milli).unwrap_or(0)),
        cpu_period: QUOTA_PERIOD,
        memory_limit_in_bytes: get(r, true, "memory", quantity::value).unwrap_or(0),
        oom_score_adj: oom_score(pod, container, memory_capacity),
        unified: if unified { group.into() } else { Default::default() },
        ..LinuxContainerResources::default()
    }
}

/// The pod's own control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLimits {
    /// CPU shares.
    pub shares: i64,
    /// CPU quota in microseconds a period, if there is a limit.
    pub quota: Option<i64>,
    /// Memory limit in bytes, if there is one.
    pub memory: Option<i64>,
}

/// Sums of a resource over the pod: app containers and sidecars together, or the largest init container with the
/// sidecars before it, plus overhead.
pub fn pod_sum(pod: &Pod, of: impl Fn(&Container) -> i64, overhead: i64) -> i64 {
    let mut sidecars = 0;
    let mut peak = 0;
    for c in spec::init_containers(pod) {
        if spec::is_sidecar(Kind::Init, c) {
            sidecars += of(c);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + of(c));
        }
    }
    let apps: i64 = spec::spec(pod).containers.iter().map(&of).sum();
    (apps + sidecars).max(peak) + overhead
}

/// The pod's CPU request in thousandths, for weighing.
pub fn cpu_milli(pod: &Pod) -> i64 {
    pod_sum(pod, |c| cpu_request(c.resources.as_ref()), 0)
}

/// Values of the pod's control group.
pub fn for_pod(pod: &Pod) -> PodLimits {
    let s = spec::spec(pod);
    let over = |name: &str, read: fn(&Q) -> i64| s.overhead.as_ref().and_then(|o| o.get(name)).map_or(0, read);
    let level = s.resources.as_ref();
    let all_have = |name: &str| {
        let mut all = spec::init_containers(pod).iter().chain(&s.containers);
        all.all(|c| get(c.resources.as_ref(), true, name, quantity::milli).is_some_and(|v| v > 0))
    };
    let request = get(level, false, "cpu", quantity::milli)
        .unwrap_or_else(|| pod_sum(pod, |c| cpu_request(c.resources.as_ref()), over("cpu", quantity::milli)));
    let sum = |name: &'static str, read: fn(&Q) -> i64| {
        get(level, true, name, read).or_else(|| {
            all_have(name)
                .then(|| pod_sum(pod, |c| get(c.resources.as_ref(), true, name, read).unwrap_or(0), over(name, read)))
        })
    };
    if spec::qos(pod) == Qos::BestEffort {
        return PodLimits { shares: MIN_SHARES, quota: None, memory: None };
    }
    PodLimits {
        shares: shares(request),
        quota: sum("cpu", quantity::milli).map(quota),
        memory: sum("memory", quantity::value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn container_values() {
        let cases = [
            (json!({}), (2, 0, 0, 1000)),
            (json!({"requests": {"cpu": "500m", "memory": "500Mi"}}), (512, 0, 0, 500)),
            (json!({"limits": {"cpu": "1500m", "memory": "1Mi"}}), (1536, 150_000, 1 << 20, -997)),
            (json!({"requests": {"cpu": "1m"}}), (2, 0, 0, 999)),
            (json!({"limits": {"cpu": "1m"}}), (2, 1000, 0, 999)),
        ];
        for (resources, want) in cases {
            let p = pod(json!({"containers": [{"name": "a", "resources": resources}]}));
            let r = for_container(&p, &spec::spec(&p).containers[0], 1000 << 20, false);
            let got = (r.cpu_shares, r.cpu_quota, r.memory_limit_in_bytes, r.oom_score_adj);
            assert_eq!(got, want, "{resources}");
        }
    }

    #[test]
    fn pod_values() {
        let limits = json!({"limits": {"cpu": "1", "memory": "10Mi"}});
        let cases = [
            (json!({"containers": [{"name": "a"}]}), (2, None, None)),
            (
                json!({"containers": [{"name": "a", "resources": limits}, {"name": "b", "resources": limits}]}),
                (2048, Some(200_000), Some(20 << 20)),
            ),
            (json!({"containers": [{"name": "a", "resources": limits}, {"name": "b"}]}), (1024, None, None)),
        ];
        for (spec, (shares, quota, memory)) in cases {
            assert_eq!(for_pod(&pod(spec.clone())), PodLimits { shares, quota, memory }, "{spec}");
        }
    }
}
