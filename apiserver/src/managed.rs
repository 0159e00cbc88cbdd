//! Field ownership as the verbs need it: who set which field, kept in `metadata.managedFields`.

use pintle_machinery::managed_fields::{self, Write};
use pintle_machinery::schema::StructType;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::conversion::api_version;
use crate::engine::{Call, meta};

/// A new object (served form, defaulted): all its fields are the manager's.
pub fn on_create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let Some(ty) = served_type(call) else { return Ok(()) };
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    let zero = managed_fields::zero(call.state.schema, ty);
    managed_fields::update(&write(call, ty, &manager, &api_version, &reset), &zero, object);
    Ok(())
}

/// A request that is answered and not kept, of a kind that is not the resource's own: all its fields are the manager's.
pub fn on_request(call: &Call, (group, version, kind): (&str, &str, &str), object: &mut Value) {
    let Some(ty) = call.state.schema.kind(group, version, kind) else { return };
    let (manager, api_version) = (call.manager(), api_version((group, version)));
    let zero = managed_fields::zero(call.state.schema, ty);
    managed_fields::update(&write(call, ty, &manager, &api_version, &["status"]), &zero, object);
}

/// An update (both in the served form): what changed is the manager's.
pub fn on_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let Some(ty) = served_type(call) else { return Ok(()) };
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    managed_fields::update(&write(call, ty, &manager, &api_version, &reset), old, new);
    Ok(())
}

/// Server-side apply: the object that comes out of applying `applied` to `old`, managed fields included.
pub fn apply(call: &Call, old: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
    let ty = served_type(call).ok_or_else(|| ApiError::Internal(format!("no schema for {}", call.resource.kind)))?;
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    let live = match old {
        Some(old) => old.clone(),
        None => {
            let mut zero = managed_fields::zero(call.state.schema, ty);
            meta::set(&mut zero, "name", json!(meta::text(applied, "name")));
            zero
        }
    };
    let mut new = managed_fields::apply(
        &write(call, ty, &manager, &api_version, &reset),
        &live,
        applied,
        call.query.flag("force"),
    )?;
    new["kind"] = json!(call.resource.kind);
    new["apiVersion"] = json!(api_version);
    Ok(new)
}

fn served_type(call: &Call) -> Option<&'static StructType> {
    call.state.schema.kind(&call.resource.group, &call.resource.version, &call.resource.kind)
}

/// Fields that this request does not write.
fn reset_fields(call: &Call) -> Vec<&'static str> {
    let rules = call.resource.rules;
    let mut fields = match call.info.subresource.as_str() {
        "" => rules.reset_by_main.to_vec(),
        "status" | "approval" => rules.reset_by_status.to_vec(),
        "finalize" => vec!["status"],
        _ => Vec::new(),
    };
    if call.info.subresource.is_empty() && call.resource.subresource("status").is_some() {
        fields.push("status");
    }
    fields
}

fn write<'a>(
    call: &'a Call,
    ty: &'a StructType,
    manager: &'a str,
    api_version: &'a str,
    reset_fields: &'a [&'a str],
) -> Write<'a> {
    Write {
        schema: call.state.schema,
        ty,
        manager,
        api_version,
        subresource: &call.info.subresource,
        reset_fields,
        // What comes through the scale is noted without a time.
        now: Some(call.now).filter(|_| call.info.subresource != "scale"),
    }
}
