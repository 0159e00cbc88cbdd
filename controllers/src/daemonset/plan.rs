//! Which nodes should run a daemon, which pods are too many, what the status says.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use crate::deployment::resolve;
use crate::revisions::REVISION_LABEL;
use crate::{meta, node_match, pods, template};

/// Taints that no daemon minds.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");
/// Most pods that one pass makes or deletes.
const BURST: usize = 250;

/// What one pass looks at.
pub struct Observed<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// The set's pods.
    pub pods: &'a [Arc<Pod>],
    /// Hash of the present template.
    pub hash: &'a str,
    /// The time of the pass.
    pub now: Timestamp,
}

/// What one pass does.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    /// Pods that go.
    pub delete: Vec<Arc<Pod>>,
    /// Of these, pods that ended although daemons should not: with the event's reason.
    pub ended: Vec<(Arc<Pod>, &'static str)>,
    /// The status.
    pub status: DaemonSetStatus,
}

fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let network = Some(NETWORK).filter(|_| spec.host_network == Some(true));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let fresh = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&fresh) {
            all.push(fresh);
        }
    }
    all
}

/// Whether the node should get a daemon, and whether one that runs there may stay.
fn wants(spec: &PodSpec, tolerations: &[Toleration], node: &Node) -> (bool, bool) {
    let here = spec.node_name.as_ref().is_none_or(|n| n.is_empty() || n == meta::name(&node.metadata));
    if !here || !node_match::affinity(spec, node) {
        return (false, false);
    }
    let stay = node_match::tolerates_all(tolerations, node, &["NoExecute"]);
    (stay && node_match::tolerates_all(tolerations, node, &["NoSchedule"]), stay)
}

