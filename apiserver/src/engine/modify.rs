//! What update, patch and the writing subresources share: read, change, check, compare-and-swap, again on a conflict.

use std::borrow::Cow;

use bytes::Bytes;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::managed_fields::FieldSet;
use pintle_machinery::status::{ApiError, Status, quoted};
use pintle_store::{KeyValue, Revision};
use serde_json::{Value, json};

use super::{Call, meta, storage_error};
use crate::admission::{self, Operation};
use crate::codec;
use crate::managed;
use crate::registry::{self, Generation, disabled};
use crate::webhooks;

/// A write is retried so often when others write meanwhile.
const TRIES: usize = 100;

/// What is written through these makes no new generation.
const UNCOUNTED: [&str; 3] = ["binding", "status", "approval"];

/// How the new object comes out of the old one, both in the served form. It may be called more than once.
pub type Make<'a> = &'a (dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync);

/// How a change is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Changed fields become the manager's own.
    Update,
    /// `Make` has set the managed fields already (server-side apply).
    Apply,
    /// The server's own change: nobody's.
    Server,
}

/// The outcome of a write.
pub struct Written {
    /// Stored bytes, without resource version.
    pub bytes: Bytes,
    /// Revision.
    pub revision: Revision,
    /// The object did not exist before.
    pub created: bool,
}

/// An object of the store.
pub struct Current {
    /// In its stored form, with resource version.
    pub value: Value,
    /// Its stored bytes.
    pub bytes: Bytes,
    /// Revision of its latest write.
    pub revision: Revision,
    /// It is worth writing even if nothing changes: the stored form is an old one.
    pub stale: bool,
}

impl Current {
    /// From what the store returned.
    pub fn parse(kv: KeyValue) -> Result<Self, ApiError> {
        let mut value = pintle_machinery::codec::json::parse_stored(&kv.value)
            .map_err(|error| ApiError::Internal(format!("stored object: {error}")))?;
        meta::set(&mut value, "resourceVersion", json!(kv.mod_revision.to_string()));
        Ok(Self { value, bytes: kv.value, revision: kv.mod_revision, stale: kv.stale })
    }
}

/// Reads the addressed object.
pub async fn current(call: &Call) -> Result<Option<Current>, ApiError> {
    call.state.store.get(&call.key()).await.map_err(storage_error)?.map(Current::parse).transpose()
}

/// Changes the addressed object, which must exist.
pub async fn modify(call: &Call, make: Make<'_>, ownership: Ownership, dry_run: bool) -> Result<Written, ApiError> {
    let first = current(call).await?.ok_or_else(|| call.not_found())?;
    modify_from(call, first, make, ownership, dry_run).await
}

/// The same, from an object that was just read.
pub async fn modify_from(
    call: &Call,
    first: Current,
    make: Make<'_>,
    ownership: Ownership,
    dry_run: bool,
) -> Result<Written, ApiError> {
    let mut old = first;
    for _ in 0..TRIES {
        match attempt(call, &old, make, ownership, dry_run).await? {
            Attempt::Done(written) => return Ok(written),
            Attempt::Again(current) => match current {
                Some(kv) => old = Current::parse(kv)?,
                None => return Err(call.not_found()),
            },
        }
    }
    Err(ApiError::modified(&call.group_resource(), &call.info.name))
}

enum Attempt {
    Done(Written),
    /// Somebody else wrote; what is there now.
    Again(Option<KeyValue>),
}

async fn attempt(
    call: &Call,
    old: &Current,
    make: Make<'_>,
    ownership: Ownership,
    dry_run: bool,
) -> Result<Attempt, ApiError> {
    let resource = &call.resource;
    let old_served = match resource.serves_stored_form() {
        true => Cow::Borrowed(&old.value),
        false => {
            let mut served = old.value.clone();
            codec::to_served(call, &mut served);
            Cow::Owned(served)
        }
    };
    let mut new = make(&old_served)?;
    check_identity(call, &mut new)?;
    match starting_version(&new)? {
        None if resource.rules.versioned_update && call.info.subresource != "scale" => return Err(unversioned(call)),
        Some(version) if version != old.revision.to_string() => {
            return Err(ApiError::modified(&call.group_resource(), &call.info.name));
        }
        _ => {}
    }
    meta::single_owners(call, &mut new);
    codec::complete(call, &mut new);
    if ownership == Ownership::Update {
        managed::on_update(call, &old_served, &mut new)?;
    }
    codec::to_stored(call, &mut new);
    let prepared = prepare(call, old, &mut new, dry_run).await;
    let reservation = prepared.map_err(|error| shown_as_given(error, || make(&old_served).unwrap_or_default()))?;
    let deletes = deletes_now(call, &new);
    let unchanged = same(&new, &old.value);
    meta::set(&mut new, "resourceVersion", Value::Null);
    let rewritten = old.stale && !dry_run;
    if unchanged && !deletes && !rewritten {
        return Ok(Attempt::Done(Written { bytes: old.bytes.clone(), revision: old.revision, created: false }));
    }
    let bytes = Bytes::from(codec::store(call.state.schema, &mut new));
    if dry_run {
        return Ok(Attempt::Done(Written { bytes, revision: old.revision, created: false }));
    }
    let key = call.key();
    let written = if deletes {
        call.state.store.delete(&key, old.revision).await
    } else {
        call.state.store.update(&key, bytes.clone(), old.revision, resource.rules.ttl).await
    };
    match written {
        Ok(revision) => {
            reservation.keep(call).await;
            if deletes {
                admission::released(call, &old.value).await;
            }
            Ok(Attempt::Done(Written { bytes, revision, created: false }))
        }
        Err(error) => {
            reservation.undo(call).await;
            match error {
                pintle_store::Error::Conflict { current } => Ok(Attempt::Again(current)),
                other => Err(storage_error(other)),
            }
        }
    }
}

