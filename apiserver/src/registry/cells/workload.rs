//! Workloads and what scales and guards them.

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::Value;

use super::{NONE, UNSET, age, containers, deleting, is_true, labels, name, or, selector, since, truth};
use crate::registry::value::{at, has, int, items, number, text};

/// Deployments.
pub fn deployments(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(deployment, "spec.template");
    vec![
        name(deployment),
        format!("{}/{}", int(deployment, "status.readyReplicas"), int(deployment, "spec.replicas")).into(),
        int(deployment, "status.updatedReplicas").into(),
        int(deployment, "status.availableReplicas").into(),
        age(deployment, now),
        names,
        images,
        selector(deployment, "spec.selector").into(),
    ]
}

/// ReplicaSets.
pub fn replicasets(set: &Value, now: Timestamp) -> Vec<Value> {
    replicated(set, selector(set, "spec.selector"), now)
}

/// ReplicationControllers.
pub fn replicationcontrollers(controller: &Value, now: Timestamp) -> Vec<Value> {
    replicated(controller, labels(controller, "spec.selector"), now)
}

fn replicated(object: &Value, selector: String, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template");
    vec![
        name(object),
        int(object, "spec.replicas").into(),
        int(object, "status.replicas").into(),
        int(object, "status.readyReplicas").into(),
        age(object, now),
        names,
        images,
        selector.into(),
    ]
}

/// DaemonSets.
pub fn daemonsets(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(set, "spec.template");
    vec![
        name(set),
        int(set, "status.desiredNumberScheduled").into(),
        int(set, "status.currentNumberScheduled").into(),
        int(set, "status.numberReady").into(),
        int(set, "status.updatedNumberScheduled").into(),
        int(set, "status.numberAvailable").into(),
        labels(set, "spec.template.spec.nodeSelector").into(),
        age(set, now),
        names,
        images,
        selector(set, "spec.selector").into(),
    ]
}

/// StatefulSets.
pub fn statefulsets(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(set, "spec.template");
    let ready = format!("{}/{}", int(set, "status.readyReplicas"), int(set, "spec.replicas"));
    vec![name(set), ready.into(), age(set, now), names, images]
}

/// Jobs.
pub fn jobs(job: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(job, "spec.template");
    let succeeded = int(job, "status.succeeded");
    let completions = match (number(job, "spec.completions"), int(job, "spec.parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    vec![
        name(job),
        job_status(job).into(),
        completions.into(),
        duration(job, now).into(),
        age(job, now),
        names,
        images,
        selector(job, "spec.selector").into(),
    ]
}

fn job_status(job: &Value) -> &'static str {
    if is_true(job, "Complete") {
        return "Complete";
    }
    if is_true(job, "Failed") {
        return "Failed";
    }
    if deleting(job) {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|ty| is_true(job, ty)).unwrap_or("Running")
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |path: &str| at(job, path).as_str().and_then(time::parse);
    let Some(start) = time("status.startTime") else { return String::new() };
    let end = time("status.completionTime").unwrap_or(now);
    time::human(end.duration_since(start).as_secs())
}

/// CronJobs.
pub fn cronjobs(job: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(job, "spec.jobTemplate.spec.template");
    let last =
        if has(job, "status.lastScheduleTime") { since(job, "status.lastScheduleTime", now) } else { NONE.into() };
    vec![
        name(job),
        text(job, "spec.schedule").into(),
        or(text(job, "spec.timeZone"), NONE).into(),
        truth(at(job, "spec.suspend")).into(),
        items(job, "status.active").len().into(),
        last.into(),
        age(job, now),
        names,
        images,
        selector(job, "spec.jobTemplate.spec.selector").into(),
    ]
}

/// ControllerRevisions.
pub fn controllerrevisions(revision: &Value, now: Timestamp) -> Vec<Value> {
    let owners = items(revision, "metadata.ownerReferences");
    let controller = owners.iter().find(|owner| owner["controller"] == true);
    let shown = controller.map_or(NONE.to_owned(), |owner| {
        let kind = text(owner, "kind").to_lowercase();
        match text(owner, "apiVersion").split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
            None => format!("{kind}/{}", text(owner, "name")),
        }
    });
    vec![name(revision), shown.into(), int(revision, "revision").into(), age(revision, now)]
}

/// PodDisruptionBudgets.
pub fn poddisruptionbudgets(budget: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |path: &str| match at(budget, path) {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    vec![
        name(budget),
        bound("spec.minAvailable").into(),
        bound("spec.maxUnavailable").into(),
        int(budget, "status.disruptionsAllowed").into(),
        age(budget, now),
    ]
}

/// HorizontalPodAutoscalers, in version 2's form.
pub fn horizontalpodautoscalers(autoscaler: &Value, now: Timestamp) -> Vec<Value> {
    let target = at(autoscaler, "spec.scaleTargetRef");
    let min = number(autoscaler, "spec.minReplicas").map_or(UNSET.to_owned(), |min| min.to_string());
    vec![
        name(autoscaler),
        format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
        metrics(autoscaler).into(),
        min.into(),
        int(autoscaler, "spec.maxReplicas").into(),
        int(autoscaler, "status.currentReplicas").into(),
        age(autoscaler, now),
    ]
}

/// Scales.
pub fn scales(scale: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(scale), int(scale, "spec.replicas").into(), int(scale, "status.replicas").into(), age(scale, now)]
}

fn metrics(autoscaler: &Value) -> String {
    let specs = items(autoscaler, "spec.metrics");
    if specs.is_empty() {
        return NONE.into();
    }
    let statuses = items(autoscaler, "status.currentMetrics");
    let shown: Vec<String> = specs.iter().enumerate().map(|(index, spec)| metric(spec, statuses.get(index))).collect();
    match shown.len() {
        0..=2 => shown.join(", "),
        more => format!("{} + {} more...", shown[..2].join(", "), more - 2),
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (field, label) = match text(spec, "type") {
        "Resource" => ("resource", format!("{}: ", text(spec, "resource.name"))),
        "ContainerResource" => ("containerResource", format!("{}: ", text(spec, "containerResource.name"))),
        "Pods" => ("pods", String::new()),
        "Object" => ("object", String::new()),
        "External" => ("external", String::new()),
        _ => return "<unknown type>".into(),
    };
    let target = &spec[field]["target"];
    let current = status.map(|status| &status[field]["current"]);
    let (name, average) = match (text(target, "averageValue"), number(target, "averageUtilization")) {
        ("", Some(_)) => ("averageUtilization", ""),
        ("", None) => ("value", ""),
        _ => ("averageValue", if matches!(field, "object" | "external") { " (avg)" } else { "" }),
    };
    let percent = if name == "averageUtilization" { "%" } else { "" };
    let show = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        number => Some(format!("{number}{percent}")),
    };
    let have = current.and_then(|current| show(&current[name])).unwrap_or_else(|| "<unknown>".into());
    format!("{label}{have}/{}{average}", show(&target[name]).unwrap_or_else(|| "<auto>".into()))
}
