//! Errors of events, of either group; both are stored in the older form.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::IMMUTABLE;
use crate::registry::Context;
use crate::registry::value::{at, has, int, text};

const WORD: usize = 128;
const NOTE: usize = 1024;

/// An event of the core group, new or changed.
pub fn core(_context: &Context<'_>, event: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    namespace(&mut errors, event);
    // It asks for more once an event has its exact time.
    if has(event, "eventTime") {
        reporter(&mut errors, text(event, "reportingComponent"), "reportingComponent");
        for field in ["reportingInstance", "action"].into_iter().filter(|field| text(event, field).is_empty()) {
            errors.required(&Path::new(field), "");
        }
    }
    errors
}

/// An update of an event of the core group.
pub fn core_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    core(context, new)
}

/// An event of the newer group.
pub fn newer(_context: &Context<'_>, event: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    // Those that say a namespace may say any.
    if text(event, "involvedObject.namespace").is_empty() {
        namespace(&mut errors, event);
    }
    // Upstream asks for the rest by the older group's rule, which is for events with an exact time.
    match has(event, "eventTime") {
        true => complete(&mut errors, event),
        false => errors.required(&Path::new("eventTime"), ""),
    }
    let ty = text(event, "type");
    if !matches!(ty, "Normal" | "Warning") {
        errors.invalid(&Path::new("type"), "", format!("has invalid value: {ty}"));
    }
    unset(&mut errors, event);
    errors
}

/// An update of an event of the newer group: nothing but how often it happened changes.
pub fn newer_update(_context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if text(new, "involvedObject.namespace").is_empty() {
        namespace(&mut errors, new);
    }
    complete(&mut errors, new);
    const FIXED: [(&str, &str); 13] = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, shown) in FIXED.into_iter().filter(|(field, _)| at(new, field) != at(old, field)) {
        let value = at(new, field);
        // Texts that are gone are empty ones.
        let gone = value.is_null() && at(old, field).is_string() && field != "eventTime";
        let told = if gone { "".into() } else { value.clone() };
        let error = FieldError::new(Fault::Invalid, &Path::new(shown), told, IMMUTABLE);
        errors.push(match field {
            "involvedObject" | "related" => error.shown_as(shown_reference(value)),
            _ => error,
        });
    }
    errors
}

fn shown_reference(reference: &Value) -> String {
    let fields = [
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ];
    let fields = fields.map(|(name, field)| format!("\"{name}\":{}", Value::String(text(reference, field).to_owned())));
    format!("{{{}}}", fields.join(","))
}

fn namespace(errors: &mut ErrorList, event: &Value) {
    let named = text(event, "involvedObject.namespace");
    let own = text(event, "metadata.namespace");
    if (!named.is_empty() && named != own) || (named.is_empty() && own != "default") {
        let path = Path::new("involvedObject").child("namespace");
        errors.invalid(&path, named, "does not match event.namespace");
    }
}

fn reporter(errors: &mut ErrorList, controller: &str, field: &str) {
    let path = Path::new(field);
    if controller.is_empty() {
        errors.required(&path, "");
    }
    errors.invalid_each(&path, controller, names::qualified(controller));
}

/// What the newer group asks for, also of an event that is there.
fn complete(errors: &mut ErrorList, event: &Value) {
    if has(event, "series") {
        let path = Path::new("series");
        if int(event, "series.count") < 2 {
            errors.invalid(&path.child("count"), "", "should be at least 2");
        }
        if !has(event, "series.lastObservedTime") {
            errors.required(&path.child("lastObservedTime"), "");
        }
    }
    reporter(errors, text(event, "reportingComponent"), "reportingController");
    for field in ["reportingInstance", "action", "reason"] {
        let length = text(event, field).len();
        if length == 0 {
            errors.required(&Path::new(field), "");
        }
        if length > WORD {
            errors.invalid(&Path::new(field), "", format!("can have at most {WORD} characters"));
        }
    }
    if text(event, "message").len() > NOTE {
        errors.invalid(&Path::new("message"), "", format!("can have at most {NOTE} characters"));
    }
}

/// What only the older group has.
fn unset(errors: &mut ErrorList, event: &Value) {
    let mut refuse = |field: &str| errors.invalid(&Path::new(field), "", "needs to be unset");
    for field in ["firstTimestamp", "lastTimestamp"].into_iter().filter(|field| has(event, field)) {
        refuse(field);
    }
    if int(event, "count") != 0 {
        refuse("count");
    }
    if !text(event, "source.component").is_empty() || !text(event, "source.host").is_empty() {
        refuse("source");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_exact_time_asks_who_reports() {
        let event = |more: Value| {
            let mut event =
                json!({"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "n"}, "type": "Normal"});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            newer(&Context::ANY, &event).iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        assert_eq!(event(json!({})), ["eventTime"]);
        let timed = event(json!({"eventTime": "2026-11-30T10:00:00.000000Z"}));
        for field in ["reportingController", "reportingInstance", "action", "reason"] {
            assert!(timed.iter().any(|told| told == field), "{field}: {timed:?}");
        }
    }
}
