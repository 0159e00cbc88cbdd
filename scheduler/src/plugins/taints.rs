//! TaintToleration.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use pintle_api::nodes::covers;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, FnFilter, FnScorer, Plugin, PreFilter, Rejection, Scorer, scale_inverted};
use crate::pod::PodInfo;

/// Keeps pods off nodes whose taints they don't tolerate.
pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD.or(Events::NODE_TAINT).or(Events::SELF_UPDATE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        FnFilter::pre_filter(pod, |pod, node| match untolerated(pod, node) {
            true => Err(Rejection::unresolvable("node(s) had untolerated taint(s)")),
            false => Ok(()),
        })
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
            let soft = taints(node).filter(|t| t.effect == "PreferNoSchedule" && !tolerates(pod, t));
            i64::try_from(soft.count()).unwrap_or(i64::MAX)
        }
        Some(Box::new(FnScorer { pod: pod.clone(), score, normalize: scale_inverted }))
    }
}

fn taints(node: &NodeInfo) -> impl Iterator<Item = &Taint> {
    node.node.spec.as_ref().and_then(|s| s.taints.as_ref()).into_iter().flatten()
}

/// Whether the node has a taint that keeps the pod off.
pub(crate) fn untolerated(pod: &PodInfo, node: &NodeInfo) -> bool {
    taints(node).any(|t| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(pod, t))
}

/// The taint that a cordoned node stands for.
pub(crate) fn unschedulable_taint() -> Taint {
    Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}

/// Whether one of the pod's tolerations covers the taint.
pub(crate) fn tolerates(pod: &PodInfo, taint: &Taint) -> bool {
    let tolerations = pod.pod.spec.as_ref().and_then(|s| s.tolerations.as_ref());
    tolerations.into_iter().flatten().any(|t| covers(t, taint))
}
