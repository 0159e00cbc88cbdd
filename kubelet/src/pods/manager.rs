//! Which pods there are: feeds their workers from the API, from the runtime's list and from the clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use tokio_util::sync::CancellationToken;

use super::observe::{self, Listing, Mark};
use super::resize::{self, Pending};
use super::spec;
use super::worker::{self, Handle, Message};
use super::writer::Target;
use crate::admission::{self, Rejection};
use crate::container::resources;
use crate::quantity;
use crate::shared::Shared;
use crate::volumes;

/// Time between two lists of the runtime.
const RELIST: Duration = Duration::from_secs(1);

/// Pause before the runtime's events are asked for again.
const RETRY_EVENTS: Duration = Duration::from_secs(5);

/// A pod on this node.
#[derive(Clone)]
struct Entry {
    /// With the resources that it was granted.
    pod: Arc<Pod>,
    /// As the API has it.
    wanted: Arc<Pod>,
    /// Why the two differ.
    pending: Option<Pending>,
    handle: Handle,
}

impl Entry {
    /// The pod uses nothing of the node any more.
    fn ended(&self) -> bool {
        let ended = |s: Option<&PodStatus>| spec::is_terminal_phase(s.and_then(|s| s.phase.as_deref()));
        ended(self.pod.status.as_ref()) || ended(self.handle.status.borrow().status.as_deref())
    }
}

/// The node has admitted the pod before.
fn is_taken(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|s| s.start_time.is_some())
}

/// All pods of the node. Clones share them.
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
}

