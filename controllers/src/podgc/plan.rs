//! Which pods nobody else will ever remove.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{meta, pods};

/// Why a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It ended, and there are too many such pods.
    Finished,
    /// Its node is gone.
    Orphaned,
    /// It is to be deleted but never got a node.
    Unscheduled,
    /// It is to be deleted, but its node was declared out of service.
    OutOfService,
}

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The pods that may go; orphans are to be checked against the server first.
pub fn plan(pods: &[Arc<Pod>], node: &dyn Fn(&str) -> Option<Arc<Node>>, threshold: usize) -> Vec<(Arc<Pod>, Why)> {
    let mut doomed = Vec::new();
    let mut finished = Vec::new();
    for pod in pods {
        let on = pods::node_name(pod);
        let deleting = meta::is_deleting(&pod.metadata);
        let why = match (on, node(on)) {
            ("", _) if deleting => Some(Why::Unscheduled),
            ("", _) => None,
            (_, None) => Some(Why::Orphaned),
            (_, Some(node)) if deleting && is_out_of_service(&node) => Some(Why::OutOfService),
            _ => None,
        };
        match why {
            Some(why) => doomed.push((pod.clone(), why)),
            None if pods::is_finished(pod) && !deleting => finished.push(pod.clone()),
            None => {}
        }
    }
    if threshold > 0 && finished.len() > threshold {
        let evicted = |p: &Pod| p.status.as_ref().and_then(|s| s.reason.as_deref()) == Some("Evicted");
        finished.sort_by_key(|p| (!evicted(p), meta::created(&p.metadata), meta::name(&p.metadata).to_owned()));
        let surplus = finished.len() - threshold;
        doomed.extend(finished.into_iter().take(surplus).map(|p| (p, Why::Finished)));
    }
    doomed
}

fn is_out_of_service(node: &Node) -> bool {
    let tainted = node.spec.as_ref().is_some_and(|s| s.taints.iter().flatten().any(|t| t.key == OUT_OF_SERVICE));
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    tainted && !ready
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::pods::testing::pod;

    fn on(name: &str, phase: &str, node: &str, deleting: bool) -> Arc<Pod> {
        let mut p = pod(name, phase);
        p.spec.as_mut().unwrap().node_name = Some(node.into());
        p.metadata.deletion_timestamp = deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        Arc::new(p)
    }

    #[test]
    fn who_goes() {
        let out: Node = serde_json::from_value(serde_json::json!({
            "metadata": {}, "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]},
        }))
        .unwrap();
        let (here, out) = (Arc::new(Node::default()), Arc::new(out));
        let node = |name: &str| match name {
            "here" => Some(here.clone()),
            "out" => Some(out.clone()),
            _ => None,
        };
        for (pod, expected) in [
            (on("a", "Running", "here", false), None),
            (on("a", "Running", "here", true), None),
            (on("a", "Running", "gone", false), Some(Why::Orphaned)),
            (on("a", "Pending", "", false), None),
            (on("a", "Pending", "", true), Some(Why::Unscheduled)),
            (on("a", "Running", "out", true), Some(Why::OutOfService)),
            (on("a", "Running", "out", false), None),
        ] {
            let doomed = plan(std::slice::from_ref(&pod), &node, 10);
            assert_eq!(doomed.first().map(|d| d.1), expected, "{:?}", pod.spec);
        }
        let many: Vec<_> = (0..5).map(|i| on(&format!("p{i}"), "Failed", "here", false)).collect();
        assert_eq!(plan(&many, &node, 3).len(), 2);
        assert!(plan(&many, &node, 0).is_empty());
    }
}
