//! The scheduler without its I/O: takes in what the API reports, gives out what is to be done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use pintle_client::cache::Change;

use crate::cache::{Cache, OwnerKey, Snapshot};
use crate::cycle::{Cycle, Filters, FitError, Profile};
use crate::framework::Events;
use crate::pod::PodInfo;
use crate::preemption::{Budget, Candidate, Preemption, ineligible};
use crate::queue::{Pauses, Queue};
use crate::selector::{Labels, Selector};
use crate::telemetry::Sizes;
use crate::volumes::{Volumes, Wish};

/// Something that the scheduler learns.
#[derive(Debug)]
pub enum Input {
    /// A pod changed.
    Pod(Change<Pod>),
    /// A node changed.
    Node(Change<Node>),
    /// A namespace changed.
    Namespace(Change<Namespace>),
    /// A disruption budget changed.
    Budget(Change<PodDisruptionBudget>),
    /// A claim changed.
    Claim(Change<PersistentVolumeClaim>),
    /// A volume changed.
    Volume(Change<PersistentVolume>),
    /// A class of volumes changed.
    Class(Change<StorageClass>),
    /// A service or controller has this selector now, or is gone.
    Owner(OwnerKey, Option<Selector>),
    /// A binding was written, or could not be.
    Bound {
        /// The pod's UID.
        uid: String,
        /// Whether it was written.
        written: bool,
    },
}

/// Something that is to be done at the API.
#[derive(Debug)]
pub enum Effect {
    /// Bind the pod to the node.
    Bind {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The node.
        node: String,
        /// What is to be done for its claims first.
        wishes: Vec<Wish>,
    },
    /// Tell why the pod has no node.
    Report {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The message.
        message: String,
        /// The node that is being cleared for it.
        nominated: Option<String>,
    },
    /// Tell that a node is no longer kept for the pod, because a more important one gets it.
    Unpromise {
        /// The pod.
        pod: Arc<PodInfo>,
    },
    /// Remove pods so that a more important one fits.
    Evict {
        /// The pod that needs the room.
        preemptor: Arc<PodInfo>,
        /// The node.
        node: String,
        /// The pods to go.
        victims: Vec<Arc<PodInfo>>,
    },
}

impl Effect {
    /// The uid of the pod that is to be bound.
    pub fn pod_to_bind(&self) -> Option<String> {
        match self {
            Effect::Bind { pod, .. } => Some(pod.uid().to_owned()),
            _ => None,
        }
    }
}

fn is_gone<K>(change: &Change<K>) -> bool {
    matches!(change, Change::Deleted(_))
}

/// What is to be done for the pod's claims if it gets this node; it has passed there.
fn wishes(snapshot: &Snapshot, pod: &PodInfo, node: &str) -> Vec<Wish> {
    let volumes = snapshot.volumes();
    let none = Labels::new();
    let labels = snapshot.get(node).and_then(|node| node.labels()).unwrap_or(&none);
    let wishes = volumes.needs(&pod.pod).ok().and_then(|needs| volumes.fit(&needs, node, labels).ok());
    wishes.unwrap_or_default()
}

/// The state of the scheduler.
pub struct Core {
    cache: Cache,
    queue: Queue,
    profiles: Vec<Profile>,
    budgets: BTreeMap<(String, String), Budget>,
    start: usize,
    percentage: usize,
    pick: Box<dyn Fn(usize) -> usize + Send>,
}

