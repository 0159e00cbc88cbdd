//! The update verb (PUT), for resources and for the subresources that are views of the whole object.

use http::StatusCode;
use parking_lot::Mutex;
use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::modify::{self, Ownership, Written};
use super::{Answer, Call, create, meta, present};
use crate::codec;

/// PUT of an object.
pub async fn update(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    let object = given(call, body)?;
    let name = meta::text(&object, "name");
    if name.is_empty() {
        return Err(nameless(call));
    }
    if name != call.info.name {
        return Err(other_name(call, name));
    }
    let Some(current) = modify::current(call).await? else {
        return create_instead(call, object, dry_run).await;
    };
    let uid = meta::text(&object, "uid").to_owned();
    // It is rarely wanted more than once.
    let object = Mutex::new(Some(object));
    let make = |old: &Value| {
        let known = meta::text(old, "uid");
        if !uid.is_empty() && uid != known {
            return Err(other_object(call, &uid, known, dry_run));
        }
        object.lock().take().map_or_else(|| given(call, body), Ok)
    };
    let written = modify::modify_from(call, current, &make, Ownership::Update, dry_run).await?;
    answer(call, &written)
}

/// The object in the body, in the namespace of the path.
fn given(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let mut object = codec::decode_body(call, body)?;
    meta::check_namespace(&mut object, &call.info.namespace, call.resource.namespaced)?;
    Ok(object)
}

/// A body must name its object.
pub fn nameless(call: &Call) -> ApiError {
    let name = &call.info.name;
    ApiError::BadRequest(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

/// A body that says which object it is about must be about the one that is there.
fn other_object(call: &Call, uid: &str, known: &str, dry_run: bool) -> ApiError {
    let key = call.key();
    // A dry run knows keys without the prefix of all.
    let key = if dry_run { key.trim_start_matches("/registry") } else { &key };
    let message = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID \
         in precondition: {uid}, UID in object meta: {known}"
    );
    ApiError::conflict(&call.group_resource(), &call.info.name, message)
}

fn other_name(call: &Call, name: &str) -> ApiError {
    let message = format!("the name of the object ({name}) does not match the name on the URL ({})", call.info.name);
    ApiError::BadRequest(message)
}

async fn create_instead(call: &Call, object: Value, dry_run: bool) -> Answer {
    if !call.resource.rules.created_by_update || !call.info.subresource.is_empty() {
        return Err(call.not_found());
    }
    let uid = meta::text(&object, "uid");
    if !uid.is_empty() {
        return Err(other_object(call, uid, "", dry_run));
    }
    if !meta::text(&object, "resourceVersion").is_empty() {
        return Err(ApiError::modified(&call.group_resource(), &call.info.name));
    }
    let (bytes, revision) = create::create_object(call, object, dry_run).await?;
    answer(call, &Written { bytes, revision, created: true })
}

/// The answer to a write.
pub fn answer(call: &Call, written: &Written) -> Answer {
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    present::stored(call, status, &written.bytes, written.revision)
}
