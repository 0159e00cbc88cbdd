//! DefaultPreemption: which pods would have to go so that a more important one fits. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::cache::{NodeInfo, Snapshot};
use crate::cycle::{Filters, FitError, Nominations};
use crate::framework::Rejection;
use crate::pod::PodInfo;
use crate::selector::Selector;

/// What a disruption budget still allows.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Namespace of the budget and its pods.
    pub namespace: String,
    /// Its pods.
    pub selector: Selector,
    /// How many may go.
    pub allowed: i64,
    /// Pods whose eviction is already counted.
    pub disrupted: Vec<String>,
}

/// The pods to take from one node.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// The pods, the most important one first.
    pub victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

/// Says why a pod may not preempt at all, if it may not.
pub fn ineligible(pod: &PodInfo, snapshot: &Snapshot, error: &FitError) -> Option<&'static str> {
    if pod.pod.spec.as_ref().and_then(|s| s.preemption_policy.as_deref()) == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = pod.nominated().and_then(|n| snapshot.get(n))?;
    let hopeless = error.nodes.get(node.name()).is_some_and(|r| r.unresolvable);
    let leaving = node.pods.iter().any(|p| p.is_terminating() && p.priority() < pod.priority() && preempted(p));
    (!hopeless && leaving).then_some("not eligible due to a terminating pod on the nominated node.")
}

fn preempted(pod: &PodInfo) -> bool {
    let conditions = pod.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| {
        c.type_ == "DisruptionTarget" && c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

/// What preemption plays through.
pub struct Preemption<'a> {
    /// The cluster.
    pub snapshot: &'a Arc<Snapshot>,
    /// The filters of the failed cycle.
    pub filters: &'a Filters,
    /// Promises to other pods.
    pub nominations: &'a Nominations,
    /// Disruption budgets.
    pub budgets: &'a [Budget],
}

impl Preemption<'_> {
    /// The best node to clear, or the message that there is none.
    pub fn find(&self, pod: &Arc<PodInfo>, error: &FitError) -> Result<Candidate, String> {
        let (mut candidates, mut reasons) = (Vec::new(), BTreeMap::new());
        for (name, rejection) in &error.nodes {
            let Some(node) = self.snapshot.get(name).filter(|_| !rejection.unresolvable) else { continue };
            match self.victims(pod, node) {
                Ok(candidate) => candidates.push(candidate),
                Err(reason) => _ = reasons.insert(name.clone(), reason),
            }
        }
        if let Some(best) = candidates.into_iter().min_by(|a, b| cost(a).cmp(&cost(b))) {
            return Ok(best);
        }
        let others = Some(Rejection::unresolvable("Preemption is not helpful for scheduling"));
        let summary = FitError { total: error.total, nodes: reasons, others, ..FitError::default() };
        Err(summary.message())
    }

    /// Takes all lesser pods off the node, then puts back as many as fit, the ones that matter most first.
    fn victims(&self, pod: &Arc<PodInfo>, node: &Arc<NodeInfo>) -> Result<Candidate, Rejection> {
        let mut lesser: Vec<Arc<PodInfo>> =
            node.pods.iter().filter(|p| p.priority() < pod.priority()).cloned().collect();
        if lesser.is_empty() {
            return Err(Rejection::unresolvable("No preemption victims found for incoming pod"));
        }
        let (mut filters, mut info) = (self.filters.clone(), node.as_ref().clone());
        lesser.iter().for_each(|p| filters.remove_pod(p, &mut info));
        self.fits(pod, &filters, &info)?;
        lesser.sort_by_key(|p| (Reverse(p.priority()), started(p)));
        let (protected, free) = self.split_by_budget(lesser);
        let mut candidate = Candidate { node: node.name().to_owned(), victims: Vec::new(), violations: 0 };
        for (other, violates) in protected.into_iter().map(|p| (p, true)).chain(free.into_iter().map(|p| (p, false))) {
            filters.add_pod(&other, &mut info);
            if self.fits(pod, &filters, &info).is_err() {
                filters.remove_pod(&other, &mut info);
                candidate.violations += usize::from(violates);
                candidate.victims.push(other);
            }
        }
        if candidate.victims.is_empty() {
            return Err(Rejection::unresolvable("No preemption victims found for incoming pod"));
        }
        candidate.victims.sort_by_key(|p| (Reverse(p.priority()), started(p)));
        Ok(candidate)
    }

    fn fits(&self, pod: &Arc<PodInfo>, filters: &Filters, info: &NodeInfo) -> Result<(), Rejection> {
        filters.check_nominated(&Arc::new(info.clone()), pod, self.nominations).map_err(|(_, rejection)| rejection)
    }

    /// Pods whose going would break a budget, and the rest.
    fn split_by_budget(&self, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
        let mut left: Vec<i64> = self.budgets.iter().map(|b| b.allowed).collect();
        pods.into_iter().partition(|pod| {
            let mut violates = false;
            for (budget, left) in self.budgets.iter().zip(&mut left) {
                let covered = budget.namespace == pod.namespace()
                    && budget.selector.matches(pod.labels())
                    && !budget.disrupted.iter().any(|n| n == pod.name());
                if covered {
                    *left -= 1;
                    violates |= *left < 0;
                }
            }
            violates
        })
    }
}