/// Admission, the kind's own preparation and validation. The new object is in its stored form.
async fn prepare(
    call: &Call,
    old: &Current,
    new: &mut Value,
    dry_run: bool,
) -> Result<admission::Reservation, ApiError> {
    let resource = &call.resource;
    let rules = resource.rules;
    let context = call.context();
    meta::carry_over(new, &old.value);
    admission::mutate(call, Operation::Update, new).await?;
    webhooks::mutate(call, Operation::Update, new, Some(&old.value)).await?;
    confine(call, new, &old.value);
    let gates = &call.state.config.features.gates;
    // Where there are no pods, a change counts though it goes.
    let podless = rules.pod_spec.is_none();
    if !podless {
        disabled::apply(gates, rules, new, Some(&old.value));
    }
    if let Some(prepare) = rules.prepare_update {
        prepare(&context, new, &old.value);
    }
    let uncounted = UNCOUNTED.contains(&call.info.subresource.as_str());
    let drops = !rules.disabled.is_empty() && podless;
    let counted = drops && !uncounted && counts(call, new, &old.value);
    if podless {
        disabled::apply(gates, rules, new, Some(&old.value));
    }
    codec::normalize(call.state.schema, new);
    if !uncounted && (counted || counts(call, new, &old.value)) {
        let generation = old.value["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(new, "generation", json!(generation + 1));
    }
    let reservation = admission::reserve(call, new, Some(&old.value), dry_run).await?;
    let mut errors = meta::validate_update(new, &old.value, rules);
    if let Some(validate) = rules.validate_update {
        errors.extend(validate(&context, new, &old.value));
    }
    if let Some(custom) = &resource.custom {
        errors.extend(custom.validate(new, Some(&old.value)));
    }
    let errors = if rules.tells_again { errors } else { errors.once_each() };
    if !errors.is_empty() {
        reservation.undo(call).await;
        return Err(ApiError::invalid(&resource.group_kind(), &call.info.name, errors));
    }
    registry::warnings(rules, &context, new, Some(&old.value)).into_iter().for_each(|warning| call.warn(warning));
    if let Some(complete) = rules.complete {
        complete(new);
    }
    admission::admit(call, Operation::Update, new, Some(&old.value), dry_run, reservation).await
}

/// Faults show what was given empty as it was given; after preparation it is nothing.
pub fn shown_as_given(error: ApiError, given: impl FnOnce() -> Value) -> ApiError {
    match error {
        ApiError::Invalid { kind, name, mut errors } => {
            errors.show_empty(&given());
            ApiError::Invalid { kind, name, errors }
        }
        other => other,
    }
}

/// A body that is about another object than the path is refused.
fn check_identity(call: &Call, new: &mut Value) -> Result<(), ApiError> {
    let name = meta::text(new, "name");
    if name.is_empty() {
        meta::set(new, "name", json!(call.info.name));
    } else if name != call.info.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", call.info.name);
        return Err(ApiError::BadRequest(message));
    }
    meta::check_namespace(new, &call.info.namespace, call.resource.namespaced)?;
    Ok(())
}

/// The version that a write starts from, if it says so; 0 says nothing.
fn starting_version(new: &Value) -> Result<Option<&str>, ApiError> {
    let text = meta::text(new, "resourceVersion");
    let why = match text.parse::<u64>() {
        _ if text.is_empty() => return Ok(None),
        Ok(_) if text.starts_with('+') => "invalid syntax",
        Ok(0) => return Ok(None),
        Ok(_) => return Ok(Some(text.trim_start_matches('0'))),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => "value out of range",
        Err(_) => "invalid syntax",
    };
    let message = format!("strconv.ParseUint: parsing {}: {why}", quoted(text));
    Err(ApiError::Other(Box::new(Status::failure(500, "", message))))
}

/// An update must say which version it changes.
fn unversioned(call: &Call) -> ApiError {
    let mut errors = ErrorList::new();
    errors.invalid(&Path::new("metadata").child("resourceVersion"), 0, "must be specified for an update");
    ApiError::invalid(&call.group_resource(), &call.info.name, errors)
}

/// Metadata that a write to the status leaves alone, where it leaves metadata alone.
const FIXED_METADATA: [&str; 7] =
    ["deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"];

