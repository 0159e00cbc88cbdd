//! Errors of pods and pod templates.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::{IP, containers, security, is_ip, label_selector, labels, one_of};
use crate::registry::Context;
use crate::registry::value::{at, has, int, items, number, remove, set, text};

const UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// Seconds and ids are held in so many bits.
const MAX: i64 = i32::MAX as i64;

/// A new Pod.
pub fn create(_context: &Context<'_>, pod: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(&mut errors, at(pod, "spec"), &Path::new("spec"));
    errors
}

/// An updated Pod: nearly all of it stays as it was.
pub fn update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if context.subresource.is_some() {
        return errors;
    }
    let path = Path::new("spec");
    for list in ["containers", "initContainers"] {
        for (index, container) in items(new, &format!("spec.{list}")).iter().enumerate() {
            if text(container, "image").trim().is_empty() {
                errors.required(&path.child(list).index(index).child("image"), "");
            }
        }
    }
    deadline(&mut errors, new, old, &path);
    tolerations_at(&mut errors, items(new, "spec.tolerations"), &path.child("tolerations"));
    let before = items(old, "spec.tolerations");
    let kept = items(new, "spec.tolerations");
    if !before.iter().all(|toleration| kept.iter().any(|other| same_toleration(other, toleration))) {
        errors.forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
    if frozen(new, old) != frozen(old, old) {
        errors.forbidden(&path, UPDATE);
    }
    errors
}

fn deadline(errors: &mut ErrorList, new: &Value, old: &Value, path: &Path) {
    let field = "spec.activeDeadlineSeconds";
    let path = path.child("activeDeadlineSeconds");
    match (number(new, field), number(old, field)) {
        (Some(new), _) if !(0..=MAX).contains(&new) => {
            errors.invalid(&path, new, format!("must be between 0 and {MAX}, inclusive"));
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value"),
        _ => {}
    }
}

fn same_toleration(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|field| text(a, field) == text(b, field))
}

/// The spec of a pod without what an update may change.
fn frozen(pod: &Value, old: &Value) -> Value {
    let mut spec = at(pod, "spec").clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove(container, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations"] {
        remove(&mut spec, field);
    }
    if int(old, "spec.terminationGracePeriodSeconds") < 0 && int(&spec, "terminationGracePeriodSeconds") == 1 {
        set(&mut spec, "terminationGracePeriodSeconds", at(old, "spec.terminationGracePeriodSeconds").clone());
    }
    // Gates may go but not come, and while there are any the node may be narrowed down.
    let gated = !items(old, "spec.schedulingGates").is_empty();
    let known = |gate: &Value| items(old, "spec.schedulingGates").contains(gate);
    if items(&spec, "schedulingGates").iter().all(known) {
        remove(&mut spec, "schedulingGates");
    }
    if gated {
        remove(&mut spec, "nodeSelector");
        remove(&mut spec, "affinity");
    }
    spec
}

/// A pod template of a workload.
pub fn template(errors: &mut ErrorList, template: &Value, path: &Path) {
    labels(errors, &path.child("metadata").child("labels"), template, "metadata.labels");
    spec(errors, at(template, "spec"), &path.child("spec"));
}

