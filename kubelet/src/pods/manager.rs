//! Which pods there are: feeds their workers from the API, from the runtime's list and from the clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use tokio_util::sync::CancellationToken;

use super::observe::{self, Listing, Mark};
use super::roster::{Entry, Place, Roster, Shown};
use super::worker::{self, Handle, Message};
use super::writer::Target;
use super::{resize, spec};
use crate::admission::Rejection;
use crate::container::resources;
use crate::shared::Shared;
use crate::volumes;

/// Time between two lists of the runtime.
const RELIST: Duration = Duration::from_secs(1);

/// Pause before the runtime's events are asked for again.
const RETRY_EVENTS: Duration = Duration::from_secs(5);

/// All pods of the node. Clones share them.
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
    roster: Arc<Mutex<Roster>>,
}

impl Manager {
    /// No pods yet.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, roster: Arc::default() }
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
        let success = self.shared.config.telemetry.success("runtime-relist");
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
                        success.now();
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
        let roster = self.roster.lock();
        let burstable = roster.0.values().filter(|e| !e.ended() && spec::qos(&e.pod) == spec::Qos::Burstable);
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
            if self.roster.lock().0.contains_key(&uid) {
                continue;
            }
            tracing::info!(uid, "removing what is left of a pod that is gone");
            self.shared.cgroups.remove(&uid);
            if let Err(error) = volumes::remove(&volumes::Disk::default(), folder.join(&uid)).await {
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
        let place = Place::read(&self.shared);
        let mut roster = self.roster.lock();
        if roster.0.contains_key(&uid) {
            return roster.grant(&uid, pod, &place);
        }
        let rejection = roster.reject(&pod, &place);
        let rejected = rejection.is_some();
        let granted = if Roster::is_taken(&pod) { Arc::new(resize::adopted(&pod)) } else { pod.clone() };
        let handle = self.spawn(uid.clone(), granted.clone(), rejection);
        let resized = resize::differs(&pod, &granted);
        roster.0.insert(uid.clone(), Entry::new(granted, handle, rejected));
        if resized {
            roster.grant(&uid, pod, &place);
        }
    }

    /// Looks again at what could not be granted: another pod may have left room.
    fn grant_deferred(&self) {
        if self.roster.lock().waiting().is_empty() {
            return;
        }
        let place = Place::read(&self.shared);
        let mut roster = self.roster.lock();
        for (uid, wanted) in roster.waiting() {
            roster.grant(&uid, wanted, &place);
        }
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
        let roster = self.roster.clone();
        worker::spawn(self.shared.clone(), pod, rejected, move || {
            roster.lock().0.remove(&uid);
        })
    }

    fn tell(&self, uid: &str, message: Message) {
        if let Some(entry) = self.roster.lock().0.get(uid) {
            let _ = entry.handle.messages.send(message);
        }
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for entry in self.roster.lock().0.values() {
            let _ = entry.handle.messages.send(message());
        }
    }

    /// Wakes the workers of pods whose list differs; ends what no pod owns.
    fn relisted(&self, known: &mut HashMap<String, Vec<Mark>>, listing: Listing) {
        for (uid, marks) in &listing.pods {
            if known.get(uid) == Some(marks) {
                continue;
            }
            if self.roster.lock().0.contains_key(uid) {
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
        let shown: Vec<Shown> = self.roster.lock().0.values().map(Entry::shown).collect();
        shown.into_iter().map(Shown::pod).collect()
    }
}
