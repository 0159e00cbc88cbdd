//! delete and deletecollection: preconditions, finalizers, graceful deletion.

use http::StatusCode;
use pintle_machinery::status::{ApiError, Details, Status, quoted};
use serde_json::{Value, json};

use super::list_options::ListOptions;
use super::modify::{self, Current};
use super::{Answer, Call, meta, present, read, storage_error};
use crate::admission::{self, Operation};
use crate::codec;
use crate::webhooks;

/// A deletion is retried so often when others write meanwhile.
const TRIES: usize = 20;
/// Grace period of pods that don't name one.
const POD_GRACE: i64 = 30;
/// What deleting a Job without a propagation policy does is a surprise to many.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                           remove them or set propagationPolicy=Orphan to suppress this warning";
/// Keeps the owner until its dependents are gone.
const FOREGROUND: &str = "foregroundDeletion";
/// Keeps the owner until its dependents have been released.
const ORPHAN: &str = "orphan";

/// Whose dependents stay unless something else is asked for.
const ORPHANING: [(&str, &str); 2] = [("", "replicationcontrollers"), ("batch", "jobs")];

/// What is deleted in two steps, by controllers; conflicts name the resource there, the kind elsewhere.
const FINISHED_BY_OTHERS: [&str; 2] = ["namespaces", "customresourcedefinitions"];

/// What happens to dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their owner.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Seconds until the object goes.
    pub grace: Option<i64>,
    /// Dependents; `None`: as the resource has it.
    pub propagation: Option<Propagation>,
    /// Only the object with this UID.
    pub uid: Option<String>,
    /// Only at this resource version.
    pub resource_version: Option<String>,
    /// Nothing is written.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the query and the body; what the body says goes first.
    pub fn parse(call: &Call, body: &[u8]) -> Result<Self, ApiError> {
        let mut options = Self {
            grace: grace(call.query.text("gracePeriodSeconds"))?,
            dry_run: call.dry_run()?,
            propagation: propagation(call.query.text("propagationPolicy"), call.query.text("orphanDependents"))?,
            ..Self::default()
        };
        if body.is_empty() {
            return Ok(options);
        }
        let value = codec::decode_options(call, body, "DeleteOptions")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        options.grace = value["gracePeriodSeconds"].as_i64().or(options.grace);
        let orphan = value["orphanDependents"].as_bool().map(|flag| flag.to_string());
        let wanted = propagation(value["propagationPolicy"].as_str(), orphan.as_deref())?;
        options.propagation = wanted.or(options.propagation);
        options.uid = text(&value["preconditions"]["uid"]);
        options.resource_version = text(&value["preconditions"]["resourceVersion"]);
        let other = value["dryRun"].as_array().is_some_and(|list| list.iter().any(|item| item != "All"));
        if other {
            return Err(call.unsupported_option("dryRun", value["dryRun"].clone(), &["All"]));
        }
        options.dry_run |= value["dryRun"].as_array().is_some_and(|list| list.iter().any(|item| item == "All"));
        Ok(options)
    }
}

/// A grace period as the query has it.
fn grace(text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |_| ApiError::BadRequest(format!("strconv.ParseInt: parsing {}: invalid syntax", quoted(text)));
    text.parse().map(Some).map_err(wrong)
}

fn propagation(policy: Option<&str>, orphan: Option<&str>) -> Result<Option<Propagation>, ApiError> {
    use pintle_machinery::field_path::{ErrorList, Path};
    let mut errors = ErrorList::new();
    let found = match (policy, orphan) {
        (Some(_), Some(_)) => {
            let path = Path::new("propagationPolicy");
            errors.invalid(
                &path,
                policy.unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            None
        }
        (Some("Orphan"), _) | (None, Some("true")) => Some(Propagation::Orphan),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Background"), _) | (None, Some(_)) => Some(Propagation::Background),
        (None, None) => None,
        (Some(other), None) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.not_supported(&Path::new("propagationPolicy"), other, &supported);
            None
        }
    };
    match errors.is_empty() {
        true => Ok(found),
        false => {
            let kind = pintle_machinery::status::GroupResource::new("meta.k8s.io", "DeleteOptions");
            Err(ApiError::invalid(&kind, "", errors))
        }
    }
}

