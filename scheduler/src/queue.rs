//! Pods that wait for a node.
//!
//! A pod is in one of these places: *active* (ready, by priority and then by age), *backoff* (ready once a pause is over),
//! *unschedulable* (until something changes that could help, or five minutes pass), *gated* (held back by scheduling gates), or
//! *in flight* (being scheduled or bound). Time is passed in; nothing here reads a clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cycle::Nominations;
use crate::framework::Events;
use crate::pod::PodInfo;

/// The pauses of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// After the first failure.
    pub initial: Duration,
    /// The longest.
    pub max: Duration,
    /// After this time an unschedulable pod is tried again whatever happened.
    pub flush: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { initial: Duration::from_secs(1), max: Duration::from_secs(10), flush: Duration::from_secs(300) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    Backoff,
    Unschedulable,
    Gated,
    InFlight,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    place: Place,
    sequence: u64,
    attempts: u32,
    /// When the pause after the last failure is over.
    ready: Instant,
    /// When the last attempt ended.
    since: Instant,
    /// The changes that can help.
    wake: Events,
    /// What changed during the attempt that is under way.
    missed: Events,
    /// The last failure was an error, not a lack of room: the pause is kept.
    errored: bool,
    /// The node that was cleared for the pod.
    nominated: Option<String>,
}

type ActiveKey = (Reverse<i32>, u64, String);

/// The queue.
#[derive(Debug)]
pub struct Queue {
    pauses: Pauses,
    entries: HashMap<String, Entry>,
    active: BTreeSet<ActiveKey>,
    backoff: BTreeSet<(Instant, String)>,
    /// Unschedulable and in flight: those that changes in the cluster concern.
    resting: BTreeSet<String>,
    nominated: BTreeSet<String>,
    sequence: u64,
    next_flush: Instant,
    /// Number of pods in each place.
    places: [usize; 5],
}

/// How often unschedulable pods are looked through for ones that waited too long.
const FLUSH_PERIOD: Duration = Duration::from_secs(30);

impl Queue {
    /// An empty queue.
    pub fn new(pauses: Pauses, now: Instant) -> Queue {
        Queue {
            pauses,
            entries: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            resting: BTreeSet::new(),
            nominated: BTreeSet::new(),
            sequence: 0,
            next_flush: now + FLUSH_PERIOD,
            places: [0; 5],
        }
    }

    fn keys(uid: &str, entry: &Entry) -> (ActiveKey, (Instant, String)) {
        ((Reverse(entry.pod.priority()), entry.sequence, uid.to_owned()), (entry.ready, uid.to_owned()))
    }

    /// Changes an entry and keeps the ordered sets in step.
    fn edit(&mut self, uid: &str, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let (active, backoff) = Self::keys(uid, entry);
        self.active.remove(&active);
        self.backoff.remove(&backoff);
        self.resting.remove(uid);
        self.nominated.remove(uid);
        self.places[entry.place as usize] -= 1;
        change(entry);
        self.places[entry.place as usize] += 1;
        if entry.nominated.is_some() {
            self.nominated.insert(uid.to_owned());
        }
        let (active, backoff) = Self::keys(uid, entry);
        match entry.place {
            Place::Active => _ = self.active.insert(active),
            Place::Backoff => _ = self.backoff.insert(backoff),
            Place::Unschedulable | Place::InFlight => _ = self.resting.insert(uid.to_owned()),
            Place::Gated => {}
        }
    }

    /// Takes in a new pod, or the new state of one that is here.
    pub fn set(&mut self, pod: Arc<PodInfo>, now: Instant) {
        let uid = pod.uid().to_owned();
        if let Some(entry) = self.entries.get(&uid) {
            let changed = matters(&entry.pod, &pod);
            let gated = pod.is_gated();
            let nominated = pod.nominated().map(str::to_owned);
            self.edit(&uid, |entry| {
                entry.nominated = nominated;
                entry.pod = pod;
                match entry.place {
                    Place::Gated if !gated => entry.place = Place::Active,
                    Place::Active | Place::Backoff | Place::Unschedulable if gated => entry.place = Place::Gated,
                    _ => {}
                }
            });
            if changed {
                self.wake_one(&uid, Events::SELF_UPDATE, now);
            }
            return;
        }
        self.sequence += 1;
        let place = if pod.is_gated() { Place::Gated } else { Place::Active };
        let nominated = pod.nominated().map(str::to_owned);
        let entry = Entry {
            pod,
            place: Place::Gated,
            sequence: self.sequence,
            attempts: 0,
            ready: now,
            since: now,
            wake: Events::ALL,
            missed: Events::NONE,
            errored: false,
            nominated,
        };
        self.entries.insert(uid.clone(), entry);
        self.places[Place::Gated as usize] += 1;
        self.edit(&uid, |entry| entry.place = place);
    }

