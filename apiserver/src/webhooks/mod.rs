//! Admission webhooks: programs of the cluster's users that change or refuse requests (admission.k8s.io/v1).
//!
//! [`config`] reads the configurations, [`rules`] tell which requests a hook is for, [`review`] is what is sent and answered,
//! [`call`] sends it. Here is the order: those that change, one after the other, then, when the object is complete, those
//! that only judge, all at once. Configurations of webhooks and policies, and the server's own writes, are nobody's to refuse.

mod call;
mod config;
mod review;
mod rules;

use std::sync::Arc;

use pintle_machinery::codec::json;
use pintle_machinery::patch;
use pintle_machinery::status::{ApiError, Status};
use serde_json::Value;

pub use self::config::Configs;
use self::config::{Hook, Kind};
pub use self::review::Subject;
use self::review::{Request, Verdict};
use crate::admission::Operation;
use crate::codec;
use crate::custom::object;
use crate::engine::Call;
use crate::managed;

/// The group whose objects no webhook sees.
const EXEMPT: &str = "admissionregistration.k8s.io";
/// The user of the server's own writes.
const SERVER: &str = "system:apiserver";

/// Lets the hooks that change objects change a new or changed one (stored form), and judge a deletion (`new` is `None`).
pub async fn mutate(call: &Call, operation: Operation, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let hooks = hooks(call, Kind::Mutating);
    if hooks.is_empty() {
        return Ok(());
    }
    let mut object = served(call, new);
    let before = old.map(|old| shown(&served(call, old)));
    let mut asked = vec![false; hooks.len()];
    // The hook that changed something last: who was asked before it may want to be asked once more.
    let mut last = None;
    for again in [false, true] {
        for (at, hook) in hooks.iter().enumerate() {
            if again && !(asked[at] && hook.reinvoke && last > Some(at)) {
                continue;
            }
            let now = shown(&object);
            let subject = Subject::of(call, operation, Some(&now), before.as_ref())?;
            let Some(patch) = ask(call, hook, &subject).await? else { continue };
            asked[at] = true;
            let Some(patch) = patch else { continue };
            let next = patched(call, &now, &patch)?;
            if next != object {
                object = next;
                last = Some(at);
            }
        }
    }
    if last.is_none() {
        return Ok(());
    }
    codec::to_stored(call, &mut object);
    *new = object;
    Ok(())
}

/// Asks the hooks that only judge, all at once; for a deletion those that change, too.
pub async fn validate(
    call: &Call,
    operation: Operation,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let mut hooks = hooks(call, Kind::Validating);
    if new.is_none() {
        hooks.splice(0..0, self::hooks(call, Kind::Mutating));
    }
    if hooks.is_empty() {
        return Ok(());
    }
    let [object, before] = [new, old].map(|object| object.map(|object| shown(&served(call, object))));
    let subject = Subject::of(call, operation, object.as_ref(), before.as_ref())?;
    let asked = hooks.iter().map(|hook| ask(call, hook, &subject));
    futures::future::try_join_all(asked).await.map(drop)
}

/// Asks about a connection to a pod, node or service; `options` are those of the request.
pub async fn connect(call: &Call, options: &Value) -> Result<(), ApiError> {
    let mut hooks = hooks(call, Kind::Mutating);
    hooks.extend(self::hooks(call, Kind::Validating));
    let subject = Subject::connection(call, options);
    for hook in &hooks {
        ask(call, hook, &subject).await?;
    }
    Ok(())
}

fn hooks(call: &Call, kind: Kind) -> Vec<Arc<Hook>> {
    if call.resource.group == EXEMPT || call.user.name == SERVER {
        return Vec::new();
    }
    call.state.webhooks.of(&call.state, kind)
}

/// An object in the form of the request.
fn served(call: &Call, stored: &Value) -> Value {
    let mut object = stored.clone();
    codec::to_served(call, &mut object);
    object
}

/// An object as clients see it.
fn shown(object: &Value) -> Value {
    json::with_fields_as_json(object).into_owned()
}

/// Asks one hook. `None`: the request is none of its; else the patch that it wants, if any.
async fn ask(call: &Call, hook: &Hook, subject: &Subject<'_>) -> Result<Option<Option<Vec<u8>>>, ApiError> {
    if !rules::concern(&call.state, hook, subject).await? {
        return Ok(None);
    }
    if subject.dry_run && hook.side_effects {
        let message = format!("admission webhook \"{}\" does not support dry run", hook.name);
        return Err(ApiError::BadRequest(message));
    }
    let request = Request::new(subject);
    let verdict = match call::send(&call.state, hook, &request).await {
        Ok(verdict) => verdict,
        Err(error) if hook.fail_open => {
            tracing::warn!(hook = hook.name, error, "a webhook failed, the request passes");
            return Ok(Some(None));
        }
        Err(error) => {
            return Err(ApiError::Internal(format!("failed calling webhook \"{}\": {error}", hook.name)));
        }
    };
    verdict.warnings.iter().for_each(|warning| call.warn(warning));
    match verdict {
        Verdict { allowed: true, patch, .. } => Ok(Some(patch)),
        Verdict { status, .. } => Err(denied(hook, status)),
    }
}

/// What the client is told of a refusal.
fn denied(hook: &Hook, status: Value) -> ApiError {
    let text = |name: &str| status[name].as_str().unwrap_or_default();
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    let by = format!("admission webhook \"{}\" denied the request", hook.name);
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    ApiError::Other(Box::new(Status::failure(code.unwrap_or(400), text("reason"), message)))
}

/// The object with a hook's patch applied, complete again.
fn patched(call: &Call, object: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let new = patch::json::apply(object, patch)?;
    let bytes = serde_json::to_vec(&new).map_err(|error| ApiError::Internal(error.to_string()))?;
    let mut new = match &call.resource.custom {
        Some(custom) => object::shaped(custom, &bytes).map_err(ApiError::Internal)?.value,
        None => {
            let (schema, ty) = managed::types(call)?;
            json::decode(schema, ty, &bytes).map_err(|error| ApiError::Internal(error.to_string()))?.value
        }
    };
    codec::complete(call, &mut new);
    Ok(new)
}
