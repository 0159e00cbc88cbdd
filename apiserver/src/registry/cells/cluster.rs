//! Nodes, namespaces, events and other matters of the cluster.

use jiff::Timestamp;
use pintle_machinery::time;
use serde_json::Value;

use super::{NONE, age, condition, is_true, join, name, or, since};
use crate::registry::value::{at, entries, flag, has, int, items, number, text};

/// Nodes.
pub fn nodes(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |field: &str, absent: &'static str| Value::from(or(text(at(node, "status.nodeInfo"), field), absent));
    let address = |ty: &str| {
        let found = items(node, "status.addresses").iter().find(|address| text(address, "type") == ty);
        Value::from(found.map_or(NONE, |address| text(address, "address")))
    };
    vec![
        name(node),
        node_status(node).into(),
        roles(node).into(),
        age(node, now),
        info("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage", "<unknown>"),
        info("kernelVersion", "<unknown>"),
        info("containerRuntimeVersion", "<unknown>"),
    ]
}

fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready").map(|condition| text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if flag(node, "spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = entries(node, "metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), NONE).into()
}

/// Namespaces.
pub fn namespaces(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(namespace), text(namespace, "status.phase").into(), age(namespace, now)]
}

/// Events, of both groups.
pub fn events(event: &Value, now: Timestamp) -> Vec<Value> {
    let core = has(event, "involvedObject");
    let about = at(event, if core { "involvedObject" } else { "regarding" });
    let pick = |core_path: &'static str, other: &'static str| if core { core_path } else { other };
    let ago = |path: &str| time::age(at(event, path).as_str(), now);
    let first = match has(event, pick("firstTimestamp", "deprecatedFirstTimestamp")) {
        true => ago(pick("firstTimestamp", "deprecatedFirstTimestamp")),
        false => ago("eventTime"),
    };
    let last = if has(event, "series.lastObservedTime") {
        ago("series.lastObservedTime")
    } else if has(event, pick("lastTimestamp", "deprecatedLastTimestamp")) {
        ago(pick("lastTimestamp", "deprecatedLastTimestamp"))
    } else {
        first.clone()
    };
    let count = match (number(event, "series.count"), int(event, pick("count", "deprecatedCount"))) {
        (Some(count), _) => count,
        (None, 0) => 1,
        (None, count) => count,
    };
    let kind = text(about, "kind").to_lowercase();
    let object = match text(about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        text(event, "type").into(),
        text(event, "reason").into(),
        object.into(),
        text(about, "fieldPath").into(),
        source(event, pick("source", "deprecatedSource")).into(),
        text(event, pick("message", "note")).trim().into(),
        first.into(),
        count.into(),
        name(event),
    ]
}

fn source(event: &Value, field: &str) -> String {
    let source = at(event, field);
    let reporter = or(text(event, "reportingComponent"), text(event, "reportingController"));
    let component = or(text(source, "component"), reporter);
    let host = or(text(source, "host"), text(event, "reportingInstance"));
    join([component, host].into_iter().filter(|part| !part.is_empty()), ", ")
}

/// ResourceQuotas.
pub fn resourcequotas(quota: &Value, now: Timestamp) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (resource, hard) in entries(quota, "status.hard") {
        let used = at(quota, "status.used").get(resource).and_then(Value::as_str).unwrap_or("0");
        let shown = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
        let list = if resource.starts_with("limits") { &mut limits } else { &mut requests };
        list.push(shown);
    }
    vec![name(quota), requests.join(", ").into(), limits.join(", ").into(), age(quota, now)]
}

/// Leases.
pub fn leases(lease: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(lease), text(lease, "spec.holderIdentity").into(), age(lease, now)]
}

/// PriorityClasses.
pub fn priorityclasses(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        int(class, "value").into(),
        flag(class, "globalDefault").into(),
        age(class, now),
        or(text(class, "preemptionPolicy"), "PreemptLowerPriority").into(),
    ]
}

/// RuntimeClasses.
pub fn runtimeclasses(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(class), text(class, "handler").into(), age(class, now)]
}

/// ResourceClaims.
pub fn resourceclaims(claim: &Value, now: Timestamp) -> Vec<Value> {
    let mut states = Vec::new();
    if super::deleting(claim) {
        states.push("deleted");
    }
    if has(claim, "status.allocation") {
        states.push("allocated");
    }
    if !items(claim, "status.reservedFor").is_empty() {
        states.push("reserved");
    }
    let shown = states.join(",");
    vec![name(claim), or(&shown, "pending").into(), age(claim, now)]
}

/// ResourceSlices.
pub fn resourceslices(slice: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(slice),
        or(text(slice, "spec.nodeName"), NONE).into(),
        text(slice, "spec.driver").into(),
        text(slice, "spec.pool.name").into(),
        age(slice, now),
    ]
}

/// DeviceTaintRules.
pub fn devicetaintrules(rule: &Value, now: Timestamp) -> Vec<Value> {
    let taint = |field: &str| Value::from(text(rule, &format!("spec.taint.{field}")));
    vec![
        name(rule),
        taint("key"),
        taint("value"),
        taint("effect"),
        since(rule, "spec.taint.timeAdded", now).into(),
        age(rule, now),
    ]
}

/// CustomResourceDefinitions.
pub fn customresourcedefinitions(definition: &Value, _: Timestamp) -> Vec<Value> {
    let served = items(definition, "spec.versions").iter().filter(|version| flag(version, "served"));
    let versions = served.map(|version| {
        let stored = if flag(version, "storage") { "(storage)" } else { "" };
        format!("{}{stored}", text(version, "name"))
    });
    let short = items(definition, "spec.names.shortNames").iter().filter_map(Value::as_str);
    vec![
        name(definition),
        text(definition, "spec.scope").into(),
        versions.collect::<Vec<_>>().join(",").into(),
        at(definition, "metadata.creationTimestamp").clone(),
        text(definition, "spec.group").into(),
        text(definition, "spec.names.kind").into(),
        join(short, ",").into(),
        is_true(definition, "Established").into(),
    ]
}

/// StorageVersionMigrations.
pub fn storageversionmigrations(migration: &Value, _: Timestamp) -> Vec<Value> {
    let resource = at(migration, "spec.resource");
    let group = text(resource, "group");
    let dot = if group.is_empty() { "" } else { "." };
    let status = ["Succeeded", "Failed", "Running"].into_iter().find(|ty| is_true(migration, ty));
    vec![
        name(migration),
        format!("{}{dot}{group}", text(resource, "resource")).into(),
        status.unwrap_or("Unknown").into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_taint_rule_shows_its_taint_and_since_when() {
        let taint = json!({"key": "a/b", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"});
        let metadata = json!({"name": "r", "creationTimestamp": "2026-01-02T03:04:00Z"});
        let now: Timestamp = "2026-01-02T03:04:10Z".parse().unwrap();
        let cells = devicetaintrules(&json!({"metadata": metadata, "spec": {"taint": taint}}), now);
        assert_eq!(cells, ["r", "a/b", "", "NoExecute", "5s", "10s"]);
    }
}
