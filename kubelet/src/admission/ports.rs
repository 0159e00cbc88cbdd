//! Ports of the node that pods take. Pure.

use k8s_openapi::api::core::v1::{ContainerPort, Pod};

use crate::pods::spec::{self, Kind};

const ANY: &str = "0.0.0.0";

/// Address, protocol and number of each port of the node that the pod takes.
fn taken(pod: &Pod) -> Vec<(String, String, i32)> {
    let all = spec::containers(pod);
    let kept = all.iter().filter(|(kind, c)| *kind == Kind::App || spec::is_sidecar(*kind, c));
    let ports = kept.flat_map(|(_, c)| c.ports.iter().flatten()).filter(|p| p.host_port.is_some_and(|n| n > 0));
    let read = |p: &ContainerPort| {
        let text =
            |v: &Option<String>, default: &str| v.as_deref().filter(|t| !t.is_empty()).unwrap_or(default).to_owned();
        (text(&p.host_ip, ANY), text(&p.protocol, "TCP"), p.host_port.unwrap_or(0))
    };
    ports.map(read).collect()
}

/// True if the two want the same port of the node.
pub fn conflict(a: &Pod, b: &Pod) -> bool {
    let theirs = taken(b);
    let same = |x: &(String, String, i32), y: &(String, String, i32)| {
        x.1 == y.1 && x.2 == y.2 && (x.0 == y.0 || x.0 == ANY || y.0 == ANY)
    };
    taken(a).iter().any(|own| theirs.iter().any(|other| same(own, other)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_port_of_the_node_is_taken_once() {
        let pod = |port: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "a", "ports": [port]}]}})).unwrap()
        };
        let first = json!({"containerPort": 1, "hostPort": 80});
        let cases = [
            (json!({"containerPort": 2, "hostPort": 80}), true),
            (json!({"containerPort": 2, "hostPort": 80, "hostIP": "10.0.0.1"}), true),
            (json!({"containerPort": 2, "hostPort": 80, "protocol": "UDP"}), false),
            (json!({"containerPort": 2, "hostPort": 81}), false),
            (json!({"containerPort": 1}), false),
        ];
        for (port, want) in cases {
            assert_eq!(conflict(&pod(port.clone()), &pod(first.clone())), want, "{port}");
        }
        let on = |ip: &str| pod(json!({"containerPort": 1, "hostPort": 80, "hostIP": ip}));
        assert!(!conflict(&on("10.0.0.1"), &on("10.0.0.2")));
        assert!(conflict(&on("10.0.0.1"), &on("10.0.0.1")));
    }
}
