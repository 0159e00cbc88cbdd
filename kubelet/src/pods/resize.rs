//! Resizing in place: which changes of a pod's resources the node grants, and what of them is not in effect yet. Pure.
//!
//! A pod as the API has it is *wanted*; with the resources that the node has set aside for it, it is *granted*. Everything
//! but this module and the manager sees granted pods only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::memory::Memory;
use super::model::{Record, RuntimePod, State};
use super::spec::{self, Kind};
use crate::admission::{self, Node, Shortage};
use crate::container::resources;
use crate::quantity;

/// What can change in place.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
/// The condition of a resize that is not granted.
pub const PENDING: &str = "PodResizePending";
/// The condition of a resize that is granted and not in effect.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

/// Why a resize is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred` (later perhaps) or `Infeasible` (never).
    pub reason: &'static str,
    /// Upstream's words.
    pub message: String,
    /// The generation that asks for it.
    pub generation: Option<i64>,
}

type Quantities = BTreeMap<String, Quantity>;

fn amount(map: Option<&Quantities>, name: &str) -> Option<i128> {
    quantity::nano(&map?.get(name)?.0)
}

/// True if requests and limits of the resource are the same amounts.
fn same_in(name: &str, a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let of = |r: Option<&ResourceRequirements>| {
        let r = r?;
        Some((amount(r.requests.as_ref(), name), amount(r.limits.as_ref(), name)))
    };
    of(a).unwrap_or_default() == of(b).unwrap_or_default()
}

/// True if nothing that can change in place differs.
pub fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    RESIZABLE.iter().all(|name| same_in(name, a, b))
}

fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::init_containers(pod).iter().chain(&spec::spec(pod).containers)
}

/// True if the pod asks for other resources than it was granted.
pub fn differs(wanted: &Pod, granted: &Pod) -> bool {
    let level = |pod: &Pod| spec::spec(pod).resources.clone();
    let changed = |c: &Container| {
        let before = resizable(granted).find(|g| g.name == c.name);
        before.is_some_and(|g| !same(g.resources.as_ref(), c.resources.as_ref()))
    };
    !same(level(wanted).as_ref(), level(granted).as_ref()) || resizable(wanted).any(changed)
}

/// Makes CPU and memory what they are in `from`.
fn take(resources: &mut Option<ResourceRequirements>, from: Option<&ResourceRequirements>) {
    let none = ResourceRequirements::default();
    let from = from.unwrap_or(&none);
    let own = resources.get_or_insert_default();
    let pairs = [(&mut own.requests, &from.requests), (&mut own.limits, &from.limits)];
    for (map, source) in pairs {
        for name in RESIZABLE {
            let value = source.as_ref().and_then(|m| m.get(name)).cloned();
            match (value, map.as_mut()) {
                (Some(q), _) => {
                    map.get_or_insert_default().insert(name.to_owned(), q);
                }
                (None, Some(map)) => {
                    map.remove(name);
                }
                (None, None) => {}
            }
        }
    }
}

fn with_each(pod: &Pod, of: impl Fn(&Container) -> Option<Option<ResourceRequirements>>) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = pod.spec.as_mut() {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(resources) = of(container) {
                take(&mut container.resources, resources.as_ref());
            }
        }
    }
    pod
}

/// The wanted pod with the resources that it was granted before.
pub fn with_resources(wanted: &Pod, granted: &Pod) -> Pod {
    let before = |c: &Container| Some(resizable(granted).find(|g| g.name == c.name)?.resources.clone());
    let mut pod = with_each(wanted, before);
    if let (Some(spec), Some(level)) = (pod.spec.as_mut(), &spec::spec(granted).resources) {
        take(&mut spec.resources, Some(level));
    }
    pod
}

