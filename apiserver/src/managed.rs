//! Field ownership as the verbs need it: who set which field, kept in `metadata.managedFields`.

use pintle_machinery::managed_fields::{self, Write};
use pintle_machinery::schema::StructType;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::engine::{Call, meta};

/// Fields that a write to the resource itself does not write.
const RESET_BY_MAIN: [&str; 1] = ["status"];
/// Fields that a write to `status` does not write.
const RESET_BY_STATUS: [&str; 1] = ["spec"];
/// Resources whose status writes leave other fields alone too.
const RESET_BY_STATUS_OF: [(&str, &[&str]); 8] = [
    ("deployments", &["spec", "metadata.labels"]),
    ("pods", &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
    ("flowschemas", &["spec", "metadata"]),
    ("prioritylevelconfigurations", &["spec", "metadata"]),
    ("volumeattachments", &["spec", "metadata"]),
    ("apiservices", &["spec", "metadata"]),
    ("customresourcedefinitions", &["spec", "metadata"]),
    ("storageversionmigrations", &["spec", "metadata"]),
];

/// A new object (served form, defaulted): all its fields are the manager's.
pub fn on_create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let Some(ty) = served_type(call) else { return Ok(()) };
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let zero = managed_fields::zero(call.state.schema, ty);
    managed_fields::update(&write(call, ty, &manager, &api_version), &zero, object);
    Ok(())
}

/// An update (both in the served form): what changed is the manager's.
pub fn on_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let Some(ty) = served_type(call) else { return Ok(()) };
    let manager = call.manager();
    let api_version = call.resource.api_version();
    managed_fields::update(&write(call, ty, &manager, &api_version), old, new);
    Ok(())
}

/// Server-side apply: the object that comes out of applying `applied` to `old`, managed fields included.
pub fn apply(call: &Call, old: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
    let ty = served_type(call).ok_or_else(|| ApiError::Internal(format!("no schema for {}", call.resource.kind)))?;
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let live = match old {
        Some(old) => old.clone(),
        None => {
            let mut zero = managed_fields::zero(call.state.schema, ty);
            meta::set(&mut zero, "name", json!(meta::text(applied, "name")));
            zero
        }
    };
    let mut new =
        managed_fields::apply(&write(call, ty, &manager, &api_version), &live, applied, call.query.flag("force"))?;
    new["kind"] = json!(call.resource.kind);
    new["apiVersion"] = json!(api_version);
    Ok(new)
}

fn served_type(call: &Call) -> Option<&'static StructType> {
    call.state.schema.kind(&call.resource.group, &call.resource.version, &call.resource.kind)
}

fn write<'a>(call: &'a Call, ty: &'a StructType, manager: &'a str, api_version: &'a str) -> Write<'a> {
    let has_status = call.resource.subresource("status").is_some();
    let name = call.resource.name.as_str();
    let reset_fields: &[&str] = match call.info.subresource.as_str() {
        "" if name == "certificatesigningrequests" => &["spec", "status"],
        "" if has_status => &RESET_BY_MAIN,
        "status" | "approval" => {
            let own = RESET_BY_STATUS_OF.iter().find(|(resource, _)| *resource == name);
            own.map_or(&RESET_BY_STATUS, |(_, fields)| fields)
        }
        _ => &[],
    };
    Write {
        schema: call.state.schema,
        ty,
        manager,
        api_version,
        subresource: &call.info.subresource,
        reset_fields,
        now: call.now,
    }
}