fn spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let known = volumes(errors, spec, &path.child("volumes"));
    let mut taken = HashSet::new();
    let containers = items(spec, "containers");
    if containers.is_empty() {
        errors.required(&path.child("containers"), "");
    }
    containers::all(errors, containers, &path.child("containers"), &mut taken, &known);
    containers::all(errors, items(spec, "initContainers"), &path.child("initContainers"), &mut taken, &known);
    let restart = text(spec, "restartPolicy");
    one_of(errors, &path.child("restartPolicy"), restart, &["Always", "OnFailure", "Never"]);
    let dns = text(spec, "dnsPolicy");
    one_of(errors, &path.child("dnsPolicy"), dns, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    if dns == "None" && items(spec, "dnsConfig.nameservers").is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.required(&path.child("dnsConfig"), detail);
    }
    labels(errors, &path.child("nodeSelector"), spec, "nodeSelector");
    affinity(errors, at(spec, "affinity"), &path.child("affinity"));
    for (field, check) in [
        ("serviceAccountName", names::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain),
    ] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.invalid_each(&path.child(field), value, check(value));
        }
    }
    if let Some(seconds) = number(spec, "activeDeadlineSeconds").filter(|seconds| !(1..=MAX).contains(seconds)) {
        let detail = format!("must be between 1 and {MAX}, inclusive");
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.invalid_each(&path.child(field), value, names::dns1123_label(value));
        }
    }
    tolerations_at(errors, items(spec, "tolerations"), &path.child("tolerations"));
    security::pod(errors, spec, path);
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            security::container(errors, container, spec, &path.child(list).index(index));
        }
    }
    aliases(errors, spec, &path.child("hostAliases"));
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        errors.invalid_each(&path.child("priorityClassName"), class, names::dns1123_subdomain(class));
    }
}

/// Tolerations, wherever they are.
pub fn tolerations_at(errors: &mut ErrorList, tolerations: &[Value], path: &Path) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            errors.invalid_each(&path.child("key"), key, names::label_key(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), operator, detail);
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, detail);
        }
        let value = text(toleration, "value");
        match operator {
            "" | "Equal" => errors.invalid_each(&path.child("operator"), value, names::label_value(value)),
            "Exists" if !value.is_empty() => {
                errors.invalid(&path.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            one_of(errors, &path.child("effect"), effect, &known);
        }
    }
}

/// Tolerations that a list has twice.
pub fn duplicate_tolerations(errors: &mut ErrorList, tolerations: &[Value], path: &Path) {
    for (index, toleration) in tolerations.iter().enumerate() {
        if tolerations[..index].contains(toleration) {
            let part = |field| Value::String(text(toleration, field).to_owned());
            let shown = format!(
                "{{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{}}}",
                part("key"),
                part("operator"),
                part("value"),
                part("effect"),
                at(toleration, "tolerationSeconds")
            );
            let error = FieldError::new(Fault::Duplicate, &path.index(index), Value::Null, "");
            errors.push(error.shown_as(shown));
        }
    }
}

fn aliases(errors: &mut ErrorList, spec: &Value, path: &Path) {
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = path.index(index);
        let ip = text(alias, "ip");
        if !is_ip(ip) {
            errors.invalid(&path.child("ip"), ip, IP);
        }
        for (index, name) in items(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_each(&path.child("hostnames").index(index), name, names::dns1123_subdomain(name));
        }
    }
}

fn affinity(errors: &mut ErrorList, affinity: &Value, path: &Path) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let node = at(affinity, "nodeAffinity").get(REQUIRED).unwrap_or(&Value::Null);
    if !node.is_null() && items(node, "nodeSelectorTerms").is_empty() {
        let path = path.child("nodeAffinity").child(REQUIRED).child("nodeSelectorTerms");
        errors.required(&path, "must have at least one node selector term");
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in items(affinity, &format!("{kind}.{REQUIRED}")).iter().enumerate() {
            let path = path.child(kind).child(REQUIRED).index(index);
            let key = text(term, "topologyKey");
            if key.is_empty() {
                errors.required(&path.child("topologyKey"), "can not be empty");
            }
            errors.invalid_each(&path.child("topologyKey"), key, names::label_key(key));
            label_selector(errors, &path.child("labelSelector"), at(term, "labelSelector"));
        }
    }
}

/// Checks the volumes; the names that containers may mount.
fn volumes<'a>(errors: &mut ErrorList, spec: &'a Value, path: &Path) -> HashSet<&'a str> {
    let mut known = HashSet::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "name");
        let before = errors.len();
        let sources = volume.as_object().into_iter().flatten().filter(|(field, _)| *field != "name");
        for (position, (field, source)) in sources.enumerate() {
            if position > 0 {
                errors.forbidden(&path.child(field), "may not specify more than 1 volume type");
            } else {
                source_of(errors, field, source, &path.child(field));
            }
        }
        let mut faults = names::dns1123_label(name);
        if name.is_empty() {
            errors.required(&path.child("name"), "");
            faults.clear();
        }
        if faults.is_empty() && known.contains(name) {
            errors.duplicate(&path.child("name"), name);
        }
        errors.invalid_each(&path.child("name"), name, faults);
        // Faulty volumes can't be mounted and don't take their name.
        if errors.len() == before {
            known.insert(name);
        }
    }
    known
}

