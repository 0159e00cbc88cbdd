//! The objects as they are written: pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::config::Config;
use crate::engine::meta;
use crate::services::first_address;

/// Namespaces of every cluster.
pub const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Priority classes of the system's own pods.
pub fn priority_classes() -> [(&'static str, Value); 2] {
    let class = |name: &str, value: i64, description: &str| {
        json!({"metadata": {"name": name}, "value": value, "description": description,
               "preemptionPolicy": "PreemptLowerPriority"})
    };
    [
        (
            "system-node-critical",
            class(
                "system-node-critical",
                2_000_001_000,
                "Used for system critical pods that must not be moved from their current node.",
            ),
        ),
        (
            "system-cluster-critical",
            class(
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if \
                 necessary.",
            ),
        ),
    ]
}

/// The range of Service addresses as an object.
pub fn service_cidr(config: &Config) -> Value {
    json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [config.service_cidr.to_string()]}})
}

/// The same with a status that says that it is in use.
pub fn ready_service_cidr(old: &Value) -> Value {
    let mut new = old.clone();
    let ready =
        old["status"]["conditions"].as_array().into_iter().flatten().any(|condition| condition["type"] == "Ready");
    if !ready {
        let now = meta::timestamp(jiff::Timestamp::now());
        new["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": now}]);
    }
    new
}

/// What extension API servers need to authenticate their callers.
pub fn authentication_config(config: &Config) -> Value {
    let mut data = json!({});
    if let Some(ca) = &config.client_ca {
        data["client-ca-file"] = String::from_utf8_lossy(ca).into_owned().into();
    }
    json!({"metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"}, "data": data})
}

/// The Service at which pods find the API server.
pub fn kubernetes_service(config: &Config) -> Value {
    let address = first_address(config.service_cidr).to_string();
    json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "sessionAffinity": "None",
                 "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": config.advertise_port}]},
    })
}

/// Its endpoints: all API servers.
pub fn kubernetes_endpoints(config: &Config, servers: &[IpAddr]) -> Value {
    let addresses: Vec<_> = servers.iter().map(|address| json!({"ip": address.to_string()})).collect();
    json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": addresses,
                     "ports": [{"name": "https", "port": config.advertise_port, "protocol": "TCP"}]}],
    })
}

/// Its endpoint slice.
pub fn kubernetes_slice(config: &Config, servers: &[IpAddr]) -> Value {
    let endpoint = |address: &IpAddr| json!({"addresses": [address.to_string()], "conditions": {"ready": true}});
    let endpoints: Vec<_> = servers.iter().map(endpoint).collect();
    json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if config.advertise_address.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": [{"name": "https", "port": config.advertise_port, "protocol": "TCP"}],
    })
}