fn started(pod: &PodInfo) -> Timestamp {
    pod.pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(Timestamp::MAX, |t| t.0)
}

/// Fewest broken budgets, least important victims, least importance in sum, fewest victims, youngest victims.
fn cost(c: &Candidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let highest = c.victims.first().map_or(i32::MIN, |p| p.priority());
    let sum = c.victims.iter().map(|p| i64::from(p.priority()) + i64::from(i32::MAX) + 1).sum();
    let earliest = c.victims.iter().filter(|p| p.priority() == highest).map(|p| started(p)).min();
    (c.violations, highest, sum, c.victims.len(), Reverse(earliest.unwrap_or(Timestamp::MIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{Cycle, Profile};
    use crate::testing::{info, node, snapshot};
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn ranked(name: &str, priority: i32, cpu: &str, on: Option<&str>) -> Arc<PodInfo> {
        info(
            json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": {"priority": priority, "nodeName": on,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}),
        )
    }

    fn preempt(nodes: &[Arc<Node>], running: &[Arc<PodInfo>], pod: &Arc<PodInfo>, budgets: &[Budget]) -> String {
        let (state, profile, nominations) = (snapshot(nodes, running), Profile::with_defaults("x"), Nominations::new());
        let cycle = Cycle {
            profile: &profile,
            snapshot: &state,
            nominations: &nominations,
            start: 0,
            percentage: 0,
            pick: &|_| 0,
        };
        let error = cycle.schedule(pod).expect_err("no room");
        if let Some(reason) = ineligible(pod, &state, &error) {
            return reason.to_owned();
        }
        let filters = Filters::prepare(&profile, &state, pod);
        let preemption = Preemption { snapshot: &state, filters: &filters, nominations: &nominations, budgets };
        match preemption.find(pod, &error) {
            Ok(c) => format!("{}: {}", c.node, c.victims.iter().map(|p| p.name()).collect::<Vec<_>>().join(" ")),
            Err(message) => message,
        }
    }

    #[test]
    fn the_least_important_pods_go() {
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let running = [
            ranked("a1", 5, "2", Some("a")),
            ranked("a2", 1, "2", Some("a")),
            ranked("b1", 3, "2", Some("b")),
            ranked("b2", 3, "2", Some("b")),
        ];
        assert_eq!(preempt(&nodes, &running, &ranked("p", 10, "2", None), &[]), "a: a2");
        assert_eq!(preempt(&nodes, &running, &ranked("p", 10, "3", None), &[]), "b: b1 b2");
        let budget = Budget {
            namespace: "default".to_owned(),
            selector: Selector::equals(Some(&[("name".to_owned(), "a2".to_owned())].into())),
            allowed: 0,
            disrupted: Vec::new(),
        };
        assert_eq!(preempt(&nodes, &running, &ranked("p", 10, "2", None), &[budget]), "b: b2");
    }

    #[test]
    fn messages_are_upstreams() {
        let nodes = [node("a", json!({})), node("b", json!({"spec": {"unschedulable": true}}))];
        let running = [ranked("a1", 5, "4", Some("a"))];
        assert_eq!(
            preempt(&nodes, &running, &ranked("p", 5, "2", None), &[]),
            "0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
        );
        let polite = info(json!({"metadata": {"name": "p"}, "spec": {"priority": 9, "preemptionPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}));
        assert_eq!(preempt(&nodes, &running, &polite, &[]), "not eligible due to preemptionPolicy=Never.");
    }
}
