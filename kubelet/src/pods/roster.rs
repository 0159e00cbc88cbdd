//! Which pods the node has, and what it may give to them: decisions over values, under the manager's lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus, Taint};
use parking_lot::Mutex;

use super::resize::{self, Pending};
use super::spec;
use super::worker::{Handle, Message};
use crate::admission::{self, Rejection};
use crate::quantity;
use crate::shared::Shared;

/// A pod on this node.
pub struct Entry {
    /// With the resources that it was granted.
    pub pod: Arc<Pod>,
    /// As the API has it.
    wanted: Arc<Pod>,
    /// Why the two differ.
    pending: Option<Pending>,
    /// The node did not take it.
    rejected: bool,
    /// Its worker.
    pub handle: Handle,
    merged: Arc<Merged>,
}

/// An object with a status, as they were put together last.
type Merged = Mutex<Option<(Arc<Pod>, Arc<PodStatus>, Arc<Pod>)>>;

impl Entry {
    /// A pod that was given to a worker as it is.
    pub fn new(pod: Arc<Pod>, handle: Handle, rejected: bool) -> Self {
        Self { wanted: pod.clone(), pod, pending: None, rejected, handle, merged: Arc::default() }
    }

    /// The pod uses nothing of the node, or nothing any more.
    pub fn ended(&self) -> bool {
        let ended = |s: Option<&PodStatus>| spec::is_terminal_phase(s.and_then(|s| s.phase.as_deref()));
        self.rejected || ended(self.pod.status.as_ref()) || ended(self.handle.status.borrow().status.as_deref())
    }

    /// What it takes to show the pod.
    pub fn shown(&self) -> Shown {
        let status = self.handle.status.borrow().status.clone();
        Shown { wanted: self.wanted.clone(), status, merged: self.merged.clone() }
    }
}

/// A pod and the status that its worker computed last.
pub struct Shown {
    wanted: Arc<Pod>,
    status: Option<Arc<PodStatus>>,
    merged: Arc<Merged>,
}

impl Shown {
    /// Both in one; made once, as long as neither changes.
    pub fn pod(self) -> Arc<Pod> {
        let Some(status) = self.status else { return self.wanted };
        let mut merged = self.merged.lock();
        if let Some((wanted, last, pod)) = &*merged
            && Arc::ptr_eq(wanted, &self.wanted)
            && Arc::ptr_eq(last, &status)
        {
            return pod.clone();
        }
        let pod = Pod {
            metadata: self.wanted.metadata.clone(),
            spec: self.wanted.spec.clone(),
            status: Some(PodStatus::clone(&status)),
        };
        let pod = Arc::new(pod);
        *merged = Some((self.wanted, status, pod.clone()));
        pod
    }
}

/// The node as decisions on its pods need it; read before the pods are locked.
pub struct Place {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    sizes: BTreeMap<String, i64>,
}

impl Place {
    /// What the machine has, and what the node's object tells of others.
    pub fn read(shared: &Shared) -> Self {
        let config = &shared.config;
        let node = shared.nodes.get(None, &config.node_name);
        let labels = node.as_ref().and_then(|n| n.metadata.labels.clone());
        let taints = node.as_ref().and_then(|n| n.spec.as_ref()?.taints.clone());
        let told = node.as_ref().and_then(|n| n.status.as_ref()?.allocatable.as_ref());
        let mut sizes: BTreeMap<String, i64> =
            told.into_iter().flatten().map(|(name, q)| (name.clone(), quantity::value(q))).collect();
        let (cpu, memory) = shared.cpu_and_memory();
        for (name, value) in [("pods", i64::from(config.max_pods)), ("cpu", cpu), ("memory", memory)] {
            sizes.insert(name.to_owned(), value);
        }
        Self {
            name: config.node_name.clone(),
            labels: labels.unwrap_or_else(|| config.labels.clone()),
            taints: taints.unwrap_or_default(),
            sizes,
        }
    }

    fn with<'a>(&'a self, active: &'a [Arc<Pod>]) -> admission::Node<'a> {
        let Self { name, labels, taints, sizes } = self;
        admission::Node { name, labels, taints, allocatable: sizes, active }
    }
}

/// The pods by uid.
#[derive(Default)]
pub struct Roster(pub HashMap<String, Entry>);

