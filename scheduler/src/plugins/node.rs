//! Plugins that look at the node's name, mark, labels and ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, FnFilter, FnScorer, Plugin, PreFilter, Rejection, Scorer, scale_to_best};
use crate::plugins::taints::{tolerates, unschedulable_taint};
use crate::pod::PodInfo;

/// Keeps pods off cordoned nodes.
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD.or(Events::NODE_TAINT).or(Events::SELF_UPDATE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        FnFilter::pre_filter(pod, |pod, node| {
            let marked = node.node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
            if marked && !tolerates(pod, &unschedulable_taint()) {
                return Err(Rejection::unresolvable("node(s) were unschedulable"));
            }
            Ok(())
        })
    }
}

/// Honours a node name in the pod.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        if pod.bound_to().is_none() {
            return PreFilter::Skip;
        }
        FnFilter::pre_filter(pod, |pod, node| match pod.bound_to() {
            Some(name) if name != node.name() => {
                Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
            }
            _ => Ok(()),
        })
    }
}

/// Honours node selectors and node affinity.
pub struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD.or(Events::NODE_LABEL).or(Events::SELF_UPDATE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        if pod.node_selector.requirements.is_empty() && pod.node_terms.is_none() {
            return PreFilter::Skip;
        }
        let filter = FnFilter { pod: pod.clone(), check: node_affinity };
        match only_nodes(pod) {
            Some(names) => PreFilter::Only(names, Box::new(filter)),
            None => PreFilter::Check(Box::new(filter)),
        }
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
            let liked = pod.preferred_nodes.iter().filter(|(_, t)| t.matches(node.name(), node.labels()));
            liked.map(|(weight, _)| weight).sum()
        }
        (!pod.preferred_nodes.is_empty())
            .then(|| Box::new(FnScorer { pod: pod.clone(), score, normalize: scale_to_best }) as Box<dyn Scorer>)
    }
}

fn node_affinity(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.allows_node(node.name(), node.labels()) {
        return Ok(());
    }
    Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
}

/// The nodes that a pod names, if each of its terms does (as a DaemonSet's pods do).
fn only_nodes(pod: &PodInfo) -> Option<BTreeSet<String>> {
    let terms = pod.node_terms.as_ref().filter(|t| !t.is_empty())?;
    let names: Option<Vec<Vec<String>>> = terms.iter().map(|t| t.names()).collect();
    Some(names?.into_iter().flatten().collect())
}

/// Keeps host ports from colliding.
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }
    fn events(&self) -> Events {
        Events::NODE_ADD.or(Events::POD_DELETE).or(Events::SELF_UPDATE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        if pod.ports.is_empty() {
            return PreFilter::Skip;
        }
        FnFilter::pre_filter(pod, |pod, node| {
            if node.ports().any(|used| pod.ports.iter().any(|p| p.conflicts(used))) {
                return Err(Rejection::resolvable("node(s) didn't have free ports for the requested pod ports"));
            }
            Ok(())
        })
    }
}
