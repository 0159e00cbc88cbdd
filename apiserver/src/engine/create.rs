//! The create verb.

use bytes::Bytes;
use http::StatusCode;
use pintle_machinery::field_path::ErrorList;
use pintle_machinery::status::{ApiError, Status};
use pintle_store::Revision;
use serde_json::{Value, json};

use super::{Answer, Call, meta, modify, present, storage_error};
use crate::admission::{self, Operation};
use crate::codec;
use crate::managed;
use crate::registry::{self, Context, Generation, Metadata, disabled};
use crate::webhooks;

/// How often a generated name that is taken is replaced.
const GENERATE_TRIES: usize = 8;

/// POST of an object to the collection.
pub async fn create(call: &Call, body: &[u8]) -> Answer {
    let dry_run = call.dry_run()?;
    let object = codec::decode_body(call, body)?;
    let created = create_object(call, object, dry_run).await;
    let (stored, revision) =
        created.map_err(|error| modify::shown_as_given(error, || serde_json::from_slice(body).unwrap_or_default()))?;
    present::stored(call, StatusCode::CREATED, &stored, revision)
}

/// Creates an object (served form, schema defaults not yet applied); its stored bytes and revision.
pub async fn create_object(call: &Call, mut object: Value, dry_run: bool) -> Result<(Bytes, Revision), ApiError> {
    let resource = &call.resource;
    meta::check_namespace(&mut object, &call.info.namespace, resource.namespaced)?;
    let wants_revision = meta::text(&object, "resourceVersion").parse().is_ok_and(|version: u64| version > 0);
    let labelled = is_labelled(&object);
    meta::fill_new(&mut object, resource.namespaced.then_some(call.info.namespace.as_str()), call.now);
    meta::single_owners(call, &mut object);
    codec::complete(call, &mut object);
    let may_generate = !meta::text(&object, "generateName").is_empty();
    let generated = meta::text(&object, "name").is_empty() && may_generate;
    let mut left = if generated { GENERATE_TRIES } else { 1 };
    loop {
        left -= 1;
        let mut candidate = if left > 0 { object.clone() } else { std::mem::take(&mut object) };
        if generated {
            let prefix = meta::text(&candidate, "generateName");
            let name = if resource.rules.generates_prefix { prefix.to_owned() } else { meta::generate_name(prefix) };
            meta::set(&mut candidate, "name", json!(name));
        }
        managed::on_create(call, &mut candidate)?;
        let draft = Draft { object: candidate, labelled, wants_revision };
        match write_new(call, draft, dry_run).await {
            Err(ApiError::AlreadyExists { .. }) if left > 0 => {}
            Err(ApiError::AlreadyExists { resource, name }) if may_generate => {
                return Err(ApiError::GenerateNameConflict { resource, name });
            }
            other => return other,
        }
    }
}

/// Creates an object out of an applied configuration.
pub async fn create_applied(call: &Call, applied: &Value, dry_run: bool) -> Result<(Bytes, Revision), ApiError> {
    let resource = &call.resource;
    let mut object = managed::apply(call, None, applied)?;
    meta::check_namespace(&mut object, &call.info.namespace, resource.namespaced)?;
    if resource.custom.is_some() && meta::text(&object, "name").is_empty() {
        return Err(super::update::nameless(call));
    }
    if meta::text(&object, "name") != call.info.name {
        let message = format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::text(&object, "name"),
            call.info.name
        );
        return Err(ApiError::BadRequest(message));
    }
    meta::fill_new(&mut object, resource.namespaced.then_some(call.info.namespace.as_str()), call.now);
    let labelled = is_labelled(&object);
    codec::complete(call, &mut object);
    write_new(call, Draft { object, labelled, wants_revision: false }, dry_run).await
}

/// An object on its way into the store.
struct Draft {
    /// In its served form, defaulted, its managed fields are set.
    object: Value,
    /// It came with labels.
    labelled: bool,
    /// It came with a resource version, which new ones may not.
    wants_revision: bool,
}

