//! Errors of workloads.

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::selector::label::Selector;
use pintle_machinery::status::quoted;
use serde_json::{Value, json};

use super::{label_selector, not_negative, pod, unchanged};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, text};

/// Selector and template of a workload whose pods always restart.
fn selected_template(errors: &mut ErrorList, object: &Value, kind: &str) {
    let path = Path::new("spec").child("selector");
    let selector = at(object, "spec.selector");
    let chosen = Selector::from_object(Some(selector).filter(|selector| !selector.is_null()));
    if selector.is_null() {
        // Upstream finds nothing wrong with that here: it selects nothing, which is told of the labels.
        if kind != "daemonset" {
            errors.required(&path, "");
        }
    } else {
        label_selector(errors, &path, selector);
        // Upstream's words for ReplicaSets speak of Deployments.
        let shown = if kind == "replicaset" { "deployment" } else { kind };
        match (&chosen, kind) {
            (Ok(chosen), _) if chosen.is_everything() => {
                errors.invalid(&path, selector.clone(), format!("empty selector is invalid for {shown}"));
            }
            // Of a selector that is none the template can't be judged.
            (Err(_), "deployment" | "replicaset") => {
                return errors.invalid(&path, selector.clone(), "invalid label selector");
            }
            (Err(_), "statefulset") => return errors.invalid(&path, selector.clone(), ""),
            _ => {}
        }
    }
    let labels = at(object, "spec.template.metadata.labels");
    let matches = chosen.map_or(true, |chosen| chosen.is_everything() || chosen.matches(&labels.as_object()));
    template(errors, object, matches, kind);
}

fn template(errors: &mut ErrorList, object: &Value, matches: bool, kind: &str) {
    let path = Path::new("spec").child("template");
    if !matches {
        let detail = "`selector` does not match template `labels`";
        let labels = at(object, "spec.template.metadata.labels");
        errors.invalid(&path.child("metadata").child("labels"), labels.clone(), detail);
    }
    let template = at(object, "spec.template");
    match kind {
        "statefulset" => pod::template(errors, &with_claims(object), &path),
        _ => pod::template(errors, template, &path),
    }
    let restart = text(object, "spec.template.spec.restartPolicy");
    if restart != "Always" {
        errors.not_supported(&path.child("spec").child("restartPolicy"), restart, &["Always"]);
    }
    if has(object, "spec.template.spec.activeDeadlineSeconds") {
        let kind = match kind {
            "daemonset" => "DaemonSet",
            "statefulset" => "StatefulSet",
            "replicationcontroller" => "ReplicationController",
            _ => "ReplicaSet",
        };
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("spec").child("activeDeadlineSeconds"), detail);
    }
}

