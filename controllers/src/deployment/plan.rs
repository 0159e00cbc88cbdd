//! The decisions of one pass: at most one step of a roll-out, then the status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};

use super::{scale, sets, status};
use crate::meta;

/// What one pass looks at.
pub struct Observed<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// The sets that it controls.
    pub sets: Vec<Arc<ReplicaSet>>,
    /// True while pods of other sets than the new one have not ended: a recreating roll-out waits for them.
    pub old_pods_running: bool,
    /// The time of the pass.
    pub now: Timestamp,
}

/// One write to a replica set.
#[derive(Debug, PartialEq)]
pub enum Write {
    /// A new set.
    Create(Box<ReplicaSet>),
    /// Another size or other annotations.
    Update {
        /// The set as it shall be.
        set: Box<ReplicaSet>,
        /// The size that it had, if that changes.
        scaled_from: Option<i32>,
    },
    /// History that nobody wants any more.
    Delete(String),
}

/// Everything that one pass does.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// Writes to the sets, in order.
    pub writes: Vec<Write>,
    /// The revision to note on the deployment, if it is another than noted there.
    pub revision: Option<String>,
    /// The deployment's status.
    pub status: DeploymentStatus,
    /// When to look again without a change.
    pub requeue: Option<Duration>,
}

/// A set while the pass works on it.
pub(super) struct Work {
    before: Arc<ReplicaSet>,
    /// The set as it shall be.
    pub after: ReplicaSet,
}

impl Work {
    fn new(set: &Arc<ReplicaSet>) -> Self {
        Self { before: set.clone(), after: (**set).clone() }
    }

    /// The size as it shall be.
    pub fn size(&self) -> i32 {
        sets::replicas(&self.after)
    }

    fn write(self) -> Option<Write> {
        if self.after == *self.before {
            return None;
        }
        let (from, to) = (sets::replicas(&self.before), self.size());
        Some(Write::Update { set: Box::new(self.after), scaled_from: (from != to).then_some(from) })
    }
}

/// The sets of a deployment while the pass works on them.
pub(super) struct Works {
    /// The set with the present template.
    pub new: Option<Work>,
    /// All others, oldest first.
    pub old: Vec<Work>,
}

impl Works {
    /// The sizes of all sets together.
    pub fn total(&self) -> i32 {
        self.new.iter().chain(&self.old).map(Work::size).sum()
    }
}

/// Works out one pass.
pub fn plan(o: Observed<'_>) -> Plan {
    let d = o.deployment;
    let (new, old) = sets::split(d, o.sets.clone());
    let mut status = status::calculate(d, new.as_deref(), &o.sets, o.now);
    if meta::is_deleting(&d.metadata) {
        return Plan { writes: Vec::new(), revision: None, status, requeue: None };
    }
    status::note_pause(d, &mut status, o.now);
    let mut works = Works { new: new.as_ref().map(Work::new), old: old.iter().map(Work::new).collect() };
    let revision = works.old.iter().map(|w| sets::revision(&w.before)).max().unwrap_or(0) + 1;
    if let Some(work) = &mut works.new {
        sets::annotate_new(d, &mut work.after, revision, true);
        work.after.spec.min_ready_seconds = min_ready(d, &work.before);
    }
    let mut outcome = Outcome::default();
    if status::is_paused(d) || is_scaling(d, &works) {
        scale::proportionally(d, &mut works);
        outcome.clean_up = status::is_paused(d);
    } else {
        note_found(d, new.as_deref(), &mut status, o.now);
        outcome = if sets::rolls(d) { roll(d, &mut works) } else { recreate(d, &mut works, o.old_pods_running) };
        outcome.roll_out = true;
    }
    if let Some(size) = outcome.create {
        let fresh = sets::fresh(d, size, revision);
        let text = format!("Created new replica set \"{}\"", meta::name(&fresh.metadata));
        if status::deadline(d).is_some() {
            status::set(
                &mut status,
                status::condition(status::PROGRESSING, "True", "NewReplicaSetCreated", text, o.now),
            );
        }
        let revision = note_revision(d, &fresh);
        return Plan { writes: vec![Write::Create(Box::new(fresh))], revision, status, requeue: None };
    }
    let revision = works.new.as_ref().and_then(|w| note_revision(d, &w.after));
    let mut doomed = Vec::new();
    if outcome.clean_up || (outcome.roll_out && !outcome.scaled && status::is_complete(d, &status)) {
        doomed = surplus_history(d, &old);
    }
    let requeue = outcome.roll_out.then(|| status::roll_out(d, new.as_deref(), &o.sets, &mut status, o.now)).flatten();
    let updates = works.new.into_iter().chain(works.old).filter_map(Work::write);
    Plan { writes: updates.chain(doomed).collect(), revision, status, requeue }
}

/// What a strategy decided besides the sizes.
#[derive(Default)]
struct Outcome {
    /// A new set of this size is to be made.
    create: Option<i32>,
    /// A set got another size.
    scaled: bool,
    /// History may be cleaned up whatever the status says.
    clean_up: bool,
    /// The pass was a step of a roll-out.
    roll_out: bool,
}

