//! How long a pod takes from its creation until the API shows it running, and how long the runtime alone takes for one
//! with the same image and command. Both in turns, so that a busy moment of the machine meets both.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use pintle_cri::messages as cri;
use serde_json::json;

use super::cluster::Cluster;

const NAMESPACE: &str = "bench";
const IMAGE: &str = "pintle.local/demo:1";
/// Runs until it is told to end, and ends at once then.
const COMMAND: [&str; 3] = ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"];
/// The longest that one pod may take to come or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The times, in the order in which they were taken.
#[derive(Default)]
pub struct Times {
    /// From the create request until the watch shows Running.
    pub pods: Vec<Duration>,
    /// RunPodSandbox, CreateContainer and StartContainer.
    pub bare: Vec<Duration>,
}

/// Takes the times of `count` pods and of as many sandboxes.
pub async fn measure(cluster: &Cluster, count: usize) -> anyhow::Result<Times> {
    let client = pintle_client::connect::from_kubeconfig(&cluster.kubeconfig()).await?;
    prepare(&client).await?;
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let bare = Bare::new(cluster)?;
    let mut times = Times::default();
    for round in 0..count {
        let name = format!("pod-{round}");
        let took = tokio::time::timeout(PATIENCE, pod(&pods, &name)).await;
        times.pods.push(took.with_context(|| format!("{name} was not running in time"))??);
        times.bare.push(bare.run(&format!("bare-{round}")).await?);
    }
    Ok(times)
}

async fn prepare(client: &Client) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let there =
        kube::runtime::wait::await_condition(accounts, "default", |found: Option<&ServiceAccount>| found.is_some());
    tokio::time::timeout(PATIENCE, there).await.context("no service account in the new namespace")??;
    Ok(())
}

/// Creates a pod, waits until it runs, and removes it again; the time until it ran.
async fn pod(pods: &Api<Pod>, name: &str) -> anyhow::Result<Duration> {
    let object: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE, "command": COMMAND}]},
    }))?;
    let begin = Instant::now();
    let made = pods.create(&PostParams::default(), &object).await?;
    let version = made.resource_version().context("the pod has no resourceVersion")?;
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut changes = pods.watch(&only, &version).await?.boxed();
    let mut took = None;
    while let Some(change) = changes.next().await {
        match change? {
            WatchEvent::Modified(pod) if took.is_none() && is_running(&pod) => {
                took = Some(begin.elapsed());
                pods.delete(name, &DeleteParams::default()).await?;
            }
            WatchEvent::Deleted(_) => break,
            WatchEvent::Error(error) => anyhow::bail!("the watch of {name}: {error:?}"),
            _ => {}
        }
    }
    took.with_context(|| format!("{name} went without having run"))
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// The runtime, asked directly.
struct Bare {
    client: pintle_cri::Client,
    cgroup: String,
    logs: String,
}

impl Bare {
    fn new(cluster: &Cluster) -> anyhow::Result<Self> {
        let client = pintle_cri::Client::new(&cluster.cri_endpoint())?;
        Ok(Self { client, cgroup: format!("/{}/bench", cluster.id()?), logs: cluster.logs().display().to_string() })
    }

    /// Starts a sandbox with a container, and removes both; the time until it ran.
    async fn run(&self, name: &str) -> anyhow::Result<Duration> {
        let (sandbox, container) = self.configs(name);
        std::fs::create_dir_all(&sandbox.log_directory)?;
        let begin = Instant::now();
        let request = cri::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: String::new() };
        let pod_sandbox_id = self.client.run_pod_sandbox(request).await?.pod_sandbox_id;
        let create = cri::CreateContainerRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
            config: Some(container),
            sandbox_config: Some(sandbox),
        };
        let container_id = self.client.create_container(create).await?.container_id;
        self.client.start_container(cri::StartContainerRequest { container_id: container_id.clone() }).await?;
        let took = begin.elapsed();
        self.client.stop_container(&container_id, 10).await?;
        self.client.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
        self.client.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id }).await?;
        Ok(took)
    }

    fn configs(&self, name: &str) -> (cri::PodSandboxConfig, cri::ContainerConfig) {
        let metadata = cri::PodSandboxMetadata {
            name: name.to_owned(),
            uid: name.to_owned(),
            namespace: NAMESPACE.to_owned(),
            attempt: 0,
        };
        let sandbox = cri::PodSandboxConfig {
            metadata: Some(metadata),
            hostname: name.to_owned(),
            log_directory: self.logs.clone(),
            linux: Some(cri::LinuxPodSandboxConfig { cgroup_parent: self.cgroup.clone(), ..Default::default() }),
            ..Default::default()
        };
        let container = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: COMMAND.map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(cri::LinuxContainerConfig::default()),
            ..Default::default()
        };
        (sandbox, container)
    }
}
