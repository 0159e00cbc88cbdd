//! The kubelet end to end: an API server, real containerd, runc, CNI and kubectl, in namespaces of the test's own.
//!
//! The API server is ours, in this process; `PINTLE_UPSTREAM_BIN` (a folder with kube-apiserver and etcd of v1.37) makes it
//! upstream's. Needs root, and a kubectl: `KUBECTL` names it, else it is the one on the PATH.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the log of a test")]
#![allow(clippy::unwrap_used, reason = "a test: a failure is to end it")]

mod confined;
mod lab;
mod scenarios;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, NODE, NODE_IP};
use pintle_kubelet::{Config, EvictionThresholds, ServerTls};
use tokio_util::sync::CancellationToken;

/// Name and function.
type Scenario = (&'static str, fn(&Lab));

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn kubelet_end_to_end() {
    confined::run("inner");
}

#[test]
#[ignore = "run by kubelet_end_to_end in namespaces of its own"]
fn inner() {
    confined::prepare();
    let log = std::fs::File::create(confined::dir().join("kubelet.log")).unwrap();
    tracing_subscriber::fmt().with_env_filter("info,pintle_kubelet=debug").with_ansi(false).with_writer(log).init();
    let begun = Instant::now();
    let lab = Lab::start(&confined::dir());
    println!("lab up after {:?}", begun.elapsed());
    let group = confined::group();
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
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario(&lab)));
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
