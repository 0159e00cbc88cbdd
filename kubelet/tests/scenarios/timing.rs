//! How long a pod takes from its creation until the API shows it running, and how long the runtime alone takes.

use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use pintle_cri::messages as cri;

use crate::lab::Lab;

/// Creates a pod and waits until the API shows it running.
pub async fn pod(lab: &Lab, name: &str) -> Duration {
    let client = pintle_client::connect::from_kubeconfig(&lab.kubeconfig()).await.unwrap();
    let api: Api<Pod> = Api::default_namespaced(client);
    let pod: Pod = serde_yaml_ng::from_str(&super::pod(name, "sleep 1000", "", "")).unwrap();
    let begun = Instant::now();
    let made = api.create(&PostParams::default(), &pod).await.unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = made.resource_version().unwrap();
    let mut changes = Box::pin(api.watch(&only, &version).await.unwrap());
    while let Some(Ok(change)) = changes.next().await {
        if let WatchEvent::Modified(pod) = change
            && pod.status.and_then(|s| s.phase).as_deref() == Some("Running")
        {
            return begun.elapsed();
        }
    }
    panic!("the watch of {name} ended");
}

/// Sandbox, container, start by the runtime alone; removed afterwards.
pub async fn bare(lab: &Lab, name: &str) -> Duration {
    let client = pintle_cri::Client::new(&format!("unix://{}", lab.socket())).unwrap();
    let metadata = cri::PodSandboxMetadata {
        name: name.to_owned(),
        uid: name.to_owned(),
        namespace: "bare".to_owned(),
        attempt: 0,
    };
    let sandbox = cri::PodSandboxConfig {
        metadata: Some(metadata),
        hostname: name.to_owned(),
        log_directory: lab.dir.join("bare-logs").display().to_string(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: format!("/{}/bare", crate::confined::group()),
            ..cri::LinuxPodSandboxConfig::default()
        }),
        ..cri::PodSandboxConfig::default()
    };
    let container = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "c".to_owned(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: "busybox:1".to_owned(), ..cri::ImageSpec::default() }),
        command: vec!["sleep".to_owned(), "1000".to_owned()],
        log_path: format!("{name}.log"),
        linux: Some(cri::LinuxContainerConfig::default()),
        ..cri::ContainerConfig::default()
    };
    std::fs::create_dir_all(&sandbox.log_directory).unwrap();
    let begun = Instant::now();
    let run = cri::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: String::new() };
    let id = client.run_pod_sandbox(run).await.unwrap().pod_sandbox_id;
    let create = cri::CreateContainerRequest {
        pod_sandbox_id: id.clone(),
        config: Some(container),
        sandbox_config: Some(sandbox),
    };
    let made = client.create_container(create).await.unwrap().container_id;
    client.start_container(cri::StartContainerRequest { container_id: made }).await.unwrap();
    let took = begun.elapsed();
    client.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await.unwrap();
    client.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id }).await.unwrap();
    took
}
