//! What the scheduler believes about the nodes and the pods on them, and snapshots of it.
//!
//! A pod counts on its node from the moment the scheduler decides (assumed) until the API says otherwise. A snapshot is
//! immutable; taking the next one touches only nodes that changed in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::pod::{HostPort, PodInfo};
use crate::resources::Resources;
use crate::selector::{Labels, Selector};
use crate::volumes::Volumes;

/// A node with the sum of its pods.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The object; a node that so far only its pods speak of has none.
    pub node: Arc<Node>,
    /// The pods on it, assumed ones included.
    pub pods: Vec<Arc<PodInfo>>,
    /// The sum of their requests.
    pub requested: Resources,
    /// The sum of their CPU requests with defaults.
    pub scored_cpu: i64,
    /// The sum of their memory requests with defaults.
    pub scored_memory: i64,
    /// What the node offers.
    pub allocatable: Resources,
    /// How many of the pods have a say about other pods (affinity or anti-affinity, required or preferred).
    pub affine_pods: usize,
    /// Sizes of the images on it, by each of their names.
    pub images: Arc<HashMap<String, i64>>,
    known: bool,
}

impl NodeInfo {
    /// The node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// The node's labels.
    pub fn labels(&self) -> Option<&Labels> {
        self.node.metadata.labels.as_ref()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()?.get(key).map(String::as_str)
    }

    /// The host ports in use.
    pub fn ports(&self) -> impl Iterator<Item = &HostPort> {
        self.pods.iter().flat_map(|p| &p.ports)
    }

    /// Counts a pod in.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests.exact);
        self.scored_cpu += pod.requests.scored_cpu;
        self.scored_memory += pod.requests.scored_memory;
        self.affine_pods += usize::from(pod.is_affine());
        self.pods.push(pod);
    }

    /// Counts a pod out.
    pub fn remove_pod(&mut self, uid: &str) {
        let Some(at) = self.pods.iter().position(|p| p.uid() == uid) else { return };
        let pod = self.pods.remove(at);
        self.requested.sub(&pod.requests.exact);
        self.scored_cpu -= pod.requests.scored_cpu;
        self.scored_memory -= pod.requests.scored_memory;
        self.affine_pods -= usize::from(pod.is_affine());
    }

    fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        self.allocatable = Resources::from_quantities(status.and_then(|s| s.allocatable.as_ref()));
        let images = status.and_then(|s| s.images.as_ref()).into_iter().flatten();
        self.images = Arc::new(
            images.flat_map(|i| i.names.iter().flatten().map(|n| (n.clone(), i.size_bytes.unwrap_or(0)))).collect(),
        );
        self.node = node;
        self.known = true;
    }
}

/// The state of the cluster as one scheduling cycle sees it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All nodes, by name.
    pub nodes: Vec<Arc<NodeInfo>>,
    index: HashMap<String, usize>,
    namespaces: Arc<BTreeMap<String, Labels>>,
    owners: Arc<BTreeMap<OwnerKey, Selector>>,
    volumes: Volumes,
}

impl Snapshot {
    /// Claims and volumes.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// A node by name.
    pub fn get(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.index.get(name).map(|at| &self.nodes[*at])
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// Selectors of the services and controllers that a pod belongs to.
    pub fn owner_selector(&self, pod: &PodInfo) -> Option<Selector> {
        let mut out = Selector::default();
        let namespace = pod.namespace();
        let first = OwnerKey { namespace: namespace.to_owned(), ..OwnerKey::default() };
        for (_, selector) in self.owners.range(first..).take_while(|(k, _)| k.namespace == namespace) {
            if !selector.requirements.is_empty() && selector.matches(pod.labels()) {
                out.requirements.extend(selector.requirements.iter().cloned());
            }
        }
        (!out.requirements.is_empty()).then_some(out)
    }
}

/// Names a service or controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerKey {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
}

#[derive(Debug)]
struct Placed {
    pod: Arc<PodInfo>,
    node: String,
    assumed: bool,
}

/// The scheduler's own state of nodes and pods.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: BTreeMap<String, Arc<NodeInfo>>,
    pods: HashMap<String, Placed>,
    dirty: BTreeSet<String>,
    reshaped: bool,
    snapshot: Arc<Snapshot>,
    namespaces: Arc<BTreeMap<String, Labels>>,
    owners: Arc<BTreeMap<OwnerKey, Selector>>,
    volumes: Volumes,
}

