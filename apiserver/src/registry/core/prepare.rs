//! What the server decides when core kinds are created and updated.

use serde_json::{Value, json};

use super::qos;
use crate::registry::Context;
use crate::registry::value::{at, default, get_mut, items, object_mut, remove, restore, set, text};

/// A new Pod waits to be scheduled.
pub fn pod_create(context: &Context<'_>, pod: &mut Value) {
    let class = qos::class(pod);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !items(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": crate::engine::meta::timestamp(context.now)}]);
    }
    set(pod, "status", status);
}

/// A Pod's class stays what it was on creation.
pub fn pod_update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let class = text(old, "status.qosClass").to_owned();
    if !class.is_empty() {
        set(object_mut(new, "status"), "qosClass", class);
    }
}

/// A new Namespace is active and held by the finalizer that empties it.
pub fn namespace_create(_context: &Context<'_>, namespace: &mut Value) {
    set(namespace, "status", json!({"phase": "Active"}));
    // Names that the server makes up come after the defaults.
    let name = text(namespace, "metadata.name").to_owned();
    set(object_mut(namespace, "metadata.labels"), "kubernetes.io/metadata.name", name);
    let spec = object_mut(namespace, "spec");
    let held = items(spec, "finalizers").iter().any(|finalizer| finalizer == "kubernetes");
    if !held {
        let mut finalizers = items(spec, "finalizers").to_vec();
        finalizers.push("kubernetes".into());
        set(spec, "finalizers", finalizers);
    }
}

/// Finalizers of a Namespace change through their own subresource only.
pub fn namespace_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    if context.subresource.is_none() {
        let finalizers = old.get("spec").cloned().unwrap_or_else(|| json!({}));
        restore(object_mut(new, "spec"), &finalizers, "finalizers");
    }
}

/// A new volume or claim is pending.
pub fn pending(_context: &Context<'_>, object: &mut Value) {
    set(object, "status", json!({"phase": "Pending"}));
}

/// A new claim is pending.
pub fn claim_create(context: &Context<'_>, claim: &mut Value) {
    pending(context, claim);
    sources(claim);
}

/// A claim that is written again.
pub fn claim_update(context: &Context<'_>, new: &mut Value, _old: &Value) {
    if context.subresource.is_none() {
        sources(new);
    }
}

/// A claim's source of data is told in both of its fields.
fn sources(claim: &mut Value) {
    let spec = object_mut(claim, "spec");
    let (source, reference) = (at(spec, "dataSource").clone(), at(spec, "dataSourceRef").clone());
    let elsewhere = !text(&reference, "namespace").is_empty();
    if !source.is_null() && reference.is_null() {
        set(spec, "dataSourceRef", source);
    } else if source.is_null() && !reference.is_null() && !elsewhere {
        set(spec, "dataSource", reference);
    }
}

/// Which generation a DaemonSet's template is of, for clients of long ago.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The first template.
pub fn daemon_set_create(_context: &Context<'_>, daemons: &mut Value) {
    remove(daemons, "status");
    set(object_mut(daemons, "metadata.annotations"), TEMPLATE_GENERATION, "1");
}

/// The template's generation is the server's: one more with each change.
pub fn daemon_set_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    let before = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok());
    let changed = context.subresource.is_none() && at(new, "spec.template") != at(old, "spec.template");
    let generation: i64 = before.unwrap_or(0) + i64::from(changed);
    set(object_mut(new, "metadata.annotations"), TEMPLATE_GENERATION, generation.to_string());
}

/// A new taint is there since now.
pub fn taint_rule_create(context: &Context<'_>, rule: &mut Value) {
    remove(rule, "status");
    let taint = object_mut(rule, "spec.taint");
    if at(taint, "timeAdded").is_null() {
        set(taint, "timeAdded", crate::engine::meta::timestamp(context.now));
    }
}

/// A new volume is pending, since now.
pub fn volume_create(context: &Context<'_>, volume: &mut Value) {
    let now = crate::engine::meta::timestamp(context.now);
    set(volume, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
}

/// When a volume's phase changes, the time is noted.
pub fn volume_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    let phase = |volume: &Value| text(volume, "status.phase").to_owned();
    let told = |volume: &Value| text(volume, "status.lastPhaseTransitionTime").to_owned();
    if context.subresource == Some("status") && phase(new) != phase(old) && told(new) == told(old) {
        set(object_mut(new, "status"), "lastPhaseTransitionTime", crate::engine::meta::timestamp(context.now));
    }
}

/// A new attachment is not attached.
pub fn attachment_create(_context: &Context<'_>, attachment: &mut Value) {
    set(attachment, "status", json!({"attached": false}));
}

