//! Errors of events, of either group; both are stored in the older form.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::IMMUTABLE;
use crate::engine::meta;
use crate::registry::value::{at, has, int, text};
use crate::registry::{Context, Rules};

const WORD: usize = 128;
const NOTE: usize = 1024;

/// An event of the core group, new or changed.
pub fn core(_context: &Context<'_>, event: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    common(&mut errors, event, "reportingComponent");
    errors
}

/// An update of an event of the core group.
pub fn core_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    core(context, new)
}

/// An event of the newer group, with its metadata.
pub fn newer(_context: &Context<'_>, event: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    common(&mut errors, event, "reportingController");
    errors.extend(meta::validate_new(event, true, &Rules::NONE));
    series(&mut errors, event);
    if !has(event, "eventTime") {
        errors.required(&Path::new("eventTime"), "");
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
    common(&mut errors, new, "reportingController");
    series(&mut errors, new);
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

/// What either group asks for: that an event is where its object is, and of one with its exact time who reports what.
fn common(errors: &mut ErrorList, event: &Value, controller: &str) {
    namespace(errors, event);
    if !has(event, "eventTime") {
        return;
    }
    let (reporter, path) = (text(event, "reportingComponent"), Path::new(controller));
    if reporter.is_empty() {
        errors.required(&path, "");
    }
    errors.invalid_each(&path, reporter, names::qualified(reporter));
    for field in ["reportingInstance", "action", "reason"] {
        match text(event, field).len() {
            0 => errors.required(&Path::new(field), ""),
            length if length > WORD => {
                errors.invalid(&Path::new(field), "", format!("can have at most {WORD} characters"));
            }
            _ => {}
        }
    }
    if text(event, "message").len() > NOTE {
        errors.invalid(&Path::new("message"), "", format!("can have at most {NOTE} characters"));
    }
}

fn namespace(errors: &mut ErrorList, event: &Value) {
    let named = text(event, "involvedObject.namespace");
    let own = text(event, "metadata.namespace");
    let fits = match (has(event, "eventTime"), named) {
        (false, "") => own == "default",
        (false, named) => named == own,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let path = Path::new("involvedObject").child("namespace");
        errors.invalid(&path, named, "does not match event.namespace");
    }
}

/// How often it happened.
fn series(errors: &mut ErrorList, event: &Value) {
    if !has(event, "series") {
        return;
    }
    let path = Path::new("series");
    if int(event, "series.count") < 2 {
        errors.invalid(&path.child("count"), "", "should be at least 2");
    }
    if !has(event, "series.lastObservedTime") {
        errors.required(&path.child("lastObservedTime"), "");
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
            let mut event = json!({"metadata": {"name": "e", "namespace": "n"}, "type": "Normal"});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            newer(&Context::ANY, &event).iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        assert_eq!(event(json!({"involvedObject": {"namespace": "n"}})), ["eventTime"]);
        let faulty =
            json!({"metadata": {"name": "A", "namespace": "n"}, "series": {"count": 1}, "type": "x", "count": 1});
        assert_eq!(
            event(faulty),
            [
                "involvedObject.namespace",
                "metadata.name",
                "series.count",
                "series.lastObservedTime",
                "eventTime",
                "type",
                "count"
            ]
        );
        let timed = |more: Value| event(json!({"eventTime": "2026-11-30T10:00:00.000000Z", "involvedObject": more}));
        let reporter = [
            "reportingController",
            "reportingController",
            "reportingController",
            "reportingInstance",
            "action",
            "reason",
        ];
        assert_eq!(timed(json!({"namespace": "x"})), reporter);
        assert_eq!(timed(json!({})), [&["involvedObject.namespace"], &reporter[..]].concat());
    }
}
