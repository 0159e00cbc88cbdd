//! The pod's status as the API shows it: a pure function of specification, runtime and memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, HostIP, LinuxContainerUser, Pod, PodIP, PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions;
use super::memory::Memory;
use super::model::{Record, RuntimePod, State};
use super::plan::{End, Termination, Waiting, usable_sandbox};
use super::resize::Pending;
use super::spec::{self, Kind};

/// How far a resize has come.
#[derive(Clone, Copy, Default)]
pub struct Resize<'a> {
    /// It is not granted.
    pub pending: Option<&'a Pending>,
    /// It is granted and not in effect: since which generation, and what is in the way (empty for nothing).
    pub in_progress: Option<(Option<i64>, &'a str)>,
}

/// All that a status depends on.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The pod, with the status that the API has.
    pub pod: &'a Pod,
    /// What the runtime has.
    pub runtime: &'a RuntimePod,
    /// What the worker remembers.
    pub memory: &'a Memory,
    /// Why containers wait, by name.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Set if the pod is being ended.
    pub termination: Option<&'a Termination>,
    /// Nothing of the pod runs and nothing will.
    pub done: bool,
    /// How far a resize has come.
    pub resize: Resize<'a>,
    /// The status that was last computed here, before the API has it.
    pub last: Option<&'a PodStatus>,
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// When the kubelet first saw the pod.
    pub seen: Timestamp,
    /// The time.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// The newest known status.
    fn previous(&self) -> Option<&PodStatus> {
        self.last.or(self.pod.status.as_ref())
    }
}

/// The status.
pub fn status(facts: Facts<'_>) -> PodStatus {
    let of_kind = |kind| -> Vec<ContainerStatus> {
        let all = spec::containers(facts.pod).into_iter().filter(|(k, _)| *k == kind);
        all.map(|(_, c)| container_status(facts, kind, &c)).collect()
    };
    let init = of_kind(Kind::Init);
    let app = of_kind(Kind::App);
    let ephemeral = of_kind(Kind::Ephemeral);
    let previous = facts.previous();
    let sandbox = usable_sandbox(facts.pod, facts.runtime);
    let ips = pod_ips(facts);
    let host_ips: Vec<HostIP> = facts.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect();
    let mut status = PodStatus {
        phase: Some(phase(facts, &init, &app).to_owned()),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: Some(host_ips),
        pod_ip: ips.first().cloned(),
        pod_ips: Some(ips.into_iter().map(|ip| PodIP { ip }).collect::<Vec<_>>()).filter(|l| !l.is_empty()),
        qos_class: Some(spec::qos(facts.pod).name().to_owned()),
        start_time: previous.and_then(|s| s.start_time.clone()).or(Some(Time(facts.seen))),
        observed_generation: facts.pod.metadata.generation,
        init_container_statuses: Some(init).filter(|l| !l.is_empty()),
        container_statuses: Some(app),
        ephemeral_container_statuses: Some(ephemeral).filter(|l| !l.is_empty()),
        reason: previous.and_then(|s| s.reason.clone()),
        message: previous.and_then(|s| s.message.clone()),
        ..PodStatus::default()
    };
    if let Some(Termination { end: End::Failed(reason, message), .. }) = facts.termination {
        status.reason = Some(reason.clone());
        status.message = Some(message.clone());
    }
    status.conditions = Some(conditions::conditions(facts, &status, previous, sandbox.is_some()));
    status
}

/// The pod's addresses; those of a sandbox that is gone are kept until it has others.
fn pod_ips(facts: Facts<'_>) -> Vec<String> {
    if spec::host_network(facts.pod) {
        // Known only once the pod is accepted, as upstream shows it.
        return facts.host_ips.to_vec();
    }
    let now: Vec<String> = facts.runtime.sandbox().map(|s| s.ips.clone()).unwrap_or_default();
    if !now.is_empty() {
        return now;
    }
    let before = facts.previous().and_then(|s| s.pod_ips.as_ref());
    before.map(|l| l.iter().map(|p| p.ip.clone()).collect()).unwrap_or_default()
}