impl Core {
    /// A scheduler that knows nothing yet. `pick` breaks ties.
    pub fn new(
        profiles: Vec<Profile>,
        pauses: Pauses,
        percentage: usize,
        now: Instant,
        pick: Box<dyn Fn(usize) -> usize + Send>,
    ) -> Core {
        Core {
            cache: Cache::default(),
            queue: Queue::new(pauses, now),
            profiles,
            budgets: BTreeMap::new(),
            start: 0,
            percentage,
            pick,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, input: Input, now: Instant) {
        match input {
            Input::Pod(change) => self.pod(change, now),
            Input::Node(change) => self.node(change, now),
            Input::Namespace(change) => self.namespace(&change, now),
            Input::Budget(change) => self.budget(&change),
            Input::Claim(c) => self.volumes(now, |all| all.set_claim(c.object().clone(), is_gone(&c))),
            Input::Volume(c) => self.volumes(now, |all| all.set_volume(c.object().clone(), is_gone(&c))),
            Input::Class(c) => self.volumes(now, |all| all.set_class(c.object().clone(), is_gone(&c))),
            Input::Owner(key, selector) => self.cache.set_owner(key, selector),
            Input::Bound { uid, written } => self.bound(&uid, written, now),
        }
    }

    fn volumes(&mut self, now: Instant, change: impl FnOnce(&mut Volumes)) {
        change(self.cache.volumes());
        self.queue.wake(Events::VOLUME, now);
    }

    /// How much there is.
    pub fn sizes(&self) -> Sizes {
        let [active, backoff, unschedulable, gated] = self.queue.counts();
        let (nodes, pods) = self.cache.sizes();
        Sizes { active, backoff, unschedulable, gated, nodes, pods }
    }

    /// When to call [`Core::step`] again if nothing happens.
    pub fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    fn pod(&mut self, change: Change<Pod>, now: Instant) {
        let pod = change.object().clone();
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        let gone = matches!(change, Change::Deleted(_)) || matches!(phase, Some("Succeeded" | "Failed"));
        let info = Arc::new(PodInfo::new(pod));
        let uid = info.uid().to_owned();
        if gone {
            let waited = self.queue.remove(&uid);
            let promised = waited && info.nominated().is_some();
            if self.cache.remove_pod(&uid).is_some() || promised {
                self.queue.wake(Events::POD_DELETE, now);
            }
        } else if info.bound_to().is_some() {
            self.queue.remove(&uid);
            let before = self.cache.remove_pod(&uid);
            self.cache.set_pod(info.clone());
            let events = before.map_or(Events::POD_ADD, |old| pod_events(&old, &info));
            if events != Events::NONE {
                self.queue.wake(events, now);
            }
        } else if self.profile(&info).is_some() && (self.queue.contains(&uid) || !self.cache.is_assumed(&uid)) {
            self.queue.set(info, now);
        }
    }

    fn node(&mut self, change: Change<Node>, now: Instant) {
        let events = match change {
            Change::Added(node) => {
                self.cache.set_node(node);
                Events::NODE_ADD
            }
            Change::Updated { old, new } => {
                let events = node_events(&old, &new);
                self.cache.set_node(new);
                events
            }
            Change::Deleted(node) => {
                self.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default());
                // Fewer domains can even out a spread.
                Events::NODE_LABEL
            }
        };
        if events != Events::NONE {
            self.queue.wake(events, now);
        }
    }

    fn namespace(&mut self, change: &Change<Namespace>, now: Instant) {
        let meta = &change.object().metadata;
        let labels = (!matches!(change, Change::Deleted(_))).then(|| meta.labels.clone().unwrap_or_default());
        self.cache.set_namespace(meta.name.as_deref().unwrap_or_default(), labels);
        self.queue.wake(Events::NAMESPACE, now);
    }

    fn budget(&mut self, change: &Change<PodDisruptionBudget>) {
        let budget = change.object();
        let namespace = budget.metadata.namespace.clone().unwrap_or_default();
        let key = (namespace.clone(), budget.metadata.name.clone().unwrap_or_default());
        self.budgets.remove(&key);
        let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
        let (Some(selector), false) = (selector, matches!(change, Change::Deleted(_))) else { return };
        let status = budget.status.as_ref();
        self.budgets.insert(
            key,
            Budget {
                namespace,
                selector: Selector::new(selector),
                allowed: status.map_or(0, |s| s.disruptions_allowed.unwrap_or(0).into()),
                disrupted: status
                    .and_then(|s| s.disrupted_pods.as_ref())
                    .into_iter()
                    .flat_map(|m| m.keys().cloned())
                    .collect(),
            },
        );
    }

    fn bound(&mut self, uid: &str, written: bool, now: Instant) {
        self.cache.volumes().settle(uid);
        if written {
            self.queue.remove(uid);
        } else {
            self.queue.errored(uid, now);
            if self.cache.is_assumed(uid) {
                self.cache.remove_pod(uid);
                self.queue.wake(Events::POD_DELETE, now);
            }
        }
    }

    fn profile(&self, pod: &PodInfo) -> Option<usize> {
        self.profiles.iter().position(|p| p.scheduler_name == pod.scheduler_name())
    }