impl Cache {
    /// Claims and volumes, to be changed.
    pub fn volumes(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Number of nodes, and of pods that have one.
    pub fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.pods.len())
    }

    /// Adds or replaces a node.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let known = self.nodes.get(&name).is_some_and(|n| n.known);
        self.reshaped |= !known;
        self.edit(&name, |info| info.set_node(node));
    }

    /// Removes a node; its pods stay until they go themselves.
    pub fn remove_node(&mut self, name: &str) {
        self.reshaped = true;
        let Some(info) = self.nodes.get_mut(name) else { return };
        if info.pods.is_empty() {
            self.nodes.remove(name);
        } else {
            Arc::make_mut(info).known = false;
        }
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut NodeInfo)) {
        change(Arc::make_mut(self.nodes.entry(name.to_owned()).or_default()));
        self.dirty.insert(name.to_owned());
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        self.remove_pod(pod.uid());
        self.edit(node, |info| info.add_pod(pod.clone()));
        self.pods.insert(pod.uid().to_owned(), Placed { pod, node: node.to_owned(), assumed });
    }

    /// Counts a pod on the node that the scheduler chose for it.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.place(pod, node, true);
    }

    /// Counts a pod on the node that the API says it has.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        let Some(node) = pod.bound_to().map(str::to_owned) else { return };
        self.place(pod, &node, false);
    }

    /// Whether a pod is assumed and not yet confirmed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|p| p.assumed)
    }

    /// Forgets a pod; says whether it was there.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placed = self.pods.remove(uid)?;
        self.edit(&placed.node, |info| info.remove_pod(uid));
        let gone = self.nodes.get(&placed.node).is_some_and(|n| !n.known && n.pods.is_empty());
        if gone {
            self.nodes.remove(&placed.node);
        }
        Some(placed.pod)
    }

    /// Sets or removes a namespace's labels.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let namespaces = Arc::make_mut(&mut self.namespaces);
        match labels {
            Some(labels) => namespaces.insert(name.to_owned(), labels),
            None => namespaces.remove(name),
        };
    }

    /// Sets or removes the selector of a service or controller.
    pub fn set_owner(&mut self, key: OwnerKey, selector: Option<Selector>) {
        let owners = Arc::make_mut(&mut self.owners);
        match selector {
            Some(selector) => owners.insert(key, selector),
            None => owners.remove(&key),
        };
    }

    /// The state now.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        let snapshot = Arc::make_mut(&mut self.snapshot);
        if std::mem::take(&mut self.reshaped) {
            snapshot.nodes = self.nodes.values().filter(|n| n.known).cloned().collect();
            snapshot.index = snapshot.nodes.iter().enumerate().map(|(at, n)| (n.name().to_owned(), at)).collect();
            self.dirty.clear();
        }
        for name in std::mem::take(&mut self.dirty) {
            if let (Some(at), Some(info)) = (snapshot.index.get(&name), self.nodes.get(&name)) {
                snapshot.nodes[*at] = info.clone();
            }
        }
        snapshot.namespaces = self.namespaces.clone();
        snapshot.owners = self.owners.clone();
        snapshot.volumes = self.volumes.clone();
        self.snapshot.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{info, node};
    use serde_json::json;

    #[test]
    fn snapshots_do_not_change_and_share_what_did_not() {
        let mut cache = Cache::default();
        cache.set_node(node("a", json!({})));
        cache.set_node(node("b", json!({})));
        let before = cache.snapshot();
        cache.assume(info(json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": []}})), "a");
        let after = cache.snapshot();
        assert_eq!((before.nodes[0].pods.len(), after.nodes[0].pods.len()), (0, 1));
        assert!(Arc::ptr_eq(&before.nodes[1], &after.nodes[1]));
    }

    #[test]
    fn a_pod_counts_once_whatever_the_order() {
        let mut cache = Cache::default();
        let bound = info(json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"nodeName": "b", "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}));
        cache.set_pod(bound.clone()); // before its node is known
        assert_eq!(cache.snapshot().nodes.len(), 0);
        cache.set_node(node("a", json!({})));
        cache.set_node(node("b", json!({})));
        cache.assume(bound.clone(), "a");
        assert!(cache.is_assumed("p"));
        cache.set_pod(bound);
        let snapshot = cache.snapshot();
        assert_eq!(snapshot.get("a").map(|n| n.requested.milli_cpu), Some(0));
        assert_eq!(snapshot.get("b").map(|n| n.requested.milli_cpu), Some(1000));
        cache.remove_node("b");
        cache.remove_pod("p");
        assert_eq!(cache.snapshot().nodes.len(), 1);
        assert!(cache.nodes.len() == 1);
    }
}
