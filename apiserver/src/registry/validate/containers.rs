//! Errors of containers.

use std::collections::HashSet;

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::{Value, json};

use super::resources::Name;
use super::{environment, mounts, one_of, port};
use crate::registry::value::{at, entries, has, int, items, number, text};

/// All containers of one list; `taken` are the names of those in the lists before.
pub fn all(errors: &mut ErrorList, list: &[Value], path: &Path, taken: &mut HashSet<String>, volumes: &HashSet<&str>) {
    for (index, container) in list.iter().enumerate() {
        let path = path.index(index);
        one(errors, container, &path, volumes);
        let name = text(container, "name");
        if !name.is_empty() && !taken.insert(name.to_owned()) {
            errors.duplicate(&path.child("name"), name);
        }
        restart(errors, container, &path);
        if is_init(&path) && text(container, "restartPolicy") != "Always" {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, field) {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(&path.child(field), detail);
                }
            }
        } else {
            probes(errors, container, &path);
        }
    }
}

/// When a container starts again.
fn restart(errors: &mut ErrorList, container: &Value, path: &Path) {
    const MOST: usize = 20;
    const MOST_CODES: usize = 255;
    let rules = items(container, "restartPolicyRules");
    let of_policy = path.child("restartPolicy");
    if has(container, "restartPolicy") {
        one_of(errors, &of_policy, text(container, "restartPolicy"), &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        errors.required(&of_policy, "must specify restartPolicy when restart rules are used");
        if is_init(path) {
            return;
        }
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MOST {
        errors.too_many(&path, rules.len(), MOST);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        one_of(errors, &path.child("action"), text(rule, "action"), &["Restart", "RestartAllContainers"]);
        let path = path.child("exitCodes");
        if !has(rule, "exitCodes") {
            errors.required(&path, "must be specified");
            continue;
        }
        one_of(errors, &path.child("operator"), text(rule, "exitCodes.operator"), &["In", "NotIn"]);
        let codes = items(rule, "exitCodes.values");
        if codes.len() > MOST_CODES {
            errors.too_many(&path.child("values"), codes.len(), MOST_CODES);
        }
    }
}

fn is_init(path: &Path) -> bool {
    path.to_string().contains("initContainers")
}

fn one(errors: &mut ErrorList, container: &Value, path: &Path, volumes: &HashSet<&str>) {
    match text(container, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => errors.invalid_each(&path.child("name"), name, names::dns1123_label(name)),
    }
    let image = text(container, "image");
    if image.is_empty() {
        errors.required(&path.child("image"), "");
    } else if image.trim() != image {
        errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
    }
    let policy = text(container, "terminationMessagePolicy");
    one_of(errors, &path.child("terminationMessagePolicy"), policy, &["File", "FallbackToLogsOnError"]);
    ports(errors, container, &path.child("ports"));
    environment::variables(errors, container, path, volumes);
    mounts::mounts(errors, container, &path.child("volumeMounts"), volumes);
    mounts::devices(errors, container, &path.child("volumeDevices"), volumes);
    let policy = text(container, "imagePullPolicy");
    one_of(errors, &path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    resources(errors, at(container, "resources"), &path.child("resources"));
    resize_policy(errors, items(container, "resizePolicy"), &path.child("resizePolicy"));
}

fn resize_policy(errors: &mut ErrorList, policies: &[Value], path: &Path) {
    let mut known = HashSet::new();
    for policy in policies {
        let resource = text(policy, "resourceName");
        if !known.insert(resource) {
            errors.duplicate(path, resource);
        }
        one_of(errors, path, resource, &["cpu", "memory"]);
        match text(policy, "restartPolicy") {
            "" => errors.required(path, ""),
            restart => one_of(errors, path, restart, &["NotRequired", "RestartContainer"]),
        }
    }
}

/// Ports of the host: each once, and with the host's network the same as the container's.
pub fn host_ports(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let mut taken = HashSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            for (port, item) in items(container, "ports").iter().enumerate() {
                let number = int(item, "hostPort");
                if number == 0 {
                    continue;
                }
                let path = path.child(list).index(index).child("ports").index(port).child("hostPort");
                let key = format!("{}/{}/{number}", text(item, "protocol"), text(item, "hostIP"));
                if super::super::value::flag(spec, "hostNetwork") && number != int(item, "containerPort") {
                    errors.invalid(&path, number, "must match `containerPort` when `hostNetwork` is true");
                }
                let init = list == "initContainers" && text(container, "restartPolicy") != "Always";
                if !init && !taken.insert(key.clone()) {
                    errors.duplicate(&path, key);
                }
            }
        }
    }
}

fn ports(errors: &mut ErrorList, container: &Value, path: &Path) {
    let mut taken = HashSet::new();
    for (index, item) in items(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = text(item, "name");
        if !name.is_empty() {
            let faults = names::port_name(name);
            if faults.is_empty() && !taken.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            errors.invalid_each(&path.child("name"), name, faults);
        }
        match int(item, "containerPort") {
            0 => errors.required(&path.child("containerPort"), ""),
            number => port(errors, &path.child("containerPort"), &number.into()),
        }
        if int(item, "hostPort") != 0 {
            port(errors, &path.child("hostPort"), &item["hostPort"]);
        }
        one_of(errors, &path.child("protocol"), text(item, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// Limits and requests of a container.
pub fn resources(errors: &mut ErrorList, resources: &Value, path: &Path) {
    for list in ["limits", "requests"] {
        for (name, value) in entries(resources, list) {
            let path_of = path.child(list).key(name);
            Name(name).check_container(errors, &path_of);
            Name(name).check_amount(errors, &path_of, value);
            if list == "requests" {
                not_above_limit(errors, resources, name, value, &path.child("requests"));
                if at(resources, "limits").get(name).is_none() && !Name(name).may_be_overcommitted() {
                    errors.required(&path.child("limits"), "Limit must be set for non overcommitable resources");
                }
            }
        }
    }
    let names =
        || ["limits", "requests"].iter().flat_map(|list| entries(resources, list)).map(|(name, _)| name.as_str());
    if names().any(|name| name.starts_with("hugepages-")) && !names().any(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

/// What of its resources a pod says as a whole.
pub fn pod_resources(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let own = at(spec, "resources");
    let path = path.child("resources");
    for list in ["limits", "requests"] {
        for (name, value) in entries(own, list) {
            let path_of = path.child(list).key(name);
            let known = matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-");
            let mut of_name = ErrorList::new();
            Name(name).check_plain(&mut of_name, &path_of);
            if of_name.is_empty() && !known {
                errors.not_supported(&path_of, name.as_str(), &["cpu", "hugepages-", "memory"]);
            }
            errors.extend(of_name);
            Name(name).check_amount(errors, &path_of, value);
            if list == "requests" {
                not_above_limit(errors, own, name, value, &path.child("requests"));
                let whole =
                    json!({"spec": {"containers": spec["containers"], "initContainers": spec["initContainers"]}});
                let sum = pintle_api::quota::pod::total(&whole, pintle_api::quota::pod::Side::Requests).get(name);
                if let Some((sum, given)) = sum.zip(quantity(value)).filter(|(sum, given)| given < sum && known) {
                    let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
                    errors.invalid(&path_of, given.to_string(), detail);
                }
            }
        }
    }
    if !items(own, "claims").is_empty() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
}

fn not_above_limit(errors: &mut ErrorList, resources: &Value, name: &str, request: &Value, path: &Path) {
    let limit = at(resources, "limits").get(name);
    let Some((limit, wanted)) = limit.and_then(quantity).zip(quantity(request)) else { return };
    if wanted > limit {
        errors.invalid(path, wanted.to_string(), format!("must be less than or equal to {name} limit of {limit}"));
    } else if !Name(name).may_be_overcommitted() && wanted != limit {
        errors.invalid(path, wanted.to_string(), format!("must be equal to {name} limit of {limit}"));
    }
}

fn probes(errors: &mut ErrorList, container: &Value, path: &Path) {
    for hook in ["postStart", "preStop"] {
        let handler = at(container, "lifecycle").get(hook).unwrap_or(&Value::Null);
        if !handler.is_null() {
            self::handler(errors, handler, &path.child("lifecycle").child(hook));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, name);
        if probe.is_null() {
            continue;
        }
        let path = path.child(name);
        handler(errors, probe, &path);
        let fields = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
        super::not_negative(errors, probe, &path, &fields);
        if let Some(grace) = number(probe, "terminationGracePeriodSeconds") {
            let path = path.child("terminationGracePeriodSeconds");
            if grace <= 0 {
                errors.invalid(&path, grace, "must be greater than 0");
            }
            if name == "readinessProbe" {
                errors.invalid(&path, grace, "must not be set for readinessProbes");
            }
        }
        if name != "readinessProbe" && int(probe, "successThreshold") != 1 {
            errors.invalid(&path.child("successThreshold"), int(probe, "successThreshold"), "must be 1");
        }
    }
}

fn handler(errors: &mut ErrorList, handler: &Value, path: &Path) {
    let mut given = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = at(handler, kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        given += 1;
        if given > 1 {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if items(action, "command").is_empty() => errors.required(&path.child("command"), ""),
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.required(&path.child("path"), "");
                }
                port(errors, &path.child("port"), at(action, "port"));
                one_of(errors, &path.child("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
                for name in items(action, "httpHeaders").iter().map(|header| text(header, "name")) {
                    errors.invalid_each(&path.child("httpHeaders"), name, names::http_header(name));
                }
            }
            "tcpSocket" | "grpc" => port(errors, &path.child("port"), at(action, "port")),
            _ => {}
        }
    }
    if given == 0 {
        errors.required(path, "must specify a handler type");
    }
}