    /// Schedules the next pod, if one is ready.
    pub fn step(&mut self, now: Instant) -> Option<Vec<Effect>> {
        let pod = self.queue.pop(now)?;
        let Some(profile) = self.profile(&pod).filter(|_| !pod.is_terminating()) else {
            self.queue.failed(pod.uid(), Events::NONE, now);
            return Some(Vec::new());
        };
        let snapshot = self.cache.snapshot();
        let nominations = self.queue.nominations();
        let profile = &self.profiles[profile];
        let cycle = Cycle {
            profile,
            snapshot: &snapshot,
            nominations: &nominations,
            start: self.start,
            percentage: self.percentage,
            pick: &*self.pick,
        };
        let mut error = match cycle.schedule(&pod) {
            Ok(choice) => {
                self.start = (self.start + choice.evaluated) % snapshot.nodes.len().max(1);
                let wishes = wishes(&snapshot, &pod, &choice.node);
                self.cache.assume(pod.clone(), &choice.node);
                self.cache.volumes().promise(pod.uid(), &wishes);
                return Some(vec![Effect::Bind { pod, node: choice.node, wishes }]);
            }
            Err(error) => error,
        };
        let wake = if error.plugins.is_empty() { Events::NODE_ADD } else { profile.events(&error.plugins) };
        let candidate = self.preempt(&pod, &cycle, &mut error);
        // A pod that was promised a node keeps the promise while room is being made.
        let waits = error.post_filter.starts_with("preemption: not eligible");
        let kept = pod.nominated().filter(|_| waits).map(str::to_owned);
        let nominated = candidate.as_ref().map(|c| c.node.clone()).or(kept);
        self.queue.failed(pod.uid(), wake, now);
        self.queue.nominate(pod.uid(), nominated.clone());
        let mut effects = vec![Effect::Report { pod: pod.clone(), message: error.message(), nominated }];
        if let Some(c) = candidate {
            effects.extend(self.outrank(&pod, nominations.get(&c.node).into_iter().flatten()));
            effects.push(Effect::Evict { preemptor: pod, node: c.node, victims: c.victims });
        }
        Some(effects)
    }

    /// Takes promises of a node back from pods that are less important than the one that gets it now.
    fn outrank<'a>(&mut self, pod: &PodInfo, promised: impl Iterator<Item = &'a Arc<PodInfo>>) -> Vec<Effect> {
        let lesser = promised.filter(|p| p.priority() < pod.priority());
        lesser
            .map(|p| {
                self.queue.nominate(p.uid(), None);
                Effect::Unpromise { pod: p.clone() }
            })
            .collect()
    }

    fn preempt(&self, pod: &Arc<PodInfo>, cycle: &Cycle<'_>, error: &mut FitError) -> Option<Candidate> {
        if error.total == 0 {
            return None;
        }
        let result = match ineligible(pod, cycle.snapshot, error) {
            Some(reason) => Err(reason.to_owned()),
            None => {
                let filters = Filters::prepare(cycle.profile, cycle.snapshot, pod);
                let budgets: Vec<Budget> = self.budgets.values().cloned().collect();
                let preemption = Preemption {
                    snapshot: cycle.snapshot,
                    filters: &filters,
                    nominations: cycle.nominations,
                    budgets: &budgets,
                };
                preemption.find(pod, error)
            }
        };
        result.map_err(|message| error.post_filter = format!("preemption: {message}")).ok()
    }
}

fn pod_events(old: &PodInfo, new: &PodInfo) -> Events {
    let mut out = Events::NONE;
    if old.bound_to().is_none() {
        out = out.or(Events::POD_ADD);
    }
    if old.labels() != new.labels() || old.is_terminating() != new.is_terminating() {
        out = out.or(Events::POD_LABEL);
    }
    if old.requests != new.requests {
        out = out.or(Events::POD_SHRINK);
    }
    out
}

