//! What a kubelet must be told.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use tokio::sync::watch;

/// Who makes control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// This process, in the cgroup file systems.
    Cgroupfs,
    /// systemd; the pods' groups are slices.
    Systemd,
}

/// When the node is short of something. Eviction itself is not implemented yet: the thresholds feed the node's
/// conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionThresholds {
    /// MemoryPressure below this many available bytes.
    pub memory_available: u64,
    /// DiskPressure below this part of the file system (0 to 1).
    pub disk_available: f64,
    /// DiskPressure below this part of the inodes (0 to 1).
    pub inodes_free: f64,
}

/// When images are removed to make room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageGc {
    /// Percentage of disk use from which on images are removed; 100 is never.
    pub high_percent: u8,
    /// Percentage of disk use to come down to.
    pub low_percent: u8,
    /// Younger images are kept.
    pub minimum_age: Duration,
}

/// Resources of the machine that pods may not use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reserved {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
}

/// The configuration of one kubelet.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the Node object.
    pub node_name: String,
    /// The node's addresses, the main one first.
    pub node_ips: Vec<IpAddr>,
    /// Host name in the node's addresses and labels; the node's name if it is empty.
    pub hostname: String,
    /// Data of the kubelet, `/var/lib/kubelet` as a rule.
    pub root_dir: PathBuf,
    /// Log files of pods, `/var/log/pods` as a rule.
    pub pod_logs_dir: PathBuf,
    /// The runtime's socket, `unix:///…`.
    pub cri_endpoint: String,
    /// Who makes control groups.
    pub cgroup_driver: CgroupDriver,
    /// Group under which `kubepods` is made, `/` as a rule.
    pub cgroup_root: String,
    /// Addresses of the cluster's DNS.
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's DNS domain; empty for none.
    pub cluster_domain: String,
    /// Resolver configuration that pods inherit; `None` inherits nothing.
    pub resolv_conf: Option<PathBuf>,
    /// Told the node's pod CIDRs as soon as they are known: whoever configures the pod network listens.
    pub pod_cidrs: Option<watch::Sender<Vec<String>>>,
    /// Most pods that the node takes.
    pub max_pods: u32,
    /// Folder of manifests of static pods.
    pub static_pod_dir: Option<PathBuf>,
    /// Port of the kubelet's HTTPS server as the Node object tells it.
    pub port: u16,
    /// Labels that the node registers with.
    pub labels: BTreeMap<String, String>,
    /// Taints that the node registers with.
    pub taints: Vec<Taint>,
    /// `spec.providerID` that the node registers with; empty for none.
    pub provider_id: String,
    /// Make the Node object if there is none.
    pub register: bool,
    /// When the node is short of something.
    pub eviction: EvictionThresholds,
    /// Image garbage collection.
    pub image_gc: ImageGc,
    /// Not for pods.
    pub reserved: Reserved,
    /// Longest time between two looks at a pod and its volumes' contents.
    pub sync_frequency: Duration,
    /// Time between two looks at the node for its status.
    pub status_update_frequency: Duration,
    /// Longest time between two writes of an unchanged node status.
    pub status_report_frequency: Duration,
    /// How long the node's Lease is valid; it is renewed four times in that time.
    pub lease_duration: Duration,
}

impl Config {
    /// Folder of a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }

    /// Folder of a pod's log files.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.pod_logs_dir.join(format!("{namespace}_{name}_{uid}"))
    }

    /// The node's addresses as text.
    pub fn host_ips(&self) -> Vec<String> {
        self.node_ips.iter().map(IpAddr::to_string).collect()
    }
}