/// The node that a daemon is for: the one that it runs on, or that it asks for.
pub fn target_node(pod: &Pod) -> Option<&str> {
    let on = pods::node_name(pod);
    if !on.is_empty() {
        return Some(on);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let field = terms.iter().flat_map(|t| t.match_fields.iter().flatten()).find(|f| f.key == "metadata.name")?;
    field.values.as_ref()?.first().map(String::as_str)
}

/// A pod for the node.
pub fn pod(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let template = template::with_label(&set.spec.template, REVISION_LABEL, hash);
    let mut pod = template::instantiate(&template, meta::namespace(&set.metadata), meta::controller_ref(set));
    pod.metadata.generate_name = Some(format!("{}-", meta::name(&set.metadata)));
    if let Some(generation) = meta::annotation(&set.metadata, "deprecated.daemonset.template.generation") {
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert("pod-template-generation".to_owned(), generation.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let terms = vec![NodeSelectorTerm { match_fields: Some(vec![field]), ..NodeSelectorTerm::default() }];
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let nodes = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    nodes.required_during_scheduling_ignored_during_execution = Some(NodeSelector { node_selector_terms: terms });
    pod
}

/// Works out one pass.
pub fn plan(o: &Observed<'_>) -> Plan {
    let default = PodSpec::default();
    let spec = o.set.spec.template.spec.as_ref().unwrap_or(&default);
    let tolerations = tolerations(spec);
    let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in o.pods {
        by_node.entry(target_node(pod).unwrap_or_default()).or_default().push(pod);
    }
    let mut plan = Plan::default();
    let mut count = Counts::default();
    let mut rolling = Rolling::default();
    for node in o.nodes {
        let name = meta::name(&node.metadata);
        let (should_run, may_stay) = wants(spec, &tolerations, node);
        let here = by_node.remove(name).unwrap_or_default();
        count.add(o, should_run, &here);
        let live: Vec<_> = here.iter().filter(|p| !meta::is_deleting(&p.metadata)).copied().collect();
        let mut kept = None;
        if should_run && here.is_empty() {
            plan.create.push(name.to_owned());
        } else if !may_stay {
            plan.delete.extend(live.into_iter().cloned());
        } else {
            kept = keep_one(&mut plan, live);
        }
        rolling.add(o, should_run, kept);
    }
    // Pods of nodes that are gone are left to the pod garbage collector; those that never got one are not.
    plan.delete.extend(by_node.remove("").into_iter().flatten().filter(|p| pods::is_active(p)).cloned());
    plan.status = count.status(o);
    roll(o, &mut plan, rolling);
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

/// Of several daemons on a node the oldest stays; those that ended go.
fn keep_one<'a>(plan: &mut Plan, mut live: Vec<&'a Arc<Pod>>) -> Option<&'a Arc<Pod>> {
    live.retain(|pod| {
        let reason = match pods::phase(pod) {
            "Failed" => "FailedDaemonPod",
            "Succeeded" => "SucceededDaemonPod",
            _ => return true,
        };
        plan.ended.push(((*pod).clone(), reason));
        plan.delete.push((*pod).clone());
        false
    });
    live.sort_by_key(|p| {
        (pods::node_name(p).is_empty(), meta::created(&p.metadata), meta::name(&p.metadata).to_owned())
    });
    plan.delete.extend(live.iter().skip(1).map(|p| (*p).clone()));
    live.first().copied()
}

/// What a rolling update goes by: the daemon that stays on each node.
#[derive(Default)]
struct Rolling {
    /// Nodes without an available daemon. The status counts otherwise: there a daemon that is on its way out is available as
    /// long as it is ready.
    unavailable: usize,
    /// Available daemons of another template.
    outdated: Vec<Arc<Pod>>,
    /// The same, but not available: nothing is lost with them.
    broken: Vec<Arc<Pod>>,
}

impl Rolling {
    fn add(&mut self, o: &Observed<'_>, should_run: bool, kept: Option<&Arc<Pod>>) {
        let min_ready = o.set.spec.min_ready_seconds.unwrap_or(0);
        let available = kept.is_some_and(|pod| pods::is_available(pod, min_ready, o.now));
        self.unavailable += usize::from(should_run && !available);
        let hash = |pod: &Pod| meta::labels(&pod.metadata).get(REVISION_LABEL).cloned();
        if let Some(pod) = kept.filter(|pod| hash(pod).as_deref() != Some(o.hash)) {
            let pods = if available { &mut self.outdated } else { &mut self.broken };
            pods.push(pod.clone());
        }
    }
}

/// Replaces outdated daemons as far as the bound for unavailable ones allows.
fn roll(o: &Observed<'_>, plan: &mut Plan, rolling: Rolling) {
    let strategy = o.set.spec.update_strategy.as_ref();
    if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
        return;
    }
    let desired = plan.status.desired_number_scheduled;
    let bound = strategy.and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.max_unavailable.as_ref());
    let most = bound.map_or(1, |b| resolve(Some(b), desired, true)).max(1);
    let room = usize::try_from(most).unwrap_or(1).saturating_sub(rolling.unavailable);
    plan.delete.extend(rolling.broken);
    plan.delete.extend(rolling.outdated.into_iter().take(room));
}

#[derive(Default)]
struct Counts {
    desired: i32,
    current: i32,
    misscheduled: i32,
    ready: i32,
    available: i32,
    updated: i32,
}

impl Counts {
    fn add(&mut self, o: &Observed<'_>, should_run: bool, here: &[&Arc<Pod>]) {
        if !should_run {
            self.misscheduled += i32::from(!here.is_empty());
            return;
        }
        self.desired += 1;
        let Some(pod) = here.iter().min_by_key(|p| meta::created(&p.metadata)) else { return };
        self.current += 1;
        if pods::is_ready(pod) {
            self.ready += 1;
            let min_ready = o.set.spec.min_ready_seconds.unwrap_or(0);
            self.available += i32::from(pods::is_available(pod, min_ready, o.now));
        }
        let hash = meta::labels(&pod.metadata).get(REVISION_LABEL).map(String::as_str);
        self.updated += i32::from(hash == Some(o.hash));
    }