/// A write to the resource leaves the status alone, one to the status what the kind's rules say; a write to another
/// subresource changes nothing but its part.
fn confine(call: &Call, new: &mut Value, old: &Value) {
    let part = match call.info.subresource.as_str() {
        "" => {
            if call.resource.subresource("status").is_some() {
                copy_field(new, old, "status");
            }
            return;
        }
        "status" if call.resource.custom.is_some() => {
            let status = new["status"].take();
            let managed = new["metadata"]["managedFields"].take();
            let version = new["metadata"]["resourceVersion"].take();
            *new = old.clone();
            put(new, "status", status);
            meta::set(new, "managedFields", managed);
            meta::set(new, "resourceVersion", version);
            return;
        }
        "status" | "approval" => {
            for path in call.resource.rules.reset_by_status {
                match *path {
                    "metadata" => FIXED_METADATA.iter().for_each(|field| copy_at(new, old, "metadata", field)),
                    path => match path.split_once('.') {
                        Some((outer, inner)) => copy_at(new, old, outer, inner),
                        None => copy_field(new, old, path),
                    },
                }
            }
            return;
        }
        "finalize" => Some("finalizers"),
        "ephemeralcontainers" => Some("ephemeralContainers"),
        // What may change beside the resources is the kind's own rule.
        "resize" => None,
        _ => return,
    };
    let mut kept = old.clone();
    match part {
        Some(field) => copy_at(&mut kept, new, "spec", field),
        None => copy_field(&mut kept, new, "spec"),
    }
    for field in ["managedFields", "resourceVersion"] {
        meta::set(&mut kept, field, new["metadata"][field].clone());
    }
    *new = kept;
}

/// Sets a top-level field; null is none.
fn put(object: &mut Value, field: &str, value: Value) {
    match (object.as_object_mut(), value) {
        (Some(map), Value::Null) => drop(map.remove(field)),
        (Some(map), value) => drop(map.insert(field.to_owned(), value)),
        _ => {}
    }
}

/// Makes a field of a top-level field what it is in `from`.
fn copy_at(object: &mut Value, from: &Value, outer: &str, inner: &str) {
    if !object[outer].is_object() {
        object[outer] = json!({});
    }
    copy_field(&mut object[outer], &from[outer], inner);
}

/// Makes a top-level field of `new` what it is in `old`.
pub fn copy_field(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) if map.get(field) == Some(value) => return,
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// A change that makes a new generation.
fn counts(call: &Call, new: &Value, old: &Value) -> bool {
    let fields: &[&str] = match call.resource.rules.generation {
        Generation::Counted(fields) => fields,
        Generation::Later => &[],
        Generation::None | Generation::First => return false,
    };
    // A custom object's status is content where it is no subresource.
    let has_status = call.resource.custom.as_ref().is_none_or(|custom| custom.has_status);
    let changed = |new: &Value| {
        content_changed(new, old)
            || (!has_status && new["status"] != old["status"])
            || fields.iter().any(|field| new["metadata"][*field] != old["metadata"][*field])
    };
    // What the store makes the same is the same.
    changed(new) && {
        let mut new = new.clone();
        codec::stored(call.state.schema, &mut new);
        changed(&new)
    }
}

/// Something else than metadata and status changed.
fn content_changed(new: &Value, old: &Value) -> bool {
    const ASIDE: [&str; 4] = ["metadata", "status", "apiVersion", "kind"];
    !alike(new, old, &|name, new, old| ASIDE.contains(&name) || new == old)
}

/// The same object but for times in its managed fields and resource version.
fn same(new: &Value, old: &Value) -> bool {
    let entry = |name: &str, new: &Value, old: &Value| match name {
        "time" => true,
        "fieldsV1" => same_fields(new, old),
        _ => new == old,
    };
    let metadata = |name: &str, new: &Value, old: &Value| match (name, new.as_array(), old.as_array()) {
        ("resourceVersion", ..) => true,
        ("managedFields", Some(new), Some(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| alike(new, old, &entry))
        }
        _ => new == old,
    };
    alike(new, old, &|name, new, old| name == "metadata" || new == old)
        && alike(&new["metadata"], &old["metadata"], &metadata)
}

/// The same fields: texts that differ may say the same.
fn same_fields(new: &Value, old: &Value) -> bool {
    new == old || FieldSet::decode(new) == FieldSet::decode(old)
}

/// Both are alike in every field that either has; one that is absent is null.
fn alike(new: &Value, old: &Value, field: &dyn Fn(&str, &Value, &Value) -> bool) -> bool {
    let (Some(left), Some(right)) = (new.as_object(), old.as_object()) else { return new == old };
    left.iter().all(|(name, value)| field(name, value, &old[name]))
        && right.iter().all(|(name, value)| left.contains_key(name) || field(name, &Value::Null, value))
}

/// The last finalizer of an object that is being deleted has gone: the write becomes the deletion.
fn deletes_now(call: &Call, new: &Value) -> bool {
    let spec_finalizers = call.resource.rules.spec_finalizers
        && new["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    meta::is_deleting(new)
        && meta::finalizers(new).is_empty()
        && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !spec_finalizers
}
