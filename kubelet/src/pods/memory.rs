//! What a pod's worker remembers from one round of planning to the next, because the runtime does not tell it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceRequirements;

use crate::container::resources::PodLimits;

/// First delay of restarting a crashing container, and of pulling an image again.
pub const BACKOFF_START: SignedDuration = SignedDuration::from_secs(10);
/// Longest delay.
pub const BACKOFF_MAX: SignedDuration = SignedDuration::from_secs(300);

/// An exponential back-off that forgets after a time without trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backoff {
    state: Option<(SignedDuration, Timestamp)>,
}

impl Backoff {
    /// The present delay; zero if there was no trouble yet.
    pub fn delay(&self) -> SignedDuration {
        self.state.map_or(SignedDuration::ZERO, |(delay, _)| delay)
    }

    /// Until when to wait, if the trouble was at `since`.
    pub fn until(&self, since: Timestamp) -> Option<Timestamp> {
        let (delay, updated) = self.state?;
        // An episode ends when nothing happened for twice the longest delay.
        (since.duration_since(updated) <= BACKOFF_MAX * 2).then(|| since + delay)
    }

    /// Trouble again: the next delay is twice the present one.
    pub fn next(&mut self, now: Timestamp) {
        let delay = match self.state {
            Some((delay, updated)) if now.duration_since(updated) <= BACKOFF_MAX * 2 => (delay * 2).min(BACKOFF_MAX),
            _ => BACKOFF_START,
        };
        self.state = Some((delay, now));
    }
}

/// Why a container or sandbox could not be started, and when to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Reason in the waiting state, such as `ErrImagePull`.
    pub reason: String,
    /// Message in the waiting state.
    pub message: String,
    /// When to try again.
    pub retry_at: Timestamp,
    /// The image that could not be had, if that is the trouble.
    pub image: Option<String>,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Holds the others back until it succeeds once.
    Startup,
    /// Its failure restarts the container.
    Liveness,
    /// Its failure takes the pod out of Services.
    Readiness,
}

impl ProbeKind {
    /// As at the start of a sentence.
    pub fn title(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }

    /// The word that events use.
    pub fn word(self) -> &'static str {
        match self {
            ProbeKind::Startup => "startup",
            ProbeKind::Liveness => "liveness",
            ProbeKind::Readiness => "readiness",
        }
    }
}

/// Memory about one container name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerMemory {
    /// Back-off of restarts.
    pub crash: Backoff,
    /// Back-off of pulls.
    pub pull: Backoff,
    /// The last attempt to start it failed.
    pub failure: Option<Failure>,
}

/// What the probes of one container (by its runtime id) have found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// The startup probe has succeeded, or there is none and the container runs.
    pub started: bool,
    /// The readiness probe succeeds, or there is none.
    pub ready: bool,
    /// The probe whose failure asks for a restart.
    pub failed: Option<ProbeKind>,
}

/// Memory about one pod.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By container name.
    pub containers: BTreeMap<String, ContainerMemory>,
    /// By container id; a container without entry has not been started by this process or seen yet.
    pub health: BTreeMap<String, Health>,
    /// Ids of containers that are being killed.
    pub killing: BTreeSet<String>,
    /// Ids of sandboxes that were stopped.
    pub stopped: BTreeSet<String>,
    /// The sandbox could not be made, or the pod not be prepared for it.
    pub failure: Option<Failure>,
    /// Resources that containers really have, by id.
    pub actuated: BTreeMap<String, Option<ResourceRequirements>>,
    /// Ids of containers that were ended to be started again with other resources.
    pub restart: BTreeSet<String>,
    /// Values of the pod's control group, once it is there.
    pub group: Option<PodLimits>,
    /// Granted resources could not be put into effect.
    pub unresized: Option<Failure>,
}

impl Memory {
    /// What the probes know of a container.
    pub fn health(&self, id: &str) -> Health {
        self.health.get(id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_is_bounded_and_forgets() {
        let t0: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut b = Backoff::default();
        assert_eq!(b.until(t0), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            b.next(t0);
            delays.push(b.delay().as_secs());
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(b.until(t0), Some(t0 + BACKOFF_MAX));
        let later = t0 + SignedDuration::from_secs(601);
        assert_eq!(b.until(later), None);
        b.next(later);
        assert_eq!(b.delay(), BACKOFF_START);
    }
}
