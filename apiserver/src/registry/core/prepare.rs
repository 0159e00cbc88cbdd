//! What the server decides when core kinds are created and updated.

use serde_json::{Value, json};

use crate::registry::Context;
use crate::registry::value::{at, default, has, items, object_mut, remove, restore, set, text};
use pintle_api::quota::qos;

/// A new Pod waits to be scheduled.
pub fn pod_create(context: &Context<'_>, pod: &mut Value) {
    let class = qos::class(pod);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !items(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": crate::engine::meta::timestamp(context.now)}]);
    }
    set(pod, "status", status);
}

/// A Pod's class stays what it was on creation, where a status does not tell it, and so does what its priority was.
pub fn pod_update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let class = text(old, "status.qosClass").to_owned();
    if !class.is_empty() {
        default(object_mut(new, "status"), "qosClass", class);
    }
    for field in ["priority", "preemptionPolicy"].into_iter().filter(|field| has(old, &format!("spec.{field}"))) {
        default(object_mut(new, "spec"), field, old["spec"][field].clone());
    }
}

/// A new Namespace is active and held by the finalizer that empties it.
pub fn namespace_create(_context: &Context<'_>, namespace: &mut Value) {
    set(namespace, "status", json!({"phase": "Active"}));
    let spec = object_mut(namespace, "spec");
    let held = items(spec, "finalizers").iter().any(|finalizer| finalizer == "kubernetes");
    if !held {
        let mut finalizers = items(spec, "finalizers").to_vec();
        finalizers.push("kubernetes".into());
        set(spec, "finalizers", finalizers);
    }
}

/// A name that the server made up becomes a label too.
pub fn namespace_complete(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    set(object_mut(namespace, "metadata.labels"), "kubernetes.io/metadata.name", name);
}

/// Finalizers of a Namespace change through their own subresource only.
pub fn namespace_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    if context.subresource.is_none() {
        let finalizers = old.get("spec").cloned().unwrap_or_else(|| json!({}));
        restore(object_mut(new, "spec"), &finalizers, "finalizers");
    }
}

/// A new volume or claim is pending.
pub fn pending(_context: &Context<'_>, object: &mut Value) {
    set(object, "status", json!({"phase": "Pending"}));
}

/// A new claim is pending.
pub fn claim_create(context: &Context<'_>, claim: &mut Value) {
    pending(context, claim);
    sources(claim, None);
}

/// A claim that is written again.
pub fn claim_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    if context.subresource.is_none() {
        sources(new, Some(old));
    }
}

/// A claim's source of data is told in both of its fields.
fn sources(claim: &mut Value, old: Option<&Value>) {
    let spec = object_mut(claim, "spec");
    let had = |field: &str| old.is_some_and(|old| !old["spec"][field].is_null());
    // The old field knows claims and snapshots only; data from another namespace is behind a gate.
    let source = (text(spec, "dataSource.apiGroup"), text(spec, "dataSource.kind"));
    let known = matches!(source, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"));
    if !known && !had("dataSource") && at(spec, "dataSourceRef").is_null() {
        remove(spec, "dataSource");
    }
    if !text(spec, "dataSourceRef.namespace").is_empty() && !had("dataSourceRef") {
        remove(spec, "dataSourceRef");
    }
    let (source, reference) = (at(spec, "dataSource").clone(), at(spec, "dataSourceRef").clone());
    let elsewhere = !text(&reference, "namespace").is_empty();
    if !source.is_null() && reference.is_null() {
        set(spec, "dataSourceRef", source);
    } else if source.is_null() && !reference.is_null() && !elsewhere {
        set(spec, "dataSource", reference);
    }
}

/// Which generation a DaemonSet's template is of, for clients of long ago.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The first template.
pub fn daemon_set_create(_context: &Context<'_>, daemons: &mut Value) {
    remove(daemons, "status");
    let annotations = object_mut(daemons, "metadata.annotations");
    let told = text_of(annotations, TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0);
    set(annotations, TEMPLATE_GENERATION, i64::max(told, 1).to_string());
}

/// An entry of a map, whose name may have dots.
fn text_of<'a>(map: &'a Value, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// The template's generation is the server's: one more with each change.
pub fn daemon_set_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    let before = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok());
    let changed = context.subresource.is_none() && at(new, "spec.template") != at(old, "spec.template");
    let generation: i64 = before.unwrap_or(0) + i64::from(changed);
    set(object_mut(new, "metadata.annotations"), TEMPLATE_GENERATION, generation.to_string());
}

/// Secrets of a service account are told by their names.
pub fn account_create(_context: &Context<'_>, account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = at(secret, "name").clone();
        *secret = if name.is_null() { json!({}) } else { json!({"name": name}) };
    }
}

/// The same when it is written again.
pub fn account_update(context: &Context<'_>, new: &mut Value, _old: &Value) {
    account_create(context, new);
}

/// A new definition is stored in its storage version.
pub fn definition_create(_context: &Context<'_>, definition: &mut Value) {
    let versions = items(definition, "spec.versions").iter();
    let stored: Vec<Value> =
        versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).take(1).collect();
    set(definition, "status", json!({}));
    if !stored.is_empty() {
        set(&mut definition["status"], "storedVersions", stored);
    }
}

/// The version that a definition's objects are stored in from now on is one of those that may be in the store.
pub fn definition_update(context: &Context<'_>, new: &mut Value, _old: &Value) {
    let mut stored = items(new, "status.storedVersions").to_vec();
    // A status that tells none has that in which objects are stored.
    if context.subresource.is_some() && !stored.is_empty() {
        return;
    }
    let storage = items(new, "spec.versions").iter().find(|version| version["storage"] == true);
    if let Some(name) = storage.map(|version| version["name"].clone()).filter(|name| !stored.contains(name)) {
        stored.push(name);
        set(&mut new["status"], "storedVersions", stored);
    }
}