/// Nothing but the metadata of a request for a certificate changes without a subresource; each of those has its part.
pub fn request_update(context: &Context<'_>, new: &mut Value, old: &Value) {
    restore(new, old, "spec");
    let kept = |new: &mut Value, field: &str| {
        let before = old.get("status").cloned().unwrap_or_else(|| json!({}));
        restore(object_mut(new, "status"), &before, field);
    };
    match context.subresource {
        None => restore(new, old, "status"),
        Some("approval") => kept(new, "certificate"),
        _ => {}
    }
}

/// Nodes bring their status along.
pub fn keep_status(_context: &Context<'_>, _object: &mut Value) {}

/// A Job tells its pods apart by its own uid, unless the user does it. What has no labels of its own has those of the pods.
pub fn job_create(context: &Context<'_>, job: &mut Value) {
    remove(job, "status");
    if at(job, "spec.manualSelector") != &Value::Bool(true) {
        select_own_pods(job);
    }
    let labels = at(job, "spec.template.metadata.labels").clone();
    if !context.labelled && labels.is_object() {
        set(object_mut(job, "metadata"), "labels", labels);
    }
}

fn select_own_pods(job: &mut Value) {
    let uid = text(job, "metadata.uid").to_owned();
    let name = text(job, "metadata.name").to_owned();
    let labels = object_mut(job, "spec.template.metadata.labels");
    for (key, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        default(labels, key, value.as_str());
    }
    let selector = object_mut(job, "spec.selector.matchLabels");
    default(selector, "batch.kubernetes.io/controller-uid", uid);
}

/// Types of Secrets, once there, stay when an update leaves them out.
pub fn secret_update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let ty = text(old, "type").to_owned();
    default(new, "type", ty);
}

/// A Service keeps what it was allotted unless the update says otherwise.
pub fn service_update(_context: &Context<'_>, new: &mut Value, old: &Value) {
    let same_type = text(new, "spec.type") == text(old, "spec.type");
    let before = old.get("spec").cloned().unwrap_or(Value::Null);
    let Some(spec) = get_mut(new, "spec") else { return };
    let needs_ip = text(spec, "type") != "ExternalName" && text(&before, "type") != "ExternalName";
    if needs_ip && text(spec, "clusterIP").is_empty() && items(spec, "clusterIPs").is_empty() {
        restore(spec, &before, "clusterIP");
        restore(spec, &before, "clusterIPs");
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if needs_ip && at(spec, field).is_null() {
            restore(spec, &before, field);
        }
    }
    if same_type || matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        keep_node_ports(spec, &before);
    } else {
        drop_exposure(spec, &before);
    }
}

/// A Service that is exposed no more loses what belonged to that, unless the update brings something new.
fn drop_exposure(spec: &mut Value, before: &Value) {
    let old_ports: Vec<Value> = items(before, "ports").iter().map(|port| port["nodePort"].clone()).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if old_ports.contains(&port["nodePort"]) {
            remove(port, "nodePort");
        }
    }
    for field in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort", "loadBalancerClass"]
    {
        if spec.get(field).is_some() && spec.get(field) == before.get(field) {
            remove(spec, field);
        }
    }
    if text(spec, "type") == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(field) == before.get(field) {
                remove(spec, field);
            }
        }
    }
}

fn keep_node_ports(spec: &mut Value, before: &Value) {
    let uses = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    let old_ports = items(before, "ports").to_vec();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |old: &&Value| old["port"] == port["port"] && old["protocol"] == port["protocol"];
        let node_port = old_ports.iter().find(same).map(|old| old["nodePort"].clone());
        let node_port = node_port.and_then(|number| number.as_i64()).filter(|number| *number != 0);
        if let (true, Some(number)) = (uses && port["nodePort"].as_i64().unwrap_or_default() == 0, node_port) {
            set(port, "nodePort", number);
        }
    }
    if uses && at(spec, "healthCheckNodePort").is_null() {
        restore(spec, before, "healthCheckNodePort");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context<'static> {
        Context {
            group: "",
            version: "v1",
            resource: "",
            subresource: None,
            namespace: "",
            labelled: false,
            now: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn jobs_select_their_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {}}}});
        job_create(&context(), &mut job);
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    }

    #[test]
    fn services_keep_their_address() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        service_update(&context(), &mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
    }

    #[test]
    fn namespaces_are_held() {
        let mut namespace = json!({"metadata": {"name": "n"}});
        namespace_create(&context(), &mut namespace);
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"]["phase"], "Active");
    }
}
