//! Errors of Jobs and CronJobs.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use pintle_machinery::selector::label::Selector;
use serde_json::Value;

use super::{IMMUTABLE, label_selector, not_negative, one_of, pod, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, number, remove, text};

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// Most pods at a time, and most completions, of an indexed Job.
const MOST_PARALLEL: i64 = 100_000;
/// Rules of a policy, codes and conditions of a rule.
const MOST: usize = 20;
const MOST_CODES: usize = 255;

/// A fault whose value is not shown.
fn unshown(errors: &mut ErrorList, path: &Path, detail: &str) {
    errors.push(FieldError::new(Fault::Invalid, path, Value::Null, "").shown_as(detail));
}

/// Job.
pub fn job(_context: &Context<'_>, job: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(job, "spec");
    own_selector(&mut errors, job, &path.child("selector"));
    job_spec(&mut errors, spec, &path);
    if let Some(completions) = number(spec, "completions").filter(|_| text(spec, "completionMode") == "Indexed") {
        let name = text(job, "metadata.name");
        let last = format!("{name}-{}", completions - 1);
        if completions > 0 && !names::dns1123_label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            errors.invalid(&Path::new("metadata").child("name"), name, detail);
        }
    }
    errors
}

/// The selector is the server's unless the user says otherwise.
fn own_selector(errors: &mut ErrorList, job: &Value, path: &Path) {
    let selector = at(job, "spec.selector");
    if at(job, "spec.manualSelector") != &Value::Bool(true) && !text(job, "metadata.uid").is_empty() {
        let own = serde_json::json!({"matchLabels": {UID_LABEL: text(job, "metadata.uid")}});
        let of_uid = selector == &own || selector["matchLabels"].get("controller-uid").is_some();
        if !of_uid {
            errors.invalid(path, selector.clone(), "`selector` not auto-generated");
        }
    }
}

/// A Job's spec with the pods that it selects.
fn job_spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    any_spec(errors, spec, path);
    let selector = at(spec, "selector");
    let of_selector = path.child("selector");
    if selector.is_null() {
        errors.required(&of_selector, "");
    } else {
        label_selector(errors, &of_selector, selector);
    }
    let labels = at(spec, "template.metadata.labels");
    let chosen = Selector::from_object(Some(selector).filter(|selector| !selector.is_null()));
    let matches = match chosen {
        Ok(chosen) => !selector.is_null() && chosen.matches(&labels.as_object()),
        Err(_) => true,
    };
    if !matches {
        let path = path.child("template").child("metadata").child("labels");
        errors.invalid(&path, labels.clone(), "`selector` does not match template `labels`");
    }
}

/// The spec of a Job, or of the template of one.
fn any_spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(errors, spec, path, &counts);
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    let manager = text(spec, "managedBy");
    if has(spec, "managedBy") {
        let path = path.child("managedBy");
        match manager.split_once('/') {
            Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
                errors.invalid_each(&path, domain, names::dns1123_subdomain(domain));
            }
            _ => errors.invalid(&path, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        }
    }
    let indexed = text(spec, "completionMode") == "Indexed";
    if has(spec, "completionMode") {
        one_of(errors, &path.child("completionMode"), text(spec, "completionMode"), &["NonIndexed", "Indexed"]);
    }
    if indexed {
        if !has(spec, "completions") {
            let detail = "when completion mode is Indexed";
            errors.required(&path.child("completions"), detail);
        }
        if let Some(many) = number(spec, "parallelism").filter(|many| *many > MOST_PARALLEL) {
            let detail = format!("must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed");
            errors.invalid(&path.child("parallelism"), many, detail);
        }
        failed_indexes(errors, spec, path);
    }
    if !indexed {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"].into_iter().filter(|field| has(spec, field)) {
            errors.invalid(&path.child(field), at(spec, field).clone(), "requires indexed completion mode");
        }
    }
    failure_policy(errors, spec, &path.child("podFailurePolicy"));
    success_policy(errors, spec, indexed, &path.child("successPolicy"));
    replacement(errors, spec, path);
    pod::template(errors, at(spec, "template"), &path.child("template"));
    restart(errors, spec, path);
}