/// A LimitRange without a name gets one.
pub fn limit_range_create(_context: &Context<'_>, range: &mut Value) {
    default(object_mut(range, "metadata"), "name", uuid::Uuid::new_v4().to_string());
}

/// A new volume is pending, since now.
pub fn volume_create(context: &Context<'_>, volume: &mut Value) {
    let now = crate::engine::meta::timestamp(context.now);
    set(volume, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
}

/// When a volume's phase changes, the time is noted.
pub fn volume_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    let phase = |volume: &Value| text(volume, "status.phase").to_owned();
    let told = |volume: &Value| text(volume, "status.lastPhaseTransitionTime").to_owned();
    if context.subresource != Some("status") {
        return;
    }
    let untold = told(new).is_empty();
    if phase(new) != phase(old) && (untold || told(new) == told(old)) {
        set(object_mut(new, "status"), "lastPhaseTransitionTime", crate::engine::meta::timestamp(context.now));
    } else if untold && !told(old).is_empty() {
        set(object_mut(new, "status"), "lastPhaseTransitionTime", told(old));
    }
}

/// An APIService of this server itself is there at once.
pub fn api_service_create(context: &Context<'_>, service: &mut Value) {
    set(service, "status", json!({}));
    if !has(service, "spec.service") {
        service["status"]["conditions"] = json!([{"type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available",
            "lastTransitionTime": crate::engine::meta::timestamp(context.now)}]);
    }
}

/// A new attachment is not attached.
pub fn attachment_create(_context: &Context<'_>, attachment: &mut Value) {
    set(attachment, "status", json!({"attached": false}));
}

/// Nothing but the metadata of a request for a certificate changes without a subresource; each of those has its part.
pub fn request_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    restore(new, old, "spec");
    let kept = |new: &mut Value, field: &str| {
        let before = old.get("status").cloned().unwrap_or_else(|| json!({}));
        restore(object_mut(new, "status"), &before, field);
    };
    match context.subresource {
        None => restore(new, old, "status"),
        Some("approval") => kept(new, "certificate"),
        _ => {}
    }
    if context.subresource.is_some() {
        note_times(context, new, old);
    }
}

/// When conditions were written and when they came to be so, where that is not told.
fn note_times(context: &Context<'_>, new: &mut Value, old: &Value) {
    let now = crate::engine::meta::timestamp(context.now);
    let same = |condition: &Value, before: &Value| ["type", "status"].iter().all(|f| at(condition, f) == at(before, f));
    for condition in new.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let before = items(old, "status.conditions").iter().find(|before| same(condition, before));
        let since = before.map(|before| text(before, "lastTransitionTime")).filter(|since| !since.is_empty());
        let since = since.map_or_else(|| Value::from(now.clone()), Value::from);
        default(condition, "lastTransitionTime", since);
        default(condition, "lastUpdateTime", now.clone());
    }
}

/// A Job tells its pods apart by its own uid, unless the user does it. What has no labels of its own has those of the pods.
pub fn job_create(context: &Context<'_>, job: &mut Value) {
    remove(job, "status");
    if at(job, "spec.manualSelector") != &Value::Bool(true) {
        select_own_pods(job);
    }
    // Labels that are by default those of the pods stay so.
    let labels = at(job, "spec.template.metadata.labels").clone();
    if !context.labelled && has(job, "metadata.labels") {
        set(object_mut(job, "metadata"), "labels", labels);
    }
}

/// What has no labels yet has those that its pods have got.
pub fn job_complete(job: &mut Value) {
    let labels = at(job, "spec.template.metadata.labels").clone();
    if !has(job, "metadata.labels") && labels.is_object() {
        set(object_mut(job, "metadata"), "labels", labels);
    }
}

fn select_own_pods(job: &mut Value) {
    let uid = text(job, "metadata.uid").to_owned();
    let name = text(job, "metadata.name").to_owned();
    let labels = object_mut(job, "spec.template.metadata.labels");
    for (key, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        default(labels, key, value.as_str());
    }
    let selector = object_mut(job, "spec.selector.matchLabels");
    default(selector, "batch.kubernetes.io/controller-uid", uid);
}

/// Types of Secrets, once there, stay when an update leaves them out.
pub fn secret_update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let ty = text(old, "type").to_owned();
    default(new, "type", ty);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_select_their_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {}}}});
        job_create(&Context::ANY, &mut job);
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    }

    #[test]
    fn conditions_of_requests_tell_their_times() {
        let condition = |status: &str| json!({"status": {"conditions": [{"type": "Failed", "status": status}]}});
        let mut old = condition("True");
        old["status"]["conditions"][0]["lastTransitionTime"] = json!("2020-01-02T03:04:05Z");
        let context = Context { subresource: Some("status"), ..Context::ANY };
        for (status, since) in [("True", "2020-01-02T03:04:05Z"), ("False", "1970-01-01T00:00:00Z")] {
            let mut new = condition(status);
            request_update(&context, &mut new, &old);
            let noted = &new["status"]["conditions"][0];
            assert_eq!(
                (&noted["lastTransitionTime"], &noted["lastUpdateTime"]),
                (&json!(since), &json!("1970-01-01T00:00:00Z"))
            );
        }
    }

    #[test]
    fn namespaces_are_held() {
        let mut namespace = json!({"metadata": {"name": "n"}});
        namespace_create(&Context::ANY, &mut namespace);
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"]["phase"], "Active");
    }
}