/// What a deletion did.
pub enum Deleted {
    /// The object is gone; its last state (stored form).
    Gone(Value),
    /// It is going: finalizers or a grace period keep it; its new state.
    Going(Value),
}

fn warn(call: &Call, options: &DeleteOptions) {
    if call.resource.group == "batch" && call.resource.name == "jobs" && options.propagation.is_none() {
        call.warn(JOB_WARNING);
    }
}

/// DELETE of an object.
pub async fn delete(call: &Call, body: &[u8]) -> Answer {
    let options = DeleteOptions::parse(call, body)?;
    warn(call, &options);
    let deleted = delete_object(call, &options).await?;
    match deleted {
        Deleted::Gone(value) if !call.resource.returns_deleted => {
            let details = Details {
                name: call.info.name.clone(),
                group: call.resource.group.clone(),
                kind: call.resource.name.clone(),
                uid: meta::text(&value, "uid").to_owned(),
                ..Details::default()
            };
            present::object(call, StatusCode::OK, &Status::success(details).to_value())
        }
        Deleted::Gone(value) | Deleted::Going(value) => present::stored_value(call, StatusCode::OK, value),
    }
}

/// Deletes the addressed object or begins its deletion.
pub async fn delete_object(call: &Call, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let mut current = modify::current(call).await?.ok_or_else(|| call.not_found())?;
    for _ in 0..TRIES {
        check_preconditions(call, &current.value, options)?;
        admission::validate(call, Operation::Delete, None, Some(&current.value)).await?;
        webhooks::validate(call, Operation::Delete, None, Some(&current.value)).await?;
        let step = plan(call, &current.value, options);
        let outcome = match &step {
            Step::Keep => return Ok(Deleted::Going(current.value)),
            Step::Mark(value) => write_mark(call, &current, value, options).await,
            Step::Remove => remove(call, &current, options).await,
        };
        match (outcome, step) {
            (Ok(revision), Step::Mark(mut value)) => {
                meta::set(&mut value, "resourceVersion", json!(revision.to_string()));
                return Ok(Deleted::Going(value));
            }
            (Ok(revision), _) => {
                if !options.dry_run {
                    admission::released(call, &current.value).await;
                }
                if is_pod(call) && !meta::is_deleting(&current.value) {
                    // A pod goes by way of its mark.
                    begin(&mut current.value, 0, call.now);
                } else if meta::is_deleting(&current.value) {
                    meta::set(&mut current.value, "deletionGracePeriodSeconds", json!(0));
                }
                if revision > 0 {
                    meta::set(&mut current.value, "resourceVersion", json!(revision.to_string()));
                }
                return Ok(Deleted::Gone(current.value));
            }
            (Err(pintle_store::Error::Conflict { current: Some(kv) }), _) => current = Current::parse(kv)?,
            (Err(pintle_store::Error::Conflict { current: None }), _) => return Err(call.not_found()),
            (Err(error), _) => return Err(storage_error(error)),
        }
    }
    Err(ApiError::modified(&call.group_resource(), &call.info.name))
}

async fn write_mark(
    call: &Call,
    current: &Current,
    value: &Value,
    options: &DeleteOptions,
) -> Result<i64, pintle_store::Error> {
    if options.dry_run {
        return Ok(current.revision);
    }
    let mut stored = value.clone();
    meta::set(&mut stored, "resourceVersion", Value::Null);
    let ttl = call.resource.rules.ttl;
    call.state
        .store
        .update(&call.key(), codec::serialize(call.state.schema, &stored).into(), current.revision, ttl)
        .await
}

async fn remove(call: &Call, current: &Current, options: &DeleteOptions) -> Result<i64, pintle_store::Error> {
    if options.dry_run {
        return Ok(0);
    }
    call.state.store.delete(&call.key(), current.revision).await
}

