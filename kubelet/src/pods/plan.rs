//! What to do next for a pod: a pure function of its specification, of what the runtime has, of what the worker
//! remembers and of the time. Level-triggered: run again after every change, it always aims at the whole desired state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::memory::{Failure, Memory, ProbeKind};
use super::model::{Record, RuntimePod, Sandbox, State};
use super::resize;
use super::spec::{self, Kind};

/// Why a pod is to be ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Deleted through the API, or its object or file is gone.
    Deleted,
    /// Ended by the node: deadline, admission, eviction; (reason, message) of the Failed status.
    Failed(String, String),
}

/// The order to end a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Termination {
    /// Why.
    pub end: End,
    /// When it began.
    pub since: Timestamp,
    /// Seconds from then that containers have to stop by themselves.
    pub grace: i64,
}

/// All that a plan depends on.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the runtime has.
    pub runtime: &'a RuntimePod,
    /// What the worker remembers.
    pub memory: &'a Memory,
    /// Set if the pod is to be ended.
    pub termination: Option<&'a Termination>,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a sandbox.
    CreateSandbox {
        /// Its attempt number.
        attempt: u32,
    },
    /// Stop a sandbox and give back its network.
    StopSandbox {
        /// Its id.
        id: String,
    },
    /// Make and start a container; those of one plan one after the other.
    Start {
        /// Its name.
        name: String,
        /// Its restart count.
        restart_count: u32,
        /// It ran before and ended: the crash back-off grows.
        crashed: bool,
    },
    /// Change resources in place: of the pod's control group, and of these containers.
    Resize {
        /// Their ids and names.
        containers: Vec<(String, String)>,
    },
    /// Stop a container; kills run beside each other.
    Kill {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
        /// Grace period in seconds.
        grace: i64,
        /// The event's message.
        message: String,
    },
}

/// Why a container waits: the state's reason and message.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Reason, such as `CrashLoopBackOff`.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// What to do, when to look again, and what waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order.
    pub actions: Vec<Action>,
    /// When to plan again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// Containers that wait for a back-off, by name.
    pub waiting: BTreeMap<String, Waiting>,
    /// Nothing of the pod runs and nothing will.
    pub done: bool,
    /// Ids of containers that are killed to be started again, whatever their restart policy.
    pub restarts: Vec<String>,
}

impl Plan {
    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |t| t.min(at)));
    }

    fn wait(&mut self, name: &str, failure: &Failure) {
        let waiting = Waiting { reason: failure.reason.clone(), message: failure.message.clone() };
        self.waiting.insert(name.to_owned(), waiting);
        self.wake(failure.retry_at);
    }
}

/// The plan.
pub fn plan(view: View<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(termination) = view.termination {
        let deadline = termination.since + jiff::SignedDuration::from_secs(termination.grace);
        end(view, &mut plan, Some(deadline));
    } else if ended_before(view.pod) || finished(view.pod, view.runtime, view.memory) {
        end(view, &mut plan, None);
    } else {
        match usable_sandbox(view.pod, view.runtime) {
            Some(sandbox) => containers(view, sandbox, &mut plan),
            None => new_sandbox(view, &mut plan),
        }
    }
    plan
}

/// True if the API has it that the pod has ended: nothing of it is started again, whatever the runtime forgot.
fn ended_before(pod: &Pod) -> bool {
    spec::is_terminal_phase(pod.status.as_ref().and_then(|s| s.phase.as_deref()))
}

/// The newest sandbox, if it is up and on the right network.
pub fn usable_sandbox<'a>(pod: &Pod, runtime: &'a RuntimePod) -> Option<&'a Sandbox> {
    let host = spec::host_network(pod);
    runtime.sandbox().filter(|s| s.ready && s.host_network == host && (host || !s.ips.is_empty()))
}

/// True if no container of the pod runs or will run again by its restart policy.
pub fn finished(pod: &Pod, runtime: &RuntimePod, memory: &Memory) -> bool {
    let over_for_good =
        |kind, c: &Container, r: &Record| !memory.restart.contains(&r.id) && ended_for_good(pod, kind, c, r);
    let failed_init = spec::init_containers(pod).iter().any(|c| {
        !spec::is_sidecar(Kind::Init, c)
            && runtime.latest(&c.name).is_some_and(|r| over_for_good(Kind::Init, c, r) && r.exit_code != 0)
    });
    let apps = &spec::spec(pod).containers;
    let over = apps.iter().all(|c| runtime.latest(&c.name).is_some_and(|r| over_for_good(Kind::App, c, r)));
    let running = apps.iter().any(|c| runtime.latest(&c.name).is_some_and(|r| r.state == State::Running));
    (over || failed_init || abandoned(pod, runtime)) && !running
}

