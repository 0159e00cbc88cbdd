//! What a pod takes: sums over its containers, and what a quota counts of it.

use jiff::Timestamp;
use serde_json::Value;

use super::amounts::Amounts;

/// Resources whose sum a pod itself may name instead of its containers.
fn settable_for_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn list<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod["spec"][field].as_array().into_iter().flatten()
}

/// An init container that runs beside the others.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Which of the two maps of a container is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What the scheduler reserves.
    Requests,
    /// What the kernel enforces.
    Limits,
}

impl Side {
    /// The field's name.
    pub fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// Amounts of a whole pod: the greater of what its containers take together and what each init container takes beside
/// the sidecars that are started before it; then what the pod as a whole says, and its overhead.
pub fn total(pod: &Value, side: Side) -> Amounts {
    let mut sum = Amounts::new();
    for container in list(pod, "containers") {
        sum.add_all(&of_container(pod, container, side));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(pod, "initContainers") {
        let own = of_container(pod, container, side);
        let mut now = sidecars.clone();
        now.add_all(&own);
        peak.raise_to(&now);
        if is_sidecar(container) {
            sum.add_all(&own);
            sidecars = now;
        }
    }
    sum.raise_to(&peak);
    let whole = Amounts::from_json(&pod["spec"]["resources"][side.field()]);
    for (name, amount) in whole.iter().filter(|(name, _)| settable_for_pods(name)) {
        sum.set(name, amount);
    }
    for (name, amount) in Amounts::from_json(&pod["spec"]["overhead"]).iter() {
        if side == Side::Requests || sum.get(name).is_some_and(|limit| !limit.is_zero()) {
            sum.add(name, amount);
        }
    }
    sum
}

/// A container's amounts; while a resize is under way, the greater of what it has and what it shall have.
fn of_container(pod: &Value, container: &Value, side: Side) -> Amounts {
    let mut amounts = Amounts::from_json(&container["resources"][side.field()]);
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut statuses = lists.iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let Some(status) = statuses.find(|status| status["name"] == container["name"]) else { return amounts };
    if status["resources"].is_null() {
        return amounts;
    }
    amounts.raise_to(&Amounts::from_json(&status["resources"][side.field()]));
    if side == Side::Requests {
        amounts.raise_to(&Amounts::from_json(&status["allocatedResources"]));
    }
    amounts
}

/// False once a pod takes nothing any more: it is done, or its time to end is over.
pub fn is_active(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
        return false;
    }
    let deadline = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    match (deadline, pod["metadata"]["deletionGracePeriodSeconds"].as_i64()) {
        (Some(at), Some(grace)) => now <= at.saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(at),
        _ => true,
    }
}

/// `example.com/gpu`: not one of Kubernetes' own, and not yet prefixed.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}

/// What amounts of requests and limits count as in a quota.
fn counted(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    for (name, amount) in requests.iter() {
        match name {
            "cpu" | "memory" | "ephemeral-storage" => {
                usage.set(name, amount);
                usage.set(format!("requests.{name}"), amount);
            }
            _ if name.starts_with("hugepages-") => {
                usage.set(name, amount);
                usage.set(format!("requests.{name}"), amount);
            }
            _ if is_extended(name) => usage.set(format!("requests.{name}"), amount),
            _ => {}
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| matches!(*name, "cpu" | "memory" | "ephemeral-storage")) {
        usage.set(format!("limits.{name}"), amount);
    }
    usage
}

/// What a quota counts of a pod. A pod that is done still counts as an object.
pub fn usage(pod: &Value, now: Timestamp) -> Amounts {
    let one = pintle_machinery::quantity::Quantity::new(1, pintle_machinery::quantity::Format::DecimalSi);
    let mut usage = Amounts::new();
    if is_active(pod, now) {
        usage = counted(&total(pod, Side::Requests), &total(pod, Side::Limits));
        usage.set("pods", one);
    }
    usage.set("count/pods", one);
    usage
}

/// True if a quota may name this resource and pods are what it counts.
pub fn counts(name: &str) -> bool {
    const PLAIN: [&str; 11] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "count/pods",
    ];
    let extended = name.strip_prefix("requests.").is_some_and(|name| name.contains('/') && is_extended(name));
    PLAIN.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-") || extended
}

/// Resources that every container must name when a quota counts them.
const EXPLICIT: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// What containers leave out that a quota of these resources needs, as the end of a message; `None` if nothing.
pub fn unspecified<'a>(pod: &Value, restricted: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let restricted: Vec<&str> = restricted.into_iter().collect();
    let required = EXPLICIT.iter().filter(|name| restricted.contains(name));
    let whole = usage_of(&pod["spec"]["resources"]);
    let mut parts = Vec::new();
    for name in required.filter(|name| whole.get(name).is_none()) {
        let all = list(pod, "containers").chain(list(pod, "initContainers"));
        let lacking = all.filter(|container| usage_of(&container["resources"]).get(name).is_none());
        let mut lacking: Vec<&str> = lacking.map(|c| c["name"].as_str().unwrap_or_default()).collect();
        lacking.sort_unstable();
        lacking.dedup();
        if !lacking.is_empty() {
            parts.push(format!("{name} for: {}", lacking.join(",")));
        }
    }
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

fn usage_of(resources: &Value) -> Amounts {
    counted(&Amounts::from_json(&resources["requests"]), &Amounts::from_json(&resources["limits"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(pod: &Value) -> String {
        usage(pod, Timestamp::UNIX_EPOCH).to_string()
    }

    #[test]
    fn sums() {
        let container =
            |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}});
        let cases = [
            (json!({"containers": [container("1"), container("500m")]}), "1500m"),
            (json!({"containers": [container("1")], "initContainers": [container("3")]}), "3"),
            (json!({"containers": [container("1")], "initContainers": [sidecar, container("2")]}), "4"),
            (json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}), "1250m"),
            (json!({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}}), "7"),
        ];
        for (spec, expected) in cases {
            let sum = total(&json!({"spec": spec}), Side::Requests);
            assert_eq!(sum.get("cpu").unwrap().to_string(), expected, "{spec}");
        }
    }

    #[test]
    fn a_resize_counts_what_is_greater() {
        let pod = json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        });
        assert_eq!(total(&pod, Side::Requests).get("cpu").unwrap().to_string(), "2");
    }

    #[test]
    fn usages() {
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "1Gi"}}}]}});
        assert_eq!(
            shown(&pod),
            "count/pods=1,cpu=1,hugepages-2Mi=4Mi,limits.memory=1Gi,pods=1,requests.cpu=1,\
             requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi"
        );
        pod["status"] = json!({"phase": "Succeeded"});
        assert_eq!(shown(&pod), "count/pods=1");
    }

    #[test]
    fn containers_must_be_explicit() {
        let pod =
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"limits": {"cpu": "1"}}}]}});
        assert_eq!(unspecified(&pod, ["pods"]), None);
        assert_eq!(
            unspecified(&pod, ["memory", "limits.cpu", "pods"]).as_deref(),
            Some("must specify limits.cpu for: b; memory for: a,b")
        );
    }

    #[test]
    fn names_that_pods_count_for() {
        for name in ["pods", "count/pods", "limits.cpu", "requests.example.com/gpu", "requests.hugepages-2Mi"] {
            assert!(counts(name), "{name}");
        }
        for name in ["services", "requests.storage", "example.com/gpu", "limits.example.com/gpu"] {
            assert!(!counts(name), "{name}");
        }
    }
}
