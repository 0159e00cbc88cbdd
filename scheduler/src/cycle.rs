//! One scheduling cycle: from a snapshot and a pod to a node or to the reasons why there is none. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, Filter, Plugin, PreFilter, Rejection};
use crate::pod::PodInfo;

/// Nodes are not sampled below this number.
const MIN_FEASIBLE: usize = 100;
const MIN_PERCENTAGE: usize = 5;

/// A set of plugins that schedules the pods which ask for it by name.
#[derive(Clone)]
pub struct Profile {
    /// The name that pods give as `spec.schedulerName`.
    pub scheduler_name: String,
    /// Plugins with the weights of their scores, in filter order.
    pub plugins: Vec<(Arc<dyn Plugin>, i64)>,
}

impl Profile {
    /// The default plugins under a scheduler name.
    pub fn with_defaults(scheduler_name: &str) -> Profile {
        Profile { scheduler_name: scheduler_name.to_owned(), plugins: crate::plugins::default_plugins() }
    }

    /// The changes that can help a pod which these plugins rejected.
    pub fn events(&self, rejected_by: &BTreeSet<&'static str>) -> Events {
        let involved = self.plugins.iter().filter(|(p, _)| rejected_by.contains(p.name()));
        involved.fold(Events::NONE, |all, (p, _)| all.or(p.events()))
    }
}

/// Pods that wait for a node which was cleared for them.
pub type Nominations = BTreeMap<String, Vec<Arc<PodInfo>>>;

/// Why a pod fits no node.
#[derive(Clone, Debug, Default)]
pub struct FitError {
    /// The number of nodes in the cluster.
    pub total: usize,
    /// By node, where the node was looked at.
    pub nodes: BTreeMap<String, Rejection>,
    /// For the nodes that were not looked at.
    pub others: Option<Rejection>,
    /// Why no node was looked at.
    pub whole: Option<Rejection>,
    /// What preemption had to say.
    pub post_filter: String,
    /// The plugins that rejected something.
    pub plugins: BTreeSet<&'static str>,
}

impl FitError {
    /// The message, in upstream's form.
    pub fn message(&self) -> String {
        if self.total == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        if let Some(rejection) = &self.whole {
            let mut out = format!("0/{} nodes are available: {}.", self.total, rejection.reasons.join(", "));
            if !self.post_filter.is_empty() {
                out += &format!(" {}", self.post_filter);
            }
            return out;
        }
        let mut histogram: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.nodes.values().flat_map(|r| &r.reasons) {
            *histogram.entry(reason).or_default() += 1;
        }
        let rest = self.total.saturating_sub(self.nodes.len());
        for reason in self.others.iter().flat_map(|r| &r.reasons).filter(|_| rest > 0) {
            *histogram.entry(reason).or_default() += rest;
        }
        let mut parts: Vec<String> = histogram.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        parts.sort();
        let mut out = format!("0/{} nodes are available", self.total);
        if !parts.is_empty() {
            out += &format!(": {}.", parts.join(", "));
        }
        if !self.post_filter.is_empty() {
            out += &format!(" {}", self.post_filter);
        }
        out
    }
}

/// A plugin's filter for the pod of this cycle.
pub struct NamedFilter {
    /// The plugin.
    pub plugin: &'static str,
    /// Its filter.
    pub filter: Box<dyn Filter>,
}

