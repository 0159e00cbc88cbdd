//! Conditions that the server itself keeps: whether the priority level of a FlowSchema is there, and what an APIService of
//! another server lacks.

use std::sync::Arc;
use std::time::Duration;

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};
use tracing::warn;

use crate::engine::{meta, modify};
use crate::http::query::Query;
use crate::internal::{self, Address};
use crate::managed;
use crate::state::State;

const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const REGISTRATION: &str = "apiregistration.k8s.io";
/// Who says it of FlowSchemas.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// What the verdicts depend on.
const WATCHED: [(&str, &str); 5] = [
    (FLOW, "flowschemas"),
    (FLOW, "prioritylevelconfigurations"),
    (REGISTRATION, "apiservices"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
];
/// Pause after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps the conditions until shutdown.
pub async fn run(state: Arc<State>) {
    state.wait_bootstrapped().await;
    let cache = |(group, resource)| state.any_version(group, resource).and_then(|resource| resource.cache.clone());
    let caches: Vec<_> = WATCHED.into_iter().filter_map(cache).collect();
    loop {
        let mut cursors: Vec<_> = caches.iter().map(|cache| cache.snapshot_and_cursor().2).collect();
        let done = pass(&state).await;
        if let Err(error) = &done {
            warn!(?error, "conditions that the server keeps");
        }
        let changes = futures::future::select_all(cursors.iter_mut().map(|cursor| Box::pin(cursor.wait())));
        tokio::select! {
            (alive, ..) = changes => if !alive { return },
            () = tokio::time::sleep(AGAIN), if done.is_err() => {}
            () = state.shutdown.cancelled() => return,
        }
    }
}

async fn pass(state: &Arc<State>) -> Result<(), ApiError> {
    let levels = internal::list(state, FLOW, "prioritylevelconfigurations", "");
    for schema in internal::list(state, FLOW, "flowschemas", "") {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        let verdict = dangling(level, levels.iter().any(|known| meta::text(known, "name") == level));
        if lacks(&schema, &verdict) {
            gone_is_fine(apply(state, &schema, &verdict).await)?;
        }
    }
    for service in internal::list(state, REGISTRATION, "apiservices", "") {
        if let Some(verdict) = unavailable(state, &service).filter(|verdict| lacks(&service, verdict)) {
            gone_is_fine(update(state, &service, &verdict).await)?;
        }
    }
    Ok(())
}

fn gone_is_fine(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(ApiError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// A condition but for its time.
fn condition(ty: &str, status: &str, reason: &str, message: String) -> Value {
    json!({"type": ty, "status": status, "reason": reason, "message": message})
}

/// Whether the priority level of a FlowSchema is missing.
fn dangling(level: &str, found: bool) -> Value {
    let about = format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\"");
    match found {
        true => condition("Dangling", "False", "Found", format!("{about} and it exists")),
        false => condition("Dangling", "True", "NotFound", format!("{about} but there is no such object")),
    }
}

/// What is missing of the server behind an APIService, as far as it can be told without asking it.
fn unavailable(state: &State, service: &Value) -> Option<Value> {
    let reference = service["spec"].get("service").filter(|reference| reference.is_object())?;
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let backend = internal::cached(state, Address::new("", "services", namespace, name));
    let slices = internal::list(state, "discovery.k8s.io", "endpointslices", namespace);
    let served = slices.iter().any(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name);
    fault(reference, backend.as_deref(), served)
}

fn fault(reference: &Value, backend: Option<&Value>, served: bool) -> Option<Value> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let about = format!("service/{} in \"{}\"", text("name"), text("namespace"));
    let port = reference["port"].as_i64().unwrap_or(443);
    let (reason, message) = match backend {
        None => ("ServiceNotFound", format!("{about} is not present")),
        Some(backend) if backend["spec"]["type"] == "ExternalName" => return None,
        Some(backend) if !backend["spec"]["ports"].as_array().into_iter().flatten().any(|own| own["port"] == port) => {
            ("ServicePortError", format!("{about} is not listening on port {port}"))
        }
        Some(_) if !served => ("EndpointsNotFound", format!("cannot find endpointslices for {about}")),
        Some(_) => return None,
    };
    Some(condition("Available", "False", reason, message))
}

/// The object does not tell that yet.
fn lacks(object: &Value, verdict: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let same = |one: &Value| ["type", "status", "reason", "message"].iter().all(|field| one[*field] == verdict[*field]);
    !conditions.into_iter().flatten().any(same)
}

/// The condition with its time: that of the last change of its status.
fn timed(object: &Value, verdict: &Value) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let before = conditions.rfind(|one| one["type"] == verdict["type"] && one["status"] == verdict["status"]);
    let now = || meta::timestamp(jiff::Timestamp::now()).into();
    let mut timed = verdict.clone();
    timed["lastTransitionTime"] = before.map_or_else(now, |before| before["lastTransitionTime"].clone());
    timed
}

