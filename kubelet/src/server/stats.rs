//! Usage of the node and its pods: the Summary API's shape, and its rendering as metrics.

use jiff::Timestamp;
use pintle_serving::metrics::{Kind, Text};
use serde::{Deserialize, Serialize};

/// The answer of `/stats/summary`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The node itself.
    pub node: Node,
    /// Its pods.
    pub pods: Vec<PodStats>,
}

/// Usage of the node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub node_name: String,
    /// When it was booted.
    pub start_time: Option<Timestamp>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Network interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The file system of the kubelet's data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<FileSystem>,
    /// What the container runtime uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

/// What the container runtime uses.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The file system of its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<FileSystem>,
    /// The file system of the containers' writable layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<FileSystem>,
}

/// Usage of a pod.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    /// Which pod.
    pub pod_ref: PodReference,
    /// When it was started.
    pub start_time: Option<Timestamp>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Network interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Volumes.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty", default)]
    pub volumes: Vec<Volume>,
    /// Logs, writable layers and emptyDir volumes together.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<FileSystem>,
}

/// A pod's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
}

/// Usage of a container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its name.
    pub name: String,
    /// When it was started.
    pub start_time: Option<Timestamp>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<FileSystem>,
    /// The logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<FileSystem>,
}

/// Processor time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// When it was read.
    pub time: Timestamp,
    /// Billionths of a core, lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    /// Billionths of a second of one core, since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_core_nano_seconds: Option<u64>,
}

/// Memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// When it was read.
    pub time: Timestamp,
    /// What is left until the limit; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// All of it, caches included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_bytes: Option<u64>,
    /// What can't be given back at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Faults without a read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    /// Faults with a read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_page_faults: Option<u64>,
}

/// Network interfaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Network {
    /// When it was read.
    pub time: Timestamp,
    /// The one with the default route.
    #[serde(flatten)]
    pub main: Option<Interface>,
    /// All of them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<Interface>,
}

/// Counters of a network interface.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Errors in receiving.
    pub rx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Errors in sending.
    pub tx_errors: u64,
}

/// A file system, or a part of one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSystem {
    /// When it was read.
    pub time: Timestamp,
    /// Free space of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Size of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Used by this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Free inodes of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    /// Inodes of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Inodes of this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// A volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// Its usage.
    #[serde(flatten)]
    pub fs: FileSystem,
}

impl Summary {
    /// Processor time and memory alone.
    pub fn cpu_and_memory(mut self) -> Self {
        self.node = Node { network: None, fs: None, runtime: None, ..self.node };
        for pod in &mut self.pods {
            (pod.network, pod.ephemeral_storage) = (None, None);
            pod.volumes.clear();
            for container in &mut pod.containers {
                (container.rootfs, container.logs) = (None, None);
            }
        }
        self
    }

    /// As `/metrics/resource`.
    pub(super) fn resource_metrics(&self) -> String {
        let mut table = Table::default();
        let node = &self.node;
        table.cpu("node_cpu_usage_seconds_total", "node", &[], node.cpu);
        table.working_set("node_memory_working_set_bytes", "node", &[], node.memory);
        for pod in &self.pods {
            let (name, namespace) = (pod.pod_ref.name.as_str(), pod.pod_ref.namespace.as_str());
            let labels = [("namespace", namespace), ("pod", name)];
            table.cpu("pod_cpu_usage_seconds_total", "pod", &labels, pod.cpu);
            table.working_set("pod_memory_working_set_bytes", "pod", &labels, pod.memory);
            for container in &pod.containers {
                let labels = [("container", container.name.as_str()), ("namespace", namespace), ("pod", name)];
                table.cpu("container_cpu_usage_seconds_total", "container", &labels, container.cpu);
                table.working_set("container_memory_working_set_bytes", "container", &labels, container.memory);
                if let Some(start) = container.start_time {
                    let seconds = start.as_millisecond() as f64 / 1e3;
                    let help = "Start time of the container since unix epoch in seconds".to_owned();
                    table.add("container_start_time_seconds", help, Kind::Gauge, &labels, seconds, None);
                }
            }
        }
        let help = "1 if there was an error while getting container metrics, 0 otherwise".to_owned();
        table.add("resource_scrape_error", help, Kind::Gauge, &[], 0.0, None);
        table.render()
    }

    /// As `/metrics/cadvisor` (the families that can be had from the Summary).
    pub(super) fn cadvisor_metrics(&self) -> String {
        let mut table = Table::default();
        table.cadvisor(
            &[("container", ""), ("id", "/"), ("namespace", ""), ("pod", "")],
            self.node.cpu,
            self.node.memory,
        );
        for pod in &self.pods {
            let (name, namespace, id) = (
                pod.pod_ref.name.as_str(),
                pod.pod_ref.namespace.as_str(),
                format!("/kubepods/pod{}", pod.pod_ref.uid),
            );
            let labels =
                |container| [("container", container), ("id", id.as_str()), ("namespace", namespace), ("pod", name)];
            table.cadvisor(&labels(""), pod.cpu, pod.memory);
            for container in &pod.containers {
                table.cadvisor(&labels(&container.name), container.cpu, container.memory);
            }
            let interfaces = pod.network.iter().flat_map(|network| &network.interfaces);
            for interface in interfaces {
                let labels =
                    [("id", id.as_str()), ("interface", &interface.name), ("namespace", namespace), ("pod", name)];
                table.network(&labels, interface);
            }
        }
        table.render()
    }
}