/// All filters of a cycle.
pub struct Filters {
    /// In the profile's order.
    pub list: Vec<NamedFilter>,
    /// The only nodes to look at, and the plugins that say so.
    pub only: Option<(BTreeSet<String>, BTreeSet<&'static str>)>,
    /// Why no node is to be looked at, and by whose word.
    pub rejected: Option<(&'static str, Rejection)>,
}

impl Clone for Filters {
    fn clone(&self) -> Self {
        let list = self.list.iter().map(|f| NamedFilter { plugin: f.plugin, filter: f.filter.boxed() }).collect();
        Filters { list, only: self.only.clone(), rejected: self.rejected.clone() }
    }
}

impl Filters {
    /// Asks each plugin to prepare for the pod.
    pub fn prepare(profile: &Profile, snapshot: &Arc<Snapshot>, pod: &Arc<PodInfo>) -> Filters {
        let mut out = Filters { list: Vec::new(), only: None, rejected: None };
        for (plugin, _) in &profile.plugins {
            let filter = match plugin.pre_filter(pod, snapshot) {
                PreFilter::Skip => continue,
                PreFilter::Check(filter) => filter,
                PreFilter::Reject(rejection) => {
                    out.rejected.get_or_insert((plugin.name(), rejection));
                    continue;
                }
                PreFilter::Only(names, filter) => {
                    let (known, by) = out.only.get_or_insert_with(|| (names.clone(), BTreeSet::new()));
                    known.retain(|n| names.contains(n));
                    by.insert(plugin.name());
                    filter
                }
            };
            out.list.push(NamedFilter { plugin: plugin.name(), filter });
        }
        out
    }

    /// Whether the node passes; if not, by which plugin's word.
    pub fn check(&self, node: &NodeInfo) -> Result<(), (&'static str, Rejection)> {
        self.rejected.clone().map_or(Ok(()), Err)?;
        self.list.iter().try_for_each(|f| f.filter.check(node).map_err(|r| (f.plugin, r)))
    }

    /// Whether the node passes, with and without the pods that were promised it.
    pub fn check_nominated(
        &self,
        node: &Arc<NodeInfo>,
        pod: &PodInfo,
        nominations: &Nominations,
    ) -> Result<(), (&'static str, Rejection)> {
        let promised = nominations.get(node.name()).into_iter().flatten();
        let promised: Vec<_> = promised.filter(|p| p.uid() != pod.uid() && p.priority() >= pod.priority()).collect();
        if !promised.is_empty() {
            let (mut filters, mut info) = (self.clone(), NodeInfo::clone(node));
            for other in promised {
                filters.add_pod(other, &mut info);
            }
            filters.check(&info)?;
        }
        self.check(node)
    }

    /// Puts a pod on the node in this what-if.
    pub fn add_pod(&mut self, pod: &Arc<PodInfo>, node: &mut NodeInfo) {
        node.add_pod(pod.clone());
        self.list.iter_mut().for_each(|f| f.filter.add_pod(pod, node));
    }

    /// Takes a pod off the node in this what-if.
    pub fn remove_pod(&mut self, pod: &Arc<PodInfo>, node: &mut NodeInfo) {
        node.remove_pod(pod.uid());
        self.list.iter_mut().for_each(|f| f.filter.remove_pod(pod, node));
    }
}

/// How many passing nodes are enough.
fn enough(total: usize, percentage: usize) -> usize {
    if total < MIN_FEASIBLE {
        return total;
    }
    let percentage = if percentage == 0 { 50usize.saturating_sub(total / 125).max(MIN_PERCENTAGE) } else { percentage };
    (total * percentage / 100).clamp(MIN_FEASIBLE, total.max(MIN_FEASIBLE))
}

/// A node that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub node: String,
    /// How many nodes were looked at.
    pub evaluated: usize,
}

/// What a cycle knows beside pod and snapshot.
pub struct Cycle<'a> {
    /// The pod's profile.
    pub profile: &'a Profile,
    /// The cluster.
    pub snapshot: &'a Arc<Snapshot>,
    /// Promises to other pods.
    pub nominations: &'a Nominations,
    /// Where in the list of nodes to start.
    pub start: usize,
    /// Share of the nodes to find before scoring; 0 lets the size of the cluster decide.
    pub percentage: usize,
    /// Breaks ties: picks one of so many.
    pub pick: &'a dyn Fn(usize) -> usize,
}

