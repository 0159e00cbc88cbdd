//! What all parts of one kubelet have in common. Nothing here is global: two kubelets can live in one process.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::runtime::watcher;
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use tokio_util::sync::CancellationToken;

use crate::certificates::Certificates;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::container::field::Allocatable;
use crate::images::Images;
use crate::node::machine::Machine;
use crate::objects::Store;
use crate::pods::spec;
use crate::probes;
use crate::volumes::TrustBundles;

/// Shared by the parts of one kubelet.
pub struct Shared {
    /// Configuration.
    pub config: Config,
    /// The API.
    pub client: kube::Client,
    /// The runtime.
    pub cri: pintle_cri::Client,
    /// Events.
    pub events: Recorder,
    /// Objects that pods refer to.
    pub objects: Store,
    /// Services of the whole cluster, for environments.
    pub services: Cache<Service>,
    /// This node alone.
    pub nodes: Cache<Node>,
    /// Control groups.
    pub cgroups: Cgroups,
    /// Images.
    pub images: Images,
    /// Trust bundles of the cluster.
    pub trust: TrustBundles,
    /// Certificates of pods.
    pub certificates: Certificates,
    /// What probes found.
    pub probes: probes::Metrics,
    /// The machine.
    pub machine: Machine,
    /// Ends every task of this kubelet.
    pub shutdown: CancellationToken,
}

impl Shared {
    /// Of one kubelet; its caches begin to fill.
    pub fn new(config: Config, client: kube::Client, shutdown: CancellationToken) -> anyhow::Result<Arc<Self>> {
        let cri = pintle_cri::Client::new(&config.cri_endpoint)?;
        let events = Recorder::new(client.clone(), "kubelet", &config.node_name);
        let objects = Store::new(client.clone());
        let cgroups = Cgroups::new(config.cgroup_driver, &config.cgroup_root).context("reading control groups")?;
        let services = Cache::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone());
        let only = watcher::Config::default().fields(&format!("metadata.name={}", config.node_name));
        let nodes = Cache::start(Api::<Node>::all(client.clone()), only, shutdown.clone());
        Ok(Arc::new(Self {
            images: Images::new(cri.clone(), objects.clone(), events.clone()),
            trust: TrustBundles::new(client.clone(), shutdown.clone()),
            certificates: Certificates::new(client.clone(), &config.node_name, nodes.clone(), shutdown.clone()),
            probes: probes::Metrics::default(),
            machine: Machine::read(),
            shutdown,
            client,
            cri,
            events,
            objects,
            services,
            nodes,
            cgroups,
            config,
        }))
    }

    /// What pods may use of the machine.
    pub fn allocatable(&self) -> Allocatable {
        let (cpu_milli, memory) = self.cpu_and_memory();
        Allocatable { cpu_milli, memory, ephemeral_storage: self.machine.disk(&self.config.root_dir).total }
    }

    /// The part of that which no file system has to be asked for: CPU in thousandths, memory in bytes.
    pub fn cpu_and_memory(&self) -> (i64, i64) {
        let reserved = &self.config.reserved;
        (self.machine.cpu_milli - reserved.cpu_milli, self.machine.memory - reserved.memory)
    }

    /// A reference to the node for events.
    pub fn node_reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.config.node_name.clone()),
            // Upstream's convention: events about nodes carry the name as uid.
            uid: Some(self.config.node_name.clone()),
            ..ObjectReference::default()
        }
    }

    /// The runtime's handler that the pod's RuntimeClass names; empty for the default.
    pub async fn runtime_handler(&self, pod: &Pod) -> Result<String, String> {
        let Some(class) = spec::spec(pod).runtime_class_name.as_deref().filter(|c| !c.is_empty()) else {
            return Ok(String::new());
        };
        match Api::<RuntimeClass>::all(self.client.clone()).get_opt(class).await {
            Ok(Some(found)) => Ok(found.handler),
            Ok(None) => Err(format!("RuntimeClass {class:?} not found")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Services that a pod's environment may name.
    pub fn services_for(&self, namespace: &str) -> Vec<Arc<Service>> {
        let mut services = self.services.list_in(namespace);
        if namespace != "default" {
            services.extend(self.services.list_in("default"));
        }
        services
    }
}

/// A kubelet whose API and runtime never answer.
#[cfg(test)]
pub fn silent(dir: &std::path::Path) -> Arc<Shared> {
    type Answer = Result<http::Response<kube::client::Body>, std::convert::Infallible>;
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| std::future::pending::<Answer>());
    let client = pintle_client::connect::from_service(service);
    let endpoint = format!("unix://{}", dir.join("none.sock").display());
    let config = Config { root_dir: dir.into(), ..Config::new("n", [127, 0, 0, 1].into(), &endpoint) };
    Shared::new(config, client, CancellationToken::new()).unwrap()
}
