//! The node itself: its object, its status, its Lease.

mod lease;
pub mod machine;
mod register;
mod status;

use std::sync::Arc;

use kube::ResourceExt;
use pintle_client::cache::Change;
use pintle_cri::messages as cri;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Keeps the Node object, its status and its Lease until shutdown.
pub async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let work = async {
        register::register(&shared).await;
        let text = "Starting kubelet.";
        shared.events.normal(&shared.node_reference(), "Starting", text);
        tokio::join!(status::keep(&shared), lease::keep(&shared), follow_cidrs(&shared));
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

/// Tells whoever configures the pod network (and the runtime) the node's pod CIDRs.
async fn follow_cidrs(shared: &Shared) {
    let mut changes = shared.nodes.subscribe();
    let mut told: Vec<String> = Vec::new();
    while let Some(change) = changes.recv().await {
        let node = match change {
            Change::Added(node) | Change::Updated { new: node, .. } => node,
            Change::Deleted(node) => {
                tracing::warn!(node = node.name_any(), "the Node object was deleted");
                register::register(shared).await;
                continue;
            }
        };
        let cidrs = node.spec.as_ref().and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
        if cidrs.is_empty() || cidrs == told {
            continue;
        }
        if let Some(sender) = &shared.config.pod_cidrs {
            sender.send_replace(cidrs.clone());
        }
        let network = cri::NetworkConfig { pod_cidr: cidrs.join(",") };
        let config = cri::RuntimeConfig { network_config: Some(network) };
        if let Err(error) =
            shared.cri.update_runtime_config(cri::UpdateRuntimeConfigRequest { runtime_config: Some(config) }).await
        {
            tracing::debug!(%error, "runtime not told the pod CIDR");
        }
        told = cidrs;
    }
}
