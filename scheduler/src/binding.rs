//! Binds claims to volumes, or has volumes made, before a pod is bound.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use pintle_api::volumes::{CHOSEN, SELECTED_NODE, is_bound, is_for, selected_node};
use serde_json::json;

use crate::volumes::Wish;

/// How long volumes may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two looks at a claim.
const LOOK: Duration = Duration::from_millis(300);

/// Fulfils the wishes; returns when all their claims are bound.
pub(crate) async fn prepare(client: &Client, node: &str, wishes: &[Wish]) -> Result<(), String> {
    for wish in wishes {
        let begun = match wish {
            Wish::Volume(claim, volume) => keep(client, claim, volume).await,
            Wish::Provision(claim) => order(client, claim, node).await,
        };
        begun.map_err(|error| error.to_string())?;
    }
    for wish in wishes {
        bound(client, wish, node).await?;
    }
    Ok(())
}

/// Keeps the volume for the claim; the volume controller does the rest.
async fn keep(client: &Client, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> kube::Result<()> {
    if is_for(volume, claim) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": volume.uid(), "resourceVersion": volume.resource_version(), "annotations": {CHOSEN: "yes"}},
        "spec": {"claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.namespace(),
            "name": claim.name_any(), "uid": claim.uid(), "resourceVersion": claim.resource_version()}},
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// Tells the class's provisioner for which node a volume is wanted.
async fn order(client: &Client, claim: &PersistentVolumeClaim, node: &str) -> kube::Result<()> {
    if selected_node(claim) == Some(node) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": claim.uid(), "annotations": {SELECTED_NODE: node}}});
    let claims = claims(client, claim);
    claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

fn claims(client: &Client, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(client.clone(), claim.namespace().as_deref().unwrap_or_default())
}

async fn bound(client: &Client, wish: &Wish, node: &str) -> Result<(), String> {
    let (claim, name) = (wish.claim(), wish.claim().name_any());
    let api = claims(client, claim);
    loop {
        let now = api.get(&name).await.map_err(|error| error.to_string())?;
        if is_bound(&now) {
            return Ok(());
        }
        // A provisioner that can't make it for this node says so by taking the node's name away.
        if matches!(wish, Wish::Provision(_)) && selected_node(&now) != Some(node) {
            return Err(format!("provisioning failed for PVC {name:?}"));
        }
        tokio::time::sleep(LOOK).await;
    }
}
