//! NamespaceLifecycle: nothing new in namespaces that are absent or going; the system's own stay.

use pintle_machinery::status::{ApiError, Cause, Details, GroupResource, Status};
use serde_json::Value;

use super::Operation;
use crate::engine::{Call, meta};
use crate::internal::{self, Address};

/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The namespace of a new object must be there and stay.
pub async fn check_open(call: &Call, new: &Value) -> Result<(), ApiError> {
    if !call.resource.namespaced || call.resource.cache.is_none() {
        return Ok(());
    }
    let name = call.info.namespace.as_str();
    let at = Address::new("", "namespaces", "", name);
    let Some(found) = internal::known(&call.state, at).await? else {
        return Err(ApiError::not_found(&GroupResource::new("", "namespaces"), name));
    };
    if !meta::is_deleting(&found) && found["status"]["phase"] != "Terminating" {
        return Ok(());
    }
    let message = format!("unable to create new content in namespace {name} because it is being terminated");
    let resource = call.group_resource();
    let object = meta::text(new, "name");
    let refusal = ApiError::forbidden(&resource, object, message.clone());
    let mut status: Status = refusal.status();
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {name} is being terminated"),
        field: "metadata.namespace".into(),
    };
    let details = status.details.take().unwrap_or_default();
    status.details = Some(Details { causes: vec![cause], ..details });
    Err(ApiError::Other(Box::new(status)))
}

/// Some namespaces are there for good.
pub fn check_deletion(call: &Call, operation: Operation) -> Result<(), ApiError> {
    let namespace = call.resource.group.is_empty() && call.resource.name == "namespaces";
    if operation == Operation::Delete && namespace && IMMORTAL.contains(&call.info.name.as_str()) {
        return Err(ApiError::forbidden(&call.group_resource(), &call.info.name, "this namespace may not be deleted"));
    }
    Ok(())
}
