//! InterPodAffinity.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{NodeInfo, Snapshot};
use crate::framework::{Events, Filter, MAX_SCORE, Plugin, PreFilter, Rejection, Scorer};
use crate::pod::{AffinityTerm, PodInfo};

/// Honours affinity and anti-affinity between pods, of the new pod and of those that run.
pub struct InterPodAffinity {
    /// What a running pod's required affinity to the new pod counts for when nodes are compared.
    pub hard_pod_affinity_weight: i64,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        InterPodAffinity { hard_pod_affinity_weight: 1 }
    }
}

/// A number per topology domain: label key and value.
type Domains = HashMap<(String, String), i64>;

fn count(domains: &mut Domains, term: &AffinityTerm, node: &NodeInfo, by: i64) {
    if let Some(value) = node.label(&term.topology_key) {
        let key = (term.topology_key.clone(), value.to_owned());
        let slot = domains.entry(key.clone()).or_default();
        *slot += by;
        if *slot == 0 {
            domains.remove(&key);
        }
    }
}

fn in_domain(domains: &Domains, term: &AffinityTerm, node: &NodeInfo) -> Option<bool> {
    let value = node.label(&term.topology_key)?;
    Some(domains.get(&(term.topology_key.clone(), value.to_owned())).is_some_and(|n| *n > 0))
}

#[derive(Clone)]
struct Affinities {
    pod: Arc<PodInfo>,
    snapshot: Arc<Snapshot>,
    /// Running pods that match all of the new pod's affinity terms.
    wanted: Domains,
    /// Running pods that match one of the new pod's anti-affinity terms.
    unwanted: Domains,
    /// Running pods whose anti-affinity speaks of the new pod.
    hostile: Domains,
}

impl Affinities {
    fn matches(&self, term: &AffinityTerm, pod: &PodInfo) -> bool {
        term.matches(pod, self.snapshot.namespace_labels(pod.namespace()))
    }

    fn update(&mut self, other: &PodInfo, node: &NodeInfo, by: i64) {
        let pod = self.pod.clone();
        if !pod.affinity.is_empty() && pod.affinity.iter().all(|t| self.matches(t, other)) {
            pod.affinity.iter().for_each(|t| count(&mut self.wanted, t, node, by));
        }
        for term in &pod.anti_affinity {
            if self.matches(term, other) {
                count(&mut self.unwanted, term, node, by);
            }
        }
        for term in &other.anti_affinity {
            if self.matches(term, &pod) {
                count(&mut self.hostile, term, node, by);
            }
        }
    }

    fn affinity_holds(&self, node: &NodeInfo) -> bool {
        let found: Option<Vec<bool>> = self.pod.affinity.iter().map(|t| in_domain(&self.wanted, t, node)).collect();
        match found {
            None => false, // the node lacks a topology label
            Some(found) if found.iter().all(|f| *f) => true,
            // The first of a group of pods that want each other may go anywhere.
            Some(_) => self.wanted.is_empty() && self.pod.affinity.iter().all(|t| self.matches(t, &self.pod)),
        }
    }
}