fn check_preconditions(call: &Call, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let by_others = FINISHED_BY_OTHERS.contains(&call.resource.name.as_str());
    let named = if by_others { call.group_resource() } else { call.resource.group_kind() };
    let conflict = |what: &str, wanted: &str, found: &str, message: String| {
        let failed = if call.resource.name == "namespaces" { "Precondition failed" } else { "precondition failed" };
        let own = format!("{failed}: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Err(ApiError::conflict(&named, &call.info.name, if by_others { own } else { message }))
    };
    let (uid, version) = (meta::text(object, "uid"), meta::text(object, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let message = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return conflict("UID", wanted, uid, message);
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let message = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        );
        return conflict("ResourceVersion", wanted, version, message);
    }
    Ok(())
}

/// What a deletion has to do.
#[derive(Debug, PartialEq)]
enum Step {
    /// Nothing: it is on its way.
    Keep,
    /// Write this.
    Mark(Value),
    /// Remove it from the store.
    Remove,
}

fn plan(call: &Call, object: &Value, options: &DeleteOptions) -> Step {
    let resource = &call.resource;
    let core = resource.group.is_empty();
    let orphans = ORPHANING.contains(&(resource.group.as_str(), resource.name.as_str()));
    let propagation = options.propagation.or(orphans.then_some(Propagation::Orphan));
    if core && resource.name == "namespaces" {
        return plan_namespace(object, propagation, call.now);
    }
    let grace = if is_pod(call) { pod_grace(object, options.grace) } else { 0 };
    if let Some(finalizer) = resource.rules.deletion_finalizer
        && !meta::is_deleting(object)
    {
        return Step::Mark(held(object, finalizer, call.now));
    }
    plan_object(object, grace, propagation, call.now)
}

/// The object on its way out, which somebody has to clear first.
fn held(object: &Value, finalizer: &str, now: jiff::Timestamp) -> Value {
    let mut new = object.clone();
    let mut finalizers = meta::finalizers(object);
    if !finalizers.iter().any(|one| one == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(&mut new, finalizers);
    }
    meta::set(&mut new, "deletionTimestamp", json!(meta::timestamp(now)));
    new
}

fn plan_object(object: &Value, grace: i64, propagation: Option<Propagation>, now: jiff::Timestamp) -> Step {
    let mut new = object.clone();
    let finalizers = wanted_finalizers(object, propagation);
    let keeps = !finalizers.is_empty();
    let changes_finalizers = finalizers != meta::finalizers(object);
    if changes_finalizers {
        meta::set_finalizers(&mut new, finalizers);
    }
    if meta::is_deleting(object) {
        let period = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        // Only a shorter period counts.
        if grace < period && grace > 0 {
            mark(&mut new, grace, now);
            return Step::Mark(new);
        }
        return match (period > 0 && grace >= period, keeps) {
            (_, true) if grace < period => {
                mark(&mut new, 0, now);
                Step::Mark(new)
            }
            (_, true) if changes_finalizers => Step::Mark(new),
            (_, true) | (true, false) => Step::Keep,
            (false, false) => Step::Remove,
        };
    }
    if !keeps && grace == 0 {
        return Step::Remove;
    }
    begin(&mut new, grace, now);
    Step::Mark(new)
}

/// Marks an object for the first time, which is a change.
fn begin(object: &mut Value, grace: i64, now: jiff::Timestamp) {
    mark(object, grace, now);
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        meta::set(object, "generation", json!(generation + 1));
    }
}

fn is_pod(call: &Call) -> bool {
    call.resource.group.is_empty() && call.resource.name == "pods"
}

fn mark(object: &mut Value, grace: i64, now: jiff::Timestamp) {
    let at = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
    meta::set(object, "deletionTimestamp", json!(meta::timestamp(at)));
    meta::set(object, "deletionGracePeriodSeconds", json!(grace));
}

/// Adds or removes the garbage collector's finalizers as the propagation policy asks.
fn wanted_finalizers(object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let mut finalizers = meta::finalizers(object);
    let Some(propagation) = propagation else { return finalizers };
    let wanted = match propagation {
        Propagation::Orphan => Some(ORPHAN),
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Background => None,
    };
    finalizers
        .retain(|finalizer| (finalizer != ORPHAN && finalizer != FOREGROUND) || Some(finalizer.as_str()) == wanted);
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|finalizer| finalizer == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}

/// Pods that run nowhere or are done need no time.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let grace = asked.unwrap_or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(POD_GRACE));
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let scheduled = pod["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    if !scheduled || matches!(phase, "Failed" | "Succeeded") {
        return 0;
    }
    if grace < 0 { 1 } else { grace }
}

