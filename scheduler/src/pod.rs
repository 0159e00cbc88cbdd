//! A pod as the scheduler sees it: everything that is asked more than once is worked out when the pod arrives.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, TopologySpreadConstraint};

use crate::resources::{PodRequests, pod_requests};
use crate::selector::{Labels, NodeTerm, Requirement, Selector};

/// A port that a pod occupies on its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address, `0.0.0.0` for all.
    pub ip: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// Port number.
    pub port: i32,
}

impl HostPort {
    /// Whether two pods can't have these ports on one node.
    pub fn conflicts(&self, other: &HostPort) -> bool {
        const ANY: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Selector>,
    selector: Option<Selector>,
    /// The node label that makes a domain.
    pub topology_key: String,
}

impl AffinityTerm {
    fn new(term: &PodAffinityTerm, own_namespace: &str) -> AffinityTerm {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(own_namespace.to_owned());
        }
        AffinityTerm {
            namespaces,
            namespace_selector: term.namespace_selector.as_ref().map(Selector::new),
            selector: term.label_selector.as_ref().map(Selector::new),
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether the term speaks of this pod, whose namespace has these labels.
    pub fn matches(&self, pod: &PodInfo, namespace_labels: Option<&Labels>) -> bool {
        let in_namespace = self.namespaces.contains(pod.namespace())
            || self.namespace_selector.as_ref().is_some_and(|s| s.matches(namespace_labels));
        in_namespace && self.selector.as_ref().is_some_and(|s| s.matches(pod.labels()))
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The most by which domains may differ.
    pub max_skew: i64,
    /// The node label that makes a domain.
    pub topology_key: String,
    /// A filter (`DoNotSchedule`) or a preference.
    pub required: bool,
    /// Which pods count.
    pub selector: Selector,
    /// Fewer domains than this count as one that is empty.
    pub min_domains: i64,
    /// Only nodes count that the pod's node affinity allows.
    pub honor_affinity: bool,
    /// Only nodes count whose taints the pod tolerates.
    pub honor_taints: bool,
}

impl Spread {
    fn new(c: &TopologySpreadConstraint, labels: Option<&Labels>) -> Spread {
        // A constraint without a selector counts no pod.
        let none = || Selector { requirements: vec![Requirement::equals("", "")] };
        let mut selector = c.label_selector.as_ref().map_or_else(none, Selector::new);
        for key in c.match_label_keys.iter().flatten() {
            if let Some(value) = labels.and_then(|l| l.get(key)) {
                selector.requirements.push(Requirement::equals(key, value));
            }
        }
        Spread {
            max_skew: c.max_skew.into(),
            topology_key: c.topology_key.clone(),
            required: c.when_unsatisfiable == "DoNotSchedule",
            selector,
            min_domains: c.min_domains.unwrap_or(1).into(),
            honor_affinity: c.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: c.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

/// A pod with what the plugins ask about it.
#[derive(Debug)]
pub struct PodInfo {
    /// The object.
    pub pod: Arc<Pod>,
    /// What it asks of a node.
    pub requests: PodRequests,
    /// Ports it occupies on its node.
    pub ports: Vec<HostPort>,
    /// Labels that the node must have.
    pub node_selector: Selector,
    /// One of these must match the node, if there are any.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// Preferred node terms with their weights.
    pub preferred_nodes: Vec<(i64, NodeTerm)>,
    /// Required pod affinity.
    pub affinity: Vec<AffinityTerm>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<AffinityTerm>,
    /// Preferred pod affinity, and anti-affinity with negative weights.
    pub preferred_pods: Vec<(i64, AffinityTerm)>,
    /// Topology spread constraints.
    pub spread: Vec<Spread>,
}

impl PodInfo {
    /// Works out what the plugins need.
    pub fn new(pod: Arc<Pod>) -> PodInfo {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let affinity = spec.and_then(|s| s.affinity.as_ref());
        let node = affinity.and_then(|a| a.node_affinity.as_ref());
        let near = affinity.and_then(|a| a.pod_affinity.as_ref());
        let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        let terms = |list: Option<&Vec<PodAffinityTerm>>| -> Vec<AffinityTerm> {
            list.into_iter().flatten().map(|t| AffinityTerm::new(t, &namespace)).collect()
        };
        let liked =
            near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()).into_iter().flatten();
        let disliked =
            far.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()).into_iter().flatten();
        let preferred_pods = (liked.map(|w| (1, w)).chain(disliked.map(|w| (-1, w))))
            .map(|(sign, w)| (sign * i64::from(w.weight), AffinityTerm::new(&w.pod_affinity_term, &namespace)))
            .collect();
        PodInfo {
            requests: pod_requests(&pod),
            ports: host_ports(&pod),
            node_selector: Selector::equals(spec.and_then(|s| s.node_selector.as_ref())),
            node_terms: node
                .and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref())
                .map(|s| s.node_selector_terms.iter().filter_map(NodeTerm::new).collect()),
            preferred_nodes: (node
                .and_then(|n| n.preferred_during_scheduling_ignored_during_execution.as_ref())
                .into_iter()
                .flatten())
            .filter_map(|p| Some((i64::from(p.weight), NodeTerm::new(&p.preference)?)))
            .collect(),
            affinity: terms(near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            anti_affinity: terms(far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            preferred_pods,
            spread: (spec.and_then(|s| s.topology_spread_constraints.as_ref()).into_iter().flatten())
                .map(|c| Spread::new(c, pod.metadata.labels.as_ref()))
                .collect(),
            pod,
        }
    }

    /// The pod's name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The pod's UID.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The pod's labels.
    pub fn labels(&self) -> Option<&Labels> {
        self.pod.metadata.labels.as_ref()
    }

    /// The pod's priority.
    pub fn priority(&self) -> i32 {
        self.pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
    }

    /// Whether the pod has a say about which pods are near it.
    pub fn is_affine(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty() || !self.preferred_pods.is_empty()
    }

    /// True once the pod is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// The node that the pod is bound to.
    pub fn bound_to(&self) -> Option<&str> {
        self.pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
    }

    /// The node that was cleared for the pod by preemption.
    pub fn nominated(&self) -> Option<&str> {
        self.pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty())
    }

    /// The profile that is to schedule the pod.
    pub fn scheduler_name(&self) -> &str {
        self.pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or("default-scheduler")
    }

    /// True while scheduling gates hold the pod back.
    pub fn is_gated(&self) -> bool {
        self.pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty())
    }

    /// Whether the pod may run on a node with this name and these labels, as far as its node selector and affinity say.
    pub fn allows_node(&self, name: &str, labels: Option<&Labels>) -> bool {
        self.node_selector.matches(labels)
            && self.node_terms.as_ref().is_none_or(|terms| terms.iter().any(|t| t.matches(name, labels)))
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|n| *n > 0)?;
            let text = |value: &Option<String>, default: &str| {
                value.clone().filter(|v| !v.is_empty()).unwrap_or(default.to_owned())
            };
            Some(HostPort { ip: text(&p.host_ip, "0.0.0.0"), protocol: text(&p.protocol, "TCP"), port })
        })
        .collect()
}