/// The template of a StatefulSet's pods with the volumes that its claims make.
fn with_claims(set: &Value) -> Value {
    let mut template = at(set, "spec.template").clone();
    // Names of machines are the set's own; what the template says is not looked at.
    for field in ["hostname", "subdomain"] {
        if let Some(spec) = template["spec"].as_object_mut() {
            spec.remove(field);
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for name in items(set, "spec.volumeClaimTemplates").iter().map(|claim| text(claim, "metadata.name")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let made = names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let own = items(set, "spec.template.spec.volumes").iter();
    let own = own.filter(|volume| !names.contains(&text(volume, "name"))).cloned();
    let volumes: Vec<Value> = made.chain(own).collect();
    if !volumes.is_empty() && template["spec"].is_object() {
        template["spec"]["volumes"] = volumes.into();
    }
    template
}

/// A strategy of unknown type, as Go's struct shows it.
fn strategy_fault(fault: Fault, path: &Path, strategy: &Value, detail: &str) -> FieldError {
    let rolling = match at(strategy, "rollingUpdate") {
        Value::Object(fields) => {
            let order =
                ["partition", "maxUnavailable", "maxSurge"].into_iter().filter(|field| fields.contains_key(*field));
            let shown = order.map(|field| format!("{}:{}", quoted(&capital(field)), fields[field]));
            format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
        }
        _ => "null".to_owned(),
    };
    let ty = text(strategy, "type");
    let shown = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", quoted(ty));
    FieldError::new(fault, path, ty, detail).shown_as(shown)
}

fn capital(name: &str) -> String {
    name[..1].to_uppercase() + &name[1..]
}

/// Deployment.
pub fn deployment(_context: &Context<'_>, deployment: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(deployment, "spec");
    not_negative(&mut errors, spec, &path, &["replicas"]);
    selected_template(&mut errors, deployment, "deployment");
    let strategy = at(spec, "strategy");
    let at_strategy = path.child("strategy");
    match text(strategy, "type") {
        "Recreate" if has(strategy, "rollingUpdate") => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&at_strategy.child("rollingUpdate"), detail);
        }
        "RollingUpdate" => rolling(&mut errors, at(strategy, "rollingUpdate"), &at_strategy.child("rollingUpdate")),
        "Recreate" => {}
        _ => {
            let detail = "supported values: \"Recreate\", \"RollingUpdate\"";
            errors.push(strategy_fault(Fault::NotSupported, &at_strategy, strategy, detail));
        }
    }
    not_negative(&mut errors, spec, &path, &["minReadySeconds", "revisionHistoryLimit"]);
    let (deadline, ready) = (at(spec, "progressDeadlineSeconds").as_i64(), int(spec, "minReadySeconds"));
    if let Some(deadline) = deadline.filter(|deadline| *deadline <= ready && ready >= 0) {
        errors.invalid(&path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
    errors
}

fn rolling(errors: &mut ErrorList, rolling: &Value, path: &Path) {
    for field in ["maxUnavailable", "maxSurge"] {
        count_or_percent(errors, at(rolling, field), &path.child(field));
    }
    not_above_all(errors, at(rolling, "maxUnavailable"), &path.child("maxUnavailable"));
    if is_zero(at(rolling, "maxUnavailable")) && is_zero(at(rolling, "maxSurge")) {
        let value = at(rolling, "maxUnavailable").clone();
        errors.invalid(&path.child("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
    }
}

/// Nothing, or what is no number: that counts as nothing.
fn is_zero(count: &Value) -> bool {
    match count {
        Value::Null => true,
        Value::String(text) => {
            text.strip_suffix('%').and_then(|digits| digits.parse::<u64>().ok()).is_none_or(|percent| percent == 0)
        }
        count => *count == 0,
    }
}

/// A count or a percentage.
pub fn count_or_percent(errors: &mut ErrorList, value: &Value, path: &Path) {
    match value {
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit())) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.invalid(path, text.as_str(), detail);
            }
        }
        value => {
            if let Some(number) = value.as_i64().filter(|number| *number < 0) {
                errors.invalid(path, number, super::NOT_NEGATIVE);
            }
        }
    }
}

fn not_above_all(errors: &mut ErrorList, value: &Value, path: &Path) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|digits| digits.parse::<u64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

/// ReplicaSet.
pub fn replica_set(_context: &Context<'_>, set: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    not_negative(&mut errors, at(set, "spec"), &Path::new("spec"), &["replicas", "minReadySeconds"]);
    selected_template(&mut errors, set, "replicaset");
    errors
}

/// DaemonSet.
pub fn daemon_set(_context: &Context<'_>, set: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    selected_template(&mut errors, set, "daemonset");
    not_negative(&mut errors, at(set, "spec"), &path, &["minReadySeconds"]);
    let ty = text(set, "spec.updateStrategy.type");
    if !matches!(ty, "RollingUpdate" | "OnDelete") {
        let detail = "supported values: \"RollingUpdate\", \"OnDelete\"";
        errors.push(strategy_fault(
            Fault::NotSupported,
            &path.child("updateStrategy"),
            at(set, "spec.updateStrategy"),
            detail,
        ));
    }
    if ty == "RollingUpdate" {
        let path = path.child("updateStrategy").child("rollingUpdate");
        daemon_rolling(&mut errors, at(set, "spec.updateStrategy.rollingUpdate"), &path);
    }
    not_negative(&mut errors, at(set, "spec"), &path, &["revisionHistoryLimit"]);
    errors
}

fn daemon_rolling(errors: &mut ErrorList, rolling: &Value, path: &Path) {
    let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
    for (field, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
        count_or_percent(errors, value, &path.child(field));
        not_above_all(errors, value, &path.child(field));
    }
    match (is_zero(unavailable), is_zero(surge)) {
        (true, true) => errors.required(&path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        (false, false) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.child("maxSurge"), surge.clone(), detail);
        }
        _ => {}
    }
}

/// StatefulSet.
pub fn stateful_set(_context: &Context<'_>, set: &Value) -> ErrorList {
    let mut errors = stateful_own(set);
    let service = text(set, "spec.serviceName");
    if !service.is_empty() {
        let faults = pintle_machinery::names::dns1123_label(service);
        errors.invalid_each(&Path::new("spec").child("serviceName"), service, faults);
    }
    let path = Path::new("spec").child("volumeClaimTemplates");
    for (index, claim) in items(set, "spec.volumeClaimTemplates").iter().enumerate() {
        super::storage::claim_spec(&mut errors, at(claim, "spec"), &path.index(index).child("spec"));
    }
    selected_template(&mut errors, set, "statefulset");
    errors
}

