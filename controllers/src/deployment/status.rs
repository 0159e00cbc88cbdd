//! The deployment's status and conditions, with upstream's reasons and messages.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::sets::{bounds, desired};
use crate::meta;

/// Condition types.
pub const AVAILABLE: &str = "Available";
/// Tells how the roll-out is doing.
pub const PROGRESSING: &str = "Progressing";
/// Tells that pods cannot be made.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// The counts and the Available condition, from the sets' own status. Other conditions stay.
pub fn calculate(
    d: &Deployment,
    new: Option<&ReplicaSet>,
    all: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let old = d.status.clone().unwrap_or_default();
    let sum = |pick: fn(&ReplicaSet) -> i32| all.iter().map(|s| pick(s)).sum::<i32>();
    let total = sum(|s| s.status.as_ref().map_or(0, |s| s.replicas));
    let available = sum(super::sets::available);
    let ready = sum(|s| s.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or(0));
    let terminating: Vec<i32> =
        all.iter().filter_map(|s| s.status.as_ref().and_then(|s| s.terminating_replicas)).collect();
    let updated = new.and_then(|s| s.status.as_ref()).map_or(0, |s| s.replicas);
    let mut status = DeploymentStatus {
        observed_generation: d.metadata.generation,
        replicas: nonzero(total),
        updated_replicas: nonzero(updated),
        ready_replicas: nonzero(ready),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((total - available).max(0)),
        terminating_replicas: (terminating.len() == all.len()).then(|| terminating.iter().sum()),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let enough = available >= desired(d) - bounds(d).unavailable;
    let (state, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, condition(AVAILABLE, state, reason, message.to_owned(), now));
    status
}

fn nonzero(count: i32) -> Option<i32> {
    Some(count).filter(|c| *c != 0)
}

/// A condition that begins now.
pub fn condition(kind: &str, state: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(kind.to_owned()),
        status: Some(state.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// A condition by type.
pub fn get<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|c| c.type_.as_deref() == Some(kind))
}

/// Puts a condition in, unless one with the same state and reason is there; the transition time stays while the state does.
pub fn set(status: &mut DeploymentStatus, mut fresh: DeploymentCondition) {
    if let Some(present) = get(status, fresh.type_.as_deref().unwrap_or_default()) {
        if present.status == fresh.status && present.reason == fresh.reason {
            return;
        }
        if present.status == fresh.status {
            fresh.last_transition_time = present.last_transition_time.clone();
        }
    }
    replace(status, fresh);
}

fn replace(status: &mut DeploymentStatus, fresh: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|c| c.type_ != fresh.type_);
    conditions.push(fresh);
}

/// Takes a condition out.
pub fn remove(status: &mut DeploymentStatus, kind: &str) {
    status.conditions.iter_mut().for_each(|all| all.retain(|c| c.type_.as_deref() != Some(kind)));
}

/// The deadline for progress, if there is one.
pub fn deadline(d: &Deployment) -> Option<Duration> {
    let seconds = d.spec.progress_deadline_seconds.filter(|s| *s != i32::MAX)?;
    Some(Duration::from_secs(u64::from(seconds.unsigned_abs())))
}

/// Notes that a roll-out was paused or resumed, so that the deadline does not run meanwhile.
pub fn note_pause(d: &Deployment, status: &mut DeploymentStatus, now: Timestamp) {
    if deadline(d).is_none() {
        return;
    }
    let reason = get(status, PROGRESSING).and_then(|c| c.reason.as_deref());
    if reason == Some(TIMED_OUT) {
        return;
    }
    let (paused, noted) = (is_paused(d), reason == Some(PAUSED));
    if paused && !noted {
        set(status, condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".to_owned(), now));
    } else if !paused && noted {
        set(status, condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed".to_owned(), now));
    }
}

/// True if the roll-out is paused.
pub fn is_paused(d: &Deployment) -> bool {
    d.spec.paused == Some(true)
}

/// True if every pod is new and available.
pub fn is_complete(d: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = desired(d);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation >= d.metadata.generation
}

fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |c: Option<i32>| c.unwrap_or(0);
    let outdated = |s: &DeploymentStatus| count(s.replicas) - count(s.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// How long until the deadline passes (negative when it has); `None` if it does not run.
fn remaining(d: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<jiff::SignedDuration> {
    let current = get(status, PROGRESSING)?;
    if current.reason.as_deref() == Some(COMPLETE) {
        return None;
    }
    let from = current.last_update_time.as_ref()?.0;
    let end = from.checked_add(deadline(d)?).ok()?;
    Some(end.duration_since(now))
}

/// Brings the Progressing and ReplicaFailure conditions up to date; tells when to look again at the deadline.
pub fn roll_out(
    d: &Deployment,
    new: Option<&ReplicaSet>,
    all: &[Arc<ReplicaSet>],
    status: &mut DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let old = d.status.clone().unwrap_or_default();
    let reason = get(status, PROGRESSING).and_then(|c| c.reason.clone());
    let settled = status.replicas == status.updated_replicas && reason.as_deref() == Some(COMPLETE);
    if deadline(d).is_none() {
        remove(status, PROGRESSING);
    } else if !settled {
        progress(d, new, &old, status, now);
    }
    match failure(new, all) {
        Some(failure) => set(status, failure),
        None => remove(status, REPLICA_FAILURE),
    }
    if is_complete(d, status) {
        return None;
    }
    let late = get(status, PROGRESSING).and_then(|c| c.reason.as_deref()) == Some(TIMED_OUT);
    let left = remaining(d, status, now).filter(|_| !late)?;
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

fn progress(
    d: &Deployment,
    new: Option<&ReplicaSet>,
    old: &DeploymentStatus,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let subject = match new {
        Some(set) => format!("ReplicaSet \"{}\"", meta::name(&set.metadata)),
        None => format!("Deployment \"{}\"", meta::name(&d.metadata)),
    };
    if is_complete(d, status) {
        set(status, condition(PROGRESSING, "True", COMPLETE, format!("{subject} has successfully progressed."), now));
    } else if has_progressed(old, status) {
        let mut fresh = condition(PROGRESSING, "True", "ReplicaSetUpdated", format!("{subject} is progressing."), now);
        if let Some(current) = get(status, PROGRESSING).filter(|c| c.status.as_deref() == Some("True")) {
            fresh.last_transition_time = current.last_transition_time.clone();
        }
        replace(status, fresh);
    } else if remaining(d, status, now).is_some_and(|left| left.is_negative()) {
        set(status, condition(PROGRESSING, "False", TIMED_OUT, format!("{subject} has timed out progressing."), now));
    }
}

/// A set's failure as the deployment's own condition: the new set's if it has one, else the first of the others.
fn failure(new: Option<&ReplicaSet>, all: &[Arc<ReplicaSet>]) -> Option<DeploymentCondition> {
    let sets = new.into_iter().chain(all.iter().map(|s| &**s));
    let found = sets
        .flat_map(|s| s.status.iter().flat_map(|s| s.conditions.iter().flatten()))
        .find(|c| c.type_.as_deref() == Some(REPLICA_FAILURE))?;
    Some(DeploymentCondition {
        type_: found.type_.clone(),
        status: found.status.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
        last_transition_time: found.last_transition_time.clone(),
        last_update_time: found.last_transition_time.clone(),
    })
}
