//! The node's own server (port 10250): logs, exec, attach, port-forward, stats, metrics.
//!
//! It asks the kubelet through [`Host`] and the container runtime through its CRI client, and knows nothing else of either:
//! [`route`] says what a path means, [`auth`] who may, [`logs`] reads log files, [`streaming`] connects upgraded requests
//! with the runtime's streaming server, [`stats`] renders usage.

mod answer;
pub mod auth;
mod logs;
mod query;
mod route;
mod service;
pub mod stats;
mod streaming;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use pintle_serving::{
    delegated::Delegated,
    health::Checks,
    http::{Listener, serve},
    metrics::Registry,
    tls::Tls,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::stats::Summary;

/// What the server asks the kubelet.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// This node's name.
    fn node_name(&self) -> &str;

    /// The pods bound to this node, with the status that the kubelet last computed.
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// The pods that the runtime runs, as far as it knows them (names, containers, images).
    async fn running_pods(&self) -> anyhow::Result<Vec<Pod>>;

    /// The runtime's id (without scheme) of a pod's running container.
    async fn running_container(&self, pod: &Pod, container: &str) -> anyhow::Result<Option<String>>;

    /// The runtime's id of a pod's ready sandbox.
    async fn sandbox(&self, pod: &Pod) -> anyhow::Result<Option<String>>;

    /// Usage of the node and its pods.
    async fn summary(&self) -> anyhow::Result<Summary>;

    /// The configuration in effect (kind KubeletConfiguration).
    fn config(&self) -> Value;
}

/// The server's parts.
pub struct Server {
    /// The kubelet.
    pub host: Arc<dyn Host>,
    /// The runtime.
    pub runtime: pintle_cri::Client,
    /// Who may ask what.
    pub auth: Delegated,
    /// `/healthz`.
    pub checks: Checks,
    /// `/metrics`.
    pub metrics: Registry,
    /// `/metrics/probes`.
    pub probe_metrics: Registry,
}

impl Server {
    /// Serves until shutdown.
    pub async fn run(self, listener: Listener, tls: Tls, shutdown: CancellationToken) {
        let service = service::Shared::new(self, shutdown.clone());
        serve(listener, tls, tower::service_fn(move |request| service.clone().serve(request)), shutdown).await;
    }
}