/// What only StatefulSets have.
fn stateful_own(set: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    match text(set, "spec.podManagementPolicy") {
        "" => errors.required(&path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            errors.invalid(&path.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let ty = text(set, "spec.updateStrategy.type");
    if !matches!(ty, "RollingUpdate" | "OnDelete") {
        let detail = "must be 'RollingUpdate' or 'OnDelete'";
        errors.push(strategy_fault(
            Fault::Invalid,
            &path.child("updateStrategy"),
            at(set, "spec.updateStrategy"),
            detail,
        ));
    }
    stateful_rolling(&mut errors, at(set, "spec.updateStrategy"), &path.child("updateStrategy").child("rollingUpdate"));
    let retention = at(set, "spec.persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"].into_iter().filter(|field| has(retention, field)) {
        let path = path.child("persistentVolumeClaimRetentionPolicy").child(field);
        super::one_of(&mut errors, &path, text(retention, field), &["Retain", "Delete"]);
    }
    not_negative(&mut errors, at(set, "spec"), &path, &["replicas", "minReadySeconds"]);
    not_negative(&mut errors, at(set, "spec.ordinals"), &path.child("ordinals"), &["start"]);
    errors
}

fn stateful_rolling(errors: &mut ErrorList, strategy: &Value, path: &Path) {
    let rolling = at(strategy, "rollingUpdate");
    if rolling.is_null() {
        return;
    }
    if text(strategy, "type") == "OnDelete" {
        let shown = format!(
            "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
            at(rolling, "partition"),
            at(rolling, "maxUnavailable")
        );
        let detail = "only allowed for updateStrategy 'RollingUpdate'";
        errors.push(FieldError::new(Fault::Invalid, path, Value::Null, detail).shown_as(shown));
        return;
    }
    not_negative(errors, rolling, path, &["partition"]);
    let unavailable = at(rolling, "maxUnavailable");
    if !unavailable.is_null() {
        let path = path.child("maxUnavailable");
        count_or_percent(errors, unavailable, &path);
        not_above_all(errors, unavailable, &path);
        if is_zero(unavailable) {
            errors.invalid(&path, unavailable.clone(), "cannot be 0");
        }
    }
}

/// Counts of a status: (fields that must not be negative, fields that must not be above `replicas`).
fn status_counts(errors: &mut ErrorList, object: &Value, counts: &[&str], parts: &[&str]) {
    let (status, path) = (at(object, "status"), Path::new("status"));
    not_negative(errors, status, &path, counts);
    let all = int(status, "replicas");
    for part in parts.iter().filter(|part| int(status, part) > all) {
        errors.invalid(&path.child(part), int(status, part), "cannot be greater than status.replicas");
    }
    let (ready, available) = (int(status, "readyReplicas"), int(status, "availableReplicas"));
    if parts.contains(&"availableReplicas") && available > ready {
        let detail = match parts.contains(&"currentReplicas") {
            true => "cannot be greater than status.readyReplicas",
            false => "cannot be greater than readyReplicas",
        };
        errors.invalid(&path.child("availableReplicas"), available, detail);
    }
}

fn workload_status(object: &Value, context: &Context<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let (counts, parts): (&[&str], &[&str]) = match context.resource {
        "deployments" => (
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ),
        "replicasets" | "replicationcontrollers" => (
            &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        ),
        "statefulsets" => (
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        ),
        _ => (
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            &[],
        ),
    };
    status_counts(&mut errors, object, counts, parts);
    errors
}

/// PodDisruptionBudget.
pub fn budget(_context: &Context<'_>, budget: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(budget, "spec");
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"],
            at(spec, "selector"),
            spec["maxUnavailable"],
            at(spec, "unhealthyPodEvictionPolicy"),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::new(Fault::Invalid, &path, spec.clone(), detail).shown_as(shown));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        count_or_percent(&mut errors, at(spec, field), &path.child(field));
        not_above_all(&mut errors, at(spec, field), &path.child(field));
    }
    label_selector(&mut errors, &path.child("selector"), at(spec, "selector"));
    if has(spec, "unhealthyPodEvictionPolicy") {
        let policy = text(spec, "unhealthyPodEvictionPolicy");
        let path = path.child("unhealthyPodEvictionPolicy");
        super::one_of(&mut errors, &path, policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
    errors
}

/// An update of a PodDisruptionBudget.
pub fn budget_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    if context.subresource.is_none() {
        return budget(context, new);
    }
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    super::conditions(&mut errors, at(new, "status"), &path);
    let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    not_negative(&mut errors, at(new, "status"), &path, &counts);
    errors
}

/// What updates of workloads check: the same as on creation, and that the selector stays.
macro_rules! update_with_selector {
    ($($name:ident = $create:ident),* $(,)?) => {$(
        /// An update.
        pub fn $name(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
            match context.subresource {
                Some("status") => return workload_status(new, context),
                Some(_) => return ErrorList::new(),
                None => {}
            }
            let mut errors = $create(context, new);
            let mut kept = ErrorList::new();
            let path = Path::new("spec").child("selector");
            unchanged(&mut kept, &path, at(new, "spec.selector"), at(old, "spec.selector"));
            // What is told first depends on the kind.
            if context.resource == "daemonsets" {
                std::mem::swap(&mut errors, &mut kept);
            }
            errors.extend(kept);
            errors
        }
    )*};
}

update_with_selector! {
    deployment_update = deployment,
    replica_set_update = replica_set,
    daemon_set_update = daemon_set,
}

/// An update of a StatefulSet: little of it may change.
pub fn stateful_set_update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    const DETAIL: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    const MUTABLE: [&str; 11] = [
        // What is told in its own words.
        "serviceName",
        "podManagementPolicy",
        "selector",
        "volumeClaimTemplates",
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    match context.subresource {
        Some("status") => return workload_status(new, context),
        Some(_) => return ErrorList::new(),
        None => {}
    }
    let mut errors = stateful_own(new);
    selected_template(&mut errors, new, "statefulset");
    for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
        let path = Path::new("spec").child(field);
        unchanged(&mut errors, &path, at(&new["spec"], field), at(&old["spec"], field));
    }
    let fixed = |set: &Value| {
        let mut spec = at(set, "spec").clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        }
        spec
    };
    if fixed(new) != fixed(old) {
        errors.forbidden(&Path::new("spec"), DETAIL);
    }
    errors
}

