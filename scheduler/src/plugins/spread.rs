//! PodTopologySpread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, Filter, MAX_SCORE, Plugin, PreFilter, Rejection, Scorer};
use crate::plugins::untolerated;
use crate::pod::{PodInfo, Spread};

/// Spreads a group of pods over domains of nodes.
pub struct PodTopologySpread {
    /// Preferences for pods without constraints of their own: topology key and skew.
    pub defaults: Vec<(String, i64)>,
}

impl Default for PodTopologySpread {
    fn default() -> Self {
        let defaults = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];
        PodTopologySpread { defaults: defaults.map(|(key, skew)| (key.to_owned(), skew)).into() }
    }
}

fn counts(spread: &Spread, pod: &PodInfo, other: &PodInfo) -> bool {
    other.namespace() == pod.namespace() && !other.is_terminating() && spread.selector.matches(other.labels())
}

/// Whether the node takes part in a constraint.
fn included(spread: &Spread, pod: &PodInfo, node: &NodeInfo) -> bool {
    (!spread.honor_affinity || pod.allows_node(node.name(), node.labels()))
        && !(spread.honor_taints && untolerated(pod, node))
}

fn has_all_keys(constraints: &[Spread], node: &NodeInfo) -> bool {
    constraints.iter().all(|c| node.label(&c.topology_key).is_some())
}

/// The number of matching pods by the value of the topology label.
fn matching(
    constraints: &[Spread],
    at: usize,
    pod: &PodInfo,
    nodes: &[Arc<NodeInfo>],
    need_all: bool,
) -> HashMap<String, i64> {
    let spread = &constraints[at];
    let mut out = HashMap::new();
    for node in nodes.iter().filter(|n| included(spread, pod, n) && (!need_all || has_all_keys(constraints, n))) {
        let Some(value) = node.label(&spread.topology_key) else { continue };
        let number = node.pods.iter().filter(|p| counts(spread, pod, p)).count();
        *out.entry(value.to_owned()).or_insert(0) += i64::try_from(number).unwrap_or(i64::MAX);
    }
    out
}

#[derive(Clone)]
struct Required {
    pod: Arc<PodInfo>,
    constraints: Vec<Spread>,
    domains: Vec<HashMap<String, i64>>,
}

impl Required {
    fn update(&mut self, other: &PodInfo, node: &NodeInfo, by: i64) {
        if !has_all_keys(&self.constraints, node) {
            return;
        }
        for (spread, domains) in self.constraints.iter().zip(&mut self.domains) {
            let slot = node.label(&spread.topology_key).and_then(|v| domains.get_mut(v));
            if let Some(slot) = slot.filter(|_| included(spread, &self.pod, node) && counts(spread, &self.pod, other)) {
                *slot += by;
            }
        }
    }
}