fn source_of(errors: &mut ErrorList, field: &str, source: &Value, path: &Path) {
    let required = match field {
        "secret" => Some("secretName"),
        "configMap" => Some("name"),
        "persistentVolumeClaim" => Some("claimName"),
        "hostPath" => Some("path"),
        "nfs" => Some("server"),
        "csi" => Some("driver"),
        _ => None,
    };
    if let Some(required) = required.filter(|required| text(source, required).is_empty()) {
        errors.required(&path.child(required), "");
    }
    if let Some(mode) = number(source, "defaultMode").filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child("defaultMode"), mode, detail);
    }
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = path.child("items").index(index);
        if field != "downwardAPI" && text(item, "key").is_empty() {
            errors.required(&path.child("key"), "");
        }
        local_path(errors, text(item, "path"), &path.child("path"));
    }
    for (index, part) in items(source, "sources").iter().enumerate() {
        let token = at(part, "serviceAccountToken");
        if token.is_null() {
            continue;
        }
        let here = path.child("sources").index(index).child("serviceAccountToken").child("expirationSeconds");
        let seconds = int(token, "expirationSeconds");
        if seconds < 600 {
            errors.invalid(&here, seconds, "may not specify a duration less than 10 minutes");
        }
        if text(token, "path").is_empty() {
            errors.required(&path.child("path"), "");
        }
    }
}

/// A path below a directory that the node chooses.
pub fn local_path(errors: &mut ErrorList, local: &str, path: &Path) {
    if local.is_empty() {
        errors.required(path, "");
    } else if local.starts_with('/') {
        errors.invalid(path, local, "must be a relative path");
    } else if local.split('/').any(|part| part == "..") {
        errors.invalid(path, local, "must not contain '..'");
    } else if local.starts_with("..") {
        errors.invalid(path, local, "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "containers": [{"name": "a", "image": "i",
            "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}]}})
    }

    fn faults(change: impl Fn(&mut Value)) -> String {
        let mut changed = pod();
        change(&mut changed);
        let mut errors = ErrorList::new();
        spec(&mut errors, &changed["spec"], &Path::new("spec"));
        errors.to_string()
    }

    #[test]
    fn a_good_pod_is_accepted() {
        assert_eq!(faults(|_| {}), "");
    }

    #[test]
    fn faults_are_named_as_upstream_names_them() {
        assert_eq!(
            faults(|pod| pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 0, "protocol": "X"}])),
            "[spec.containers[0].ports[0].containerPort: Required value, spec.containers[0].ports[0].protocol: \
             Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"]"
        );
        assert_eq!(
            faults(|pod| pod["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"
        );
        assert_eq!(
            faults(|pod| pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "q", "mountPath": "/a"}])),
            "spec.containers[0].volumeMounts[0].name: Not found: \"q\""
        );
        assert_eq!(
            faults(|pod| pod["spec"]["tolerations"] = json!([{"operator": "Equal"}])),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, \
             which means \"match all values and all keys\""
        );
    }

    #[test]
    fn only_images_and_a_few_more_change() {
        let context = Context {
            group: "",
            version: "v1",
            resource: "pods",
            subresource: None,
            namespace: "default",
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut new = pod();
        new["spec"]["containers"][0]["image"] = "j".into();
        new["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        assert_eq!(update(&context, &new, &pod()).to_string(), "");
        new["spec"]["containers"][0]["command"] = json!(["x"]);
        assert!(update(&context, &new, &pod()).to_string().starts_with("spec: Forbidden: pod updates may not change"));
    }
}
