//! The conditions that the kubelet owns in a pod's status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::resize;
use super::spec::{self, Kind};
use super::status::{Facts, Resize};

/// What a condition says, before times.
struct Verdict {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

/// The kubelet's conditions; the transition time of one that keeps its status is kept.
pub fn conditions(
    facts: Facts<'_>,
    status: &PodStatus,
    previous: Option<&PodStatus>,
    sandbox: bool,
) -> Vec<PodCondition> {
    let Facts { pod, now, .. } = facts;
    let old = |kind: &str| {
        let list = previous.and_then(|p| p.conditions.as_ref()).or(pod.status.as_ref()?.conditions.as_ref())?;
        list.iter().find(|c| c.type_ == kind).cloned()
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    let containers = ready(pod, status, phase);
    let gates = gates(pod, &containers);
    let scheduled = Verdict { kind: "PodScheduled", status: true, reason: "", message: String::new() };
    let started = Verdict { kind: "PodReadyToStartContainers", status: sandbox, reason: "", message: String::new() };
    let all = [started, initialized(pod, status, phase), gates, containers, scheduled];
    let own = all.into_iter().map(|verdict| (verdict, pod.metadata.generation));
    let of = |(verdict, generation): (Verdict, Option<i64>)| {
        let text = if verdict.status { "True" } else { "False" };
        let before = old(verdict.kind);
        let kept = before.filter(|b| b.status == text).and_then(|b| b.last_transition_time);
        PodCondition {
            type_: verdict.kind.to_owned(),
            status: text.to_owned(),
            reason: Some(verdict.reason.to_owned()).filter(|r| !r.is_empty()),
            message: Some(verdict.message).filter(|m| !m.is_empty()),
            last_transition_time: kept.or(Some(Time(whole_second(now)))),
            last_probe_time: None,
            observed_generation: generation,
        }
    };
    own.chain(resizes(facts.resize)).map(of).collect()
}

/// The conditions of a resize, which are there only as long as it lasts.
fn resizes(resize: Resize<'_>) -> impl Iterator<Item = (Verdict, Option<i64>)> {
    let pending = resize.pending.map(|p| {
        let message = p.message.clone();
        (Verdict { kind: resize::PENDING, status: true, reason: p.reason, message }, p.generation)
    });
    let in_progress = resize.in_progress.map(|(generation, trouble)| {
        let reason = if trouble.is_empty() { "" } else { "Error" };
        (Verdict { kind: resize::IN_PROGRESS, status: true, reason, message: trouble.to_owned() }, generation)
    });
    pending.into_iter().chain(in_progress)
}

/// The API keeps whole seconds.
fn whole_second(t: Timestamp) -> Timestamp {
    Timestamp::from_second(t.as_second()).unwrap_or(t)
}

fn initialized(pod: &Pod, status: &PodStatus, phase: &str) -> Verdict {
    let statuses = status.init_container_statuses.as_deref().unwrap_or_default();
    let exit = |s: &ContainerStatus| s.state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
    let incomplete: Vec<&str> = spec::init_containers(pod)
        .iter()
        .zip(statuses)
        .filter(|(c, s)| if spec::is_sidecar(Kind::Init, c) { s.started != Some(true) } else { exit(s) != Some(0) })
        .map(|(c, _)| c.name.as_str())
        .collect();
    // Once an app container has run the pod stays initialized, whatever becomes of its sidecars.
    let begun = status.container_statuses.iter().flatten().any(|s| s.container_id.is_some());
    let kind = "Initialized";
    if incomplete.is_empty() || begun {
        let reason = if phase == "Succeeded" { "PodCompleted" } else { "" };
        return Verdict { kind, status: true, reason, message: String::new() };
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Verdict { kind, status: false, reason: "ContainersNotInitialized", message }
}

/// ContainersReady.
fn ready(pod: &Pod, status: &PodStatus, phase: &str) -> Verdict {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return Verdict { kind, status: false, reason: "PodCompleted", message: String::new() },
        "Failed" => return Verdict { kind, status: false, reason: "PodFailed", message: String::new() },
        _ => {}
    }
    let init = status.init_container_statuses.iter().flatten().zip(spec::init_containers(pod));
    let sidecars = init.filter(|(_, c)| spec::is_sidecar(Kind::Init, c)).map(|(s, _)| s);
    let all = sidecars.chain(status.container_statuses.iter().flatten());
    let unready: Vec<&str> = all.filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
    if unready.is_empty() {
        return Verdict { kind, status: true, reason: "", message: String::new() };
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict { kind, status: false, reason: "ContainersNotReady", message }
}

/// Ready: the containers and the readiness gates.
fn gates(pod: &Pod, containers: &Verdict) -> Verdict {
    let kind = "Ready";
    if !containers.status {
        return Verdict { kind, status: false, reason: containers.reason, message: containers.message.clone() };
    }
    let present = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let mut unready = Vec::new();
    for gate in spec::spec(pod).readiness_gates.iter().flatten() {
        let name = &gate.condition_type;
        match present.iter().find(|c| c.type_ == *name) {
            None => unready.push(format!("corresponding condition of pod readiness gate \"{name}\" does not exist.")),
            Some(c) if c.status != "True" => {
                unready.push(format!("the status of pod readiness gate \"{name}\" is not \"True\", but {}", c.status));
            }
            Some(_) => {}
        }
    }
    if unready.is_empty() {
        return Verdict { kind, status: true, reason: "", message: String::new() };
    }
    Verdict { kind, status: false, reason: "ReadinessGatesNotReady", message: unready.join(", ") }
}