/// A pod that an earlier kubelet ran, with the resources that it was granted then, as far as its status tells.
pub fn adopted(pod: &Pod) -> Pod {
    let Some(status) = pod.status.as_ref() else { return pod.clone() };
    let pending = status.conditions.iter().flatten().any(|c| c.type_ == PENDING);
    if !pending && status.observed_generation == pod.metadata.generation {
        return pod.clone();
    }
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let known = |c: &Container| {
        let status = statuses.into_iter().flatten().flatten().find(|s| s.name == c.name)?;
        status.resources.clone().map(Some)
    };
    with_each(pod, known)
}

/// Whether the node grants the pod what it asks for.
pub fn decide(wanted: &Pod, node: &Node<'_>) -> Result<(), Pending> {
    let pending = |reason, message| Pending { reason, message, generation: wanted.metadata.generation };
    for name in RESIZABLE {
        let requested = admission::request(wanted, name);
        let Some(capacity) = node.allocatable.get(name).copied() else { continue };
        if requested > capacity {
            let figures = format!("requested: {requested}, capacity: {capacity}");
            return Err(pending("Infeasible", format!("Node didn't have enough capacity: {name}, {figures}")));
        }
    }
    match admission::shortage(wanted, node).filter(|s| RESIZABLE.contains(&s.name.as_str())) {
        Some(Shortage { name, requested, used, capacity }) => {
            let figures = format!("requested: {requested}, used: {used}, capacity: {capacity}");
            Err(pending("Deferred", format!("Node didn't have enough resource: {name}, {figures}")))
        }
        None => Ok(()),
    }
}

/// True if a running container's resources are not those that it was granted.
pub fn outdated(memory: &Memory, record: &Record, container: &Container) -> bool {
    let actual = memory.actuated.get(&record.id);
    actual.is_some_and(|actual| !same(actual.as_ref(), container.resources.as_ref()))
}

/// True if what differs is to change by a restart.
pub fn needs_restart(memory: &Memory, record: &Record, container: &Container) -> bool {
    let actual = memory.actuated.get(&record.id).and_then(Option::as_ref);
    let policy = |name: &str| container.resize_policy.iter().flatten().find(|p| p.resource_name == name);
    RESIZABLE.iter().any(|name| {
        !same_in(name, actual, container.resources.as_ref())
            && policy(name).is_some_and(|p| p.restart_policy == "RestartContainer")
    })
}

/// True if the pod's own control group is not what it is to be.
pub fn group_outdated(pod: &Pod, memory: &Memory) -> bool {
    memory.group.is_some_and(|limits| limits != resources::for_pod(pod))
}

/// True if something that was granted is not in effect yet.
pub fn in_progress(pod: &Pod, runtime: &RuntimePod, memory: &Memory) -> bool {
    let kind = |c: &Container| if spec::init_containers(pod).contains(c) { Kind::Init } else { Kind::App };
    let waits = |c: &Container| {
        runtime.latest(&c.name).is_some_and(|r| {
            let counts = match r.state {
                State::Running => true,
                State::Exited => memory.restart.contains(&r.id) || spec::restarts(pod, kind(c), c, Some(r.exit_code)),
                State::Created | State::Unknown => false,
            };
            counts && outdated(memory, r, c)
        })
    };
    resizable(pod).any(waits) || (runtime.sandbox().is_some() && group_outdated(pod, memory))
}

