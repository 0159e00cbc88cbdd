//! What becomes of definitions: their names are accepted or not, they are established, and those that are being deleted
//! lose their objects first.

use std::sync::Arc;
use std::time::Duration;

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};
use tracing::warn;

use super::definition::{self, is};
use super::names;
use super::registry::DEFINITIONS;
use crate::engine::{delete, meta, modify, storage_error};
use crate::internal::{self, Address};
use crate::resource::Resource;
use crate::state::State;

/// Holds a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Pause after a failure, and between looks at objects that stay.
const AGAIN: Duration = Duration::from_millis(500);

/// Looks after the definitions until shutdown.
pub async fn run(state: Arc<State>) {
    state.wait_bootstrapped().await;
    let Some(cache) = state.any_version(DEFINITIONS.0, DEFINITIONS.1).and_then(|resource| resource.cache.clone())
    else {
        return;
    };
    loop {
        let (_, _, mut cursor) = cache.snapshot_and_cursor();
        let mut waits = false;
        let all = internal::list(&state, DEFINITIONS.0, DEFINITIONS.1, "");
        for definition in &all {
            match step(&state, definition, &all).await {
                Ok(done) => waits |= !done,
                Err(ApiError::NotFound { .. }) => {}
                Err(error) => {
                    warn!(?error, name = meta::text(definition, "name"), "definition");
                    waits = true;
                }
            }
        }
        tokio::select! {
            alive = cursor.wait() => if !alive { return },
            () = tokio::time::sleep(AGAIN), if waits => {}
            () = state.shutdown.cancelled() => return,
        }
    }
}

/// Brings one definition forward; false: it has to be looked at again though nothing changes.
async fn step(state: &Arc<State>, definition: &Value, all: &[Arc<Value>]) -> Result<bool, ApiError> {
    if meta::is_deleting(definition) {
        return finalize(state, definition).await;
    }
    let wanted = status(definition, all, &meta::timestamp(jiff::Timestamp::now()));
    if wanted == definition["status"] {
        return Ok(true);
    }
    set_status(state, definition, |old| status(old, all, &meta::timestamp(jiff::Timestamp::now()))).await?;
    Ok(true)
}

/// The status that a definition should have.
fn status(definition: &Value, all: &[Arc<Value>], now: &str) -> Value {
    let mut status = definition["status"].clone();
    let spec = &definition["spec"];
    let others: Vec<&Value> = all
        .iter()
        .filter(|other| {
            other["spec"]["group"] == spec["group"] && meta::text(other, "name") != meta::text(definition, "name")
        })
        .map(|other| &other["status"]["acceptedNames"])
        .collect();
    let (accepted, (free, reason, message)) = names::accept(&spec["names"], &status["acceptedNames"], &others);
    status["acceptedNames"] = accepted;
    condition(&mut status, "NamesAccepted", (free, reason, &message), now);
    if !is(definition, "Established", "True") {
        let verdict = match free {
            true => (true, "InitialNamesAccepted", "the initial names have been accepted"),
            false => (false, "NotAccepted", "not all names are accepted"),
        };
        condition(&mut status, "Established", verdict, now);
    }
    status
}

/// Sets a condition; its time is that of the last change of its status.
fn condition(status: &mut Value, ty: &str, (holds, reason, message): (bool, &str, &str), now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let holds = if holds { "True" } else { "False" };
    let found = conditions.iter_mut().find(|condition| condition["type"] == ty);
    let since = match &found {
        Some(old) if old["status"] == holds => old["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let new = json!({"type": ty, "status": holds, "lastTransitionTime": since, "reason": reason, "message": message});
    match found {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

async fn set_status(
    state: &Arc<State>,
    definition: &Value,
    make: impl Fn(&Value) -> Value + Send + Sync,
) -> Result<(), ApiError> {
    let mut call = internal::call(state, "update", address(definition))?;
    call.info.subresource = "status".into();
    let make = |old: &Value| {
        let mut new = old.clone();
        new["status"] = make(old);
        Ok(new)
    };
    modify::modify(&call, &make, modify::Ownership::Update, false).await.map(drop)
}

fn address(definition: &Value) -> Address<'_> {
    Address::new(DEFINITIONS.0, DEFINITIONS.1, "", meta::text(definition, "name"))
}

/// Deletes the objects of a definition, then lets it go; false: objects are still there.
async fn finalize(state: &Arc<State>, definition: &Value) -> Result<bool, ApiError> {
    if !meta::finalizers(definition).iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(true);
    }
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let plural = definition["status"]["acceptedNames"]["plural"].as_str().unwrap_or_default();
    let resource = state.any_version(group, plural).filter(|_| is(definition, "Established", "True"));
    if let Some(resource) = &resource
        && !empty(state, definition).await?
    {
        let verdict = (true, "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        terminating(state, definition, verdict).await?;
        delete_objects(state, resource).await?;
        if !empty(state, definition).await? {
            return Ok(false);
        }
    }
    terminating(state, definition, (false, "InstanceDeletionCompleted", "removed all instances")).await?;
    let make = |old: &Value| {
        let mut new = old.clone();
        let left = meta::finalizers(old).into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
        meta::set_finalizers(&mut new, left);
        Ok(new)
    };
    internal::update(state, address(definition), &make).await?;
    Ok(true)
}

async fn terminating(state: &Arc<State>, definition: &Value, verdict: (bool, &str, &str)) -> Result<(), ApiError> {
    let told = |status: &Value| {
        let conditions = status["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Terminating" && one["reason"] == verdict.1)
    };
    if told(&definition["status"]) {
        return Ok(());
    }
    let make = |old: &Value| {
        let mut status = old["status"].clone();
        condition(&mut status, "Terminating", verdict, &meta::timestamp(jiff::Timestamp::now()));
        status
    };
    set_status(state, definition, make).await
}

/// Nothing is stored of a definition's objects.
async fn empty(state: &Arc<State>, definition: &Value) -> Result<bool, ApiError> {
    let options = pintle_store::ListOptions {
        limit: Some(1),
        ..pintle_store::ListOptions::prefix(definition::prefix(definition))
    };
    Ok(state.store.list(options).await.map_err(storage_error)?.items.is_empty())
}

async fn delete_objects(state: &Arc<State>, resource: &Arc<Resource>) -> Result<(), ApiError> {
    for entry in internal::entries(state, &resource.group, &resource.name, "") {
        let object = entry.value();
        let at = Address::new(
            &resource.group,
            &resource.name,
            meta::text(&object, "namespace"),
            meta::text(&object, "name"),
        );
        let call = internal::call(state, "delete", at)?;
        match delete::delete_object(&call, &delete::DeleteOptions::default()).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_established_when_their_names_are_free() {
        let definition = |name: &str, kind: &str| {
            json!({"metadata": {"name": name}, "spec": {"group": "g", "names": {"plural": name, "kind": kind, "listKind": format!("{kind}List")}},
                   "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}})
        };
        let mut first = definition("a", "A");
        first["status"] = status(&first, &[Arc::new(first.clone())], "t1");
        assert!(is(&first, "Established", "True") && is(&first, "NamesAccepted", "True"));
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        let second = definition("b", "A");
        let all = [Arc::new(first.clone()), Arc::new(second.clone())];
        let refused = status(&second, &all, "t2");
        assert_eq!(refused["conditions"][0]["reason"], "ListKindConflict");
        assert_eq!(refused["conditions"][1]["reason"], "NotAccepted");
        // What is established stays so.
        assert_eq!(status(&first, &all, "t3"), first["status"]);
    }
}