fn phase(facts: Facts<'_>, init: &[ContainerStatus], app: &[ContainerStatus]) -> &'static str {
    let previous = facts.previous().and_then(|s| s.phase.as_deref());
    match previous {
        Some("Failed") => return "Failed",
        Some("Succeeded") => return "Succeeded",
        _ => {}
    }
    if let Some(Termination { end: End::Failed(..), .. }) = facts.termination {
        return "Failed";
    }
    let terminated = |s: &ContainerStatus| s.state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
    let last = |s: &ContainerStatus| s.last_state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
    let running = |s: &ContainerStatus| s.state.as_ref().is_some_and(|s| s.running.is_some());
    let stopped: Vec<i32> =
        app.iter().filter(|s| !running(s)).filter_map(|s| terminated(s).or_else(|| last(s))).collect();
    let runs = app.iter().filter(|s| running(s)).count();
    let waiting = app.len() - runs - stopped.len();
    let failed_init = init.iter().zip(spec::init_containers(facts.pod)).any(|(s, c)| {
        !spec::is_sidecar(Kind::Init, c)
            && terminated(s).is_some_and(|code| code != 0 && !spec::restarts(facts.pod, Kind::Init, c, Some(code)))
    });
    let all_well = stopped.iter().all(|code| *code == 0);
    if facts.done {
        // Whatever has not run will not run any more.
        return if waiting == 0 && all_well && !failed_init { "Succeeded" } else { "Failed" };
    }
    if failed_init && runs == 0 {
        return "Failed";
    }
    let initialized = init.iter().zip(spec::init_containers(facts.pod)).all(|(s, c)| {
        if spec::is_sidecar(Kind::Init, c) {
            s.started == Some(true) || last(s).is_some()
        } else {
            terminated(s) == Some(0)
        }
    });
    if waiting > 0 || (runs == 0 && stopped.is_empty()) || (!initialized && runs == 0 && stopped.is_empty()) {
        return "Pending";
    }
    if runs > 0 || facts.termination.is_some() {
        return "Running";
    }
    let over = super::plan::finished(facts.pod, facts.runtime, facts.memory);
    match (over, all_well) {
        (false, _) => "Running",
        (true, true) => "Succeeded",
        (true, false) => "Failed",
    }
}

fn container_status(facts: Facts<'_>, kind: Kind, container: &Container) -> ContainerStatus {
    let old = old_status(facts, kind, &container.name);
    let record = facts.runtime.latest(&container.name);
    let mut status = match record {
        Some(record) => from_record(facts, kind, container, record, old),
        None => without_record(facts, kind, container, old),
    };
    let health = record.map(|r| facts.memory.health(&r.id)).unwrap_or_default();
    let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
    let completed = status.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0);
    match kind {
        Kind::Init if !spec::is_sidecar(kind, container) => {
            status.ready = completed;
            status.started = Some(running);
        }
        Kind::Ephemeral => status.ready = false,
        _ => {
            status.ready = running && health.started && health.ready;
            status.started = Some(running && health.started);
        }
    }
    status
}

fn old_status<'a>(facts: Facts<'a>, kind: Kind, name: &str) -> Option<&'a ContainerStatus> {
    let previous = facts.last.or(facts.pod.status.as_ref())?;
    let list = match kind {
        Kind::Init => previous.init_container_statuses.as_ref(),
        Kind::App => previous.container_statuses.as_ref(),
        Kind::Ephemeral => previous.ephemeral_container_statuses.as_ref(),
    };
    list?.iter().find(|s| s.name == name)
}