fn node_events(old: &Node, new: &Node) -> Events {
    let mut out = Events::NONE;
    if old.metadata.labels != new.metadata.labels {
        out = out.or(Events::NODE_LABEL);
    }
    let allocatable = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    if allocatable(old) != allocatable(new) {
        out = out.or(Events::NODE_ALLOCATABLE);
    }
    let marks =
        |n: &Node| n.spec.as_ref().map(|s| (s.unschedulable.unwrap_or(false), s.taints.clone().unwrap_or_default()));
    if marks(old) != marks(new) {
        out = out.or(Events::NODE_TAINT);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    fn core(now: Instant) -> Core {
        Core::new(vec![Profile::with_defaults("default-scheduler")], Pauses::default(), 0, now, Box::new(|_| 0))
    }

    fn wish(name: &str, priority: i32, cpu: &str, on: Option<&str>) -> Arc<Pod> {
        Arc::new(pod(
            json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"priority": priority,
            "nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}),
        ))
    }

    #[test]
    fn assumed_pods_count_at_once_and_failed_bindings_come_back() {
        let now = Instant::now();
        let mut core = core(now);
        core.handle(Input::Node(Change::Added(node("a", json!({})))), now);
        core.handle(Input::Pod(Change::Added(wish("p", 0, "3", None))), now);
        core.handle(Input::Pod(Change::Added(wish("q", 0, "3", None))), now);
        assert!(matches!(&core.step(now).expect("ready")[..], [Effect::Bind { node, .. }] if node == "a"));
        let effects = core.step(now).expect("ready");
        let want = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                    1 No preemption victims found for incoming pod.";
        assert!(matches!(&effects[..], [Effect::Report { message, nominated: None, .. }] if message == want));
        // p could not be bound: its room is free again, and both get another chance.
        core.handle(Input::Bound { uid: "p".to_owned(), written: false }, now);
        assert!(matches!(&core.step(now).expect("q")[..], [Effect::Bind { pod, .. }] if pod.name() == "q"));
        assert!(core.step(now).is_none(), "p pauses after an error");
    }

    #[test]
    fn a_late_report_of_an_unbound_pod_does_not_schedule_it_twice() {
        let now = Instant::now();
        let mut core = core(now);
        core.handle(Input::Node(Change::Added(node("a", json!({})))), now);
        let old = wish("p", 0, "1", None);
        core.handle(Input::Pod(Change::Added(old.clone())), now);
        core.step(now);
        core.handle(Input::Bound { uid: "p".to_owned(), written: true }, now);
        core.handle(Input::Pod(Change::Updated { old: old.clone(), new: old }), now);
        assert!(core.step(now).is_none());
    }

    #[test]
    fn a_volume_is_given_once_and_again_after_a_failure() {
        let now = Instant::now();
        let mut core = core(now);
        core.handle(Input::Node(Change::Added(node("a", json!({})))), now);
        fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Change<T> {
            Change::Added(Arc::new(serde_json::from_value(value).expect("an object")))
        }
        let class = json!({"metadata": {"name": "c"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
        core.handle(Input::Class(object(class)), now);
        for name in ["p", "q"] {
            let claim = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "c"}});
            core.handle(Input::Claim(object(claim)), now);
            let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [],
                "schedulerName": "default-scheduler", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}});
            core.handle(Input::Pod(object(pod)), now);
        }
        let waits = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
        for _ in 0..2 {
            let effects = core.step(now).expect("a pod");
            assert!(
                matches!(&effects[..], [Effect::Report { message, .. }] if message.starts_with(waits)),
                "{effects:?}"
            );
        }
        let volume =
            json!({"metadata": {"name": "v"}, "spec": {"storageClassName": "c"}, "status": {"phase": "Available"}});
        let later = now + std::time::Duration::from_secs(60);
        core.handle(Input::Volume(object(volume)), later);
        let given = core.step(later).expect("a pod");
        let [Effect::Bind { pod, wishes, .. }] = &given[..] else { panic!("{given:?}") };
        assert_eq!(wishes.len(), 1);
        let effects = core.step(later).expect("the other pod");
        assert!(matches!(&effects[..], [Effect::Report { .. }]), "{effects:?}");
        core.handle(Input::Bound { uid: pod.uid().to_owned(), written: false }, later);
        core.handle(Input::Node(Change::Added(node("b", json!({})))), later + std::time::Duration::from_secs(60));
        let after = core.step(later + std::time::Duration::from_secs(120)).expect("a pod");
        assert!(matches!(&after[..], [Effect::Bind { .. }]), "{after:?}");
    }

    #[test]
    fn preemption_clears_a_node_and_the_pod_follows() {
        let now = Instant::now();
        let mut core = core(now);
        core.handle(Input::Node(Change::Added(node("a", json!({})))), now);
        let small = wish("small", 0, "3", Some("a"));
        core.handle(Input::Pod(Change::Added(small.clone())), now);
        core.handle(Input::Pod(Change::Added(wish("vip", 100, "3", None))), now);
        let effects = core.step(now).expect("ready");
        assert!(matches!(&effects[..], [Effect::Report { nominated: Some(n), .. }, Effect::Evict { victims, .. }]
            if n == "a" && victims[0].name() == "small"));
        core.handle(Input::Pod(Change::Deleted(small)), now);
        // Whoever comes now doesn't get the room.
        core.handle(Input::Pod(Change::Added(wish("thief", 0, "3", None))), now);
        assert!(matches!(&core.step(now).expect("thief")[..], [Effect::Report { pod, .. }] if pod.name() == "thief"));
        assert!(matches!(&core.step(now).expect("vip")[..], [Effect::Bind { pod, .. }] if pod.name() == "vip"));
    }
}