fn is_labelled(object: &Value) -> bool {
    object["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty())
}

/// From the mutating admission to the store.
async fn write_new(call: &Call, draft: Draft, dry_run: bool) -> Result<(Bytes, Revision), ApiError> {
    let Draft { mut object, labelled, wants_revision } = draft;
    let resource = &call.resource;
    let rules = resource.rules;
    let context = Context { labelled, ..call.context() };
    codec::to_stored(call, &mut object);
    admission::mutate(call, Operation::Create, &mut object).await?;
    webhooks::mutate(call, Operation::Create, &mut object, None).await?;
    if let Some(prepare) = rules.prepare_create {
        prepare(&context, &mut object);
    }
    if resource.subresource("status").is_some() && rules.prepare_create.is_none() && !rules.keeps_status {
        remove(&mut object, "status");
    }
    if !matches!(rules.generation, Generation::None | Generation::Later) {
        meta::set(&mut object, "generation", json!(1));
    }
    disabled::apply(&call.state.config.features.gates, rules, &mut object, None);
    codec::normalize(call.state.schema, &mut object);
    let reservation = admission::reserve(call, &mut object, None, dry_run).await?;
    let errors = faults(call, &context, &object);
    let name = meta::text(&object, "name").to_owned();
    if !errors.is_empty() {
        reservation.undo(call).await;
        return Err(ApiError::invalid(&resource.group_kind(), &name, errors));
    }
    registry::warnings(rules, &context, &object, None).into_iter().for_each(|warning| call.warn(warning));
    if let Some(complete) = rules.complete {
        complete(&mut object);
    }
    let reservation = admission::admit(call, Operation::Create, &object, None, dry_run, reservation).await?;
    if wants_revision && !dry_run {
        reservation.undo(call).await;
        let message = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::Other(Box::new(Status::failure(500, "", message))));
    }
    let key = resource.key(&call.info.namespace, &name);
    if dry_run {
        let bytes = codec::store(call.state.schema, &mut object);
        return match call.state.store.get(&key).await.map_err(storage_error)? {
            Some(_) => Err(ApiError::already_exists(&call.group_resource(), &name)),
            None => Ok((bytes.into(), 0)),
        };
    }
    meta::set(&mut object, "resourceVersion", Value::Null);
    let bytes = Bytes::from(codec::store(call.state.schema, &mut object));
    let ttl = rules.ttl;
    match call.state.store.create(&key, bytes.clone(), ttl).await {
        Ok(revision) => {
            reservation.keep(call).await;
            Ok((bytes, revision))
        }
        Err(pintle_store::Error::Exists { .. }) => {
            reservation.undo(call).await;
            Err(taken(call, &key, &name).await)
        }
        Err(error) => {
            reservation.undo(call).await;
            Err(storage_error(error))
        }
    }
}

/// What is wrong with a new object.
fn faults(call: &Call, context: &Context<'_>, object: &Value) -> ErrorList {
    let rules = call.resource.rules;
    let own = rules.validate_create.map(|validate| validate(context, object)).unwrap_or_default();
    if rules.metadata == Metadata::Among || rules.metadata == Metadata::Alone && !own.is_empty() {
        return own;
    }
    let mut errors = meta::validate_new(object, call.resource.namespaced, rules);
    errors.extend(own);
    if let Some(custom) = &call.resource.custom {
        errors.extend(custom.validate(object, None));
    }
    errors.once_each()
}

/// The name is taken; by an object on its way out, if so.
async fn taken(call: &Call, key: &str, name: &str) -> ApiError {
    let error = ApiError::already_exists(&call.group_resource(), name);
    let Ok(Some(kv)) = call.state.store.get(key).await else { return error };
    match modify::Current::parse(kv) {
        Ok(current) if meta::is_deleting(&current.value) => {
            let mut status = error.status();
            status.message = format!("object is being deleted: {}", status.message);
            ApiError::Other(Box::new(status))
        }
        _ => error,
    }
}

/// Removes a top-level field.
pub fn remove(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}