/// Samples by family: the text format wants each family in one piece.
#[derive(Default)]
struct Table(Vec<(&'static str, String, Kind, Vec<Sample>)>);

struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
    time: Option<i64>,
}

impl Table {
    fn add(
        &mut self,
        name: &'static str,
        help: String,
        kind: Kind,
        labels: &[(&str, &str)],
        value: f64,
        time: Option<Timestamp>,
    ) {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let sample = Sample { labels, value, time: time.map(|time| time.as_millisecond()) };
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., samples)) => samples.push(sample),
            None => self.0.push((name, help, kind, vec![sample])),
        }
    }

    fn cpu(&mut self, name: &'static str, what: &str, labels: &[(&str, &str)], cpu: Option<Cpu>) {
        let Some((cpu, used)) = cpu.and_then(|cpu| Some((cpu, cpu.usage_core_nano_seconds?))) else { return };
        let help = format!("Cumulative cpu time consumed by the {what} in core-seconds");
        self.add(name, help, Kind::Counter, labels, used as f64 / 1e9, Some(cpu.time));
    }

    fn working_set(&mut self, name: &'static str, what: &str, labels: &[(&str, &str)], memory: Option<Memory>) {
        let Some((memory, used)) = memory.and_then(|memory| Some((memory, memory.working_set_bytes?))) else { return };
        let help = format!("Current working set of the {what} in bytes");
        self.add(name, help, Kind::Gauge, labels, used as f64, Some(memory.time));
    }

    fn cadvisor(&mut self, labels: &[(&str, &str)], cpu: Option<Cpu>, memory: Option<Memory>) {
        let with_cpu: Vec<_> = labels.iter().copied().chain([("cpu", "total")]).collect();
        self.cpu("container_cpu_usage_seconds_total", "container", &with_cpu, cpu);
        let Some(memory) = memory else { return };
        for (name, help, value) in [
            ("container_memory_usage_bytes", "Current memory usage in bytes.", memory.usage_bytes),
            ("container_memory_working_set_bytes", "Current working set in bytes.", memory.working_set_bytes),
            ("container_memory_rss", "Size of anonymous memory in bytes.", memory.rss_bytes),
        ] {
            if let Some(value) = value {
                self.add(name, help.into(), Kind::Gauge, labels, value as f64, Some(memory.time));
            }
        }
    }

    fn network(&mut self, labels: &[(&str, &str)], interface: &Interface) {
        for (name, help, value) in [
            ("container_network_receive_bytes_total", "Bytes received.", interface.rx_bytes),
            ("container_network_receive_errors_total", "Errors in receiving.", interface.rx_errors),
            ("container_network_transmit_bytes_total", "Bytes sent.", interface.tx_bytes),
            ("container_network_transmit_errors_total", "Errors in sending.", interface.tx_errors),
        ] {
            self.add(name, help.into(), Kind::Counter, labels, value as f64, None);
        }
    }

    fn render(self) -> String {
        let mut text = Text::default();
        for (name, help, kind, samples) in self.0 {
            text.family(name, &help, kind);
            for Sample { labels, value, time } in samples {
                let labels: Vec<_> = labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).collect();
                match time {
                    Some(time) => text.sample_at(name, &labels, value, time),
                    None => text.sample(name, &labels, value),
                }
            }
        }
        text.into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary() -> Summary {
        let time = "2026-01-01T00:00:00Z";
        let cpu = json!({"time": time, "usageNanoCores": 5, "usageCoreNanoSeconds": 1_500_000_000});
        let memory = json!({"time": time, "workingSetBytes": 4096});
        serde_json::from_value(json!({
            "node": {"nodeName": "n", "startTime": time, "cpu": cpu, "fs": {"time": time}},
            "pods": [{
                "podRef": {"name": "p", "namespace": "ns", "uid": "u"}, "startTime": time, "cpu": cpu, "memory": memory,
                "network": {"time": time, "name": "eth0", "rxBytes": 1, "rxErrors": 0, "txBytes": 2, "txErrors": 0,
                    "interfaces": [{"name": "eth0", "rxBytes": 1, "rxErrors": 0, "txBytes": 2, "txErrors": 0}]},
                "containers": [{"name": "c", "startTime": time, "cpu": cpu, "memory": memory}],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn the_summary_keeps_its_shape() {
        let json = serde_json::to_value(summary()).unwrap();
        assert_eq!(json["pods"][0]["network"]["rxBytes"], 1);
        assert_eq!(json["pods"][0]["podRef"]["uid"], "u");
        assert_eq!(json["node"]["startTime"], "2026-01-01T00:00:00Z");
        let lean = serde_json::to_value(summary().cpu_and_memory()).unwrap();
        assert!(lean["node"].get("fs").is_none() && lean["pods"][0].get("network").is_none());
        assert_eq!(lean["pods"][0]["cpu"]["usageNanoCores"], 5);
    }

    #[test]
    fn metrics_come_family_by_family() {
        let text = summary().resource_metrics();
        for line in [
            "node_cpu_usage_seconds_total 1.5 1767225600000",
            "pod_memory_working_set_bytes{namespace=\"ns\",pod=\"p\"} 4096 1767225600000",
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p\"} 1.5 1767225600000",
            "container_start_time_seconds{container=\"c\",namespace=\"ns\",pod=\"p\"} 1767225600",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let text = summary().cadvisor_metrics();
        assert_eq!(text.matches("# TYPE container_cpu_usage_seconds_total counter").count(), 1);
        assert!(text.contains("container_network_transmit_bytes_total{id=\"/kubepods/podu\",interface=\"eth0\""));
    }
}
