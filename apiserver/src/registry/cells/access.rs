//! Roles, certificates, admission.

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::Value;

use super::{NONE, UNSET, age, condition, join, name, or};
use crate::registry::value::{at, has, int, items, number, text};

/// RoleBindings.
pub fn rolebindings(binding: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let all = items(binding, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let shown: Vec<String> = all
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
                _ => text(subject, "name").to_owned(),
            })
            .collect();
        Value::from(shown.join(", "))
    };
    vec![
        name(binding),
        format!("{}/{}", text(binding, "roleRef.kind"), text(binding, "roleRef.name")).into(),
        age(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

/// CertificateSigningRequests.
pub fn certificatesigningrequests(request: &Value, now: Timestamp) -> Vec<Value> {
    let duration = number(request, "spec.expirationSeconds").map_or(NONE.to_owned(), time::human);
    vec![
        name(request),
        age(request, now),
        or(text(request, "spec.signerName"), NONE).into(),
        text(request, "spec.username").into(),
        duration.into(),
        request_status(request).into(),
    ]
}

fn request_status(request: &Value) -> String {
    let has_condition = |ty: &str| condition(request, ty).is_some();
    let mut shown = match (has_condition("Denied"), has_condition("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has_condition("Failed") {
        shown.push_str(",Failed");
    }
    if !text(request, "status.certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown
}

/// ClusterTrustBundles.
pub fn clustertrustbundles(bundle: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(bundle), or(text(bundle, "spec.signerName"), NONE).into()]
}

/// Webhook configurations.
pub fn webhookconfigurations(configuration: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(configuration), items(configuration, "webhooks").len().into(), age(configuration, now)]
}

fn param_kind(policy: &Value) -> String {
    match has(policy, "spec.paramKind") {
        true => format!("{}/{}", text(policy, "spec.paramKind.apiVersion"), text(policy, "spec.paramKind.kind")),
        false => UNSET.into(),
    }
}

/// ValidatingAdmissionPolicies.
pub fn validatingadmissionpolicies(policy: &Value, now: Timestamp) -> Vec<Value> {
    let rules = items(policy, "spec.validations").len();
    vec![name(policy), rules.into(), param_kind(policy).into(), age(policy, now)]
}

/// MutatingAdmissionPolicies.
pub fn mutatingadmissionpolicies(policy: &Value, now: Timestamp) -> Vec<Value> {
    let rules = items(policy, "spec.mutations").len();
    vec![name(policy), rules.into(), param_kind(policy).into(), age(policy, now)]
}

/// Bindings of admission policies.
pub fn admissionpolicybindings(binding: &Value, now: Timestamp) -> Vec<Value> {
    let parameter = at(binding, "spec.paramRef");
    let shown = match (text(parameter, "namespace"), text(parameter, "name")) {
        _ if parameter.is_null() => UNSET.to_owned(),
        (_, "") => "*".to_owned(),
        ("", name) => name.to_owned(),
        (namespace, name) => join([namespace, name], "/"),
    };
    vec![name(binding), text(binding, "spec.policyName").into(), shown.into(), age(binding, now)]
}

/// FlowSchemas.
pub fn flowschemas(schema: &Value, now: Timestamp) -> Vec<Value> {
    let missing = condition(schema, "Dangling").map_or("?", |condition| text(condition, "status"));
    vec![
        name(schema),
        text(schema, "spec.priorityLevelConfiguration.name").into(),
        int(schema, "spec.matchingPrecedence").into(),
        or(text(schema, "spec.distinguisherMethod.type"), NONE).into(),
        age(schema, now),
        missing.into(),
    ]
}

/// PriorityLevelConfigurations.
pub fn prioritylevelconfigurations(level: &Value, now: Timestamp) -> Vec<Value> {
    let shown = |path: &str| number(level, path).map_or(Value::from(NONE), Value::from);
    let queuing = "spec.limited.limitResponse.queuing";
    vec![
        name(level),
        text(level, "spec.type").into(),
        shown("spec.limited.nominalConcurrencyShares"),
        shown(&format!("{queuing}.queues")),
        shown(&format!("{queuing}.handSize")),
        shown(&format!("{queuing}.queueLengthLimit")),
        age(level, now),
    ]
}
