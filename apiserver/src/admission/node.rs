//! NodeRestriction: a node's credentials write only that node's own objects.

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use super::Operation;
use crate::auth::authz::node::node_name;
use crate::engine::{Call, meta};

/// Key of the taint of nodes that are not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// TaintNodesByCondition: no pod is put on a new node before its conditions have been looked at.
pub fn taint(node: &mut Value) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if taints.iter().all(|taint| taint["key"] != NOT_READY || taint["effect"] != "NoSchedule") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        node["spec"]["taints"] = json!(taints);
    }
}

/// Refuses writes of a node to what is not its own.
pub fn restrict(call: &Call, operation: Operation, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(node) = node_name(&call.user) else { return Ok(()) };
    let object = new.or(old).unwrap_or(&Value::Null);
    let forbidden = |message: String| Err(ApiError::forbidden(&call.group_resource(), &call.info.name, message));
    match (call.resource.group.as_str(), call.resource.name.as_str()) {
        ("", "pods") => {
            let of_node = object["spec"]["nodeName"] == node;
            let mirror = object["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
            match (call.info.subresource.as_str(), operation) {
                ("", Operation::Create) if !mirror => forbidden(format!(
                    "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"{node}\" can only create mirror pods"
                )),
                _ if !of_node => {
                    forbidden(format!("node \"{node}\" can only act on pods with spec.nodeName set to itself"))
                }
                _ => Ok(()),
            }
        }
        ("", "nodes") => match meta::text(object, "name") == node {
            true => Ok(()),
            false => {
                forbidden(format!("node \"{node}\" is not allowed to modify node \"{}\"", meta::text(object, "name")))
            }
        },
        ("coordination.k8s.io", "leases") if call.info.namespace == "kube-node-lease" => {
            match meta::text(object, "name") == node {
                true => Ok(()),
                false => forbidden("can only access node lease with the same name as the requesting node".into()),
            }
        }
        ("storage.k8s.io", "csinodes") if meta::text(object, "name") != node => {
            forbidden("can only access CSINode with the same name as the requesting node".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_nodes_are_tainted_once() {
        let mut node = json!({"metadata": {"name": "n"}});
        taint(&mut node);
        taint(&mut node);
        assert_eq!(node["spec"]["taints"], json!([{"key": NOT_READY, "effect": "NoSchedule"}]));
    }
}
