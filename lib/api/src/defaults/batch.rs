//! Jobs and cron jobs.

use pintle_machinery::schema::Object;

use super::{core, object, set, set_text};

/// By kind.
pub fn apply(kind: &str, top: &mut Object) {
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
    set_text(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "manualSelector", false);
}
