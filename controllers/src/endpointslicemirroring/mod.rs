//! endpointslicemirroring-controller: slices for Endpoints that somebody made by hand, for Services without selector.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use pintle_client::cache::Cache;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::slices::{Common, Group, Slices, sort_ports};
use crate::{meta, services};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label that keeps Endpoints from being mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of Endpoints that serve as a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Most addresses of a subset that are mirrored.
const PER_SUBSET: usize = 1000;

struct Controller {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    slices: Slices,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let queue = ctx.queue("endpoint_slice_mirroring");
    let controller = Arc::new(Controller {
        services: ctx.cache(),
        endpoints: ctx.cache(),
        slices: Slices::new(&ctx, MANAGER, &queue).await,
    });
    controller.services.synced().await;
    controller.endpoints.synced().await;
    let keys = queue.clone();
    controller.services.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let keys = queue.clone();
    controller.endpoints.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let service = self.services.get(key.ns(), &key.name);
        let endpoints = self.endpoints.get(key.ns(), &key.name);
        match (service, endpoints) {
            (Some(service), Some(endpoints)) if is_mirrored(&service, &endpoints) => {
                let common = Common {
                    namespace: key.ns.clone(),
                    name: key.name.clone(),
                    owner: meta::controller_ref(&*endpoints),
                    labels: meta::labels(&endpoints.metadata).clone(),
                    annotations: annotations(&endpoints),
                };
                self.slices.apply(key, common, groups(&endpoints)).await?;
            }
            _ => self.slices.remove(key).await?,
        }
        Ok(Action::Done)
    }
}

fn is_mirrored(service: &Service, endpoints: &Endpoints) -> bool {
    let skipped = meta::labels(&endpoints.metadata).get(SKIP).map(String::as_str) == Some("true");
    services::selector(service).is_none()
        && !skipped
        && meta::annotation(&endpoints.metadata, LEADER).is_none()
        && !meta::is_deleting(&endpoints.metadata)
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let skipped =
        ["kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"];
    let all = endpoints.metadata.annotations.iter().flatten();
    all.filter(|(k, _)| !skipped.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// One group per subset and address type.
fn groups(endpoints: &Endpoints) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let mut ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(port).collect();
        sort_ports(&mut ports);
        let ready = subset.addresses.iter().flatten().map(|a| (a, true));
        let others = subset.not_ready_addresses.iter().flatten().map(|a| (a, false));
        for (address, ready) in ready.chain(others).take(PER_SUBSET) {
            let Ok(ip) = address.ip.parse::<IpAddr>() else { continue };
            let address_type = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
            let fits = |g: &Group| g.address_type == address_type && g.ports == ports;
            let at = groups.iter().position(fits).unwrap_or_else(|| {
                groups.push(Group { address_type, ports: ports.clone(), endpoints: Vec::new() });
                groups.len() - 1
            });
            groups[at].endpoints.push(endpoint(address, ready));
        }
    }
    groups
}

fn port(port: &k8s_openapi::api::core::v1::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::testing::service;

    #[test]
    fn subsets_become_groups() {
        let endpoints: Endpoints = serde_json::from_value(json!({"metadata": {}, "subsets": [{
            "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}],
            "ports": [{"port": 80}],
        }]}))
        .unwrap();
        let groups = groups(&endpoints);
        let view: Vec<_> = groups.iter().map(|g| (g.address_type, g.endpoints.len())).collect();
        assert_eq!(view, [("IPv4", 2), ("IPv6", 1)]);
        assert_eq!(groups[0].endpoints[1].conditions.as_ref().unwrap().ready, Some(false));
    }

    #[test]
    fn who_is_mirrored() {
        let plain: Endpoints = serde_json::from_value(json!({"metadata": {}})).unwrap();
        let skip: Endpoints = serde_json::from_value(json!({"metadata": {"labels": {SKIP: "true"}}})).unwrap();
        let lock: Endpoints = serde_json::from_value(json!({"metadata": {"annotations": {LEADER: "x"}}})).unwrap();
        let (by_hand, by_selector) = (service(json!({})), service(json!({"selector": {"a": "b"}})));
        for (s, e, expected) in [
            (&by_hand, &plain, true),
            (&by_selector, &plain, false),
            (&by_hand, &skip, false),
            (&by_hand, &lock, false),
        ] {
            assert_eq!(is_mirrored(s, e), expected);
        }
    }
}
