//! PodSecurity: what a namespace's labels let pods do.

mod checks;
mod policy;

use pintle_machinery::status::ApiError;
use serde_json::Value;

use super::Operation;
use crate::engine::{Call, meta};
use crate::internal::{self, Address};
use checks::{Subject, Violation, violations};
use policy::{Policy, Rule};

/// So many pods of a namespace are looked at when its labels change.
const MOST_PODS: usize = 3000;
/// Kinds that make pods, and where their template is.
const MAKERS: [(&str, &str, &str); 8] = [
    ("", "replicationcontrollers", "/spec/template"),
    ("", "podtemplates", "/template"),
    ("apps", "replicasets", "/spec/template"),
    ("apps", "deployments", "/spec/template"),
    ("apps", "statefulsets", "/spec/template"),
    ("apps", "daemonsets", "/spec/template"),
    ("batch", "jobs", "/spec/template"),
    ("batch", "cronjobs", "/spec/jobTemplate/spec/template"),
];

/// Refuses pods that the namespace doesn't allow, and warns of what it would rather not see.
pub async fn validate(call: &Call, operation: Operation, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let (group, resource) = (call.resource.group.as_str(), call.resource.name.as_str());
    let subresource = call.info.subresource.as_str();
    match (group, resource, subresource) {
        ("", "namespaces", "") => namespace(call, new, old).await,
        ("", "pods", "" | "ephemeralcontainers") => {
            let concerned = operation == Operation::Create || old.is_none_or(|old| changes_much(new, old));
            if concerned { pod(call, new) } else { Ok(()) }
        }
        (_, _, "") => {
            let maker = MAKERS.iter().find(|(g, r, _)| (*g, *r) == (group, resource));
            if let Some(template) = maker.and_then(|(_, _, pointer)| new.pointer(pointer)) {
                warn(call, template);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn policy_of(call: &Call) -> Policy {
    let at = Address::new("", "namespaces", "", &call.info.namespace);
    Policy::of(&internal::cached(&call.state, at).unwrap_or_default())
}

fn check(rule: Rule, pod: &Value) -> Vec<Violation> {
    violations(rule, &Subject { metadata: &pod["metadata"], spec: &pod["spec"] })
}

fn told(violations: &[Violation]) -> String {
    let one = |violation: &Violation| format!("{} ({})", violation.reason, violation.detail);
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn pod(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let policy = policy_of(call);
    let broken = check(policy.enforce, pod);
    if !broken.is_empty() {
        let message = format!("violates PodSecurity \"{}\": {}", policy.enforce, told(&broken));
        return Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message));
    }
    if policy.warn != policy.enforce {
        warn_by(call, policy.warn, pod);
    }
    Ok(())
}

fn warn(call: &Call, template: &Value) {
    warn_by(call, policy_of(call).warn, template);
}

fn warn_by(call: &Call, rule: Rule, pod: &Value) {
    let broken = check(rule, pod);
    if !broken.is_empty() {
        call.warn(format!("would violate PodSecurity \"{rule}\": {}", told(&broken)));
    }
}

/// Of a pod that is there, little can change: images are what counts.
fn changes_much(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value| -> Vec<Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let all = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
        all.map(|container| container["image"].clone()).collect()
    };
    let annotations = |pod: &Value| -> Vec<(String, Value)> {
        let all = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        let security = |key: &str| key.contains("apparmor.security.beta") || key.contains("seccomp.security.alpha");
        all.filter(|(key, _)| security(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    images(new) != images(old) || annotations(new) != annotations(old)
}

/// Labels must be readable; when they become stricter, pods that break them are told.
async fn namespace(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let faults = policy::faults(new);
    let before = old.map(policy::faults).unwrap_or_default();
    if !faults.is_empty() && before.is_empty() {
        return Err(ApiError::invalid(&call.resource.group_kind(), meta::text(new, "name"), faults));
    }
    let Some(old) = old else { return Ok(()) };
    let (rule, before) = (Policy::of(new).enforce, Policy::of(old).enforce);
    if !rule.may_refuse_more_than(before) {
        return Ok(());
    }
    let name = meta::text(new, "name");
    // The newest pods count, too.
    call.state.consistent().await.map_err(crate::engine::storage_error)?;
    let pods = internal::entries(&call.state, "", "pods", name);
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for pod in pods.iter().take(MOST_PODS).map(|entry| entry.value()) {
        let reasons: Vec<String> = check(rule, &pod).into_iter().map(|violation| violation.reason).collect();
        if reasons.is_empty() {
            continue;
        }
        let reasons = reasons.join(", ");
        match told.iter_mut().find(|(known, _)| *known == reasons) {
            Some((_, names)) => names.push(meta::text(&pod, "name").to_owned()),
            None => told.push((reasons, vec![meta::text(&pod, "name").to_owned()])),
        }
    }
    if !told.is_empty() {
        call.warn(format!(
            "existing pods in namespace \"{name}\" violate the new PodSecurity enforce level \"{rule}\""
        ));
    }
    let mut lines: Vec<String> = told.iter().map(|(reasons, names)| format!("{}: {reasons}", who(names))).collect();
    lines.sort();
    lines.into_iter().for_each(|line| call.warn(line));
    Ok(())
}

/// `a`, `a (and 2 other pods)`.
fn who(names: &[String]) -> String {
    let first = names.first().map(String::as_str).unwrap_or_default();
    match names.len() {
        0 | 1 => first.to_owned(),
        2 => format!("{first} (and 1 other pod)"),
        count => format!("{first} (and {} other pods)", count - 1),
    }
}
