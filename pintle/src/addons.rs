//! What a cluster has from the start beside what the API server makes itself: the DNS Service with the nodes that answer
//! it, the join token, and the rights of joining nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agent::JoinToken;
use crate::server::Network;

/// Label of the nodes whose DNS server answers for the cluster.
pub const DNS_LABEL: &str = "pintle.dev/cluster-dns";
/// Port of the DNS server on each node.
pub const DNS_PORT: u16 = 10053;
/// Life of its records in resolvers' caches, seconds.
pub const DNS_TTL: u32 = 5;
/// Name that owns the fields of these objects.
const MANAGER: &str = "pintle-addons";
/// How long one DNS query may take.
const QUERY_WAIT: Duration = Duration::from_millis(300);

/// What the add-ons need to know.
pub struct Config {
    /// The address plan.
    pub network: Network,
    /// The join token.
    pub token: JoinToken,
}

/// Keeps the add-ons until `shutdown`.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) {
    let nodes: Cache<Node> = Cache::start(
        Api::all(client.clone()),
        kube::runtime::watcher::Config::default().labels(DNS_LABEL),
        shutdown.clone(),
    );
    let queue = Queue::new();
    queue.add(());
    let wake = queue.clone();
    nodes.on_change(shutdown.clone(), move |_| wake.add(()));
    let objects = fixed(&config);
    reconcile::run(queue, 1, shutdown, |()| {
        let (client, nodes, objects) = (client.clone(), nodes.clone(), objects.clone());
        async move {
            for object in objects {
                apply(&client, object).await?;
            }
            nodes.synced().await;
            apply(&client, dns_slice(&nodes.list())).await?;
            Ok(Action::Done)
        }
    })
    .await;
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(ns) => Api::namespaced_with(client.clone(), &ns, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(&object.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await?;
    Ok(())
}

fn fixed(config: &Config) -> Vec<Value> {
    let dns = config.network.dns.to_string();
    let (id, secret) = config.token.bootstrap.split_once('.').unwrap_or_default();
    let port =
        |name: &str, protocol: &str| json!({"name": name, "port": 53, "protocol": protocol, "targetPort": DNS_PORT});
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]})
    };
    let csr = "system:certificates.k8s.io:certificatesigningrequests";
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {
                "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "PintleDNS"}},
            "spec": {"clusterIP": dns, "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")]}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {
                "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
                "auth-extra-groups": "system:bootstrappers:pintle"}}),
        binding("pintle:node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers:pintle"),
        binding("pintle:node-autoapprove", &format!("{csr}:nodeclient"), "system:bootstrappers:pintle"),
        binding("pintle:node-renewal", &format!("{csr}:selfnodeclient"), "system:nodes"),
        binding("pintle:node-proxier", "system:node-proxier", "system:nodes"),
    ]
}

/// The DNS Service's endpoints: the labelled nodes that are Ready.
fn dns_slice(nodes: &[std::sync::Arc<Node>]) -> Value {
    let endpoints: Vec<Value> = nodes
        .iter()
        .filter_map(|node| {
            let status = node.status.as_ref()?;
            let addresses = status.addresses.as_ref()?;
            let ip = &addresses.iter().find(|a| a.type_ == "InternalIP")?.address;
            let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            let conditions = json!({"ready": ready, "serving": ready, "terminating": false});
            Some(json!({"addresses": [ip], "nodeName": node.name_any(), "conditions": conditions}))
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kube-dns-nodes", "namespace": "kube-system", "labels": {
            "kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": "pintle.dev"}},
        "endpoints": endpoints,
        "ports": [
            {"name": "dns", "port": DNS_PORT, "protocol": "UDP"}, {"name": "dns-tcp", "port": DNS_PORT, "protocol": "TCP"}]})
}

/// Asks the cluster DNS, by its Service address, for the API server's Service.
pub async fn dns_answers(network: &Network) -> bool {
    let ask = async {
        let socket = tokio::net::UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect((network.dns, 53)).await?;
        socket.send(&query(&format!("kubernetes.default.svc.{}", network.domain))).await?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).await?;
        // Header: no error code, at least one answer record.
        std::io::Result::Ok(length > 12 && answer[3] & 0x0f == 0 && answer[6..8] != [0, 0])
    };
    matches!(tokio::time::timeout(QUERY_WAIT, ask).await, Ok(Ok(true)))
}

/// A DNS query (RFC 1035) for the A record of a name.
fn query(name: &str) -> Vec<u8> {
    let mut packet = vec![0x50, 0x69, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        let label = &label.as_bytes()[..label.len().min(63)];
        packet.push(u8::try_from(label.len()).unwrap_or_default());
        packet.extend_from_slice(label);
    }
    packet.extend_from_slice(&[0, 0, 1, 0, 1]);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_with_an_address_are_endpoints() {
        let node = |ready: &str, addresses: Value| -> std::sync::Arc<Node> {
            let object = json!({"metadata": {"name": "n"}, "status": {"addresses": addresses,
                "conditions": [{"type": "Ready", "status": ready}]}});
            std::sync::Arc::new(serde_json::from_value(object).unwrap())
        };
        let address = json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        let slice = dns_slice(&[node("True", address.clone()), node("False", address), node("True", json!([]))]);
        let endpoints = slice["endpoints"].as_array().unwrap();
        assert_eq!(endpoints.len(), 2);
        assert_eq!(endpoints[0]["conditions"]["ready"], true);
        assert_eq!(endpoints[1]["conditions"]["ready"], false);
    }
}
