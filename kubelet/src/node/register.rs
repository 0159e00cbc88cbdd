//! Makes the Node object, or brings the labels of the one that is there up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::status;
use crate::shared::Shared;

/// Pauses between attempts, doubled up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(7);

/// Registers the node; ends when that has worked.
pub async fn register(shared: &Shared) {
    if !shared.config.register {
        return;
    }
    let mut pause = FIRST_PAUSE;
    while let Err(error) = attempt(shared).await {
        tracing::info!(%error, "node not registered, trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn attempt(shared: &Shared) -> kube::Result<()> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let labels = labels(shared);
    let node = Node {
        metadata: ObjectMeta {
            name: Some(shared.config.node_name.clone()),
            labels: Some(labels.clone()),
            annotations: Some(annotations()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(shared.config.taints.clone()).filter(|t| !t.is_empty()),
            provider_id: Some(shared.config.provider_id.clone()).filter(|p| !p.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(status::observe(shared).await.status(&[])),
    };
    match api.create(&PostParams::default(), &node).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.code == 409 => {
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations()}});
            api.patch(&shared.config.node_name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
        }
        Err(error) => Err(error),
    }
}

fn annotations() -> BTreeMap<String, String> {
    BTreeMap::from([("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned())])
}

fn labels(shared: &Shared) -> BTreeMap<String, String> {
    let info = &shared.machine.info;
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), status::hostname(shared)),
        ("kubernetes.io/os".to_owned(), info.operating_system.clone()),
        ("kubernetes.io/arch".to_owned(), info.architecture.clone()),
        ("beta.kubernetes.io/os".to_owned(), info.operating_system.clone()),
        ("beta.kubernetes.io/arch".to_owned(), info.architecture.clone()),
    ]);
    labels.extend(shared.config.labels.clone());
    labels
}