impl Manager {
    /// No pods yet.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, entries: Arc::default() }
    }

    /// Follows the API's pods, the runtime and the clock until shutdown.
    pub async fn run(&self, pods: Cache<Pod>, shutdown: CancellationToken) {
        pods.synced().await;
        let mut changes = pods.subscribe();
        // Every pod has its worker before the runtime's list is looked at: what has none is an orphan.
        for pod in pods.list() {
            self.change(Change::Added(pod));
        }
        let mut relist = tokio::time::interval(RELIST);
        relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut refresh = tokio::time::interval(self.shared.config.sync_frequency);
        refresh.reset();
        let mut known: HashMap<String, Vec<Mark>> = HashMap::new();
        let mut swept = false;
        let events = tokio::spawn(self.clone().follow_events(shutdown.clone()));
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                change = changes.recv() => match change {
                    Some(change) => self.change(change),
                    None => break,
                },
                _ = relist.tick() => match observe::list(&self.shared.cri).await {
                    Ok(listing) => {
                        self.relisted(&mut known, listing);
                        self.grant_deferred();
                        if !std::mem::replace(&mut swept, true) {
                            self.sweep().await;
                        }
                    }
                    Err(error) => tracing::debug!(%error, "runtime not listed"),
                },
                _ = refresh.tick() => {
                    self.weigh();
                    if swept {
                        self.sweep().await;
                    }
                    self.tell_all(|| Message::Refresh);
                }
            }
        }
        events.abort();
    }

    fn weigh(&self) {
        let entries = self.entries.lock();
        let burstable = entries.values().filter(|e| !e.ended() && spec::qos(&e.pod) == spec::Qos::Burstable);
        self.shared.cgroups.weigh(burstable.map(|e| resources::cpu_milli(&e.pod)).sum());
    }

    /// Wakes workers by the runtime's own events, where it has them; the list stays the truth.
    async fn follow_events(self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            match self.shared.cri.container_events().await {
                Ok(mut events) => {
                    while let Some(Ok(event)) = events.next().await {
                        let sandbox = event.pod_sandbox_status.and_then(|s| s.metadata);
                        self.tell(&sandbox.map(|m| m.uid).unwrap_or_default(), Message::Changed);
                    }
                }
                Err(error) if error.is_unimplemented() => return,
                Err(error) => tracing::debug!(%error, "no events from the runtime"),
            }
            tokio::time::sleep(RETRY_EVENTS).await;
        }
    }

    /// Removes folders and control groups of pods that neither the API nor the runtime knows: what a crash left, or a
    /// step that was cut short.
    async fn sweep(&self) {
        let folder = self.shared.config.root_dir.join("pods");
        let folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut uids = self.shared.cgroups.pods();
        uids.extend(folders.map(|e| e.file_name().to_string_lossy().into_owned()));
        for uid in uids {
            if self.entries.lock().contains_key(&uid) {
                continue;
            }
            tracing::info!(uid, "removing what is left of a pod that is gone");
            self.shared.cgroups.remove(&uid);
            if let Err(error) = volumes::remove(folder.join(&uid)).await {
                tracing::warn!(uid, %error, "folder not removed");
            }
        }
    }

    fn change(&self, change: Change<Pod>) {
        match change {
            // What a mirror shows is the static pod's own business.
            Change::Added(pod) | Change::Updated { new: pod, .. } if spec::is_mirror(&pod) => drop(pod),
            Change::Added(pod) | Change::Updated { new: pod, .. } => self.update(pod),
            Change::Deleted(pod) => self.tell(spec::uid(&pod), Message::Gone),
        }
    }

    /// A new pod, or a new version of one.
    pub fn update(&self, pod: Arc<Pod>) {
        let uid = spec::uid(&pod).to_owned();
        let mut entries = self.entries.lock();
        if entries.contains_key(&uid) {
            return self.grant(&mut entries, &uid, pod);
        }
        let rejected = self.reject(&pod, &entries);
        let granted = if is_taken(&pod) { Arc::new(resize::adopted(&pod)) } else { pod.clone() };
        let handle = self.spawn(uid.clone(), granted.clone(), rejected);
        let (wanted, pending) = (pod.clone(), None);
        let resized = resize::differs(&wanted, &granted);
        entries.insert(uid.clone(), Entry { pod: granted, wanted, pending, handle });
        if resized {
            self.grant(&mut entries, &uid, pod);
        }
    }

    /// Hands a new version of a pod to its worker: with the resources that it asks for if the node has them, with those
    /// that it had otherwise.
    fn grant(&self, entries: &mut HashMap<String, Entry>, uid: &str, wanted: Arc<Pod>) {
        let Some(entry) = entries.get(uid) else { return };
        let pending = if entry.ended() || !resize::differs(&wanted, &entry.pod) {
            None
        } else {
            let others = entries.iter().filter(|(other, e)| *other != uid && !e.ended());
            let others: Vec<Arc<Pod>> = others.map(|(_, e)| e.pod.clone()).collect();
            self.on_node(&others, |node| resize::decide(&wanted, node).err())
        };
        let pod = match &pending {
            None => wanted.clone(),
            Some(_) => Arc::new(resize::with_resources(&wanted, &entry.pod)),
        };
        let Some(entry) = entries.get_mut(uid) else { return };
        if Arc::ptr_eq(&entry.wanted, &wanted) && entry.pending == pending && pending.is_some() {
            return;
        }
        let _ = entry.handle.messages.send(Message::Pod(pod.clone(), pending.clone()));
        (entry.pod, entry.wanted, entry.pending) = (pod, wanted, pending);
    }

    /// Looks again at what could not be granted: another pod may have left room.
    fn grant_deferred(&self) {
        let mut entries = self.entries.lock();
        let waiting = entries.iter().filter(|(_, e)| e.pending.is_some());
        let waiting: Vec<(String, Arc<Pod>)> = waiting.map(|(uid, e)| (uid.clone(), e.wanted.clone())).collect();
        for (uid, wanted) in waiting {
            self.grant(&mut entries, &uid, wanted);
        }
    }

    /// Whether the node takes a new pod; one that was taken before is not asked again.
    fn reject(&self, pod: &Pod, entries: &HashMap<String, Entry>) -> Option<Rejection> {
        if is_taken(pod) || pod.metadata.deletion_timestamp.is_some() || spec::is_static(pod) {
            return None;
        }
        let active: Vec<Arc<Pod>> = entries.values().filter(|e| !e.ended()).map(|e| e.pod.clone()).collect();
        self.on_node(&active, |node| admission::reject(pod, node))
    }

    /// The node with other pods on it, as decisions need it.
    fn on_node<T>(&self, active: &[Arc<Pod>], decide: impl FnOnce(&admission::Node<'_>) -> T) -> T {
        let config = &self.shared.config;
        let object = self.shared.nodes.get(None, &config.node_name);
        let labels = object.as_ref().and_then(|n| n.metadata.labels.clone());
        let node = admission::Node {
            name: &config.node_name,
            labels: &labels.unwrap_or_else(|| config.labels.clone()),
            taints: object.as_ref().and_then(|n| n.spec.as_ref()?.taints.as_deref()).unwrap_or_default(),
            allocatable: &self.sizes(),
            active,
        };
        decide(&node)
    }

    /// What pods may use of the node, by resource: what the machine has, and what its object tells of others.
    fn sizes(&self) -> BTreeMap<String, i64> {
        let node = self.shared.nodes.get(None, &self.shared.config.node_name);
        let told = node.as_ref().and_then(|n| n.status.as_ref()?.allocatable.as_ref());
        let mut sizes: BTreeMap<String, i64> =
            told.into_iter().flatten().map(|(name, q)| (name.clone(), quantity::value(q))).collect();
        let own = self.shared.allocatable();
        let pods = i64::from(self.shared.config.max_pods);
        for (name, value) in [("pods", pods), ("cpu", own.cpu_milli), ("memory", own.memory)] {
            sizes.insert(name.to_owned(), value);
        }
        sizes
    }

    /// A static pod's file is gone.
    pub fn remove(&self, uid: &str) {
        self.tell(uid, Message::Gone);
    }

    /// A static pod is shown by this object.
    pub fn mirrored(&self, uid: &str, target: Target) {
        self.tell(uid, Message::Mirror(target));
    }

    fn spawn(&self, uid: String, pod: Arc<Pod>, rejected: Option<Rejection>) -> Handle {
        let entries = self.entries.clone();
        worker::spawn(self.shared.clone(), pod, rejected, move || {
            entries.lock().remove(&uid);
        })
    }

    fn tell(&self, uid: &str, message: Message) {
        if let Some(entry) = self.entries.lock().get(uid) {
            let _ = entry.handle.messages.send(message);
        }
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for entry in self.entries.lock().values() {
            let _ = entry.handle.messages.send(message());
        }
    }

    /// Wakes the workers of pods whose list differs; ends what no pod owns.
    fn relisted(&self, known: &mut HashMap<String, Vec<Mark>>, listing: Listing) {
        for (uid, marks) in &listing.pods {
            if known.get(uid) == Some(marks) {
                continue;
            }
            if self.entries.lock().contains_key(uid) {
                self.tell(uid, Message::Changed);
            } else if let Some((namespace, name)) = listing.names.get(uid) {
                self.end_orphan(uid, namespace, name);
            }
        }
        for uid in known.keys().filter(|uid| !listing.pods.contains_key(*uid)) {
            self.tell(uid, Message::Changed);
        }
        *known = listing.pods;
    }

    /// Something runs for a pod that is not there any more: a worker for what is left of it, to end it.
    fn end_orphan(&self, uid: &str, namespace: &str, name: &str) {
        tracing::info!(namespace, name, uid, "ending what is left of a deleted pod");
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                uid: Some(uid.to_owned()),
                deletion_timestamp: Some(Time(jiff::Timestamp::now())),
                deletion_grace_period_seconds: Some(2),
                annotations: Some(BTreeMap::from([(spec::CONFIG_SOURCE.to_owned(), "orphan".to_owned())])),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec { containers: vec![Container::default()], ..PodSpec::default() }),
            status: None,
        };
        self.update(Arc::new(pod));
        self.tell(uid, Message::Gone);
    }

    /// The pods and the statuses that their workers computed last.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        let entries = self.entries.lock();
        let with_status = |entry: &Entry| {
            let mut pod = (*entry.wanted).clone();
            if let Some(status) = entry.handle.status.borrow().status.as_deref() {
                pod.status = Some(status.clone());
            }
            Arc::new(pod)
        };
        entries.values().map(with_status).collect()
    }
}
