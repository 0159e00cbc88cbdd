//! The kubelet end to end: upstream's API server, real containerd, runc and CNI, in namespaces of the test's own.
//!
//! Needs root and `PINTLE_UPSTREAM_BIN` (a folder with kube-apiserver, etcd and kubectl of v1.37); without it the test
//! says so and passes.

mod lab;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, NODE, NODE_IP};
use pintle_kubelet::{CgroupDriver, Config, EvictionThresholds, ImageGc, Reserved};
use tokio_util::sync::CancellationToken;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// Runs `inner` as PID 1 of fresh namespaces, so that nothing outlives it.
#[test]
fn kubelet_end_to_end() {
    let Some(bin) = std::env::var_os("PINTLE_UPSTREAM_BIN") else {
        println!("skipped: PINTLE_UPSTREAM_BIN is not set");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let group = format!("pintle-kubelet-test-{}", std::process::id());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args(["--ignored", "--exact", "--nocapture", "inner"]);
    command.env("PINTLE_UPSTREAM_BIN", bin).env("PINTLE_TEST_DIR", dir.path()).env("PINTLE_TEST_CGROUP", &group);
    let status = command.status().unwrap();
    remove_cgroups(&group);
    if !status.success() {
        let kept = dir.keep();
        panic!("{status}; logs are in {}", kept.display());
    }
}

fn remove_cgroups(group: &str) {
    fn tree(dir: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                tree(&entry.path());
            }
        }
        let _ = std::fs::remove_dir(dir);
    }
    // Killed processes leave their groups a moment later.
    lab::wait("control groups to be empty", SECONDS(10), || {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path().join(group));
        let all: Vec<PathBuf> = hierarchies.chain([Path::new("/sys/fs/cgroup").join(group)]).collect();
        all.iter().for_each(|g| tree(g));
        all.iter().all(|g| !g.exists())
    });
}

#[test]
#[ignore = "run by kubelet_end_to_end in namespaces of its own"]
fn inner() {
    let env = |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set"));
    let log = std::fs::File::create(PathBuf::from(env("PINTLE_TEST_DIR")).join("kubelet.log")).unwrap();
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_ansi(false).with_writer(log).init();
    let begun = Instant::now();
    let lab = Lab::start(Path::new(&env("PINTLE_UPSTREAM_BIN")), Path::new(&env("PINTLE_TEST_DIR")));
    println!("lab up after {:?}", begun.elapsed());
    let group = env("PINTLE_TEST_CGROUP").into_string().unwrap();
    let node = Node::start(&lab, &group);
    lab.wait_field(&format!("node/{NODE}"), ".status.conditions[?(@.type=='Ready')].status", "True", SECONDS(20));
    println!("node ready after {:?}", begun.elapsed());
    if let Some(script) = std::env::var_os("PINTLE_TEST_SCRIPT") {
        let mut shell = Command::new("bash");
        shell.arg(script).env("KUBECONFIG", lab.kubeconfig()).env("LAB", &lab.dir);
        lab::run(&mut shell);
        return;
    }
    runs_and_ends(&lab);
    drop(node);
}

/// A kubelet in this process.
struct Node {
    runtime: Option<tokio::runtime::Runtime>,
    shutdown: CancellationToken,
}

impl Node {
    fn start(lab: &Lab, group: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let shutdown = CancellationToken::new();
        let (config, kubeconfig, stop) = (config(lab, group), lab.kubeconfig(), shutdown.clone());
        runtime.spawn(async move {
            let client = pintle_client::connect::from_kubeconfig(&kubeconfig).await.unwrap();
            pintle_kubelet::run(config, client, stop).await.unwrap();
        });
        Self { runtime: Some(runtime), shutdown }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SECONDS(2));
        }
    }
}

fn config(lab: &Lab, group: &str) -> Config {
    Config {
        node_name: NODE.to_owned(),
        node_ips: vec![NODE_IP.parse().unwrap()],
        hostname: String::new(),
        root_dir: lab.dir.join("kubelet"),
        pod_logs_dir: lab.dir.join("pod-logs"),
        cri_endpoint: format!("unix://{}", lab.socket()),
        cgroup_driver: CgroupDriver::Cgroupfs,
        cgroup_root: format!("/{group}"),
        cluster_dns: vec!["10.97.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: None,
        pod_cidrs: None,
        max_pods: 110,
        static_pod_dir: Some(lab.dir.join("manifests")),
        port: 10250,
        labels: BTreeMap::from([("lab".to_owned(), "yes".to_owned())]),
        taints: Vec::new(),
        provider_id: String::new(),
        register: true,
        eviction: EvictionThresholds { memory_available: 1 << 20, disk_available: 0.01, inodes_free: 0.01 },
        image_gc: ImageGc { high_percent: 100, low_percent: 99, minimum_age: SECONDS(120) },
        reserved: Reserved::default(),
        sync_frequency: SECONDS(5),
        status_update_frequency: SECONDS(10),
        status_report_frequency: SECONDS(300),
        lease_duration: SECONDS(40),
    }
}

/// A pod of one busybox container on the node.
fn pod(name: &str, command: &str, more_of_spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {NODE}\n  terminationGracePeriodSeconds: 1\n\
         {more_of_spec}\n  containers:\n  - name: c\n    image: busybox:1\n    command: [sh, -c, {command:?}]\n"
    )
}

fn runs_and_ends(lab: &Lab) {
    lab.create(&pod("one", "echo hello; sleep 1000", ""));
    lab.wait_field("pod/one", ".status.phase", "Running", SECONDS(20));
    assert!(lab.field("pod/one", ".status.podIP").starts_with("10.231.0."));
    lab.kubectl(&["delete", "pod", "one", "--wait=false"]);
    lab.wait_gone("pod/one", SECONDS(20));
}
