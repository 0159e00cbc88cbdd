//! `binding`: the scheduler puts a pod on a node.

use http::StatusCode;
use pintle_machinery::status::{ApiError, Status};
use serde_json::{Value, json};

use crate::codec;
use crate::engine::modify::{self, Ownership};
use crate::engine::{Answer, Call, meta, present};

/// POST of a Binding, to a pod's subresource or to the collection `bindings`.
pub async fn bind(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    let binding = codec::decode_as(call, body, ("", "v1"), "Binding")?;
    check(&binding)?;
    let mut info = call.info.clone();
    if info.name.is_empty() {
        info.name = meta::text(&binding, "name").to_owned();
    } else if meta::text(&binding, "name") != info.name {
        return Err(ApiError::BadRequest("name in URL does not match name in Binding object".into()));
    }
    info.subresource = "binding".into();
    let mut pod_call = call.for_object(info);
    if let Some(pods) = call.state.any_version("", "pods") {
        pod_call.resource = pods.clone();
    }
    let make = |pod: &Value| bound(&pod_call, pod, &binding);
    modify::modify(&pod_call, &make, Ownership::Server, dry_run).await?;
    let status = Status { code: 201, ..Status::success(Default::default()) };
    present::object(
        call,
        StatusCode::CREATED,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status.status, "code": 201,
        }),
    )
}

fn check(binding: &Value) -> Result<(), ApiError> {
    use pintle_machinery::field_path::{ErrorList, Path};
    let mut errors = ErrorList::new();
    let target = Path::new("target");
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        errors.not_supported(&target.child("kind"), kind, &["Node", "<empty>"]);
    }
    if binding["target"]["name"].as_str().is_none_or(str::is_empty) {
        errors.required(&target.child("name"), "");
    }
    match errors.is_empty() {
        true => Ok(()),
        // Upstream doesn't say that it is the client's fault.
        false => Err(ApiError::Other(Box::new(Status::failure(500, "", errors.to_string())))),
    }
}

fn bound(call: &Call, pod: &Value, binding: &Value) -> Result<Value, ApiError> {
    let conflict = |message: String| {
        Err(ApiError::conflict(
            &pintle_machinery::status::GroupResource::new("", "pods/binding"),
            &call.info.name,
            message,
        ))
    };
    let name = &call.info.name;
    let uid = meta::text(binding, "uid");
    if !uid.is_empty() && uid != meta::text(pod, "uid") {
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::text(pod, "uid")
        ));
    }
    if meta::is_deleting(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !node.is_empty() {
        return conflict(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut new = pod.clone();
    new["spec"]["nodeName"] = binding["target"]["name"].clone();
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        new["metadata"]["annotations"][key] = value.clone();
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                           "lastTransitionTime": meta::timestamp(call.now)});
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|old| old["type"] != "PodScheduled");
    conditions.push(condition);
    new["status"]["conditions"] = json!(conditions);
    Ok(new)
}
