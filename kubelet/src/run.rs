//! Puts a kubelet together and runs it.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::watcher;
use kube::{Api, Client};
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use tokio_util::sync::CancellationToken;

use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::images::Images;
use crate::node;
use crate::node::machine::Machine;
use crate::objects::Store;
use crate::pods::manager::Manager;
use crate::shared::Shared;

/// Runs a kubelet until `shutdown`; containers go on running afterwards.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    std::fs::create_dir_all(config.root_dir.join("pods")).context("making the kubelet's folder")?;
    std::fs::create_dir_all(&config.pod_logs_dir).context("making the folder of pod logs")?;
    let cri = pintle_cri::Client::new(&config.cri_endpoint)?;
    let events = Recorder::new(client.clone(), "kubelet", &config.node_name);
    let objects = Store::new(client.clone());
    let cgroups = Cgroups::new(config.cgroup_driver, &config.cgroup_root).context("reading control groups")?;
    let services: Api<Service> = Api::all(client.clone());
    let services = Cache::start(services, watcher::Config::default(), shutdown.clone());
    let shared = Arc::new(Shared {
        images: Images::new(cri.clone(), objects.clone(), events.clone()),
        machine: Machine::read(),
        client: client.clone(),
        cri,
        events,
        objects,
        services,
        cgroups,
        config,
    });
    let manager = Manager::new(shared.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(node::run(shared.clone(), shutdown.clone()));
    let of_node = format!("spec.nodeName={}", shared.config.node_name);
    let pods: Api<Pod> = Api::all(client);
    let pods = Cache::start(pods, watcher::Config::default().fields(&of_node), shutdown.clone());
    shared.services.synced().await;
    let pods_run = {
        let (manager, shutdown) = (manager.clone(), shutdown.clone());
        async move { manager.run(pods, shutdown).await }
    };
    tasks.spawn(pods_run);
    shutdown.cancelled().await;
    while tasks.join_next().await.is_some() {}
    Ok(())
}
