//! The node's status: what is observed, what of it is said (pure), and when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pintle_cri::messages as cri;
use serde_json::json;

use super::machine::{self, Disk, Machine, Memory};
use crate::config::{Config, EvictionThresholds};
use crate::shared::Shared;

/// A node that is not ready is looked at this often, so that it becomes ready without delay.
const LOOK_WHILE_NOT_READY: Duration = Duration::from_millis(500);
/// Images that the status names.
const MAX_IMAGES: usize = 50;

/// What the status is made from.
pub struct Observation {
    config: Config,
    machine: Machine,
    disk: Disk,
    memory: Memory,
    processes: i64,
    images: Vec<ContainerImage>,
    runtime_version: String,
    /// What keeps the node from being ready.
    problems: Vec<String>,
    now: Timestamp,
}

/// Looks at machine and runtime.
pub async fn observe(shared: &Shared) -> Observation {
    let (status, version, images) = tokio::join!(
        shared.cri.status(cri::StatusRequest::default()),
        shared.cri.version(cri::VersionRequest::default()),
        shared.cri.list_images(cri::ListImagesRequest::default()),
    );
    let problems = match status {
        Ok(answer) => runtime_problems(&answer.status.unwrap_or_default()),
        Err(error) => vec![format!("container runtime is down: {error}")],
    };
    let version = version.map(|v| format!("{}://{}", v.runtime_name, v.runtime_version));
    Observation {
        config: shared.config.clone(),
        disk: shared.machine.disk(&shared.config.root_dir),
        machine: shared.machine.clone(),
        memory: machine::memory(),
        processes: processes(),
        images: images.map(|a| largest(a.images)).unwrap_or_default(),
        runtime_version: version.unwrap_or_default(),
        problems,
        now: Timestamp::now(),
    }
}

fn processes() -> i64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = text.split_whitespace().nth(3).and_then(|f| f.split('/').nth(1));
    field.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn largest(mut images: Vec<cri::Image>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let shown = images.into_iter().take(MAX_IMAGES).map(|image| ContainerImage {
        names: Some(image.repo_digests.into_iter().chain(image.repo_tags).collect()),
        size_bytes: i64::try_from(image.size).ok(),
    });
    shown.filter(|i| i.names.as_ref().is_some_and(|n| !n.is_empty())).collect()
}

/// What the runtime's conditions say against the node, in upstream's words.
fn runtime_problems(status: &cri::RuntimeStatus) -> Vec<String> {
    let of = |kind: &str| status.conditions.iter().find(|c| c.r#type == kind);
    let text = |prefix: &str, kind: &str| match of(kind) {
        Some(c) if c.status => None,
        Some(c) => Some(format!("{prefix} not ready: {kind}=false reason:{} message:{}", c.reason, c.message)),
        None => Some(format!("{prefix} not ready: {kind} condition is missing")),
    };
    text("container runtime network", "NetworkReady").into_iter().chain(text("runtime", "RuntimeReady")).collect()
}

/// The node's host name.
pub fn hostname(shared: &Shared) -> String {
    let c = &shared.config;
    if c.hostname.is_empty() { c.node_name.clone() } else { c.hostname.clone() }
}

impl Observation {
    /// The whole status; times of conditions that keep their status are kept, and conditions of others.
    pub fn status(&self, old: &[NodeCondition]) -> NodeStatus {
        let c = &self.config;
        let (capacity, allocatable) = self.resources();
        let ips = c.node_ips.iter().map(|ip| ("InternalIP", ip.to_string()));
        let host = if c.hostname.is_empty() { c.node_name.clone() } else { c.hostname.clone() };
        let addresses = ips.chain([("Hostname", host)]);
        NodeStatus {
            addresses: Some(
                addresses.map(|(type_, address)| NodeAddress { address, type_: type_.to_owned() }).collect(),
            ),
            allocatable: Some(allocatable),
            capacity: Some(capacity),
            conditions: Some(self.conditions(old)),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(c.port) }),
            }),
            images: Some(self.images.clone()),
            node_info: Some(NodeSystemInfo {
                container_runtime_version: self.runtime_version.clone(),
                ..self.machine.info.clone()
            }),
            ..NodeStatus::default()
        }
    }

    fn resources(&self) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
        let (c, m) = (&self.config, &self.machine);
        let cpu = |milli: i64| if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") };
        let kib = |bytes: i64| format!("{}Ki", bytes / 1024);
        let evicted = i64::try_from(c.eviction.memory_available).unwrap_or(0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a share of the disk")]
        let kept = (self.disk.total as f64 * c.eviction.disk_available) as i64;
        let entry = |name: &str, value: String| (name.to_owned(), Quantity(value));
        let pods = c.max_pods.to_string();
        let capacity = [
            entry("cpu", cpu(m.cpu_milli)),
            entry("memory", kib(m.memory)),
            entry("ephemeral-storage", kib(self.disk.total)),
            entry("pods", pods.clone()),
        ];
        let allocatable = [
            entry("cpu", cpu(m.cpu_milli - c.reserved.cpu_milli)),
            entry("memory", kib(m.memory - c.reserved.memory - evicted)),
            entry("ephemeral-storage", (self.disk.total - kept).to_string()),
            entry("pods", pods),
        ];
        (capacity.into(), allocatable.into())
    }

    fn conditions(&self, old: &[NodeCondition]) -> Vec<NodeCondition> {
        let all = verdicts(
            &self.config.eviction,
            self.memory,
            self.disk,
            (self.processes, self.machine.max_pids),
            &self.problems,
        );
        let own = all.iter().map(|v| {
            let status = if v.status { "True" } else { "False" };
            let before = old.iter().find(|c| c.type_ == v.kind && c.status == status);
            NodeCondition {
                type_: v.kind.to_owned(),
                status: status.to_owned(),
                reason: Some(v.reason.to_owned()),
                message: Some(v.message.clone()),
                last_heartbeat_time: Some(Time(self.now)),
                last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(self.now))),
            }
        });
        let others = old.iter().filter(|c| !all.iter().any(|v| v.kind == c.type_)).cloned();
        others.chain(own).collect()
    }
}