    /// Forgets a pod; says whether it was here.
    pub fn remove(&mut self, uid: &str) -> bool {
        self.edit(uid, |entry| (entry.place, entry.nominated) = (Place::Gated, None));
        let removed = self.entries.remove(uid).is_some();
        self.places[Place::Gated as usize] -= usize::from(removed);
        removed
    }

    /// The next pod to schedule; it is in flight until [`Queue::failed`] or [`Queue::remove`].
    pub fn pop(&mut self, now: Instant) -> Option<Arc<PodInfo>> {
        self.tick(now);
        let uid = match self.active.first() {
            Some((_, _, uid)) => uid.clone(),
            // Nothing better to do: a pod that pauses only for lack of room may go early.
            None => self
                .backoff
                .iter()
                .map(|(_, uid)| uid)
                .find(|uid| self.entries.get(*uid).is_some_and(|e| !e.errored))?
                .clone(),
        };
        self.edit(&uid, |entry| {
            entry.place = Place::InFlight;
            entry.attempts += 1;
            entry.missed = Events::NONE;
        });
        self.entries.get(&uid).map(|e| e.pod.clone())
    }

    /// Moves what is due: pauses that are over, and pods that waited too long.
    fn tick(&mut self, now: Instant) {
        let due: Vec<String> =
            self.backoff.iter().take_while(|(at, _)| *at <= now).map(|(_, uid)| uid.clone()).collect();
        due.iter().for_each(|uid| self.edit(uid, |entry| entry.place = Place::Active));
        if now < self.next_flush {
            return;
        }
        self.next_flush = now + FLUSH_PERIOD;
        let flush = self.pauses.flush;
        let waited = |e: &Entry| e.place == Place::Unschedulable && now.duration_since(e.since) > flush;
        let stale = self.resting.iter().filter(|uid| self.entries.get(*uid).is_some_and(waited));
        let stale: Vec<String> = stale.cloned().collect();
        stale.iter().for_each(|uid| self.edit(uid, |entry| entry.place = Place::Active));
    }

    /// When to look again if nothing happens.
    pub fn next_due(&self) -> Option<Instant> {
        let pause = self.backoff.first().map(|(at, _)| *at);
        let flush = (!self.resting.is_empty()).then_some(self.next_flush);
        pause.into_iter().chain(flush).min()
    }

    /// Puts a pod back for which there was no node. `wake` says which changes can help.
    pub fn failed(&mut self, uid: &str, wake: Events, now: Instant) {
        let pause = self.pause(uid);
        self.edit(uid, |entry| {
            entry.errored = false;
            entry.wake = wake;
            entry.since = now;
            entry.ready = now + pause;
            entry.place = if entry.missed.meets(wake) { Place::Backoff } else { Place::Unschedulable };
        });
    }

    /// Puts a pod back whose attempt ended in an error.
    pub fn errored(&mut self, uid: &str, now: Instant) {
        let pause = self.pause(uid);
        self.edit(uid, |entry| {
            entry.errored = true;
            entry.since = now;
            entry.ready = now + pause;
            entry.place = Place::Backoff;
        });
    }

    fn pause(&self, uid: &str) -> Duration {
        let attempts = self.entries.get(uid).map_or(1, |e| e.attempts.max(1));
        self.pauses.initial.saturating_mul(1 << (attempts - 1).min(16)).min(self.pauses.max)
    }

    /// Something changed in the cluster: pods that it can help move on.
    pub fn wake(&mut self, event: Events, now: Instant) {
        let uids: Vec<String> = self.resting.iter().cloned().collect();
        uids.iter().for_each(|uid| self.wake_one(uid, event, now));
    }

