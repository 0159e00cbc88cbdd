//! The rules against what kube-apiserver v1.37 answered (golden/): cells of objects of many kinds, and the errors of
//! bad ones.

use std::collections::BTreeSet;

use pintle_machinery::codec::TypeMeta;
use pintle_machinery::field_path::FieldError;
use pintle_machinery::normalize::normalize;
use pintle_machinery::status::Cause;
use serde_json::Value;

use super::{Context, Rules, rules};

/// Columns whose cells depend on the time of asking.
const TIMES: [&str; 6] = ["Age", "Created At", "Last Seen", "First Seen", "Last Schedule", "Duration"];

fn golden(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn objects() -> Vec<Value> {
    golden(include_str!("golden/cells.json"))
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

fn rules_of(case: &Value) -> &'static Rules {
    let (group, resource) = (text(case, "group"), text(case, "resource"));
    // Events have one stored form, whichever group serves them.
    rules(if resource == "events" && case["object"]["regarding"].is_null() { "" } else { group }, resource)
}

fn context(case: &Value) -> Context<'_> {
    Context { group: text(case, "group"), resource: text(case, "resource"), namespace: "default", ..Context::ANY }
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} differ\n{}", failures.len(), failures.join("\n"));
}

/// The cache reads no deeper for selectors.
#[test]
fn selectable_fields_are_at_the_first_two_levels() {
    for (group, resource, rules) in super::table::TABLE {
        for field in rules.fields {
            assert!(field.split('.').count() <= 2, "{field} of {resource}.{group}");
            assert!(!field.starts_with("data.") && !field.starts_with("binaryData."), "{field} of {resource}.{group}");
        }
    }
}

#[test]
fn cells_are_upstreams() {
    let now = "2026-11-30T08:01:00Z".parse().unwrap();
    let mut failures = Vec::new();
    for case in objects() {
        let rules = rules_of(&case);
        let Some(cells) = rules.cells else { continue };
        let ours = cells(&case["object"], now);
        let seen = crate::cache::entry::glance(case["object"].to_string().as_bytes(), 0..0);
        assert_eq!(ours, cells(&seen, now), "a cell shows what lists skip: {}", case["resource"]);
        let theirs = case["cells"].as_array().unwrap();
        let columns = case["columns"].as_array().unwrap();
        if ours.len() != theirs.len() || rules.columns.len() != columns.len() {
            failures.push(format!("{}: {ours:?} for {columns:?}", case["resource"]));
            continue;
        }
        for ((column, ours), theirs) in columns.iter().zip(&ours).zip(theirs) {
            if !TIMES.contains(&column.as_str().unwrap()) && ours != theirs {
                let name = &case["object"]["metadata"]["name"];
                failures.push(format!("{} {name} {column}: {ours} not {theirs}", case["resource"]));
            }
        }
    }
    report(&failures);
}

#[test]
fn defaults_leave_stored_objects_alone() {
    let mut failures = Vec::new();
    for case in objects() {
        let meta = TypeMeta::of(&case["object"]);
        let (group, version) = meta.group_version();
        let ty = pintle_api::schema().kind(group, version, &meta.kind).unwrap();
        let mut object = case["object"].clone();
        pintle_api::defaults::apply(ty, &mut object);
        normalize(pintle_api::schema(), ty, &mut object);
        if object != case["object"] {
            failures.push(format!("{}: {}\n  became {object}", case["resource"], case["object"]));
        }
    }
    report(&failures);
}

#[test]
fn stored_objects_are_valid() {
    let mut failures = Vec::new();
    // Events of the core group are shown in the other one, whose rules for new ones are stricter.
    for case in objects().into_iter().filter(|case| case["group"] != "events.k8s.io") {
        let rules = rules_of(&case);
        let object = &case["object"];
        let context = context(&case);
        let created = rules.validate_create.map(|validate| validate(&context, object)).unwrap_or_default();
        let updated = rules.validate_update.map(|validate| validate(&context, object, object)).unwrap_or_default();
        if !created.is_empty() || !updated.is_empty() {
            failures.push(format!("{} {}: {created} | {updated}", case["resource"], object["metadata"]["name"]));
        }
    }
    report(&failures);
}

#[test]
fn errors_are_upstreams() {
    let mut failures = Vec::new();
    for case in golden(include_str!("golden/invalid.json")) {
        let schema = pintle_api::schema();
        let rules = rules_of(&case);
        let mut object = case["object"].clone();
        let ty = schema.kind(text(&case, "group"), text(&case, "version"), text(&case, "kind")).unwrap();
        pintle_api::defaults::apply(ty, &mut object);
        normalize(schema, ty, &mut object);
        object["metadata"]["namespace"] = "default".into();
        if let Some(prepare) = rules.prepare_create {
            prepare(&context(&case), &mut object);
        }
        let errors = rules.validate_create.map(|validate| validate(&context(&case), &object)).unwrap_or_default();
        let ours: BTreeSet<String> = errors.iter().map(FieldError::cause).map(|cause| shown(&cause)).collect();
        let theirs = case["causes"].as_array().unwrap().iter();
        let theirs: BTreeSet<String> =
            theirs.map(|cause| shown(&serde_json::from_value(cause.clone()).unwrap())).collect();
        for extra in ours.difference(&theirs) {
            failures.push(format!("{}: ours alone: {extra}", case["resource"]));
        }
        for missing in theirs.difference(&ours) {
            failures.push(format!("{}: missing: {missing}", case["resource"]));
        }
    }
    report(&failures);
}

fn shown(cause: &Cause) -> String {
    format!("{}: {} ({})", cause.field, cause.message, cause.reason)
}