struct Verdict {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

/// The conditions in upstream's order and words.
fn verdicts(
    limits: &EvictionThresholds,
    memory: Memory,
    disk: Disk,
    (processes, max_pids): (i64, i64),
    problems: &[String],
) -> Vec<Verdict> {
    let make = |kind, status, bad: (&'static str, &str), good: (&'static str, &str)| {
        let (reason, message) = if status { bad } else { good };
        Verdict { kind, status, reason, message: message.to_owned() }
    };
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = |free: u64, total: u64| if total == 0 { 1.0 } else { free as f64 / total as f64 };
    let free = share(disk.available.unsigned_abs(), disk.total.unsigned_abs());
    let short_of_disk = free < limits.disk_available || share(disk.inodes_free, disk.inodes) < limits.inodes_free;
    let short_of_memory = memory.available.unsigned_abs() < limits.memory_available;
    let ready = problems.is_empty();
    let message = match problems {
        [] => "kubelet is posting ready status".to_owned(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    vec![
        make(
            "MemoryPressure",
            short_of_memory,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        make(
            "DiskPressure",
            short_of_disk,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        make(
            "PIDPressure",
            max_pids > 0 && processes >= max_pids,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        Verdict {
            kind: "Ready",
            status: ready,
            reason: if ready { "KubeletReady" } else { "KubeletNotReady" },
            message,
        },
    ]
}

/// Keeps the status for ever: written when it changes, and now and then in any case.
pub async fn keep(shared: &Shared) {
    let api: Api<Node> = Api::all(shared.client.clone());
    let mut written: Option<(NodeStatus, Instant)> = None;
    let success = shared.config.telemetry.success("node-status");
    loop {
        let observation = observe(shared).await;
        let ready = observation.problems.is_empty();
        let due = written.as_ref().is_none_or(|(last, at)| {
            at.elapsed() >= shared.config.status_report_frequency
                || differs(last, &observation.status(last.conditions.as_deref().unwrap_or_default()))
        });
        if due {
            match write(shared, &api, &observation).await {
                Ok(status) => {
                    success.now();
                    say_ready(shared, written.as_ref().map(|(s, _)| s), &status);
                    written = Some((status, Instant::now()));
                }
                Err(error) => tracing::warn!(%error, "node status not written"),
            }
        }
        let pause = if ready { shared.config.status_update_frequency } else { LOOK_WHILE_NOT_READY };
        tokio::time::sleep(pause).await;
    }
}

/// The event that a node became ready or ceased to be.
fn say_ready(shared: &Shared, before: Option<&NodeStatus>, now: &NodeStatus) {
    let ready = |s: &NodeStatus| s.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let is = ready(now);
    if before.is_some_and(ready) != is {
        let reason = if is { "NodeReady" } else { "NodeNotReady" };
        let text = format!("Node {} status is now: {reason}", shared.config.node_name);
        shared.events.normal(&shared.node_reference(), reason, text);
    }
}

/// True if the two differ in more than heartbeats.
fn differs(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |s: &NodeStatus| {
        let mut s = s.clone();
        for c in s.conditions.iter_mut().flatten() {
            c.last_heartbeat_time = None;
        }
        s
    };
    still(a) != still(b)
}

async fn write(shared: &Shared, api: &Api<Node>, observation: &Observation) -> kube::Result<NodeStatus> {
    let node = api.get(&shared.config.node_name).await?;
    let old = node.status.unwrap_or_default();
    let status = observation.status(old.conditions.as_deref().unwrap_or_default());
    // A merge patch replaces lists as a whole, which is what is wanted: others' conditions were taken over above.
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&shared.config.node_name, &PatchParams::default(), &patch).await?;
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_node() {
        let limits = EvictionThresholds { memory_available: 100, disk_available: 0.1, inodes_free: 0.05 };
        let disk = |available| Disk { total: 100, available, inodes: 100, inodes_free: 50 };
        let memory = |available| Memory { total: 1000, available };
        let of = |m, d, p, problems: &[String]| -> Vec<(String, bool)> {
            let all = verdicts(&limits, memory(m), disk(d), (p, 10), problems);
            all.into_iter().map(|v| (v.reason.to_owned(), v.status)).collect()
        };
        let names = |list: &[(&str, bool)]| list.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect::<Vec<_>>();
        assert_eq!(
            of(500, 50, 1, &[]),
            names(&[
                ("KubeletHasSufficientMemory", false),
                ("KubeletHasNoDiskPressure", false),
                ("KubeletHasSufficientPID", false),
                ("KubeletReady", true)
            ])
        );
        assert_eq!(
            of(50, 5, 10, &["x".to_owned()]),
            names(&[
                ("KubeletHasInsufficientMemory", true),
                ("KubeletHasDiskPressure", true),
                ("KubeletHasInsufficientPID", true),
                ("KubeletNotReady", false)
            ])
        );
    }

    #[test]
    fn the_runtimes_word_against_the_node() {
        let condition = |kind: &str, status| cri::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: "R".to_owned(),
            message: "m".to_owned(),
        };
        let status =
            cri::RuntimeStatus { conditions: vec![condition("RuntimeReady", true), condition("NetworkReady", false)] };
        assert_eq!(
            runtime_problems(&status),
            ["container runtime network not ready: NetworkReady=false reason:R message:m"]
        );
    }
}
