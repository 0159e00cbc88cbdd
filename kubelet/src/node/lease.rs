//! The node's Lease: the sign of life that the control plane watches.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use pintle_serving::health::Scope;

use crate::shared::Shared;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the Lease for ever.
pub async fn keep(shared: &Shared) {
    let api: Api<Lease> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let mut current: Option<Lease> = None;
    let renewed = shared.config.telemetry.beat("node-lease", Scope::Ready, shared.config.lease_duration);
    let mut every = tokio::time::interval(shared.config.lease_duration / 4);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        match renew(shared, &api, current.take()).await {
            Ok(lease) => {
                renewed.now();
                current = Some(lease);
            }
            Err(error) => tracing::warn!(%error, "lease not renewed"),
        }
    }
}

/// Writes the Lease anew; without a known version it is read or made first.
async fn renew(shared: &Shared, api: &Api<Lease>, known: Option<Lease>) -> kube::Result<Lease> {
    let name = &shared.config.node_name;
    let known = match known {
        Some(lease) => Some(lease),
        None => api.get_opt(name).await?,
    };
    let spec = LeaseSpec {
        holder_identity: Some(name.clone()),
        lease_duration_seconds: i32::try_from(shared.config.lease_duration.as_secs()).ok(),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    match known {
        Some(mut lease) => {
            lease.spec = Some(spec);
            api.replace(name, &PostParams::default(), &lease).await
        }
        None => {
            let metadata = ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                owner_references: owner(shared).await.map(|o| vec![o]),
                ..ObjectMeta::default()
            };
            api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        }
    }
}

/// The Lease goes when the Node goes.
async fn owner(shared: &Shared) -> Option<OwnerReference> {
    let node = Api::<Node>::all(shared.client.clone()).get_opt(&shared.config.node_name).await.ok()??;
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name?,
        uid: node.metadata.uid?,
        ..OwnerReference::default()
    })
}