    fn wake_one(&mut self, uid: &str, event: Events, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match entry.place {
            Place::InFlight => entry.missed = entry.missed.or(event),
            Place::Unschedulable if entry.wake.meets(event) => {
                self.edit(uid, |e| e.place = if e.ready > now { Place::Backoff } else { Place::Active });
            }
            _ => {}
        }
    }

    /// Numbers of pods: active, pausing, unschedulable, gated.
    pub fn counts(&self) -> [usize; 4] {
        [Place::Active, Place::Backoff, Place::Unschedulable, Place::Gated].map(|place| self.places[place as usize])
    }

    /// Notes that a node was cleared for a pod, or no longer is.
    pub fn nominate(&mut self, uid: &str, node: Option<String>) {
        self.edit(uid, |entry| entry.nominated = node);
    }

    /// All promises of nodes to waiting pods.
    pub fn nominations(&self) -> Nominations {
        let mut out: Nominations = BTreeMap::new();
        for entry in self.nominated.iter().filter_map(|uid| self.entries.get(uid)) {
            if let Some(node) = &entry.nominated {
                out.entry(node.clone()).or_default().push(entry.pod.clone());
            }
        }
        out
    }

    /// Whether the pod is here, be it in flight.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }
}

/// Whether a pod changed in a way that can matter for where it fits (not just its status).
fn matters(old: &PodInfo, new: &PodInfo) -> bool {
    old.pod.metadata.labels != new.pod.metadata.labels
        || old.pod.spec != new.pod.spec
        || old.is_terminating() != new.is_terminating()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::info;
    use serde_json::json;

    fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
        info(json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": []}}))
    }

    fn names(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now)).map(|p| p.name().to_owned()).collect()
    }

    #[test]
    fn priority_then_age() {
        let now = Instant::now();
        let mut queue = Queue::new(Pauses::default(), now);
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            queue.set(pod(name, priority), now);
        }
        assert_eq!(names(&mut queue, now), ["b", "d", "a", "c"]);
    }

    #[test]
    fn unschedulable_pods_wait_for_what_helps() {
        let now = Instant::now();
        let mut queue = Queue::new(Pauses::default(), now);
        let after = |s| now + Duration::from_secs(s);
        queue.set(pod("a", 0), now);
        queue.pop(now);
        queue.failed("a", Events::NODE_ADD, now);
        assert_eq!(queue.counts(), [0, 0, 1, 0]);
        queue.wake(Events::POD_DELETE, after(2));
        assert!(queue.pop(after(2)).is_none());
        queue.wake(Events::NODE_ADD, after(2));
        assert!(queue.pop(after(2)).is_some());
        // What happens during the attempt is not lost.
        queue.wake(Events::NODE_ADD, after(2));
        queue.failed("a", Events::NODE_ADD, after(2));
        assert_eq!((queue.next_due(), queue.counts()), (Some(after(4)), [0, 1, 0, 0]));
        assert!(queue.pop(after(4)).is_some());
        // Five minutes are the longest wait.
        queue.failed("a", Events::NODE_ADD, after(4));
        assert!(queue.pop(after(300)).is_none());
        assert!(queue.pop(after(335)).is_some());
        queue.set(pod("b", 0), after(335));
        assert_eq!(queue.counts(), [1, 0, 0, 0]);
        queue.remove("a");
        queue.remove("b");
        assert_eq!(queue.counts(), [0; 4]);
    }

    #[test]
    fn errors_pause_ever_longer() {
        let now = Instant::now();
        let mut queue = Queue::new(Pauses::default(), now);
        queue.set(pod("a", 0), now);
        let mut at = now;
        for pause in [1, 2, 4, 8, 10, 10] {
            assert!(queue.pop(at).is_some());
            queue.errored("a", at);
            assert!(queue.pop(at + Duration::from_millis(pause * 1000 - 1)).is_none());
            at += Duration::from_secs(pause);
        }
    }

    #[test]
    fn gates_hold_a_pod_back() {
        let now = Instant::now();
        let mut queue = Queue::new(Pauses::default(), now);
        let gated = json!({"metadata": {"name": "a"}, "spec": {"containers": [], "schedulingGates": [{"name": "g"}]}});
        queue.set(info(gated), now);
        assert!(queue.pop(now).is_none() && queue.contains("a"));
        queue.set(pod("a", 0), now);
        assert!(queue.pop(now).is_some());
        assert!(queue.remove("a") && !queue.remove("a"));
    }
}
