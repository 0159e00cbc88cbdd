//! Jobs and cron jobs.

use pintle_machinery::schema::Object;

use super::{core, is_empty, make, object, set};

/// By kind.
pub fn apply(kind: &str, top: &mut Object) {
    if kind == "Job" {
        labels_of_template(top);
    }
    let Some(spec) = object(top, "spec") else { return };
    match kind {
        "Job" => job(spec),
        "CronJob" => {
            if let Some(job) = object(spec, "jobTemplate").and_then(|template| object(template, "spec")) {
                core::template(job);
            }
        }
        _ => {}
    }
}

fn job(spec: &mut Object) {
    core::template(spec);
    let has = |spec: &Object, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !has(spec, "completions") && !has(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if has(spec, "backoffLimitPerIndex") { i32::MAX } else { 6 };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "manualSelector", false);
}

/// A Job without labels has those of its pods.
fn labels_of_template(top: &mut Object) {
    let labels = top.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let Some(labels) = labels.filter(|labels| labels.is_object()).cloned() else { return };
    if let Some(metadata) = make(top, "metadata").filter(|metadata| is_empty(metadata, "labels")) {
        metadata.insert("labels".to_owned(), labels);
    }
}
