//! Writes one pod's status to the API: always the newest, never an old one twice, retried until it is there.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::resize;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Conditions of the kubelet's own that end.
const TRANSIENT: [&str; 2] = [resize::PENDING, resize::IN_PROGRESS];

/// What the API is to show.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// The status; `None` until there is one.
    pub status: Option<Arc<PodStatus>>,
    /// The pod has ended and its deletion is wanted: remove the object once the status is written.
    pub remove: bool,
}

/// Identity of the API object that shows the pod.
#[derive(Clone, Debug)]
pub struct Target {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the object: another one of that name is left alone.
    pub uid: String,
}

/// Follows `desired` until its sender is gone or the object is.
pub async fn run(client: Client, target: Target, first: Option<PodStatus>, mut desired: watch::Receiver<Desired>) {
    let api: Api<Pod> = Api::namespaced(client, &target.namespace);
    let mut written = first.unwrap_or_default();
    while desired.changed().await.is_ok() {
        loop {
            let wanted = desired.borrow_and_update().clone();
            match write(&api, &target, &mut written, &wanted).await {
                Ok(true) => return,
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(pod = target.name, %error, "status not written, retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Writes what differs; true if the object is gone and nothing more is to be done.
async fn write(api: &Api<Pod>, target: &Target, written: &mut PodStatus, wanted: &Desired) -> kube::Result<bool> {
    let Some(status) = wanted.status.as_deref() else { return Ok(false) };
    if let Some(patch) = patch(target, written, status) {
        match api.patch_status(&target.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => {
                tracing::debug!(pod = target.name, phase = status.phase, "status written");
                *written = status.clone();
            }
            Err(kube::Error::Api(s)) if s.code == 404 || s.code == 409 => return Ok(true),
            // A status that the API refuses for good is not sent again.
            Err(kube::Error::Api(s)) if s.code == 422 || s.code == 400 => {
                tracing::warn!(pod = target.name, message = s.message, "status refused");
                *written = status.clone();
            }
            Err(error) => return Err(error),
        }
    }
    if !wanted.remove {
        return Ok(false);
    }
    let preconditions = Preconditions { uid: Some(target.uid.clone()), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..Default::default() };
    match api.delete(&target.name, &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(s)) if s.code == 404 || s.code == 409 => Ok(true),
        Err(error) => Err(error),
    }
}

/// A strategic merge patch from one status to another; `None` if there is no difference. Conditions that others own are
/// not part of it and stay.
fn patch(target: &Target, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (serde_json::to_value(old).ok()?, serde_json::to_value(new).ok()?);
    let (old, new) = (old.as_object()?, new.as_object()?);
    let mut status = serde_json::Map::new();
    for (key, value) in new {
        if old.get(key) == Some(value) {
            continue;
        }
        let value = match key.as_str() {
            "conditions" => changed_conditions(old.get(key), value),
            "podIPs" | "hostIPs" => replaced(old.get(key), value),
            _ => value.clone(),
        };
        if value.as_array().is_none_or(|list| !list.is_empty()) {
            status.insert(key.clone(), value);
        }
    }
    // The kubelet's own fields that it does not set any more.
    for key in ["reason", "message", "podIP", "podIPs"] {
        if old.contains_key(key) && !new.contains_key(key) {
            status.insert(key.to_owned(), Value::Null);
        }
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": target.uid}, "status": status}))
}

/// The conditions that are new or differ.
fn changed_conditions(old: Option<&Value>, new: &Value) -> Value {
    let old = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let differs = |c: &&Value| !old.contains(c);
    let changed = new.as_array().into_iter().flatten().filter(differs);
    let nulled = changed.map(|c| {
        let mut c = c.clone();
        // A field that is not there any more must be taken away from the merged element.
        for key in ["reason", "message"] {
            if c.get(key).is_none() {
                c[key] = Value::Null;
            }
        }
        c
    });
    let over = old.iter().filter(|c| {
        let kind = c["type"].as_str().unwrap_or_default();
        let stays = new.as_array().into_iter().flatten().any(|n| n["type"] == c["type"]);
        TRANSIENT.contains(&kind) && !stays
    });
    nulled.chain(over.map(|c| json!({"$patch": "delete", "type": c["type"]}))).collect()
}

/// A list that the patch would otherwise merge by its key.
fn replaced(old: Option<&Value>, new: &Value) -> Value {
    let mut list = new.as_array().cloned().unwrap_or_default();
    if old.is_some() {
        list.push(json!({"$patch": "replace"}));
    }
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_have_what_differs() {
        let target = Target { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let status = |v: Value| -> PodStatus { serde_json::from_value(v).unwrap() };
        let old = status(json!({"phase": "Pending", "podIPs": [{"ip": "1.1.1.1"}], "reason": "x",
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False", "reason": "r"}]}));
        let new = status(json!({"phase": "Running", "podIPs": [{"ip": "2.2.2.2"}],
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}));
        assert_eq!(patch(&target, &old, &old), None);
        assert_eq!(
            patch(&target, &old, &new),
            Some(json!({"metadata": {"uid": "u"}, "status": {
                "phase": "Running",
                "podIPs": [{"ip": "2.2.2.2"}, {"$patch": "replace"}],
                "conditions": [{"type": "B", "status": "True", "reason": null, "message": null}],
                "reason": null}}))
        );
        let resized = status(json!({"conditions": [{"type": "PodResizePending", "status": "True"}]}));
        let over = status(json!({"conditions": []}));
        assert_eq!(
            patch(&target, &resized, &over),
            Some(json!({"metadata": {"uid": "u"}, "status": {
                "conditions": [{"$patch": "delete", "type": "PodResizePending"}]}}))
        );
    }
}
