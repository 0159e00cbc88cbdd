//! Pods.

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::Value;

use super::{NONE, age, condition, containers, deleting, is_true, labels, name, or};
use crate::registry::value::{at, flag, has, int, items, text};

/// What the columns of a pod are made from.
#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
    running: bool,
}

/// Pods.
pub fn pods(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, time::human(now.duration_since(time).as_secs()))
        }
        _ => summary.restarts.to_string(),
    };
    let ip = items(pod, "status.podIPs").first().map_or(text(pod, "status.podIP"), |ip| text(ip, "ip"));
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        status(pod, &summary).into(),
        restarts.into(),
        age(pod, now),
        or(ip, NONE).into(),
        or(text(pod, "spec.nodeName"), NONE).into(),
        or(text(pod, "status.nominatedNodeName"), NONE).into(),
        gates(pod).into(),
    ]
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, "conditionType"))).count();
    format!("{passed}/{}", gates.len())
}

fn status(pod: &Value, summary: &Summary) -> String {
    let mut reason = summary.reason.clone();
    if reason == "Completed" && summary.running {
        reason = if is_true(pod, "Ready") { "Running" } else { "NotReady" }.into();
    }
    if deleting(pod) {
        if text(pod, "status.reason") == "NodeLost" {
            return "Unknown".into();
        }
        if !matches!(text(pod, "status.phase"), "Succeeded" | "Failed") {
            return "Terminating".into();
        }
    }
    reason
}

fn summarize(pod: &Value) -> Summary {
    let mut summary = Summary {
        total: items(pod, "spec.containers").len(),
        reason: or(text(pod, "status.reason"), text(pod, "status.phase")).into(),
        ..Summary::default()
    };
    if condition(pod, "PodScheduled").is_some_and(|condition| text(condition, "reason") == "SchedulingGated") {
        summary.reason = "SchedulingGated".into();
    }
    let sidecars = |name: &str| {
        let mut containers = items(pod, "spec.initContainers").iter();
        containers.any(|container| text(container, "name") == name && text(container, "restartPolicy") == "Always")
    };
    summary.total += items(pod, "spec.initContainers").iter().filter(|c| text(c, "restartPolicy") == "Always").count();
    let initializing = initialize(pod, &mut summary, sidecars);
    if !initializing || is_true(pod, "Initialized") {
        run(pod, &mut summary, sidecars);
    }
    summary
}

fn restarted(summary: &mut Summary, status: &Value) {
    summary.restarts += int(status, "restartCount");
    let finished = at(status, "lastState.terminated.finishedAt").as_str().and_then(time::parse);
    summary.last_restart = summary.last_restart.max(finished);
}

fn exit(state: &Value) -> String {
    match (text(state, "reason"), int(state, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(state, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.into(),
    }
}

/// Looks at the init containers; whether one of them isn't done.
fn initialize(pod: &Value, summary: &mut Summary, sidecar: impl Fn(&str) -> bool) -> bool {
    let statuses = items(pod, "status.initContainerStatuses");
    for (index, status) in statuses.iter().enumerate() {
        restarted(summary, status);
        let sidecar = sidecar(text(status, "name"));
        let terminated = at(status, "state.terminated");
        if !terminated.is_null() && int(terminated, "exitCode") == 0 {
            continue;
        }
        if sidecar && flag(status, "started") {
            summary.ready += usize::from(flag(status, "ready"));
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        summary.reason = if !terminated.is_null() {
            format!("Init:{}", exit(terminated))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", items(pod, "spec.initContainers").len())
        };
        return true;
    }
    false
}

fn run(pod: &Value, summary: &mut Summary, sidecar: impl Fn(&str) -> bool) {
    // Restarts of init containers that are done count no more; those of sidecars do.
    summary.restarts = 0;
    summary.last_restart = None;
    let sidecars = items(pod, "status.initContainerStatuses").iter().filter(|status| sidecar(text(status, "name")));
    sidecars.for_each(|status| restarted(summary, status));
    for status in items(pod, "status.containerStatuses").iter().rev() {
        restarted(summary, status);
        let waiting = text(status, "state.waiting.reason");
        let terminated = at(status, "state.terminated");
        if !waiting.is_empty() {
            summary.reason = waiting.into();
        } else if !terminated.is_null() {
            summary.reason = exit(terminated);
        } else if flag(status, "ready") && has(status, "state.running") {
            summary.running = true;
            summary.ready += 1;
        }
    }
}

/// PodTemplates.
pub fn podtemplates(template: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(template, "template");
    vec![name(template), names, images, labels(template, "template.metadata.labels").into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(status: Value) -> (String, String, String) {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}});
        pod["status"] = status;
        let cells = pods(&pod, "2026-01-01T00:10:00Z".parse().unwrap());
        let text = |index: usize| cells[index].as_str().unwrap().to_owned();
        (text(1), text(2), text(3))
    }

    #[test]
    fn states() {
        let cases = [
            (json!({"phase": "Pending"}), ("0/1", "Pending", "0")),
            (
                json!({"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 2, "state": {"running": {}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:05:00Z"}}}]}),
                ("1/1", "Running", "2 (5m ago)"),
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}),
                ("0/1", "ErrImagePull", "0"),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
                ("0/1", "ExitCode:3", "0"),
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}),
                ("0/1", "Init:0/1", "0"),
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}]}),
                ("0/1", "Init:CrashLoopBackOff", "1"),
            ),
        ];
        for (status, (ready, reason, restarts)) in cases {
            assert_eq!(shown(status), (ready.into(), reason.into(), restarts.into()));
        }
    }
}