impl Roster {
    /// The node has admitted the pod before.
    pub fn is_taken(pod: &Pod) -> bool {
        pod.status.as_ref().is_some_and(|s| s.start_time.is_some())
    }

    /// Pods that use something of the node, but for one.
    fn active(&self, but: &str) -> Vec<Arc<Pod>> {
        let others = self.0.iter().filter(|(uid, e)| *uid != but && !e.ended());
        others.map(|(_, e)| e.pod.clone()).collect()
    }

    /// Whether the node takes a new pod; one that was taken before is not asked again.
    pub fn reject(&self, pod: &Pod, place: &Place) -> Option<Rejection> {
        if Self::is_taken(pod) || pod.metadata.deletion_timestamp.is_some() || spec::is_static(pod) {
            return None;
        }
        admission::reject(pod, &place.with(&self.active("")))
    }

    /// Hands a new version of a pod to its worker: with the resources that it asks for if the node has them, with those
    /// that it had otherwise.
    pub fn grant(&mut self, uid: &str, wanted: Arc<Pod>, place: &Place) {
        let Some(entry) = self.0.get(uid) else { return };
        let pending = if entry.ended() || !resize::differs(&wanted, &entry.pod) {
            None
        } else {
            resize::decide(&wanted, &place.with(&self.active(uid))).err()
        };
        let pod = match &pending {
            None => wanted.clone(),
            Some(_) => Arc::new(resize::with_resources(&wanted, &entry.pod)),
        };
        let Some(entry) = self.0.get_mut(uid) else { return };
        if Arc::ptr_eq(&entry.wanted, &wanted) && entry.pending == pending && pending.is_some() {
            return;
        }
        let _ = entry.handle.messages.send(Message::Pod(pod.clone(), pending.clone()));
        (entry.pod, entry.wanted, entry.pending) = (pod, wanted, pending);
    }

    /// Pods that were not granted what they ask for.
    pub fn waiting(&self) -> Vec<(String, Arc<Pod>)> {
        let waiting = self.0.iter().filter(|(_, e)| e.pending.is_some());
        waiting.map(|(uid, e)| (uid.clone(), e.wanted.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::pods::writer::Desired;

    fn pod(name: &str, cpu: &str) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let value = json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn place() -> Place {
        let sizes = [("cpu".to_owned(), 1000), ("pods".to_owned(), 10)].into();
        Place { name: "n".into(), labels: BTreeMap::new(), taints: Vec::new(), sizes }
    }

    /// An entry, and what its worker would hold.
    fn entry(pod: &Arc<Pod>, rejected: bool) -> (Entry, watch::Sender<Desired>) {
        let (desired, status) = watch::channel(Desired::default());
        (Entry::new(pod.clone(), Handle { messages: mpsc::unbounded_channel().0, status }, rejected), desired)
    }

    #[test]
    fn what_the_node_did_not_take_uses_nothing_of_it() {
        let mut roster = Roster::default();
        let (small, large) = (pod("small", "600m"), pod("large", "1500m"));
        let rejected = roster.reject(&large, &place());
        assert_eq!(rejected.as_ref().map(|r| r.reason.as_str()), Some("OutOfcpu"));
        // Its worker has not said yet that it failed.
        let (entry_of_large, _worker) = entry(&large, rejected.is_some());
        roster.0.insert("large".into(), entry_of_large);
        assert_eq!(roster.reject(&small, &place()), None);
        let (entry_of_small, _worker) = entry(&small, false);
        roster.0.insert("small".into(), entry_of_small);
        assert!(roster.reject(&small, &place()).is_some(), "twice is too much");
    }

    #[test]
    fn pods_are_put_together_once() {
        let (entry, worker) = entry(&pod("a", "1m"), false);
        assert!(Arc::ptr_eq(&entry.shown().pod(), &entry.wanted), "nothing to put together");
        let status = |phase: &str| Some(Arc::new(PodStatus { phase: Some(phase.into()), ..PodStatus::default() }));
        worker.send_replace(Desired { status: status("Running"), remove: false });
        let first = entry.shown().pod();
        assert!(Arc::ptr_eq(&first, &entry.shown().pod()));
        worker.send_replace(Desired { status: status("Failed"), remove: false });
        assert_eq!(entry.shown().pod().status.as_ref().unwrap().phase.as_deref(), Some("Failed"));
        assert_eq!(first.metadata.name.as_deref(), Some("a"));
    }
}
