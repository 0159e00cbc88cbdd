//! NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, FnFilter, FnScorer, MAX_SCORE, Plugin, PreFilter, Rejection, Scorer, as_is};
use crate::pod::PodInfo;

/// Room for the pod's requests; prefers the node that has most left.
pub struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }
    fn events(&self) -> Events {
        let node = Events::NODE_ADD.or(Events::NODE_ALLOCATABLE);
        node.or(Events::POD_DELETE).or(Events::POD_SHRINK).or(Events::SELF_UPDATE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>) -> PreFilter {
        FnFilter::pre_filter(pod, fits)
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        Some(Box::new(FnScorer { pod: pod.clone(), score: least_allocated, normalize: as_is }))
    }
}

fn fits(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let (wanted, used, offered) = (&pod.requests.exact, &node.requested, &node.allocatable);
    let mut out = Rejection { unresolvable: false, reasons: Vec::new() };
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= offered.pods {
        out.reasons.push("Too many pods".to_owned());
    }
    let basic = ["cpu", "memory", "ephemeral-storage"];
    for name in basic.into_iter().chain(wanted.scalar.keys().map(String::as_str)) {
        let wish = wanted.get(name);
        if wish > 0 && wish > offered.get(name) - used.get(name) {
            out.unresolvable |= wish > offered.get(name);
            out.reasons.push(format!("Insufficient {name}"));
        }
    }
    if out.reasons.is_empty() { Ok(()) } else { Err(out) }
}

/// The share that stays free, in 0..=100, as the mean over CPU and memory.
fn least_allocated(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let shares = [
        (node.scored_cpu + pod.requests.scored_cpu, node.allocatable.milli_cpu),
        (node.scored_memory + pod.requests.scored_memory, node.allocatable.memory),
    ];
    let (mut sum, mut count) = (0, 0);
    for (used, offered) in shares.into_iter().filter(|(_, offered)| *offered > 0) {
        count += 1;
        sum += if used > offered { 0 } else { (offered - used) * MAX_SCORE / offered };
    }
    if count == 0 { 0 } else { sum / count }
}

/// Prefers nodes on which the pod brings the use of CPU and memory closer together.
pub struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, _: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        let asks = pod.requests.exact.milli_cpu > 0 || pod.requests.exact.memory > 0;
        asks.then(|| Box::new(FnScorer { pod: pod.clone(), score: balance, normalize: as_is }) as Box<dyn Scorer>)
    }
}

/// At most half the score for being balanced at all, the other half for how much the pod improves it.
fn balance(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let (wanted, used) = (&pod.requests.exact, &node.requested);
    let with = evenness(node, used.milli_cpu + wanted.milli_cpu, used.memory + wanted.memory);
    let without = evenness(node, used.milli_cpu, used.memory);
    let half = MAX_SCORE / 2;
    half + (half + with - without) / 2
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn evenness(node: &NodeInfo, cpu: i64, memory: i64) -> i64 {
    let share = |used: i64, offered: i64| (used as f64 / offered as f64).min(1.0);
    let (a, b) = (node.allocatable.milli_cpu, node.allocatable.memory);
    if a <= 0 || b <= 0 {
        return MAX_SCORE;
    }
    let deviation = ((share(cpu, a) - share(memory, b)) / 2.0).abs();
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node, sized, snapshot};
    use serde_json::json;

    #[test]
    fn reasons_name_each_missing_resource() {
        let nodes = [node("a", json!({"status": {"allocatable": {"pods": "1"}}}))];
        let state = snapshot(&nodes, &[sized("busy", "3", "1Gi", Some("a"))]);
        let pod =
            info(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests":
            {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}}}]}}));
        let got = fits(&pod, &state.nodes[0]).expect_err("no room");
        assert_eq!(got.reasons, ["Too many pods", "Insufficient cpu", "Insufficient example.com/gpu"]);
        assert!(got.unresolvable); // no GPU at all
        let got = fits(&sized("q", "2", "1Gi", None), &state.nodes[0]).expect_err("no room");
        assert!(!got.unresolvable);
    }

    #[test]
    fn emptier_and_more_even_nodes_score_higher() {
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let state = snapshot(&nodes, &[sized("busy", "2", "1Gi", Some("a"))]);
        let pod = sized("p", "1", "4Gi", None);
        assert_eq!(least_allocated(&pod, &state.nodes[1]), 62); // (75 + 50) / 2
        assert!(least_allocated(&pod, &state.nodes[0]) < 62);
        assert!(balance(&pod, &state.nodes[0]) > balance(&pod, &state.nodes[1]));
    }
}
