//! The kubelet end to end: upstream's API server, real containerd, runc and CNI, in namespaces of the test's own.
//!
//! Needs root and `PINTLE_UPSTREAM_BIN` (a folder with kube-apiserver, etcd and kubectl of v1.37); without it the test
//! says so and passes.

#![allow(clippy::unwrap_used, reason = "a test: a failure is to end it")]

mod lab;
mod scenarios;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, NODE, NODE_IP};
use pintle_kubelet::{Config, EvictionThresholds, ServerTls};
use tokio_util::sync::CancellationToken;

/// Name and function.
type Scenario = (&'static str, fn(&Lab));

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
        let hierarchies =
            std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path().join(group));
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
    tracing_subscriber::fmt().with_env_filter("info,pintle_kubelet=debug").with_ansi(false).with_writer(log).init();
    let begun = Instant::now();
    let lab = Lab::start(Path::new(&env("PINTLE_UPSTREAM_BIN")), Path::new(&env("PINTLE_TEST_DIR")));
    println!("lab up after {:?}", begun.elapsed());
    let group = env("PINTLE_TEST_CGROUP").into_string().unwrap();
    let node = Node::start(&lab, &group);
    lab.wait_field(&format!("node/{NODE}"), ".status.conditions[?(@.type=='Ready')].status", "True", SECONDS(20));
    println!("node ready after {:?}", begun.elapsed());
    if std::env::var_os("PINTLE_TEST_LATENCY").is_some() {
        scenarios::latency(&lab);
        print!("{}", std::fs::read_to_string(lab.dir.join("kubelet.log")).unwrap());
        return;
    }
    if let Some(script) = std::env::var_os("PINTLE_TEST_SCRIPT") {
        let mut shell = Command::new("bash");
        shell.arg(script).env("KUBECONFIG", lab.kubeconfig()).env("LAB", &lab.dir);
        lab::run(&mut shell);
        return;
    }
    let scenarios: [Scenario; 16] = [
        ("runs and ends", scenarios::runs_and_ends),
        ("environment and volumes", scenarios::environment_and_volumes),
        ("phases of jobs", scenarios::phases_of_jobs),
        ("init containers and sidecars", scenarios::init_containers_and_sidecars),
        ("crash loop", scenarios::crash_loop),
        ("probes", scenarios::probes),
        ("graceful termination", scenarios::graceful_termination),
        ("image errors", scenarios::image_errors),
        ("configuration errors", scenarios::configuration_errors),
        ("deadline and admission", scenarios::deadline_and_admission),
        ("security and network", scenarios::security_and_network),
        ("sandbox lost", scenarios::sandbox_lost),
        ("logs and exec", scenarios::logs_and_exec),
        ("deleted while starting", scenarios::deleted_while_starting),
        ("static pods", scenarios::static_pods),
        ("latency", scenarios::latency),
    ];
    let mut failed = Vec::new();
    for (name, scenario) in scenarios {
        let begun = Instant::now();
        let outcome = std::panic::catch_unwind(|| scenario(&lab));
        println!("{name}: {} after {:?}", if outcome.is_ok() { "ok" } else { "FAILED" }, begun.elapsed());
        failed.extend(outcome.is_err().then_some(name));
    }
    let node = scenarios::adoption(&lab, node, || Node::start(&lab, &group));
    drop(node);
    assert!(failed.is_empty(), "failed: {failed:?}");
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
    let read = |name: &str| std::fs::read(lab.dir.join(name)).unwrap();
    Config {
        server: Some(ServerTls {
            certificate: read("serving.crt"),
            key: read("serving.key"),
            client_ca: read("ca.crt"),
        }),
        root_dir: lab.dir.join("kubelet"),
        pod_logs_dir: lab.dir.join("pod-logs"),
        cgroup_root: format!("/{group}"),
        cluster_dns: vec!["10.97.0.10".parse().unwrap()],
        resolv_conf: None,
        static_pod_dir: Some(lab.dir.join("manifests")),
        labels: BTreeMap::from([("lab".to_owned(), "yes".to_owned())]),
        eviction: EvictionThresholds { memory_available: 1 << 20, disk_available: 0.01, inodes_free: 0.01 },
        sync_frequency: SECONDS(5),
        ..Config::new(NODE, NODE_IP.parse().unwrap(), &format!("unix://{}", lab.socket()))
    }
}
