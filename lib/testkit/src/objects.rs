//! API objects that a lab makes where upstream's control plane has nobody who would.

use std::net::Ipv4Addr;

use anyhow::Context;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Port of the cluster DNS on each node.
pub const DNS_PORT: u16 = 10053;
/// Label of the nodes that answer for the cluster DNS; our control plane looks for it.
pub const DNS_LABEL: &str = "pintle.dev/cluster-dns";

/// Applies objects, whatever they were before.
pub async fn apply(client: &Client, objects: Vec<Value>) -> anyhow::Result<()> {
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("an object has no kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.patch(&object.name_any(), &PatchParams::apply("lab").force(), &Patch::Apply(&object))
            .await
            .with_context(|| format!("{} {}", types.kind, object.name_any()))?;
    }
    Ok(())
}

/// The cluster DNS as a Service that the nodes answer, and the right of nodes to read what Services are made of.
pub fn cluster(dns: Ipv4Addr, nodes: &[(String, Ipv4Addr)]) -> Vec<Value> {
    let service_port =
        |name: &str, protocol: &str| json!({"name": name, "port": 53, "protocol": protocol, "targetPort": DNS_PORT});
    let port = |name: &str, protocol: &str| json!({"name": name, "port": DNS_PORT, "protocol": protocol});
    let endpoints: Vec<Value> = nodes
        .iter()
        .map(|(name, ip)| json!({"addresses": [ip], "nodeName": name, "conditions": {"ready": true}}))
        .collect();
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {
                "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}},
            "spec": {"clusterIP": dns, "ports": [service_port("dns", "UDP"), service_port("dns-tcp", "TCP")]}}),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "kube-dns-nodes", "namespace": "kube-system", "labels": {
                "kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": "lab"}},
            "endpoints": endpoints, "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")]}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "lab-node-proxier"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]}),
    ]
}
