//! Services. Addresses and node ports are allocated elsewhere.

use pintle_machinery::schema::{Object, Value};
use serde_json::json;

use super::{items, object, set, set_text, text};

/// Sets what depends on the type.
pub fn apply(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    if text(spec, "sessionAffinity") == "ClientIP" {
        let told = |config: &Value| !config["clientIP"]["timeoutSeconds"].is_null();
        if !spec.get("sessionAffinityConfig").is_some_and(told) {
            spec.insert("sessionAffinityConfig".to_owned(), json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
    } else {
        spec.remove("sessionAffinityConfig");
    }
    for port in items(spec, "ports") {
        if port.get("targetPort").is_none_or(|target| *target == json!(0) || *target == json!("") || target.is_null())
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty() && kind == "ClusterIP");
    if external {
        set_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
}