/// A pod that is not to be restarted, whose sandbox is gone before its app containers ran.
fn abandoned(pod: &Pod, runtime: &RuntimePod) -> bool {
    spec::restart_policy(pod) == "Never"
        && runtime.sandbox().is_some_and(|s| !s.ready)
        && !runtime.containers.is_empty()
        && spec::spec(pod).containers.iter().all(|c| !spec::restarts(pod, Kind::App, c, None))
}

fn ended_for_good(pod: &Pod, kind: Kind, container: &Container, record: &Record) -> bool {
    record.state == State::Exited && !spec::restarts(pod, kind, container, Some(record.exit_code))
}

/// Steps of ending: app containers, then sidecars from the last to the first, then the sandboxes. With a deadline the
/// grace period is what is left of it.
fn end(view: View<'_>, plan: &mut Plan, deadline: Option<Timestamp>) {
    let grace = match deadline {
        Some(deadline) => deadline.duration_since(view.now).as_secs().max(0),
        None => spec::grace_period(view.pod),
    };
    let init = spec::init_containers(view.pod);
    let place = |r: &Record| init.iter().position(|c| c.name == r.name && spec::is_sidecar(Kind::Init, c));
    let (sidecars, mains): (Vec<_>, Vec<_>) = view.runtime.running().partition(|r| place(r).is_some());
    let mut now: Vec<&Record> = mains;
    if now.is_empty() {
        let last = sidecars.iter().filter_map(|r| place(r)).max();
        now = sidecars.into_iter().filter(|r| place(r) == last).collect();
    }
    if now.is_empty() && view.memory.killing.is_empty() {
        let open = view.runtime.sandboxes.iter().filter(|s| !view.memory.stopped.contains(&s.id));
        plan.actions.extend(open.map(|s| Action::StopSandbox { id: s.id.clone() }));
        plan.done = plan.actions.is_empty();
        return;
    }
    for record in now {
        kill(view, plan, record, grace, format!("Stopping container {}", record.name));
    }
}

fn kill(view: View<'_>, plan: &mut Plan, record: &Record, grace: i64, message: String) {
    if !view.memory.killing.contains(&record.id) {
        plan.actions.push(Action::Kill { id: record.id.clone(), name: record.name.clone(), grace, message });
    }
}

/// The sandbox is missing or unusable: end what is left of it, then make the next.
fn new_sandbox(view: View<'_>, plan: &mut Plan) {
    for record in view.runtime.running() {
        let message = format!("Stopping container {}", record.name);
        kill(view, plan, record, spec::grace_period(view.pod), message);
    }
    if !plan.actions.is_empty() || !view.memory.killing.is_empty() {
        return;
    }
    let open = view.runtime.sandboxes.iter().filter(|s| !view.memory.stopped.contains(&s.id));
    plan.actions.extend(open.map(|s| Action::StopSandbox { id: s.id.clone() }));
    match &view.memory.failure {
        Some(failure) if failure.retry_at > view.now => plan.wake(failure.retry_at),
        _ => {
            let attempt = view.runtime.sandboxes.iter().map(|s| s.attempt + 1).max().unwrap_or(0);
            plan.actions.push(Action::CreateSandbox { attempt });
        }
    }
}

/// Everything inside a usable sandbox.
fn containers(view: View<'_>, sandbox: &Sandbox, plan: &mut Plan) {
    for stale in view.runtime.running().filter(|r| r.sandbox_id != sandbox.id) {
        kill(view, plan, stale, 0, format!("Stopping container {}", stale.name));
    }
    let initialized = initialize(view, sandbox, plan);
    for (kind, container) in spec::containers(view.pod) {
        // Ephemeral containers do not wait for the init containers.
        if kind == Kind::Ephemeral || (kind == Kind::App && initialized) {
            step(view, sandbox, plan, kind, &container);
        }
    }
    resize_in_place(view, sandbox, plan);
}

/// Puts granted resources into effect, before anything else is started.
fn resize_in_place(view: View<'_>, sandbox: &Sandbox, plan: &mut Plan) {
    let ended = |id: &str| plan.restarts.iter().any(|r| r == id) || view.memory.killing.contains(id);
    let mut containers = Vec::new();
    for (kind, container) in spec::containers(view.pod) {
        let record = view.runtime.latest_in(&sandbox.id, &container.name);
        let Some(record) = record.filter(|r| r.state == State::Running && kind != Kind::Ephemeral) else { continue };
        if resize::outdated(view.memory, record, &container) && !ended(&record.id) {
            containers.push((record.id.clone(), record.name.clone()));
        }
    }
    if containers.is_empty() && !resize::group_outdated(view.pod, view.memory) {
        return;
    }
    match &view.memory.unresized {
        Some(failure) if failure.retry_at > view.now => plan.wake(failure.retry_at),
        _ => plan.actions.insert(0, Action::Resize { containers }),
    }
}