/// How many indexes may fail, and how many pods there may be at a time beside that.
fn failed_indexes(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const FEW: i64 = 10_000;
    let all = int(spec, "completions");
    let failed = number(spec, "maxFailedIndexes");
    let of_failed = path.child("maxFailedIndexes");
    if let Some(failed) = failed {
        if failed > all && has(spec, "completions") {
            errors.invalid(&of_failed, failed, "must be less than or equal to completions");
        }
        if failed > MOST_PARALLEL {
            errors.invalid(&of_failed, failed, format!("must be less than or equal to {MOST_PARALLEL}"));
        }
    }
    if all > MOST_PARALLEL && has(spec, "backoffLimitPerIndex") {
        let detail = format!(
            "must be less than or equal to {FEW} when completions are above {MOST_PARALLEL} and used with backoff limit per index"
        );
        for (path, count) in [(path.child("parallelism"), number(spec, "parallelism")), (of_failed, failed)] {
            if let Some(count) = count.filter(|count| *count > FEW) {
                errors.invalid(&path, count, detail.clone());
            }
        }
    }
}

fn replacement(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if !has(spec, "podReplacementPolicy") {
        return;
    }
    let known: &[&str] = if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    one_of(errors, &path.child("podReplacementPolicy"), text(spec, "podReplacementPolicy"), known);
}