impl Cycle<'_> {
    /// Chooses a node for the pod.
    pub fn schedule(&self, pod: &Arc<PodInfo>) -> Result<Choice, FitError> {
        let total = self.snapshot.nodes.len();
        let mut error = FitError { total, ..FitError::default() };
        if total == 0 {
            return Err(error);
        }
        let filters = Filters::prepare(self.profile, self.snapshot, pod);
        if let Some((plugin, rejection)) = &filters.rejected {
            error.plugins.insert(plugin);
            error.whole = Some(rejection.clone());
            return Err(error);
        }
        let (passing, evaluated) = self.feasible(pod, &filters, &mut error);
        if passing.is_empty() {
            return Err(error);
        }
        let node = if passing.len() == 1 { passing[0].name().to_owned() } else { self.best(pod, &passing) };
        Ok(Choice { node, evaluated })
    }

    fn feasible(&self, pod: &Arc<PodInfo>, filters: &Filters, error: &mut FitError) -> (Vec<Arc<NodeInfo>>, usize) {
        let total = self.snapshot.nodes.len();
        let (mut passing, mut evaluated) = (Vec::new(), 0);
        let mut judge = |node: &Arc<NodeInfo>| match filters.check_nominated(node, pod, self.nominations) {
            Ok(()) => Some(node.clone()),
            Err((plugin, rejection)) => {
                error.plugins.insert(plugin);
                error.nodes.insert(node.name().to_owned(), rejection);
                None
            }
        };
        // A node that was cleared for this pod is taken if it fits.
        if let Some(node) = pod.nominated().and_then(|n| self.snapshot.get(n))
            && let Some(node) = judge(node)
        {
            return (vec![node], 1);
        }
        if let Some((names, by)) = &filters.only {
            let nodes: Vec<_> = names.iter().filter_map(|n| self.snapshot.get(n)).collect();
            evaluated = nodes.len();
            passing.extend(nodes.into_iter().filter_map(&mut judge));
            let by: Vec<&str> = by.iter().copied().collect();
            error.others =
                Some(Rejection::unresolvable(format!("node(s) didn't satisfy plugin(s) [{}]", by.join(" "))));
            error.plugins.extend(&filters.only.as_ref().map(|(_, by)| by.clone()).unwrap_or_default());
            return (passing, evaluated);
        }
        let wanted = enough(total, self.percentage);
        for step in 0..total {
            let node = &self.snapshot.nodes[(self.start + step) % total];
            evaluated += 1;
            passing.extend(judge(node));
            if passing.len() >= wanted {
                break;
            }
        }
        (passing, evaluated)
    }

    fn best(&self, pod: &Arc<PodInfo>, nodes: &[Arc<NodeInfo>]) -> String {
        let totals = self.scores(pod, nodes);
        let top = totals.iter().copied().max().unwrap_or(0);
        let tied: Vec<usize> = (0..nodes.len()).filter(|at| totals[*at] == top).collect();
        nodes[tied[(self.pick)(tied.len()) % tied.len()]].name().to_owned()
    }

    fn scores(&self, pod: &Arc<PodInfo>, nodes: &[Arc<NodeInfo>]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        for (plugin, weight) in self.profile.plugins.iter().filter(|(_, weight)| *weight > 0) {
            let Some(scorer) = plugin.pre_score(pod, self.snapshot, nodes) else { continue };
            let mut scores: Vec<i64> = nodes.iter().map(|n| scorer.score(n)).collect();
            scorer.normalize(&mut scores);
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total += score * weight);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node, sized, snapshot};
    use serde_json::json;

    fn run(state: &Arc<Snapshot>, pod: &Arc<PodInfo>) -> Result<String, String> {
        let profile = Profile::with_defaults("default-scheduler");
        let (nominations, pick) = (Nominations::new(), |_| 0);
        let cycle = Cycle {
            profile: &profile,
            snapshot: state,
            nominations: &nominations,
            start: 0,
            percentage: 0,
            pick: &pick,
        };
        cycle.schedule(pod).map(|c| c.node).map_err(|e| e.message())
    }

    #[test]
    fn messages_are_upstreams() {
        let tainted = node("a", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}));
        let nodes = [tainted, node("b", json!({})), node("c", json!({"spec": {"unschedulable": true}}))];
        let big = sized("p", "5", "1Gi", None);
        assert_eq!(run(&snapshot(&[], &[]), &big), Err("no nodes available to schedule pods".to_owned()));
        let want = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.";
        assert_eq!(run(&snapshot(&nodes, &[]), &big), Err(want.to_owned()));
        let pinned = info(json!({"metadata": {"name": "d"}, "spec": {"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}}}));
        let want = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't satisfy plugin(s) [NodeAffinity].";
        assert_eq!(run(&snapshot(&nodes, &[]), &pinned), Err(want.to_owned()));
    }

    #[test]
    fn picks_the_emptier_node_and_honours_selectors() {
        let nodes = [node("a", json!({})), node("b", json!({"metadata": {"labels": {"disk": "ssd"}}}))];
        let busy = [sized("x", "2", "2Gi", Some("b"))];
        assert_eq!(run(&snapshot(&nodes, &busy), &sized("p", "1", "1Gi", None)), Ok("a".to_owned()));
        let picky =
            info(json!({"metadata": {"name": "q"}, "spec": {"containers": [], "nodeSelector": {"disk": "ssd"}}}));
        assert_eq!(run(&snapshot(&nodes, &busy), &picky), Ok("b".to_owned()));
    }

    #[test]
    fn room_that_was_promised_is_not_given_away() {
        let state = snapshot(&[node("a", json!({}))], &[]);
        let vip = info(json!({"metadata": {"name": "vip"}, "spec": {"priority": 10, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}));
        let profile = Profile::with_defaults("default-scheduler");
        let nominations: Nominations = [("a".to_owned(), vec![vip])].into();
        let cycle = Cycle {
            profile: &profile,
            snapshot: &state,
            nominations: &nominations,
            start: 0,
            percentage: 0,
            pick: &|_| 0,
        };
        assert!(cycle.schedule(&sized("p", "1", "1Gi", None)).is_err());
    }

    #[test]
    fn large_clusters_are_sampled() {
        for (total, percentage, want) in
            [(50, 0, 50), (99, 10, 99), (1000, 0, 420), (6000, 0, 300), (1000, 30, 300), (150, 10, 100)]
        {
            assert_eq!(enough(total, percentage), want, "{total} {percentage}");
        }
    }
}
