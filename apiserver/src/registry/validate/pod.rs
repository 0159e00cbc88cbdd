//! Errors of pods and pod templates.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::Value;

use super::resources::Name;
use super::{
    IP, annotations, containers, ephemeral, is_ip, labels, one_of, placement, pod_status, pod_volumes, security,
};
use crate::registry::Context;
use crate::registry::value::{at, entries, flag, has, int, items, number, remove, set, text};

const UPDATE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// Seconds and ids are held in so many bits.
const MAX: i64 = i32::MAX as i64;

/// A new Pod.
pub fn create(_context: &Context<'_>, pod: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    spec(&mut errors, at(pod, "spec"), &Path::new("spec"));
    if !items(pod, "spec.ephemeralContainers").is_empty() {
        errors.forbidden(&Path::new("spec").child("ephemeralContainers"), "cannot be set on create");
    }
    placement::gated_node(&mut errors, at(pod, "spec"), &Path::new("spec"));
    errors
}

/// An updated Pod: nearly all of it stays as it was.
pub fn update(context: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    match context.subresource {
        Some("ephemeralcontainers") => return ephemeral_alone(at(new, "spec"), &Path::new("spec")),
        Some("resize") => return ephemeral::resize(new, old),
        Some("status") => return pod_status::status(new, old),
        Some(_) => return errors,
        None => {}
    }
    let path = Path::new("spec");
    spec(&mut errors, at(new, "spec"), &path);
    for list in ["containers", "initContainers"] {
        let (now, before) = (items(new, &format!("spec.{list}")), items(old, &format!("spec.{list}")));
        if now.len() != before.len() {
            errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
            return errors;
        }
    }
    deadline(&mut errors, new, old, &path);
    let before = items(old, "spec.tolerations");
    let kept = items(new, "spec.tolerations");
    if !before.iter().all(|toleration| kept.iter().any(|other| same_toleration(other, toleration))) {
        errors.forbidden(
            &path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
    if !items(old, "spec.schedulingGates").is_empty() {
        placement::narrowed(&mut errors, new, old, &path);
    }
    for (index, gate) in items(new, "spec.schedulingGates").iter().enumerate() {
        if !items(old, "spec.schedulingGates").contains(gate) {
            let name = text(gate, "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.child("schedulingGates").index(index).child("name"), detail);
        }
    }
    if at(new, "spec") != at(old, "spec") && frozen(new, old) != frozen(old, old) {
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
    // Gates may go, and while there are any the node may be narrowed down: what may not is told apart.
    let gated = !items(old, "spec.schedulingGates").is_empty();
    remove(&mut spec, "schedulingGates");
    if gated {
        remove(&mut spec, "nodeSelector");
        placement::without_nodes(&mut spec);
    }
    spec
}

/// A pod template of a workload.
pub fn template(errors: &mut ErrorList, template: &Value, path: &Path) {
    labels(errors, &path.child("labels"), template, "metadata.labels");
    annotations(errors, &path.child("annotations"), template, "metadata.annotations");
    spec(errors, at(template, "spec"), &path.child("spec"));
    if !items(template, "spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&path.child("spec").child("ephemeralContainers"), detail);
    }
}

fn spec(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let volumes = pod_volumes::volumes(errors, spec, &path.child("volumes"));
    let claims = claims(errors, spec, path);
    let pod = containers::Pod { spec, volumes: &volumes, claims: &claims };
    all_containers(errors, pod, path);
    containers::pod_resources(errors, pod, path);
    containers::network_ports(errors, spec, path);
    let restart = text(spec, "restartPolicy");
    one_of(errors, &path.child("restartPolicy"), restart, &["Always", "OnFailure", "Never"]);
    let dns = text(spec, "dnsPolicy");
    one_of(errors, &path.child("dnsPolicy"), dns, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    labels(errors, &path.child("nodeSelector"), spec, "nodeSelector");
    security::pod(errors, spec, path);
    placement::affinity(errors, at(spec, "affinity"), &path.child("affinity"));
    resolver(errors, spec, &path.child("dnsConfig"));
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let ty = text(gate, "conditionType");
        let path = path.child("readinessGates").index(index).child("conditionType");
        errors.invalid_each(&path, ty, names::qualified(ty));
    }
    placement::gates(errors, spec, path);
    placement::spread(errors, items(spec, "topologySpreadConstraints"), &path.child("topologySpreadConstraints"));
    security::host_processes(errors, spec, path);
    security::users(errors, spec, path);
    host_name(errors, spec, path);
    named(errors, spec, path, &["serviceAccountName", "nodeName"], names::dns1123_subdomain);
    if let Some(seconds) = number(spec, "activeDeadlineSeconds").filter(|seconds| !(1..=MAX).contains(seconds)) {
        let detail = format!("must be between 1 and {MAX}, inclusive");
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    named(errors, spec, path, &["hostname", "subdomain"], names::dns1123_label);
    placement::tolerations_at(errors, items(spec, "tolerations"), &path.child("tolerations"));
    aliases(errors, spec, &path.child("hostAliases"));
    named(errors, spec, path, &["priorityClassName"], names::dns1123_subdomain);
    if has(spec, "runtimeClassName") {
        let class = text(spec, "runtimeClassName");
        errors.invalid_each(&path.child("runtimeClassName"), class, names::dns1123_subdomain(class));
    }
    if has(spec, "preemptionPolicy") {
        let path = path.child("preemptionPolicy");
        match text(spec, "preemptionPolicy") {
            "" => errors.required(&path, ""),
            policy => one_of(errors, &path, policy, &["PreemptLowerPriority", "Never"]),
        }
    }
    for (name, amount) in entries(spec, "overhead") {
        let path = path.child("overhead").child("limits").key(name);
        Name(name).check_container(errors, &path);
        Name(name).check_amount(errors, &path, amount);
    }
    security::os(errors, spec, path);
}

/// Its containers of all sorts.
fn all_containers(errors: &mut ErrorList, pod: containers::Pod<'_>, path: &Path) {
    let mut taken = HashSet::new();
    if items(pod.spec, "containers").is_empty() {
        errors.required(&path.child("containers"), "");
    }
    containers::all(errors, pod, "containers", path, &mut taken);
    containers::host_ports(errors, pod.spec, path);
    containers::all(errors, pod, "initContainers", path, &mut taken);
    ephemeral::containers(errors, pod, path, &mut taken);
}

/// Its ephemeral containers, in a pod that is as it was otherwise.
fn ephemeral_alone(spec: &Value, path: &Path) -> ErrorList {
    let (mut errors, mut known) = (ErrorList::new(), ErrorList::new());
    let volumes = pod_volumes::volumes(&mut known, spec, path);
    let claims = claims(&mut known, spec, path);
    let others = ["containers", "initContainers"].into_iter().flat_map(|list| items(spec, list));
    let mut taken = others.map(|container| text(container, "name").to_owned()).collect();
    let pod = containers::Pod { spec, volumes: &volumes, claims: &claims };
    ephemeral::containers(&mut errors, pod, path, &mut taken);
    errors
}

/// Names that may be left out.
fn named(errors: &mut ErrorList, spec: &Value, path: &Path, fields: &[&str], check: fn(&str) -> Vec<String>) {
    for field in fields {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.invalid_each(&path.child(field), value, check(value));
        }
    }
}

fn host_name(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if has(spec, "hostnameOverride") {
        let (path, name) = (path.child("hostnameOverride"), text(spec, "hostnameOverride"));
        for field in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|field| flag(spec, field)) {
            errors.forbidden(&path, format!("may not be specified when {field} is true"));
        }
        errors.invalid_each(&path, name, names::dns1123_subdomain(name));
    }
}

/// What a pod's resolver is told.
fn resolver(errors: &mut ErrorList, spec: &Value, path: &Path) {
    const SERVERS: usize = 3;
    const SEARCHES: usize = 32;
    const CHARACTERS: usize = 2048;
    let config = at(spec, "dnsConfig");
    let servers = items(config, "nameservers");
    match (text(spec, "dnsPolicy"), config.is_null(), servers.is_empty()) {
        ("None", true, _) => return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None"),
        ("None", false, true) => {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&path.child("nameservers"), detail);
        }
        _ => {}
    }
    if servers.len() > SERVERS {
        let detail = format!("must not have more than {SERVERS} nameservers");
        errors.invalid(&path.child("nameservers"), servers.to_vec(), detail);
    }
    for (index, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        if !is_ip(server) {
            errors.invalid(&path.child("nameservers").index(index), server, IP);
        }
    }
    let searches = items(config, "searches");
    if searches.len() > SEARCHES {
        let detail = format!("must not have more than {SEARCHES} search paths");
        errors.invalid(&path.child("searches"), searches.to_vec(), detail);
    }
    let joined: Vec<&str> = searches.iter().filter_map(Value::as_str).collect();
    if joined.join(" ").len() > CHARACTERS {
        let detail = format!("must not have more than {CHARACTERS} characters (including spaces) in the search list");
        errors.invalid(&path.child("searches"), searches.to_vec(), detail);
    }
    for (index, search) in joined.into_iter().enumerate() {
        let search = search.strip_suffix('.').unwrap_or(search);
        // A lone dot stands for the root, and resolvers know names with underscores.
        let relaxed = search.replace('_', "0");
        if !search.is_empty() && !names::dns1123_subdomain(&relaxed).is_empty() {
            errors.invalid_each(&path.child("searches").index(index), search, names::dns1123_subdomain(search));
        }
    }
    for (index, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

/// Claims of devices; their names.
fn claims<'a>(errors: &mut ErrorList, spec: &'a Value, path: &Path) -> Vec<&'a str> {
    let mut known = Vec::new();
    for (index, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let path = path.child("resourceClaims").index(index);
        let name = text(claim, "name");
        match name {
            "" => errors.required(&path.child("name"), ""),
            _ if known.contains(&name) => errors.duplicate(&path.child("name"), name),
            _ => {
                known.push(name);
                errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
            }
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = sources.iter().filter(|field| has(claim, field)).count();
        if given != 1 {
            let shown = format!(
                "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
                claim["name"],
                at(claim, sources[0]),
                at(claim, sources[1])
            );
            let detail = match given {
                0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
                _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            };
            errors.push(FieldError::new(Fault::Invalid, &path, Value::Null, detail).shown_as(shown));
        }
        for field in sources.into_iter().filter(|field| has(claim, field)) {
            let value = text(claim, field);
            errors.invalid_each(&path.child(field), value, names::dns1123_subdomain(value));
        }
    }
    known.sort_unstable();
    known
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
        let mut new = pod();
        new["spec"]["containers"][0]["image"] = "j".into();
        new["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        assert_eq!(update(&Context::ANY, &new, &pod()).to_string(), "");
        new["spec"]["containers"][0]["command"] = json!(["x"]);
        assert!(
            update(&Context::ANY, &new, &pod()).to_string().starts_with("spec: Forbidden: pod updates may not change")
        );
    }
}
