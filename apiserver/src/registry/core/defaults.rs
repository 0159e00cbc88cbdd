//! Defaults of the other core kinds.

use serde_json::{Value, json};

use super::pod_defaults;
use crate::registry::value::{at, default, get_mut, has, items_mut, object_mut, remove, set, text};

/// Service.
pub fn service(service: &mut Value) {
    let spec = object_mut(service, "spec");
    default(spec, "sessionAffinity", "None");
    default(spec, "type", "ClusterIP");
    match text(spec, "sessionAffinity") {
        "ClientIP" => default(object_mut(spec, "sessionAffinityConfig.clientIP"), "timeoutSeconds", 10800),
        "None" => drop(remove(spec, "sessionAffinityConfig")),
        _ => {}
    }
    for port in items_mut(spec, "ports") {
        default(port, "protocol", "TCP");
        if matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == ""
        {
            let number = port["port"].clone();
            set(port, "targetPort", number);
        }
    }
    let ty = text(spec, "type").to_owned();
    if matches!(ty.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    let external =
        matches!(ty.as_str(), "NodePort" | "LoadBalancer") || (ty == "ClusterIP" && has(spec, "externalIPs.0"));
    if external {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if ty == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// Secret: `stringData` goes into `data`.
pub fn secret(secret: &mut Value) {
    default(secret, "type", "Opaque");
    if let Some(plain) = remove(secret, "stringData") {
        for (key, value) in plain.as_object().into_iter().flatten() {
            let bytes = value.as_str().unwrap_or_default();
            set(object_mut(secret, "data"), key, pintle_machinery::codec::scalar::encode_base64(bytes.as_bytes()));
        }
    }
}

/// Namespace.
pub fn namespace(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    if !name.is_empty() {
        set(object_mut(namespace, "metadata.labels"), "kubernetes.io/metadata.name", name);
    }
    default(object_mut(namespace, "status"), "phase", "Active");
}

/// Node: what isn't said to be reserved can be allocated.
pub fn node(node: &mut Value) {
    let capacity = at(node, "status.capacity").clone();
    if let (Some(status), true) = (get_mut(node, "status"), capacity.is_object()) {
        default(status, "allocatable", capacity);
    }
}

/// PersistentVolume.
pub fn volume(volume: &mut Value) {
    default(object_mut(volume, "status"), "phase", "Pending");
    let spec = object_mut(volume, "spec");
    default(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    if let Some(path) = get_mut(spec, "hostPath").filter(|path| !has(path, "type")) {
        set(path, "type", "");
    }
}

/// PersistentVolumeClaim.
pub fn claim(claim: &mut Value) {
    default(object_mut(claim, "status"), "phase", "Pending");
    let spec = object_mut(claim, "spec");
    default(spec, "volumeMode", "Filesystem");
}

/// Endpoints.
pub fn endpoints(endpoints: &mut Value) {
    for subset in items_mut(endpoints, "subsets") {
        items_mut(subset, "ports").for_each(|port| default(port, "protocol", "TCP"));
    }
}

/// LimitRange: the more specific bounds follow from the wider ones.
pub fn limit_range(range: &mut Value) {
    for limit in items_mut(range, "spec.limits") {
        if text(limit, "type") != "Container" {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let source = at(limit, from).clone();
            for (name, amount) in source.as_object().into_iter().flatten() {
                default(object_mut(limit, to), name, amount.clone());
            }
        }
    }
}

/// ReplicationController: selector and labels follow from the template.
pub fn replication_controller(controller: &mut Value) {
    let labels = at(controller, "spec.template.metadata.labels").clone();
    let spec = object_mut(controller, "spec");
    if !has(spec, "replicas") {
        set(spec, "replicas", 1);
    }
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        default(spec, "selector", labels.clone());
        default(object_mut(controller, "metadata"), "labels", labels);
    }
    pod_defaults::template(controller, "spec.template");
}

/// PodTemplate.
pub fn pod_template(template: &mut Value) {
    pod_defaults::template(template, "template");
}

/// EndpointSlice.
pub fn endpoint_slice(slice: &mut Value) {
    for port in items_mut(slice, "ports") {
        if !has(port, "name") {
            set(port, "name", "");
        }
        default(port, "protocol", "TCP");
    }
}

/// The two kinds of RBAC bindings.
pub fn binding(binding: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    default(object_mut(binding, "roleRef"), "apiGroup", GROUP);
    for subject in items_mut(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default(subject, "apiGroup", GROUP);
        }
    }
}

/// NetworkPolicy.
pub fn network_policy(policy: &mut Value) {
    let spec = object_mut(policy, "spec");
    for direction in ["ingress", "egress"] {
        for rule in items_mut(spec, direction) {
            items_mut(rule, "ports").for_each(|port| default(port, "protocol", "TCP"));
        }
    }
    if !has(spec, "policyTypes") || spec["policyTypes"] == json!([]) {
        let egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
        set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

/// StorageClass.
pub fn storage_class(class: &mut Value) {
    default(class, "reclaimPolicy", "Delete");
    default(class, "volumeBindingMode", "Immediate");
}

fn default_number(object: &mut Value, name: &str, to: i64) {
    if object[name].as_i64().unwrap_or_default() == 0 {
        set(object, name, to);
    }
}

/// FlowSchema.
pub fn flow_schema(schema: &mut Value) {
    default_number(object_mut(schema, "spec"), "matchingPrecedence", 1000);
}

/// PriorityLevelConfiguration.
pub fn priority_level(level: &mut Value) {
    if let Some(queuing) = get_mut(level, "spec.limited.limitResponse.queuing") {
        for (name, to) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
            default_number(queuing, name, to);
        }
    }
}

/// PriorityClass.
pub fn priority_class(class: &mut Value) {
    default(class, "preemptionPolicy", "PreemptLowerPriority");
}

/// CSIDriver.
pub fn csi_driver(driver: &mut Value) {
    let spec = object_mut(driver, "spec");
    default(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        default(spec, field, false);
    }
    default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

/// What a policy or a binding is about, as far as it says so.
fn matching(matching: &mut Value) {
    default(matching, "matchPolicy", "Equivalent");
    default(matching, "namespaceSelector", json!({}));
    default(matching, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        items_mut(matching, list).for_each(|rule| default(rule, "scope", "*"));
    }
}

/// Admission policies of both sorts.
pub fn admission_policy(policy: &mut Value) {
    default(object_mut(policy, "spec"), "failurePolicy", "Fail");
    if let Some(constraints) = get_mut(policy, "spec.matchConstraints") {
        matching(constraints);
    }
}

/// Their bindings.
pub fn admission_binding(binding: &mut Value) {
    if let Some(resources) = get_mut(binding, "spec.matchResources") {
        matching(resources);
    }
}

fn device_request(request: &mut Value) {
    default(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" && request["count"].as_i64().unwrap_or_default() == 0 {
        set(request, "count", 1);
    }
    items_mut(request, "tolerations").for_each(|toleration| default(toleration, "operator", "Equal"));
}

fn device_requests(holder: &mut Value, path: &str) {
    for request in items_mut(holder, path) {
        if let Some(exact) = get_mut(request, "exactly") {
            device_request(exact);
        }
        items_mut(request, "firstAvailable").for_each(device_request);
    }
}

/// PodCertificateRequest.
pub fn pod_certificate_request(request: &mut Value) {
    default(object_mut(request, "spec"), "maxExpirationSeconds", 86_400);
}

/// ResourceClaim.
pub fn resource_claim(claim: &mut Value) {
    device_requests(claim, "spec.devices.requests");
}

/// ResourceClaimTemplate.
pub fn resource_claim_template(template: &mut Value) {
    device_requests(template, "spec.spec.devices.requests");
}

/// Webhook configurations of both sorts.
pub fn webhooks(configuration: &mut Value) {
    let mutating = text(configuration, "kind") == "MutatingWebhookConfiguration";
    for webhook in items_mut(configuration, "webhooks") {
        default(webhook, "failurePolicy", "Fail");
        default(webhook, "matchPolicy", "Equivalent");
        default(webhook, "namespaceSelector", json!({}));
        default(webhook, "objectSelector", json!({}));
        default(webhook, "timeoutSeconds", 10);
        if mutating {
            default(webhook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = get_mut(webhook, "clientConfig.service") {
            default(service, "port", 443);
        }
        items_mut(webhook, "rules").for_each(|rule| default(rule, "scope", "*"));
    }
}
