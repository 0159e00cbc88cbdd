//! Field ownership as the verbs need it: who set which field, kept in `metadata.managedFields`.

use std::borrow::Cow;

use pintle_machinery::managed_fields::{self, Write};
use pintle_machinery::schema::{Schema, StructType};
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::conversion::api_version;
use crate::engine::{Call, meta};

/// A new object (served form, defaulted): all its fields are the manager's.
pub fn on_create(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let (schema, ty) = types(call)?;
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    let zero = managed_fields::zero(schema, ty);
    managed_fields::update(&write(call, (schema, ty), &manager, &api_version, &reset), &zero, object);
    Ok(())
}

/// A request that is answered and not kept, of a kind that is not the resource's own: all its fields are the manager's.
pub fn on_request(call: &Call, (group, version, kind): (&str, &str, &str), object: &mut Value) {
    let Some(ty) = call.state.schema.kind(group, version, kind) else { return };
    let (manager, api_version) = (call.manager(), api_version((group, version)));
    let zero = managed_fields::zero(call.state.schema, ty);
    managed_fields::update(&write(call, (call.state.schema, ty), &manager, &api_version, &["status"]), &zero, object);
}

/// An update (both in the served form): what changed is the manager's.
pub fn on_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let ty = types(call)?;
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    managed_fields::update(&write(call, ty, &manager, &api_version, &reset), old, new);
    Ok(())
}

/// Server-side apply: the object that comes out of applying `applied` to `old`, managed fields included.
pub fn apply(call: &Call, old: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
    let (schema, ty) = types(call)?;
    let manager = call.manager();
    let api_version = call.resource.api_version();
    let reset = reset_fields(call);
    let live = match old {
        Some(old) => Cow::Borrowed(old),
        None => {
            let mut zero = managed_fields::zero(schema, ty);
            meta::set(&mut zero, "name", json!(meta::text(applied, "name")));
            Cow::Owned(zero)
        }
    };
    let mut new = managed_fields::apply(
        &write(call, (schema, ty), &manager, &api_version, &reset),
        &live,
        applied,
        call.query.flag("force"),
    )?;
    new["kind"] = json!(call.resource.kind);
    new["apiVersion"] = json!(api_version);
    Ok(new)
}

/// The type of the resource in its served form, and the schema that it is of.
pub fn types(call: &Call) -> Result<(&Schema, &StructType), ApiError> {
    let resource = &call.resource;
    if let Some(custom) = &resource.custom {
        return Ok((&custom.types, custom.ty()?));
    }
    let ty = call.state.schema.kind(&resource.group, &resource.version, &resource.kind);
    let ty = ty.ok_or_else(|| ApiError::Internal(format!("no schema for {}", resource.kind)))?;
    Ok((call.state.schema, ty))
}

/// Fields that this request does not write.
fn reset_fields(call: &Call) -> Vec<&str> {
    let rules = call.resource.rules;
    if let (Some(custom), "status") = (&call.resource.custom, call.info.subresource.as_str()) {
        return custom.beside_status();
    }
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
    (schema, ty): (&'a Schema, &'a StructType),
    manager: &'a str,
    api_version: &'a str,
    reset_fields: &'a [&'a str],
) -> Write<'a> {
    Write {
        schema,
        ty,
        manager,
        api_version,
        subresource: &call.info.subresource,
        reset_fields,
        // What comes through the scale is noted without a time.
        now: Some(call.now).filter(|_| call.info.subresource != "scale"),
    }
}
