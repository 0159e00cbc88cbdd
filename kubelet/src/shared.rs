//! What all parts of one kubelet have in common. Nothing here is global: two kubelets can live in one process.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
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
    /// The machine.
    pub machine: Machine,
    /// Ends every task of this kubelet.
    pub shutdown: CancellationToken,
}

impl Shared {
    /// What pods may use of the machine.
    pub fn allocatable(&self) -> Allocatable {
        Allocatable {
            cpu_milli: self.machine.cpu_milli - self.config.reserved.cpu_milli,
            memory: self.machine.memory - self.config.reserved.memory,
            ephemeral_storage: self.machine.disk(&self.config.root_dir).total,
        }
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