    fn status(&self, o: &Observed<'_>) -> DaemonSetStatus {
        let old = o.set.status.clone().unwrap_or_default();
        let some = |n: i32| Some(n).filter(|n| *n != 0);
        DaemonSetStatus {
            current_number_scheduled: self.current,
            desired_number_scheduled: self.desired,
            number_misscheduled: self.misscheduled,
            number_ready: self.ready,
            number_available: some(self.available),
            number_unavailable: some(self.desired - self.available),
            updated_number_scheduled: some(self.updated),
            observed_generation: o.set.metadata.generation,
            collision_count: old.collision_count,
            conditions: old.conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": "d"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "nodeSelector": {"os": "linux"}}}},
        }))
        .unwrap()
    }

    fn node(name: &str, labels: serde_json::Value, taints: serde_json::Value) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}))
                .unwrap(),
        )
    }

    fn daemon(name: &str, node: &str, hash: &str) -> Arc<Pod> {
        let mut p = pods::testing::ready(name, node, Timestamp::UNIX_EPOCH);
        p.metadata.labels = Some([(REVISION_LABEL.to_owned(), hash.to_owned())].into());
        Arc::new(p)
    }

    fn run(nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> (Vec<String>, Vec<String>, DaemonSetStatus) {
        let now = Timestamp::from_second(100).unwrap();
        let plan = plan(&Observed { set: &set(), nodes, pods, hash: "new", now });
        let gone = plan.delete.iter().map(|p| meta::name(&p.metadata).to_owned()).collect();
        (plan.create, gone, plan.status)
    }

    #[test]
    fn every_suitable_node_gets_one() {
        let linux = json!({"os": "linux"});
        let nodes = [
            node("a", linux.clone(), json!([])),
            node("b", json!({}), json!([])),
            node("c", linux.clone(), json!([{"key": "x", "effect": "NoSchedule"}])),
            node("d", linux, json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])),
        ];
        let (create, _, status) = run(&nodes, &[]);
        assert_eq!((create, status.desired_number_scheduled), (vec!["a".to_owned(), "d".to_owned()], 2));
        let placed = pod(&set(), "new", "a");
        assert_eq!(target_node(&placed), Some("a"));
    }

    #[test]
    fn surplus_and_misplaced_ones_go() {
        let nodes = [node("a", json!({"os": "linux"}), json!([])), node("b", json!({}), json!([]))];
        let pods = [daemon("p1", "a", "new"), daemon("p2", "a", "new"), daemon("p3", "b", "new")];
        let (create, gone, status) = run(&nodes, &pods);
        assert_eq!((create.len(), gone), (0, vec!["p2".to_owned(), "p3".to_owned()]));
        assert_eq!((status.number_misscheduled, status.number_ready), (1, 1));
    }

    #[test]
    fn outdated_ones_are_replaced_one_by_one() {
        let nodes = ["a", "b"].map(|n| node(n, json!({"os": "linux"}), json!([])));
        let (_, gone, status) = run(&nodes, &[daemon("p1", "a", "old"), daemon("p2", "b", "old")]);
        assert_eq!((gone, status.updated_number_scheduled), (vec!["p1".to_owned()], None));
        let (_, gone, _) = run(&nodes, &[daemon("p2", "b", "old")]);
        assert!(gone.is_empty());
    }

    #[test]
    fn a_daemon_on_its_way_out_is_one_that_is_unavailable() {
        let nodes = ["a", "b"].map(|n| node(n, json!({"os": "linux"}), json!([])));
        let mut going = daemon("p1", "a", "old");
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(90).unwrap());
        Arc::make_mut(&mut going).metadata.deletion_timestamp = Some(time);
        let (create, gone, status) = run(&nodes, &[going.clone(), daemon("p2", "b", "old")]);
        assert_eq!((create.len(), gone.len(), status.number_available), (0, 0, Some(2)));
        let mut broken = daemon("p2", "b", "old");
        Arc::make_mut(&mut broken).status = None;
        let (_, gone, _) = run(&nodes, &[going, broken]);
        assert_eq!(gone, ["p2"], "nothing is lost with one that does not work");
    }
}
