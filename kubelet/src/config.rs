//! What a kubelet must be told.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use pintle_serving::telemetry::Telemetry;
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

/// Identity and trust of the kubelet's HTTPS server, each as PEM.
#[derive(Clone)]
pub struct ServerTls {
    /// Certificate chain.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: Vec<u8>,
    /// Authority of client certificates.
    pub client_ca: Vec<u8>,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
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
    /// The HTTPS server; `None` for none.
    pub server: Option<ServerTls>,
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
    /// Where it tells about itself.
    pub telemetry: Telemetry,
}

impl Config {
    /// Upstream's defaults for a node of that name and address with that runtime.
    pub fn new(node_name: &str, ip: IpAddr, cri_endpoint: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            node_ips: vec![ip],
            hostname: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cri_endpoint: cri_endpoint.to_owned(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroup_root: "/".to_owned(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            pod_cidrs: None,
            max_pods: 110,
            static_pod_dir: None,
            port: 10250,
            server: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: String::new(),
            register: true,
            eviction: EvictionThresholds { memory_available: 100 << 20, disk_available: 0.1, inodes_free: 0.05 },
            image_gc: ImageGc { high_percent: 85, low_percent: 80, minimum_age: Duration::from_secs(120) },
            reserved: Reserved::default(),
            sync_frequency: Duration::from_secs(60),
            status_update_frequency: Duration::from_secs(10),
            status_report_frequency: Duration::from_secs(300),
            lease_duration: Duration::from_secs(40),
            telemetry: Telemetry::default(),
        }
    }

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