impl Filter for Affinities {
    fn check(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.affinity_holds(node) {
            return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
        }
        if self.pod.anti_affinity.iter().any(|t| in_domain(&self.unwanted, t, node) == Some(true)) {
            return Err(Rejection::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        let hostile = |(key, value): &(String, String)| node.label(key) == Some(value.as_str());
        if self.hostile.keys().any(hostile) {
            return Err(Rejection::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
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

struct Preferences(Domains);

impl Scorer for Preferences {
    fn score(&self, node: &NodeInfo) -> i64 {
        self.0.iter().filter(|((key, value), _)| node.label(key) == Some(value.as_str())).map(|(_, n)| n).sum()
    }
    fn normalize(&self, scores: &mut [i64]) {
        let (Some(min), Some(max)) = (scores.iter().copied().min(), scores.iter().copied().max()) else { return };
        let range = max - min;
        scores.iter_mut().for_each(|s| *s = if range > 0 { MAX_SCORE * (*s - min) / range } else { 0 });
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }
    fn events(&self) -> Events {
        let pods = Events::POD_ADD.or(Events::POD_DELETE).or(Events::POD_LABEL).or(Events::SELF_UPDATE);
        pods.or(Events::NODE_ADD).or(Events::NODE_LABEL).or(Events::NAMESPACE)
    }
    fn pre_filter(&self, pod: &Arc<PodInfo>, snapshot: &Arc<Snapshot>) -> PreFilter {
        let own = !pod.affinity.is_empty() || !pod.anti_affinity.is_empty();
        let (pod, snapshot) = (pod.clone(), snapshot.clone());
        let mut state =
            Affinities { pod, snapshot, wanted: Domains::new(), unwanted: Domains::new(), hostile: Domains::new() };
        for node in state.snapshot.clone().nodes.iter().filter(|n| own || n.affine_pods > 0) {
            for other in node.pods.iter().filter(|p| own || !p.anti_affinity.is_empty()) {
                state.update(other, node, 1);
            }
        }
        if !own && state.hostile.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Check(Box::new(state))
    }
    fn pre_score(&self, pod: &Arc<PodInfo>, snapshot: &Arc<Snapshot>, _: &[Arc<NodeInfo>]) -> Option<Box<dyn Scorer>> {
        let mut sums = Domains::new();
        let labels = |p: &PodInfo| snapshot.namespace_labels(p.namespace());
        let own = !pod.preferred_pods.is_empty();
        for node in snapshot.nodes.iter().filter(|n| own || n.affine_pods > 0) {
            for other in &node.pods {
                for (weight, term) in pod.preferred_pods.iter().filter(|(_, t)| t.matches(other, labels(other))) {
                    count(&mut sums, term, node, *weight);
                }
                for (weight, term) in other.preferred_pods.iter().filter(|(_, t)| t.matches(pod, labels(pod))) {
                    count(&mut sums, term, node, *weight);
                }
                for term in other.affinity.iter().filter(|t| t.matches(pod, labels(pod))) {
                    count(&mut sums, term, node, self.hard_pod_affinity_weight);
                }
            }
        }
        (!sums.is_empty()).then(|| Box::new(Preferences(sums)) as Box<dyn Scorer>)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node, snapshot};
    use serde_json::{Value, json};

    fn zoned(name: &str, zone: &str) -> Arc<k8s_openapi::api::core::v1::Node> {
        node(name, json!({"metadata": {"labels": {"zone": zone}}}))
    }

    fn labelled(name: &str, app: &str, on: Option<&str>, affinity: Value) -> Arc<PodInfo> {
        info(json!({"metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": on, "containers": [], "affinity": affinity}}))
    }

    fn required(kind: &str, app: &str) -> Value {
        json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}]}})
    }

    fn passing(pod: &Arc<PodInfo>, running: &[Arc<PodInfo>]) -> String {
        let state = snapshot(&[zoned("a", "1"), zoned("b", "1"), zoned("c", "2"), node("d", json!({}))], running);
        match InterPodAffinity::default().pre_filter(pod, &state) {
            PreFilter::Check(f) => state.nodes.iter().filter(|n| f.check(n).is_ok()).map(|n| n.name()).collect(),
            _ => "skip".to_owned(),
        }
    }

    #[test]
    fn filtering() {
        let web = labelled("web", "web", Some("a"), Value::Null);
        let loner = labelled("loner", "web", Some("a"), required("podAntiAffinity", "db"));
        for (name, pod, running, want) in [
            ("affinity", labelled("p", "x", None, required("podAffinity", "web")), vec![web.clone()], "ab"),
            ("anti", labelled("p", "x", None, required("podAntiAffinity", "web")), vec![web.clone()], "cd"),
            ("first of a group", labelled("p", "web", None, required("podAffinity", "web")), vec![], "abc"),
            ("nobody to join", labelled("p", "x", None, required("podAffinity", "web")), vec![], ""),
            ("hostile", labelled("p", "db", None, Value::Null), vec![loner.clone()], "cd"),
            ("nothing to say", labelled("p", "x", None, Value::Null), vec![loner], "skip"),
        ] {
            assert_eq!(passing(&pod, &running), want, "{name}");
        }
    }

    #[test]
    fn preferences_pull_and_push() {
        let prefer = |kind: &str| {
            json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10,
            "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}}]}})
        };
        let state = snapshot(&[zoned("a", "1"), zoned("c", "2")], &[labelled("web", "web", Some("a"), Value::Null)]);
        for (kind, want) in [("podAffinity", [100, 0]), ("podAntiAffinity", [0, 100])] {
            let pod = labelled("p", "x", None, prefer(kind));
            let scorer = InterPodAffinity::default().pre_score(&pod, &state, &state.nodes).expect("scores");
            let mut scores: Vec<i64> = state.nodes.iter().map(|n| scorer.score(n)).collect();
            scorer.normalize(&mut scores);
            assert_eq!(scores, want, "{kind}");
        }
    }
}