/// A namespace goes when the namespace controller has emptied it and taken away its finalizer in the spec.
fn plan_namespace(object: &Value, propagation: Option<Propagation>, now: jiff::Timestamp) -> Step {
    let held = object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let finalizers = wanted_finalizers(object, propagation);
    if meta::is_deleting(object) {
        return if held || !finalizers.is_empty() { Step::Keep } else { Step::Remove };
    }
    if !held && finalizers.is_empty() {
        return Step::Remove;
    }
    let mut new = object.clone();
    meta::set_finalizers(&mut new, finalizers);
    meta::set(&mut new, "deletionTimestamp", json!(meta::timestamp(now)));
    new["status"]["phase"] = json!("Terminating");
    Step::Mark(new)
}

/// DELETE of the collection: all that the selectors choose.
pub async fn delete_collection(call: &Call, body: &[u8]) -> Answer {
    let options = DeleteOptions::parse(call, body)?;
    warn(call, &options);
    let list = ListOptions::parse(&call.query, &call.resource)?;
    let page = read::page(call, &list).await?;
    let mut items = Vec::new();
    for entry in &page.entries {
        let one = one_of(call, &entry.value());
        match delete_object(&one, &options).await {
            Ok(Deleted::Gone(mut value) | Deleted::Going(mut value)) => {
                codec::to_served(call, &mut value);
                match call.resource.custom {
                    Some(_) => value = pintle_machinery::codec::json::with_fields_as_json(&value).into_owned(),
                    None => create_item(&mut value),
                }
                items.push(value);
            }
            Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let list = json!({
        "kind": call.resource.list_kind(),
        "apiVersion": call.resource.api_version(),
        "metadata": {"resourceVersion": page.revision.to_string()},
        "items": items,
    });
    present::object(call, StatusCode::OK, &list)
}

fn create_item(value: &mut Value) {
    super::create::remove(value, "kind");
    super::create::remove(value, "apiVersion");
}

/// The call as if it addressed this object.
fn one_of(call: &Call, object: &Value) -> Call {
    let mut info = call.info.clone();
    info.name = meta::text(object, "name").to_owned();
    info.namespace = meta::text(object, "namespace").to_owned();
    call.for_object(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> jiff::Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn plain_objects_go_at_once_and_finalizers_hold_them() {
        let plain = json!({"metadata": {"name": "a"}});
        assert_eq!(plan_object(&plain, 0, None, now()), Step::Remove);
        let Step::Mark(marked) = plan_object(&plain, 0, Some(Propagation::Foreground), now()) else { panic!() };
        assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(plan_object(&marked, 0, None, now()), Step::Keep);
        let held = json!({"metadata": {"name": "a", "finalizers": ["x/y"], "generation": 2}});
        let Step::Mark(marked) = plan_object(&held, 0, None, now()) else { panic!() };
        assert_eq!(marked["metadata"]["generation"], 3);
    }

    #[test]
    fn pods_get_time_and_only_a_shorter_one_counts() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 20}});
        assert_eq!(pod_grace(&pod, None), 20);
        assert_eq!(pod_grace(&pod, Some(-1)), 1);
        assert_eq!(pod_grace(&json!({"spec": {}}), None), 0);
        let Step::Mark(marked) = plan_object(&pod, 20, None, now()) else { panic!() };
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:20Z");
        assert_eq!(plan_object(&marked, 30, None, now()), Step::Keep);
        assert_eq!(plan_object(&marked, 0, None, now()), Step::Remove);
        let Step::Mark(shorter) = plan_object(&marked, 5, None, now()) else { panic!() };
        assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    }

    #[test]
    fn namespaces_wait_for_their_spec_finalizer() {
        let live =
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let Step::Mark(marked) = plan_namespace(&live, None, now()) else { panic!() };
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert_eq!(plan_namespace(&marked, None, now()), Step::Keep);
        let empty = json!({"metadata": {"name": "n", "deletionTimestamp": "x"}, "spec": {}});
        assert_eq!(plan_namespace(&empty, None, now()), Step::Remove);
    }
}
