//! What the kubelet tells about itself: whether it has caught up with the API and the runtime answers, and how many pods
//! and containers there are, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use pintle_client::cache::Cache;
use pintle_cri::messages::VersionRequest;
use pintle_serving::health::Scope;
use pintle_serving::metrics::{Kind, Text};

use crate::pods::manager::Manager;
use crate::shared::Shared;

/// A runtime that needs longer for its version is ill.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(5);

/// Registers checks and metrics.
pub fn register(shared: &Arc<Shared>, manager: &Manager, pods: &Cache<Pod>) {
    let telemetry = &shared.config.telemetry;
    let cri = shared.cri.clone();
    telemetry.checks.add("runtime", Scope::Ready, move || {
        let cri = cri.clone();
        async move {
            let asked = cri.version(VersionRequest { version: String::new() });
            match tokio::time::timeout(RUNTIME_PATIENCE, asked).await {
                Ok(answer) => answer.map(|_| ()).map_err(|error| error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            }
        }
    });
    let (caches, pods) = (shared.clone(), pods.clone());
    telemetry.checks.add("informer-sync", Scope::Ready, move || {
        let synced = pods.is_synced() && caches.services.is_synced() && caches.nodes.is_synced();
        async move { if synced { Ok(()) } else { Err("not yet".to_owned()) } }
    });
    let (name, manager) = (shared.config.node_name.clone(), manager.clone());
    telemetry.metrics.collect("kubelet", move |text| report(&name, &manager.pods(), text));
}

fn report(node: &str, pods: &[Arc<Pod>], text: &mut Text) {
    text.family("kubelet_node_name", "The node's name. The count is always 1.", Kind::Gauge);
    text.sample("kubelet_node_name", &[("node", node)], 1.0);
    let phase = |pod: &&Arc<Pod>| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    text.family("kubelet_running_pods", "Number of pods that have a running pod sandbox", Kind::Gauge);
    text.sample("kubelet_running_pods", &[], pods.iter().filter(phase).count() as f64);
    let mut states: BTreeMap<&str, f64> = BTreeMap::new();
    for status in pods.iter().filter_map(|pod| pod.status.as_ref()) {
        let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
        for container in lists.into_iter().flatten().flatten() {
            if let Some(state) = container.state.as_ref().and_then(state) {
                *states.entry(state).or_default() += 1.0;
            }
        }
    }
    text.family("kubelet_running_containers", "Number of containers currently running", Kind::Gauge);
    for (state, count) in states {
        text.sample("kubelet_running_containers", &[("container_state", state)], count);
    }
}

/// The runtime's word for it; a container that is not there yet has none.
fn state(state: &ContainerState) -> Option<&'static str> {
    match (&state.running, &state.terminated) {
        (Some(_), _) => Some("running"),
        (None, Some(_)) => Some("exited"),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_containers_are_counted() {
        let pod = |phase: &str, states: serde_json::Value| -> Arc<Pod> {
            let value = serde_json::json!({"metadata": {}, "status": {"phase": phase, "containerStatuses": states}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let container = |state| serde_json::json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        let running = container(serde_json::json!({"running": {}}));
        let exited = container(serde_json::json!({"terminated": {"exitCode": 0}}));
        let waiting = container(serde_json::json!({"waiting": {"reason": "ContainerCreating"}}));
        let pods = [
            pod("Running", serde_json::json!([running, running])),
            pod("Running", serde_json::json!([running, exited])),
            pod("Pending", serde_json::json!([waiting])),
        ];
        let mut text = Text::default();
        report("n1", &pods, &mut text);
        let text = text.into_string();
        for line in [
            "kubelet_node_name{node=\"n1\"} 1\n",
            "kubelet_running_pods 2\n",
            "kubelet_running_containers{container_state=\"exited\"} 1\n",
            "kubelet_running_containers{container_state=\"running\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