/// The pod's resources in the words of events about a resize.
pub fn summary(pod: &Pod) -> String {
    let of = |list: &[Container]| -> Vec<serde_json::Value> {
        list.iter().map(|c| serde_json::json!({"name": c.name, "resources": c.resources})).collect()
    };
    let mut value = serde_json::json!({"containers": of(&spec::spec(pod).containers)});
    let init = of(spec::init_containers(pod));
    if !init.is_empty() {
        value["initContainers"] = init.into();
    }
    value["generation"] = pod.metadata.generation.into();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn pod(requests: Value, limits: Value) -> Pod {
        let resources = json!({"requests": requests, "limits": limits});
        let spec = json!({"containers": [{"name": "a", "resources": resources}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 2}, "spec": spec})).unwrap()
    }

    fn of(pod: &Pod) -> Option<&ResourceRequirements> {
        spec::spec(pod).containers[0].resources.as_ref()
    }

    #[test]
    fn amounts_count_and_not_their_writing() {
        let a = pod(json!({"cpu": "1"}), json!({}));
        assert!(!differs(&pod(json!({"cpu": "1000m"}), json!({})), &a));
        assert!(differs(&pod(json!({"cpu": "2"}), json!({})), &a));
        assert!(differs(&pod(json!({"cpu": "1", "memory": "1Mi"}), json!({})), &a));
        assert!(differs(&pod(json!({"cpu": "1"}), json!({"cpu": "1"})), &a));
        assert!(!differs(&pod(json!({"cpu": "1", "example.com/x": "1"}), json!({})), &a));
    }

    #[test]
    fn what_is_not_granted_stays() {
        let wanted = pod(json!({"cpu": "2", "example.com/x": "1"}), json!({"cpu": "3"}));
        let granted = pod(json!({"cpu": "1", "memory": "1Mi"}), json!({}));
        let both = with_resources(&wanted, &granted);
        let want = pod(json!({"cpu": "1", "memory": "1Mi", "example.com/x": "1"}), json!({}));
        assert_eq!(of(&both), of(&want));
    }

    #[test]
    fn verdicts() {
        let used = [Arc::new(pod(json!({"cpu": "1500m"}), json!({})))];
        let allocatable = BTreeMap::from([("cpu".to_owned(), 2000), ("memory".to_owned(), 100)]);
        let labels = BTreeMap::new();
        let node = Node { name: "n", labels: &labels, taints: &[], allocatable: &allocatable, active: &used };
        assert_eq!(decide(&pod(json!({"cpu": "500m"}), json!({})), &node), Ok(()));
        let later = decide(&pod(json!({"cpu": "600m"}), json!({})), &node).unwrap_err();
        let figures = "requested: 600, used: 1500, capacity: 2000";
        assert_eq!(later.message, format!("Node didn't have enough resource: cpu, {figures}"));
        assert_eq!((later.reason, later.generation), ("Deferred", Some(2)));
        let never = decide(&pod(json!({"memory": "200"}), json!({})), &node).unwrap_err();
        assert_eq!(never.message, "Node didn't have enough capacity: memory, requested: 200, capacity: 100");
        assert_eq!(never.reason, "Infeasible");
    }

    #[test]
    fn an_adopted_pod_has_what_its_status_tells() {
        let mut wanted = pod(json!({"cpu": "2"}), json!({}));
        let status = json!({"observedGeneration": 1, "containerStatuses": [{"name": "a", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "resources": {"requests": {"cpu": "1"}}}]});
        wanted.status = serde_json::from_value(status).unwrap();
        assert_eq!(of(&adopted(&wanted)), of(&pod(json!({"cpu": "1"}), json!({}))));
        wanted.status.as_mut().unwrap().observed_generation = Some(2);
        assert_eq!(of(&adopted(&wanted)), of(&wanted));
    }

    #[test]
    fn a_resize_is_in_progress_until_the_container_has_it() {
        let granted = pod(json!({"cpu": "2"}), json!({}));
        let record = Record { id: "1".into(), name: "a".into(), state: State::Running, ..Record::default() };
        let runtime = RuntimePod { sandboxes: vec![], containers: vec![record.clone()] };
        let mut memory = Memory::default();
        assert!(!in_progress(&granted, &runtime, &memory), "nothing is known of the container");
        memory.actuated.insert("1".to_owned(), of(&pod(json!({"cpu": "1"}), json!({}))).cloned());
        assert!(in_progress(&granted, &runtime, &memory));
        let mut container = spec::spec(&granted).containers[0].clone();
        assert!(!needs_restart(&memory, &record, &container));
        container.resize_policy =
            serde_json::from_value(json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])).unwrap();
        assert!(needs_restart(&memory, &record, &container));
        memory.actuated.insert("1".to_owned(), of(&granted).cloned());
        assert!(!in_progress(&granted, &runtime, &memory));
    }
}