impl Filter for Required {
    fn check(&self, node: &NodeInfo) -> Result<(), Rejection> {
        const REASON: &str = "node(s) didn't match pod topology spread constraints";
        for (spread, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(value) = node.label(&spread.topology_key) else {
                return Err(Rejection::unresolvable(format!("{REASON} (missing required label)")));
            };
            let few = i64::try_from(domains.len()).unwrap_or(i64::MAX) < spread.min_domains;
            let least = if few { 0 } else { domains.values().copied().min().unwrap_or(0) };
            let own = i64::from(spread.selector.matches(self.pod.labels()));
            if domains.get(value).copied().unwrap_or(0) + own - least > spread.max_skew {
                return Err(Rejection::resolvable(REASON));
            }
        }
        Ok(())
    }
    fn add_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.update(pod, node, 1);
    }
    fn remove_pod(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.update(pod, node, -1);
    }
    fn boxed(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// A score that says "leave this node out".
const IGNORED: i64 = -1;

struct Preferred {
    constraints: Vec<(Spread, HashMap<String, i64>, f64)>,
    need_all: bool,
}

impl Scorer for Preferred {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn score(&self, node: &NodeInfo) -> i64 {
        let mut sum = 0.0;
        for (spread, domains, weight) in &self.constraints {
            match node.label(&spread.topology_key) {
                Some(value) => {
                    let number = domains.get(value).copied().unwrap_or(0);
                    sum += number as f64 * weight + (spread.max_skew - 1) as f64;
                }
                None if self.need_all => return IGNORED,
                None => {}
            }
        }
        sum.round() as i64
    }
    fn normalize(&self, scores: &mut [i64]) {
        let valid = || scores.iter().copied().filter(|s| *s != IGNORED);
        let (min, max) = (valid().min().unwrap_or(0), valid().max().unwrap_or(0));
        for score in scores {
            *score = match *score {
                IGNORED => 0,
                _ if max == 0 => MAX_SCORE,
                s => MAX_SCORE * (max + min - s) / max,
            };
        }
    }
}

impl PodTopologySpread {
    fn preferences(&self, pod: &PodInfo, snapshot: &Snapshot) -> Vec<Spread> {
        if !pod.spread.is_empty() {
            return pod.spread.iter().filter(|s| !s.required).cloned().collect();
        }
        let Some(selector) = snapshot.owner_selector(pod) else { return Vec::new() };
        let make = |(key, skew): &(String, i64)| Spread {
            max_skew: *skew,
            topology_key: key.clone(),
            required: false,
            selector: selector.clone(),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        self.defaults.iter().map(make).collect()
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }
    fn events(&self) -> Events {
        let pods = Events::POD_ADD.or(Events::POD_DELETE).or(Events::POD_LABEL).or(Events::SELF_UPDATE);
        pods.or(Events::NODE_ADD).or(Events::NODE_LABEL).or(Events::NODE_TAINT)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, snapshot: &Arc<Snapshot>) -> PreFilter {
        let constraints: Vec<Spread> = pod.spread.iter().filter(|s| s.required).cloned().collect();
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        let domains = (0..constraints.len()).map(|at| matching(&constraints, at, pod, &snapshot.nodes, true)).collect();
        PreFilter::Check(Box::new(Required { pod: pod.clone(), constraints, domains }))
    }
    #[allow(clippy::cast_precision_loss)]
    fn pre_score(
        &self,
        pod: &Arc<PodInfo>,
        snapshot: &Arc<Snapshot>,
        nodes: &[Arc<NodeInfo>],
    ) -> Option<Box<dyn Scorer>> {
        let constraints = self.preferences(pod, snapshot);
        if constraints.is_empty() {
            return None;
        }
        let need_all = !pod.spread.is_empty();
        let weigh = |at: usize| {
            let spread: &Spread = &constraints[at];
            let domains = matching(&constraints, at, pod, &snapshot.nodes, need_all);
            let sizes: HashSet<&str> = nodes.iter().filter_map(|n| n.label(&spread.topology_key)).collect();
            (spread.clone(), domains, ((sizes.len() + 2) as f64).ln())
        };
        Some(Box::new(Preferred { constraints: (0..constraints.len()).map(weigh).collect(), need_all }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node, snapshot};
    use serde_json::{Value, json};

    fn app(name: &str, on: Option<&str>, constraints: Value) -> Arc<PodInfo> {
        info(json!({"metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": on, "containers": [], "topologySpreadConstraints": constraints}}))
    }

    fn constraint(extra: Value) -> Value {
        let mut c = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}});
        for (k, v) in extra.as_object().into_iter().flatten() {
            c[k] = v.clone();
        }
        json!([c])
    }

    #[test]
    fn skew_is_bounded() {
        let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
        let nodes = [zone("a", "1"), zone("b", "1"), zone("c", "2"), node("d", json!({}))];
        let one = vec![app("x", Some("a"), Value::Null)];
        let even = vec![app("x", Some("a"), Value::Null), app("y", Some("c"), Value::Null)];
        for (name, running, extra, want) in [
            ("empty", vec![], json!({}), "abc"),
            ("one zone ahead", one.clone(), json!({}), "c"),
            ("even", even.clone(), json!({}), "abc"),
            ("wider skew", one, json!({"maxSkew": 2}), "abc"),
            ("too few domains", even, json!({"minDomains": 3}), ""),
        ] {
            let state = snapshot(&nodes, &running);
            let pod = app("p", None, constraint(extra));
            let PreFilter::Check(filter) = PodTopologySpread::default().pre_filter(&pod, &state) else {
                panic!("{name}")
            };
            let got: String = state.nodes.iter().filter(|n| filter.check(n).is_ok()).map(|n| n.name()).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn preference_goes_to_the_emptier_domain() {
        let state = snapshot(&[node("a", json!({})), node("b", json!({}))], &[app("x", Some("a"), Value::Null)]);
        let soft = json!({"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "kubernetes.io/hostname"});
        let pod = app("p", None, constraint(soft));
        let scorer = PodTopologySpread::default().pre_score(&pod, &state, &state.nodes).expect("scores");
        let mut scores: Vec<i64> = state.nodes.iter().map(|n| scorer.score(n)).collect();
        scorer.normalize(&mut scores);
        assert_eq!(scores, [0, 100]);
    }
}
