//! Objects for the unit tests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::cache::{Cache, Snapshot};
use crate::pod::PodInfo;

pub(crate) fn pod(value: Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

pub(crate) fn info(mut value: Value) -> Arc<PodInfo> {
    let meta = value["metadata"].as_object_mut().expect("metadata");
    let name = meta["name"].clone();
    meta.entry("namespace").or_insert(json!("default"));
    meta.entry("uid").or_insert(name);
    Arc::new(PodInfo::new(Arc::new(pod(value))))
}

/// A pod with CPU and memory requests, on a node if one is named.
pub(crate) fn sized(name: &str, cpu: &str, memory: &str, node: Option<&str>) -> Arc<PodInfo> {
    info(json!({"metadata": {"name": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
}

/// A node with 4 CPUs, 8 GiB and room for 110 pods, changed by a merge patch.
pub(crate) fn node(name: &str, patch: Value) -> Arc<Node> {
    let mut value = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    merge(&mut value, patch);
    Arc::new(serde_json::from_value(value).expect("a node"))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (k, v) in from {
                merge(into.entry(k).or_insert(Value::Null), v);
            }
        }
        (into, from) => *into = from,
    }
}

/// A snapshot of these nodes with these bound pods.
pub(crate) fn snapshot(nodes: &[Arc<Node>], pods: &[Arc<PodInfo>]) -> Arc<Snapshot> {
    let mut cache = Cache::default();
    nodes.iter().for_each(|n| cache.set_node(n.clone()));
    pods.iter().for_each(|p| cache.set_pod(p.clone()));
    cache.snapshot()
}