/// Server-side apply of a condition, as upstream does it for FlowSchemas.
async fn apply(state: &Arc<State>, object: &Value, verdict: &Value) -> Result<(), ApiError> {
    let name = meta::text(object, "name");
    let mut call = internal::call(state, "patch", Address::new(FLOW, "flowschemas", "", name))?;
    call.info.subresource = "status".into();
    call.query = Query::parse(Some(&format!("fieldManager={CONSUMER}&force=true")));
    let make = |old: &Value| {
        let config = json!({
            "apiVersion": call.resource.api_version(), "kind": call.resource.kind,
            "metadata": {"name": name}, "status": {"conditions": [timed(old, verdict)]},
        });
        managed::apply(&call, Some(old), &config)
    };
    modify::modify(&call, &make, modify::Ownership::Apply, false).await.map(drop)
}

/// An update of the condition, as upstream does it for APIServices.
async fn update(state: &Arc<State>, object: &Value, verdict: &Value) -> Result<(), ApiError> {
    let address = Address::new(REGISTRATION, "apiservices", "", meta::text(object, "name"));
    let mut call = internal::call(state, "update", address)?;
    call.info.subresource = "status".into();
    let make = |old: &Value| {
        let mut new = old.clone();
        let others = old["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions: Vec<Value> = others.filter(|one| one["type"] != verdict["type"]).cloned().collect();
        conditions.push(timed(old, verdict));
        new["status"]["conditions"] = conditions.into();
        Ok(new)
    };
    modify::modify(&call, &make, modify::Ownership::Update, false).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_told_once() {
        let verdict = dangling("level", true);
        assert_eq!((&verdict["status"], &verdict["reason"]), (&json!("False"), &json!("Found")));
        let mut schema = json!({"status": {}});
        assert!(lacks(&schema, &verdict));
        schema["status"]["conditions"] = json!([timed(&schema, &verdict)]);
        assert!(!lacks(&schema, &verdict) && lacks(&schema, &dangling("level", false)));
        schema["status"]["conditions"][0]["lastTransitionTime"] = json!("2020-01-02T03:04:05Z");
        assert_eq!(timed(&schema, &dangling("other", true))["lastTransitionTime"], "2020-01-02T03:04:05Z");
        assert_ne!(timed(&schema, &dangling("level", false))["lastTransitionTime"], "2020-01-02T03:04:05Z");
    }

    #[test]
    fn servers_behind() {
        let reference = json!({"namespace": "n", "name": "s", "port": 8443});
        let backend = |port: i64| json!({"spec": {"type": "ClusterIP", "ports": [{"port": port}]}});
        for (backend, served, expected) in [
            (None, false, "service/s in \"n\" is not present"),
            (Some(backend(443)), true, "service/s in \"n\" is not listening on port 8443"),
            (Some(backend(8443)), false, "cannot find endpointslices for service/s in \"n\""),
            (Some(backend(8443)), true, ""),
        ] {
            let told = fault(&reference, backend.as_ref(), served);
            let message = told.as_ref().map_or("", |told| told["message"].as_str().unwrap());
            assert_eq!(message, expected);
        }
    }
}