/// ReplicationController.
pub fn replication_controller(_context: &Context<'_>, controller: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let (name, of_name) = (text(controller, "metadata.name"), Path::new("metadata").child("name"));
    let selector = at(controller, "spec.selector").as_object();
    if selector.is_none_or(|selector| selector.is_empty()) {
        errors.required(&path.child("selector"), "");
    }
    if items(controller, "spec.template.spec.containers").is_empty() && !has(controller, "spec.template") {
        errors.required(&path.child("template"), "");
    } else {
        let labels = at(controller, "spec.template.metadata.labels");
        let matches = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
        let all = selector.is_none_or(|selector| selector.iter().all(matches));
        template(&mut errors, controller, all, "replicationcontroller");
    }
    // These are told by upstream's declarations, after all that is told by its code.
    if !name.is_empty() {
        errors.invalid_each(&of_name, name, pintle_machinery::names::dns1123_subdomain(name));
    }
    not_negative(&mut errors, at(controller, "spec"), &path, &["replicas", "minReadySeconds"]);
    errors
}

/// An update of a ReplicationController: all of its spec may change.
pub fn replication_controller_update(context: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
    match context.subresource {
        Some("status") => workload_status(new, context),
        Some(_) => ErrorList::new(),
        None => replication_controller(context, new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zeros() {
        for (count, zero) in [
            (json!(null), true),
            (json!(0), true),
            (json!("0%"), true),
            (json!("x%"), true),
            (json!("no_name"), true),
            (json!(-1), false),
            (json!("150%"), false),
        ] {
            assert_eq!(is_zero(&count), zero, "{count}");
        }
    }

    #[test]
    fn selectors_and_templates() {
        let faults = |kind: &str, selector: Value| {
            let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "x"}});
            let mut errors = ErrorList::new();
            selected_template(&mut errors, &json!({"spec": {"selector": selector, "template": template}}), kind);
            errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>().join(" ")
        };
        let broken = json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
        let (values, selector) = ("spec.selector.matchExpressions[0].values", "spec.selector");
        for kind in ["deployment", "replicaset", "statefulset"] {
            assert_eq!(faults(kind, broken.clone()), format!("{values} {selector}"), "{kind}");
        }
        let daemons = faults("daemonset", broken);
        assert!(daemons.starts_with(values) && daemons.contains("spec.template.spec.containers"), "{daemons}");
        let restart = "spec.template.spec.restartPolicy";
        let good = faults("deployment", json!({"matchLabels": {"a": "b"}}));
        assert_eq!(good.matches(restart).count(), 2, "{good}");
    }

    #[test]
    fn controllers_tell_their_names_last() {
        let spec = json!({"replicas": -1, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "c"}}, "spec": {
            "restartPolicy": "Always", "dnsPolicy": "Default",
            "containers": [{"name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}}});
        let errors = replication_controller(&Context::ANY, &json!({"metadata": {"name": "A"}, "spec": spec}));
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["spec.template.metadata.labels", "metadata.name", "spec.replicas"]);
    }

    #[test]
    fn claims_of_one_name_make_one_volume() {
        let claim = json!({"metadata": {"name": "data"}});
        let set = json!({"spec": {"volumeClaimTemplates": [claim, claim], "template": {"spec": {}}}});
        assert_eq!(items(&with_claims(&set), "spec.volumes").len(), 1);
    }
}