fn min_ready(d: &Deployment, set: &ReplicaSet) -> Option<i32> {
    let wanted = d.spec.min_ready_seconds;
    let has = set.spec.min_ready_seconds;
    if wanted.unwrap_or(0) == has.unwrap_or(0) { has } else { wanted }
}

/// True if the deployment's size was changed since its sets got theirs.
fn is_scaling(d: &Deployment, works: &Works) -> bool {
    let all = works.new.iter().chain(&works.old).filter(|w| w.size() > 0);
    all.filter_map(|w| sets::number(&w.before, sets::DESIRED)).any(|noted| noted != sets::desired(d))
}

fn note_found(d: &Deployment, new: Option<&ReplicaSet>, status: &mut DeploymentStatus, now: Timestamp) {
    let Some(set) = new else { return };
    if status::deadline(d).is_some() && status::get(status, status::PROGRESSING).is_none() {
        let text = format!("Found new replica set \"{}\"", meta::name(&set.metadata));
        status::set(status, status::condition(status::PROGRESSING, "True", "FoundNewReplicaSet", text, now));
    }
}

fn note_revision(d: &Deployment, set: &ReplicaSet) -> Option<String> {
    let wanted = meta::annotation(&set.metadata, sets::REVISION)?;
    (meta::annotation(&d.metadata, sets::REVISION) != Some(wanted)).then(|| wanted.to_owned())
}

/// The size that the new set may have now.
fn new_size(d: &Deployment, total: i32, present: i32) -> i32 {
    if !sets::rolls(d) {
        return sets::desired(d);
    }
    let room = sets::desired(d) + sets::bounds(d).surge - total;
    present + room.min(sets::desired(d) - present).max(0)
}

fn roll(d: &Deployment, works: &mut Works) -> Outcome {
    let total = works.total();
    let desired = sets::desired(d);
    let Some(new) = &mut works.new else {
        return Outcome { create: Some(new_size(d, total, 0)), ..Default::default() };
    };
    let size = if new.size() > desired { desired } else { new_size(d, total, new.size()) };
    if size != new.size() {
        sets::scale(d, &mut new.after, size);
        return Outcome { scaled: true, ..Default::default() };
    }
    let scaled = shrink_old(d, works);
    Outcome { scaled, ..Default::default() }
}

/// Takes pods from old sets as far as availability allows: first those that are not available anyway.
fn shrink_old(d: &Deployment, works: &mut Works) -> bool {
    let Some(new) = &works.new else { return false };
    if works.old.iter().all(|w| w.size() == 0) {
        return false;
    }
    let min_available = sets::desired(d) - sets::bounds(d).unavailable;
    let new_unavailable = new.size() - sets::available(&new.before);
    let mut budget = works.total() - min_available - new_unavailable;
    if budget <= 0 {
        return false;
    }
    let mut scaled = false;
    for work in &mut works.old {
        let broken = work.size() - sets::available(&work.before);
        let down = broken.min(budget);
        if down > 0 {
            let size = work.size() - down;
            sets::scale(d, &mut work.after, size);
            budget -= down;
            scaled = true;
        }
    }
    let available: i32 = works.new.iter().chain(&works.old).map(|w| sets::available(&w.before)).sum();
    let mut spare = available - min_available;
    for work in &mut works.old {
        let down = work.size().min(spare);
        if down > 0 {
            let size = work.size() - down;
            sets::scale(d, &mut work.after, size);
            spare -= down;
            scaled = true;
        }
    }
    scaled
}

fn recreate(d: &Deployment, works: &mut Works, old_pods_running: bool) -> Outcome {
    let mut scaled = false;
    for work in works.old.iter_mut().filter(|w| w.size() > 0) {
        sets::scale(d, &mut work.after, 0);
        scaled = true;
    }
    if scaled || old_pods_running {
        return Outcome { scaled: true, ..Default::default() };
    }
    match &mut works.new {
        None => Outcome { create: Some(sets::desired(d)), ..Default::default() },
        Some(new) if new.size() != sets::desired(d) => {
            sets::scale(d, &mut new.after, sets::desired(d));
            Outcome { scaled: true, ..Default::default() }
        }
        Some(_) => Outcome::default(),
    }
}

/// Empty old sets beyond the history limit, the lowest revisions first.
fn surplus_history(d: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Write> {
    let Some(limit) = d.spec.revision_history_limit else { return Vec::new() };
    let mut alive: Vec<_> = old.iter().filter(|s| !meta::is_deleting(&s.metadata)).collect();
    let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    alive.sort_by_key(|s| sets::revision(s));
    let empty = |s: &ReplicaSet| {
        let status = s.status.clone().unwrap_or_default();
        status.replicas == 0 && sets::replicas(s) == 0 && status.observed_generation >= s.metadata.generation
    };
    let doomed = alive.into_iter().take(surplus).filter(|s| empty(s));
    doomed.map(|s| Write::Delete(meta::name(&s.metadata).to_owned())).collect()
}
