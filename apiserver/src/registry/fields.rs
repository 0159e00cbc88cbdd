//! Selectable fields whose value isn't just the text at their path.

use serde_json::Value;

use super::value::{at, flag, int, text};

fn plain(object: &Value, field: &str) -> Option<String> {
    at(object, field).as_str().map(str::to_owned)
}

/// Of Pods.
pub fn pod_field(pod: &Value, field: &str) -> Option<String> {
    match field {
        "spec.hostNetwork" => Some(flag(pod, field).to_string()),
        "status.podIPs" => Some(text(pod, "status.podIP").to_owned()),
        _ => plain(pod, field),
    }
}

/// Of Nodes.
pub fn node_field(node: &Value, field: &str) -> Option<String> {
    match field {
        "spec.unschedulable" => Some(flag(node, field).to_string()),
        _ => plain(node, field),
    }
}

/// Of ReplicaSets and ReplicationControllers.
pub fn replicas_field(object: &Value, field: &str) -> Option<String> {
    match field {
        "status.replicas" => Some(int(object, field).to_string()),
        _ => plain(object, field),
    }
}

/// Of Jobs.
pub fn job_field(job: &Value, field: &str) -> Option<String> {
    match field {
        "status.successful" => Some(int(job, "status.succeeded").to_string()),
        _ => plain(job, field),
    }
}

/// Of Events.
pub fn event_field(event: &Value, field: &str) -> Option<String> {
    match field {
        "source" => match text(event, "source.component") {
            "" => plain(event, "reportingComponent"),
            component => Some(component.to_owned()),
        },
        _ => plain(event, field),
    }
}