/// Goes through the init containers in order; true once the app containers may start.
fn initialize(view: View<'_>, sandbox: &Sandbox, plan: &mut Plan) -> bool {
    let apps = &spec::spec(view.pod).containers;
    // Finished init containers may have been removed since; an app container proves that they had finished.
    let begun = apps.iter().any(|c| view.runtime.latest_in(&sandbox.id, &c.name).is_some());
    for container in spec::init_containers(view.pod) {
        if spec::is_sidecar(Kind::Init, container) {
            step(view, sandbox, plan, Kind::Init, container);
            let record = view.runtime.latest_in(&sandbox.id, &container.name);
            let up = record.is_some_and(|r| r.state == State::Running && view.memory.health(&r.id).started);
            if !up && !begun {
                return false;
            }
        } else if !begun {
            let record = view.runtime.latest_in(&sandbox.id, &container.name);
            if !record.is_some_and(|r| r.state == State::Exited && r.exit_code == 0) {
                step(view, sandbox, plan, Kind::Init, container);
                return false;
            }
        }
    }
    true
}

/// One container: start, restart, kill, wait or nothing.
fn step(view: View<'_>, sandbox: &Sandbox, plan: &mut Plan, kind: Kind, container: &Container) {
    let Some(record) = view.runtime.latest(&container.name) else {
        return start(view, plan, container, 0, None);
    };
    match record.state {
        State::Running if record.sandbox_id == sandbox.id => running(view, plan, kind, container, record),
        State::Running => {}
        State::Exited => {
            let again = spec::restarts(view.pod, kind, container, Some(record.exit_code))
                // A finished init container is run again in a new sandbox.
                || (kind == Kind::Init && record.sandbox_id != sandbox.id)
                || view.memory.restart.contains(&record.id);
            if again {
                start(view, plan, container, record.restart_count + 1, Some(record));
            }
        }
        State::Created | State::Unknown => {
            if spec::restarts(view.pod, kind, container, None) || record.started_at == 0 {
                start(view, plan, container, record.restart_count + 1, None);
            }
        }
    }
}

fn running(view: View<'_>, plan: &mut Plan, kind: Kind, container: &Container, record: &Record) {
    let title = if kind == Kind::Init { "Init container" } else { "Container" };
    let suffix = if spec::restarts(view.pod, kind, container, Some(137)) { ", will be restarted" } else { "" };
    if kind != Kind::Ephemeral && !record.hash.is_empty() && record.hash != hash(container) {
        let message = format!("{title} {} definition changed{suffix}", container.name);
        return kill(view, plan, record, spec::grace_period(view.pod), message);
    }
    if let Some(failed) = view.memory.health(&record.id).failed {
        let message = format!("{title} {} failed {} probe{suffix}", container.name, failed.word());
        return kill(view, plan, record, probe_grace(view.pod, container, failed), message);
    }
    let outdated = kind != Kind::Ephemeral && resize::outdated(view.memory, record, container);
    if outdated && resize::needs_restart(view.memory, record, container) {
        let message = format!("{title} {} resize requires restart", container.name);
        kill(view, plan, record, spec::grace_period(view.pod), message);
        plan.restarts.push(record.id.clone());
    }
}

/// A probe may shorten the grace period of the restart that it asks for.
fn probe_grace(pod: &Pod, container: &Container, kind: ProbeKind) -> i64 {
    let probe = match kind {
        ProbeKind::Startup => container.startup_probe.as_ref(),
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
    };
    probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or_else(|| spec::grace_period(pod))
}

fn start(view: View<'_>, plan: &mut Plan, container: &Container, restart_count: u32, ended: Option<&Record>) {
    let name = &container.name;
    let memory = view.memory.containers.get(name);
    if let Some(failure) = memory.and_then(|m| m.failure.as_ref()).filter(|f| f.retry_at > view.now) {
        return plan.wait(name, failure);
    }
    let finished_at = ended.and_then(|r| Timestamp::from_nanosecond(i128::from(r.finished_at)).ok());
    if let (Some(memory), Some(finished_at)) = (memory, finished_at)
        && let Some(until) = memory.crash.until(finished_at).filter(|until| *until > view.now)
    {
        let delay = go_duration(memory.crash.delay().as_secs());
        let pod = spec::full_name(view.pod);
        let message = format!("back-off {delay} restarting failed container={name} pod={pod}");
        return plan
            .wait(name, &Failure { reason: "CrashLoopBackOff".to_owned(), message, retry_at: until, image: None });
    }
    plan.actions.push(Action::Start { name: name.clone(), restart_count, crashed: ended.is_some() });
}

/// Seconds as Go prints a duration.
pub fn go_duration(seconds: i64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// Hash of what forces a restart when it changes: name and image. FNV-1a, in hexadecimal.
pub fn hash(container: &Container) -> String {
    let text = serde_json::json!({"name": container.name, "image": container.image}).to_string();
    let hash = text.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

#[cfg(test)]
mod tests;