fn restart(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let path = path.child("template").child("spec").child("restartPolicy");
    match text(spec, "template.spec.restartPolicy") {
        "" | "Always" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&path, "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

fn failure_policy(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let rules = items(spec, "podFailurePolicy.rules");
    if rules.len() > MOST {
        return errors.too_many(&path.child("rules"), rules.len(), MOST);
    }
    let lists = ["containers", "initContainers"].iter();
    let containers: Vec<&str> = lists
        .flat_map(|list| items(&spec["template"]["spec"], list).iter().map(|container| text(container, "name")))
        .collect();
    for (index, rule) in rules.iter().enumerate() {
        let path = path.child("rules").index(index);
        match text(rule, "action") {
            "" => {
                errors.required(&path.child("action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]")
            }
            "FailIndex" if !has(spec, "backoffLimitPerIndex") => {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(&path.child("action"), "FailIndex", detail);
            }
            action => one_of(errors, &path.child("action"), action, &["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        if has(rule, "onExitCodes") {
            exit_codes(errors, at(rule, "onExitCodes"), &containers, &path.child("onExitCodes"));
        }
        let conditions = items(rule, "onPodConditions");
        for (index, condition) in conditions.iter().enumerate() {
            let path = path.child("onPodConditions").index(index);
            let ty = text(condition, "type");
            errors.invalid_each(&path.child("type"), ty, names::qualified(ty));
            let known = ["False", "True", "Unknown"];
            match text(condition, "status") {
                "" => errors.required(&path.child("status"), "valid values: [\"False\" \"True\" \"Unknown\"]"),
                status => one_of(errors, &path.child("status"), status, &known),
            }
        }
        match (has(rule, "onExitCodes"), conditions.is_empty()) {
            (true, false) => unshown(errors, &path, "specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, true) => unshown(errors, &path, "specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn exit_codes(errors: &mut ErrorList, codes: &Value, containers: &[&str], path: &Path) {
    let operator = text(codes, "operator");
    match operator {
        "" => errors.required(&path.child("operator"), "valid values: [\"In\" \"NotIn\"]"),
        operator => one_of(errors, &path.child("operator"), operator, &["In", "NotIn"]),
    }
    let container = text(codes, "containerName");
    if has(codes, "containerName") && !containers.contains(&container) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), container, detail);
    }
    let path = path.child("values");
    let values = items(codes, "values");
    if values.is_empty() {
        errors.invalid(&path, at(codes, "values").clone(), "at least one value is required");
    } else if values.len() > MOST_CODES {
        errors.too_many(&path, values.len(), MOST_CODES);
    }
    let mut seen = HashSet::new();
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    for (index, code) in numbers.iter().enumerate() {
        if !seen.insert(*code) {
            errors.duplicate(&path.index(index), *code);
        } else if *code == 0 && operator == "In" {
            errors.invalid(&path.index(index), 0, "must not be 0 for the In operator");
        }
    }
    if numbers.windows(2).any(|pair| pair[0] > pair[1]) {
        errors.invalid(&path, values.to_vec(), "must be ordered");
    }
}

fn success_policy(errors: &mut ErrorList, spec: &Value, indexed: bool, path: &Path) {
    if !has(spec, "successPolicy") {
        return;
    }
    let rules = items(spec, "successPolicy.rules");
    if !indexed {
        let shown = format!("{{\"Rules\":{}}}", Value::Array(rules.to_vec()));
        let detail = "requires indexed completion mode";
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as(shown));
        return;
    }
    let of_rules = path.child("rules");
    if rules.is_empty() {
        errors.required(&of_rules, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MOST {
        errors.too_many(&of_rules, rules.len(), MOST);
    }
    let all = int(spec, "completions");
    for (index, rule) in rules.iter().enumerate() {
        let path = of_rules.index(index);
        if !has(rule, "succeededCount") && !has(rule, "succeededIndexes") {
            errors.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut chosen = None;
        // A list that can't be read names none.
        if has(rule, "succeededIndexes") {
            let indexes = text(rule, "succeededIndexes");
            match count_indexes(indexes, all) {
                Ok(count) => chosen = Some(count),
                Err(fault) => {
                    chosen = Some(0);
                    let detail = format!("error parsing succeededIndexes: {fault}");
                    errors.invalid(&path.child("succeededIndexes"), indexes, detail);
                }
            }
        }
        let Some(count) = number(rule, "succeededCount") else { continue };
        let path = path.child("succeededCount");
        if count < 0 {
            errors.invalid(&path, count, super::NOT_NEGATIVE);
        }
        if count > all {
            let detail = format!("must be less than or equal to {all} (the number of specified completions)");
            errors.invalid(&path, count, detail);
        }
        if let Some(chosen) = chosen.filter(|chosen| count > *chosen) {
            let detail = format!(
                "must be less than or equal to {chosen} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&path, count, detail);
        }
    }
}

/// How many indexes a list like `0,3-5` names; what is wrong with it otherwise.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut count = 0;
    let mut last = None;
    let number = |part: &str| -> Result<i64, String> {
        part.parse().map_err(|_| format!("cannot convert string to integer for index: \"{part}\""))
    };
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let limits: Vec<&str> = interval.split('-').collect();
        let (first, end) = match limits[..] {
            [one] => (one, one),
            [first, end] => (first, end),
            _ => {
                return Err(format!(
                    "the fragment \"{interval}\" violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
        };
        let (x, y) = (number(first)?, number(end)?);
        if x >= completions || y >= completions {
            return Err(format!("too large index: \"{}\"", if x >= completions { first } else { end }));
        }
        if last.is_some_and(|last| last >= x) {
            return Err(format!("non-increasing order, previous: {}, current: {x}", last.unwrap_or_default()));
        }
        if limits.len() == 2 && x >= y {
            return Err(format!("non-increasing order, previous: {x}, current: {y}"));
        }
        count += y - x + 1;
        last = Some(y);
    }
    Ok(count)
}

/// An update of a Job: its pods stay what they are.
pub fn job_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    if context.subresource.is_some() {
        return status(new);
    }
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    job_spec(&mut errors, at(new, "spec"), &path);
    let indexed = text(new, "spec.completionMode") == "Indexed";
    let (completions, parallelism) = (at(new, "spec.completions"), at(new, "spec.parallelism"));
    if !indexed || completions != parallelism {
        unchanged(&mut errors, &path.child("completions"), completions, at(old, "spec.completions"));
    }
    unchanged(&mut errors, &path.child("selector"), at(new, "spec.selector"), at(old, "spec.selector"));
    let idle = !has(old, "status.startTime") && int(old, "status.active") == 0;
    let suspended = at(old, "spec.suspend") == &Value::Bool(true) && idle;
    let path_of = path.child("template");
    if !suspended {
        unchanged(&mut errors, &path_of, at(new, "spec.template"), at(old, "spec.template"));
    } else if fixed(new) != fixed(old) {
        errors.invalid(&path_of.child("spec"), at(new, "spec.template.spec").clone(), IMMUTABLE);
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        let (before, after) = (at(&old["spec"], field), at(&new["spec"], field));
        if before != after {
            errors.invalid(&path.child(field), after.clone(), IMMUTABLE);
        }
    }
    errors
}

/// What stays of the pods of a Job that is suspended: where they may run and what they get may change.
fn fixed(job: &Value) -> Value {
    let mut spec = at(job, "spec.template.spec").clone();
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        remove(&mut spec, field);
    }
    super::placement::without_nodes(&mut spec);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove(container, "resources");
        }
    }
    spec
}

fn status(job: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    not_negative(&mut errors, at(job, "status"), &path, &counts);
    uncounted(&mut errors, job, &path.child("uncountedTerminatedPods"));
    let is = |ty: &str| {
        let mut all = items(job, "status.conditions").iter();
        all.any(|condition| text(condition, "type") == ty && text(condition, "status") == "True")
    };
    let (complete, failed) = (is("Complete"), is("Failed"));
    let conditions = path.child("conditions");
    if complete && failed {
        unshown(&mut errors, &conditions, "cannot set Complete=True and Failed=true conditions");
    }
    let ended = path.child("completionTime");
    match (complete, has(job, "status.completionTime")) {
        (true, false) => errors.required(&ended, "completionTime is required for Complete jobs"),
        (false, true) => {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(&ended, at(job, "status.completionTime").clone(), detail);
        }
        _ => {}
    }
    if failed && !is("FailureTarget") {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        unshown(&mut errors, &conditions, detail);
    }
    if complete && !is("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        unshown(&mut errors, &conditions, detail);
    }
    if (complete || failed) && !has(job, "status.startTime") {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    indexes(&mut errors, job, &path);
    let (ready, active) = (int(job, "status.ready"), int(job, "status.active"));
    if ready >= 0 && active >= 0 && ready > active {
        errors.invalid(&path.child("ready"), ready, "cannot set more ready pods than active");
    }
    errors
}

/// Pods that are gone and not yet counted: each once.
fn uncounted(errors: &mut ErrorList, job: &Value, path: &Path) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for (index, uid) in items(&job["status"]["uncountedTerminatedPods"], list).iter().enumerate() {
            let (path, uid) = (path.child(list).index(index), uid.as_str().unwrap_or_default());
            if uid.is_empty() {
                errors.invalid(&path, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path, uid);
            }
        }
    }
}

/// Indexes that are done, and those that are given up.
fn indexes(errors: &mut ErrorList, job: &Value, path: &Path) {
    let all = int(job, "spec.completions");
    let mut parse = |field: &str, refused: Option<&str>| {
        let given = text(&job["status"], field);
        let path = path.child(field);
        match (refused, count_indexes(given, all)) {
            (Some(detail), _) => errors.invalid(&path, given, detail),
            (None, Err(fault)) => errors.invalid(&path, given, format!("error parsing {field}: {fault}")),
            _ => {}
        }
    };
    if !text(job, "status.completedIndexes").is_empty() {
        parse("completedIndexes", None);
        if text(job, "spec.completionMode") != "Indexed" {
            parse("completedIndexes", Some("cannot set non-empty completedIndexes when non-indexed completion mode"));
        }
    }
    if has(job, "status.failedIndexes") {
        let refused = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        parse("failedIndexes", (!has(job, "spec.backoffLimitPerIndex")).then_some(refused));
    }
}

/// CronJob.
pub fn cron_job(_context: &Context<'_>, job: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(job, "spec");
    if !text(spec, "schedule").is_empty() {
        schedule(&mut errors, text(spec, "schedule"), &path.child("schedule"));
    }
    not_negative(&mut errors, spec, &path, &["startingDeadlineSeconds"]);
    if has(spec, "timeZone") {
        zone(&mut errors, text(spec, "timeZone"), &path.child("timeZone"));
    }
    let policy = text(spec, "concurrencyPolicy");
    one_of(&mut errors, &path.child("concurrencyPolicy"), policy, &["Allow", "Forbid", "Replace"]);
    let template = path.child("jobTemplate").child("spec");
    let of_job = at(spec, "jobTemplate.spec");
    any_spec(&mut errors, of_job, &template);
    if has(of_job, "selector") {
        let detail = "`selector` will be auto-generated";
        errors.invalid(&template.child("selector"), at(of_job, "selector").clone(), detail);
    }
    if at(of_job, "manualSelector") == &Value::Bool(true) {
        errors.not_supported(&template.child("manualSelector"), true, &["nil", "false"]);
    }
    not_negative(&mut errors, spec, &path, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]);
    if text(spec, "schedule").is_empty() {
        errors.required(&path.child("schedule"), "");
    }
    errors
}

/// An update of a CronJob.
pub fn cron_job_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_some() { ErrorList::new() } else { cron_job(context, new) }
}

fn zone(errors: &mut ErrorList, zone: &str, path: &Path) {
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    // Upstream looks for zones in files: two dots would lead it elsewhere.
    if zone.contains("..") && !zone.contains('/') {
        return errors.invalid(path, zone, "time: invalid location name");
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
    }
    if jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

fn schedule(errors: &mut ErrorList, schedule: &str, path: &Path) {
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        return errors.invalid(path, schedule, detail);
    }
    if schedule.starts_with('@') {
        return;
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let detail = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
        return errors.invalid(path, schedule, detail);
    }
    const BOUNDS: [(i64, i64); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let fault = fields.iter().zip(BOUNDS).find_map(|(field, (least, most))| field_fault(field, least, most));
    if let Some(fault) = fault {
        errors.invalid(path, schedule, fault);
    }
}

/// What is wrong with the numbers of one field. Names are left to the controller's parser.
fn field_fault(field: &str, least: i64, most: i64) -> Option<String> {
    for part in field.split(',') {
        let range = part.split('/').next().unwrap_or_default();
        let ends: Vec<i64> = range.split('-').filter_map(|end| end.parse().ok()).collect();
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else { continue };
        if *first < least {
            return Some(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if *last > most {
            return Some(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        if first > last {
            return Some(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        let faults = |given: &str| {
            let mut errors = ErrorList::new();
            schedule(&mut errors, given, &Path::new("s"));
            errors.to_string()
        };
        for (given, expected) in [
            ("* * * * *", ""),
            ("30 6-16/4 * * 1-5", ""),
            ("* * * * MON-FRI", ""),
            ("@hourly", ""),
            ("x", "s: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]"),
            ("61 * * * *", "s: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61"),
        ] {
            assert_eq!(faults(given), expected);
        }
    }

    #[test]
    fn counts_of_a_success_policy_are_within_its_indexes() {
        let faults = |rule: Value| {
            let mut errors = ErrorList::new();
            let spec = serde_json::json!({"completions": 4, "successPolicy": {"rules": [rule]}});
            success_policy(&mut errors, &spec, true, &Path::new("p"));
            errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        let count = "p.rules[0].succeededCount";
        for (indexes, expected) in
            [("0-1", vec![]), ("0", vec![count]), ("x", vec!["p.rules[0].succeededIndexes", count])]
        {
            assert_eq!(
                faults(serde_json::json!({"succeededIndexes": indexes, "succeededCount": 2})),
                expected,
                "{indexes}"
            );
        }
    }

    #[test]
    fn indexes() {
        for (text, expected) in [
            ("0,2-3", Ok(3)),
            ("", Ok(0)),
            ("x", Err("cannot convert string to integer for index: \"x\"".to_owned())),
            ("9", Err("too large index: \"9\"".to_owned())),
        ] {
            assert_eq!(count_indexes(text, 5), expected, "{text}");
        }
    }

    #[test]
    fn failure_rules() {
        let spec = serde_json::json!({"podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}, {"action": "Count"}]}});
        let mut errors = ErrorList::new();
        failure_policy(&mut errors, &spec, &Path::new("p"));
        assert_eq!(
            errors.to_string(),
            "[p.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator, p.rules[1]: Invalid value: \
             specifying one of OnExitCodes and OnPodConditions is required]"
        );
    }

    #[test]
    fn statuses() {
        for (spec, given, expected) in [
            (serde_json::json!({}), serde_json::json!({"active": 1, "ready": 1}), ""),
            (
                serde_json::json!({}),
                serde_json::json!({"ready": 3}),
                "status.ready: Invalid value: 3: cannot set more ready pods than active",
            ),
            (
                serde_json::json!({}),
                serde_json::json!({"failedIndexes": "1"}),
                "status.failedIndexes: Invalid value: \"1\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ),
            (
                serde_json::json!({"completionMode": "Indexed", "completions": 2}),
                serde_json::json!({"completedIndexes": "x"}),
                "status.completedIndexes: Invalid value: \"x\": error parsing completedIndexes: cannot convert string to integer for index: \"x\"",
            ),
            (
                serde_json::json!({}),
                serde_json::json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}}),
                "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
            ),
        ] {
            let job = serde_json::json!({"spec": spec, "status": given});
            assert_eq!(status(&job).to_string(), expected, "{job}");
        }
    }
}
