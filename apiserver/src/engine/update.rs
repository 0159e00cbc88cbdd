//! The update verb (PUT), for resources and for the subresources that are views of the whole object.

use http::StatusCode;
use pintle_machinery::status::ApiError;

use super::modify::{self, Ownership, Written};
use super::{Answer, Call, create, meta, present};
use crate::codec;

/// Resources that PUT creates when they are absent.
const CREATED_BY_UPDATE: [(&str, &str); 12] = [
    ("", "endpoints"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leases"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("node.k8s.io", "runtimeclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
];

/// PUT of an object.
pub async fn update(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    let object = codec::decode_body(call, body)?;
    let name = meta::text(&object, "name");
    if name.is_empty() {
        let message = format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.info.name
        );
        return Err(ApiError::BadRequest(message));
    }
    if name != call.info.name {
        return Err(other_name(call, name));
    }
    let Some(current) = modify::current(call).await? else {
        return create_instead(call, object, dry_run).await;
    };
    if call.resource.rules.versioned_update && meta::text(&object, "resourceVersion").is_empty() {
        return Err(unversioned(call));
    }
    let make = |_: &serde_json::Value| Ok(object.clone());
    let written = modify::modify_from(call, current, &make, Ownership::Update, dry_run).await?;
    answer(call, &written)
}

/// An update must say which version it changes.
fn unversioned(call: &Call) -> ApiError {
    use pintle_machinery::field_path::{ErrorList, Path};
    let mut errors = ErrorList::new();
    errors.invalid(&Path::new("metadata").child("resourceVersion"), 0, "must be specified for an update");
    ApiError::invalid(&call.group_resource(), &call.info.name, errors)
}

fn other_name(call: &Call, name: &str) -> ApiError {
    let message = format!("the name of the object ({name}) does not match the name on the URL ({})", call.info.name);
    ApiError::BadRequest(message)
}

async fn create_instead(call: &Call, object: serde_json::Value, dry_run: bool) -> Answer {
    let may_create = CREATED_BY_UPDATE.contains(&(call.resource.group.as_str(), call.resource.name.as_str()));
    if !may_create || !call.info.subresource.is_empty() {
        return Err(call.not_found());
    }
    if !meta::text(&object, "uid").is_empty() || !meta::text(&object, "resourceVersion").is_empty() {
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
