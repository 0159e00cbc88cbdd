//! Which pods there are: feeds their workers from the API, from the runtime's list and from the clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use tokio_util::sync::CancellationToken;

use super::observe::{self, Listing, Mark};
use super::spec;
use super::worker::{self, Handle, Message};
use crate::shared::Shared;

/// Time between two lists of the runtime.
const RELIST: Duration = Duration::from_secs(1);

/// A pod on this node.
#[derive(Clone)]
struct Entry {
    pod: Arc<Pod>,
    handle: Handle,
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
        let mut relist = tokio::time::interval(RELIST);
        relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut refresh = tokio::time::interval(self.shared.config.sync_frequency);
        refresh.reset();
        let mut known: HashMap<String, Vec<Mark>> = HashMap::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                change = changes.recv() => match change {
                    Some(change) => self.change(change),
                    None => return,
                },
                _ = relist.tick() => match observe::list(&self.shared.cri).await {
                    Ok(listing) => self.relisted(&mut known, listing),
                    Err(error) => tracing::debug!(%error, "runtime not listed"),
                },
                _ = refresh.tick() => self.tell_all(|| Message::Refresh),
            }
        }
    }

    fn change(&self, change: Change<Pod>) {
        match change {
            Change::Added(pod) | Change::Updated { new: pod, .. } => self.update(pod),
            Change::Deleted(pod) => self.tell(spec::uid(&pod), Message::Gone),
        }
    }

    /// A new pod, or a new version of one.
    pub fn update(&self, pod: Arc<Pod>) {
        let uid = spec::uid(&pod).to_owned();
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&uid) {
            entry.pod = pod.clone();
            let _ = entry.handle.messages.send(Message::Pod(pod));
            return;
        }
        let handle = self.spawn(uid.clone(), pod.clone());
        entries.insert(uid, Entry { pod, handle });
    }

    fn spawn(&self, uid: String, pod: Arc<Pod>) -> Handle {
        let entries = self.entries.clone();
        worker::spawn(self.shared.clone(), pod, move || {
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
            let mut pod = (*entry.pod).clone();
            if let Some(status) = entry.handle.status.borrow().status.as_deref() {
                pod.status = Some(status.clone());
            }
            Arc::new(pod)
        };
        entries.values().map(with_status).collect()
    }
}