fn from_record(
    facts: Facts<'_>,
    kind: Kind,
    container: &Container,
    record: &Record,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = container_id(&record.id);
    let same = old.filter(|o| o.container_id.as_deref() == Some(&id));
    let before = facts.runtime.containers.iter().find(|r| r.name == record.name && r.id != record.id);
    let mut last_state = match (before, same, old) {
        (Some(before), _, _) if before.state == State::Exited => Some(terminated(before)),
        (_, Some(same), _) => same.last_state.clone(),
        // The container before this one was removed meanwhile; its end is in the old status.
        (_, None, Some(old)) => old.state.clone().filter(|s| s.terminated.is_some()).or_else(|| old.last_state.clone()),
        _ => None,
    };
    let state = match (record.state, facts.waiting.get(&record.name)) {
        (State::Running, _) => ContainerState {
            running: Some(ContainerStateRunning { started_at: time(record.started_at) }),
            ..ContainerState::default()
        },
        (State::Exited | State::Unknown, Some(why)) => {
            last_state = Some(terminated(record));
            waiting(&why.reason, &why.message)
        }
        (State::Exited, None) => terminated(record),
        (_, Some(why)) => waiting(&why.reason, &why.message),
        (State::Created | State::Unknown, None) => unstarted(facts, kind),
    };
    let granted = container.resources.as_ref().and_then(|r| r.requests.clone());
    let actual = facts.memory.actuated.get(&record.id).cloned().unwrap_or_else(|| container.resources.clone());
    let alive = record.state == State::Running;
    ContainerStatus {
        name: container.name.clone(),
        image: if record.image.is_empty() { container.image.clone().unwrap_or_default() } else { record.image.clone() },
        image_id: record.image_ref.clone(),
        container_id: Some(id),
        restart_count: i32::try_from(record.restart_count).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(last_state.unwrap_or_default()),
        allocated_resources: granted.filter(|_| alive),
        resources: actual.or_else(|| Some(Default::default())).filter(|_| alive),
        user: record.user.as_ref().map(|(uid, gid, groups)| ContainerUser {
            linux: Some(LinuxContainerUser { uid: *uid, gid: *gid, supplemental_groups: Some(groups.clone()) }),
        }),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    }
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?.iter().map(|m| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only.filter(|ro| *ro),
        recursive_read_only: m.read_only.filter(|ro| *ro).map(|_| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    });
    Some(mounts.collect::<Vec<_>>()).filter(|l| !l.is_empty())
}

fn without_record(
    facts: Facts<'_>,
    kind: Kind,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let ran = old.filter(|o| o.container_id.is_some());
    let over = old.and_then(|o| o.state.as_ref()).filter(|s| s.terminated.is_some());
    let why = facts.waiting.get(&container.name);
    let ended = facts.done || facts.termination.is_some();
    let state = match (over, ran, why) {
        (Some(state), _, None) => state.clone(),
        (None, Some(_), None) if ended => lost(),
        (_, _, Some(why)) => waiting(&why.reason, &why.message),
        _ => unstarted(facts, kind),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: ran.map(|o| o.image_id.clone()).unwrap_or_default(),
        container_id: ran.and_then(|o| o.container_id.clone()),
        restart_count: old.map_or(0, |o| o.restart_count),
        state: Some(state),
        last_state: Some(old.and_then(|o| o.last_state.clone()).unwrap_or_default()),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    }
}

/// The state of a container whose turn has not come, or which is being made.
fn unstarted(facts: Facts<'_>, kind: Kind) -> ContainerState {
    match (kind, spec::init_containers(facts.pod).is_empty()) {
        (Kind::App, false) | (Kind::Init, _) => waiting("PodInitializing", ""),
        _ => waiting("ContainerCreating", ""),
    }
}

/// The state of a container that ran but which the runtime does not have any more.
fn lost() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = Some(message.to_owned()).filter(|m| !m.is_empty());
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    }
}

fn terminated(record: &Record) -> ContainerState {
    let reason = match (record.reason.as_str(), record.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(container_id(&record.id)),
            exit_code: record.exit_code,
            finished_at: time(record.finished_at),
            message: Some(record.message.clone()).filter(|m| !m.is_empty()),
            reason: Some(reason.to_owned()),
            signal: None,
            started_at: time(record.started_at),
        }),
        ..ContainerState::default()
    }
}

fn container_id(id: &str) -> String {
    format!("containerd://{id}")
}

/// Nanoseconds since the epoch as a time of whole seconds, which is what the API keeps.
fn time(nanoseconds: i64) -> Option<Time> {
    Timestamp::from_second(nanoseconds.div_euclid(1_000_000_000)).ok().map(Time)
}

#[cfg(test)]
mod tests;
