//! Puts a kubelet together and runs it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};
use pintle_client::cache::Cache;
use pintle_serving::delegated::{Delegated, Settings};
use pintle_serving::http::Listener;
use pintle_serving::tls::Tls;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, ServerTls};
use crate::gc;
use crate::host::Answers;
use crate::node;
use crate::pods::manager::Manager;
use crate::pods::statics;
use crate::server::Server;
use crate::shared::Shared;
use crate::telemetry;

/// Runs a kubelet until `shutdown`; containers go on running afterwards.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Whatever way this ends, no task of it stays behind.
    let shutdown = shutdown.child_token();
    let _ends_tasks = shutdown.clone().drop_guard();
    std::fs::create_dir_all(config.root_dir.join("pods")).context("making the kubelet's folder")?;
    std::fs::create_dir_all(&config.pod_logs_dir).context("making the folder of pod logs")?;
    let shared = Shared::new(config, client.clone(), shutdown.clone())?;
    let manager = Manager::new(shared.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(node::run(shared.clone(), shutdown.clone()));
    let of_node = format!("spec.nodeName={}", shared.config.node_name);
    let pods: Api<Pod> = Api::all(client);
    let pods = Cache::start(pods, watcher::Config::default().fields(&of_node), shutdown.clone());
    telemetry::register(&shared, &manager, &pods);
    if let Some(tls) = &shared.config.server {
        tasks.spawn(serve(&shared, &manager, tls, shutdown.clone()).await?);
    }
    let until = shutdown.clone();
    let images = shared.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = until.cancelled() => {}
            () = gc::collect_images(&images) => {}
        }
    });
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = async { tokio::join!(shared.services.synced(), shared.nodes.synced()); } => {}
    }
    if let Some(dir) = shared.config.static_pod_dir.clone() {
        // Before the runtime's list is looked at: what has no pod is ended.
        statics::load(&dir, &shared.config.node_name, &manager);
        tasks.spawn(statics::run(shared.clone(), manager.clone(), pods.clone(), dir, shutdown.clone()));
    }
    let pods_run = {
        let (manager, shutdown) = (manager.clone(), shutdown.clone());
        async move { manager.run(pods, shutdown).await }
    };
    tasks.spawn(pods_run);
    // No part ends before the shutdown unless it has failed.
    while let Some(ended) = tasks.join_next().await {
        ended.context("a part of the kubelet failed")?;
        anyhow::ensure!(shutdown.is_cancelled(), "a part of the kubelet ended");
    }
    Ok(())
}

/// The HTTPS server, bound.
async fn serve(
    shared: &Arc<Shared>,
    manager: &Manager,
    tls: &ServerTls,
    shutdown: CancellationToken,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let identity =
        Tls::from_pem(&tls.certificate, &tls.key, Some(&tls.client_ca)).context("the kubelet's certificate")?;
    let any = if shared.config.node_ips.iter().any(|ip| ip.is_ipv6()) { "::" } else { "0.0.0.0" };
    let address = SocketAddr::new(any.parse()?, shared.config.port);
    let listener = Listener::tcp(address).await?;
    let host = Answers { shared: shared.clone(), manager: manager.clone(), started: jiff::Timestamp::now() };
    let server = Server {
        host: Arc::new(host),
        runtime: shared.cri.clone(),
        auth: Delegated::new(shared.client.clone(), Settings::new(Some(tls.client_ca.clone())))?,
        checks: shared.config.telemetry.checks.clone(),
        metrics: shared.config.telemetry.metrics.clone(),
        probe_metrics: shared.probes.registry.clone(),
    };
    Ok(server.run(listener, identity, shutdown))
}
