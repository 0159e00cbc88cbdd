//! Errors of containers.

use std::collections::HashSet;

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::{ErrorList, Fault, FieldError, Path};
use pintle_machinery::names;
use serde_json::{Value, json};

use super::resources::Name;
use super::{environment, mounts, one_of, port, security};
use crate::registry::value::{at, entries, flag, has, int, items, number, text};

/// What the checks of a container know of its pod.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// Its spec.
    pub spec: &'a Value,
    /// Volumes that can be mounted.
    pub volumes: &'a HashSet<&'a str>,
    /// Claims of devices.
    pub claims: &'a [&'a str],
}

/// The containers of one list; `taken` are the names of those in the lists before.
pub fn all(errors: &mut ErrorList, pod: Pod<'_>, list: &str, path: &Path, taken: &mut HashSet<String>) {
    for (index, container) in items(pod.spec, list).iter().enumerate() {
        let path = path.child(list).index(index);
        common(errors, container, &path, pod);
        let init = list == "initContainers";
        if init {
            restart(errors, container, init, &path);
        }
        unique(errors, container, &path, taken, !init);
        if init && text(container, "restartPolicy") != "Always" {
            ends(errors, container, &path);
        } else {
            probes(errors, container, pod.spec, &path);
        }
        if !init {
            restart(errors, container, init, &path);
        }
    }
}

/// A name that no container before has. Of some lists one without a name `counts` for those that come after it.
pub fn unique(errors: &mut ErrorList, container: &Value, path: &Path, taken: &mut HashSet<String>, counts: bool) {
    let name = text(container, "name");
    if taken.contains(name) {
        errors.duplicate(&path.child("name"), name);
    } else if counts || !name.is_empty() {
        taken.insert(name.to_owned());
    }
}

/// A container that ends before the others start has no use for some fields.
fn ends(errors: &mut ErrorList, container: &Value, path: &Path) {
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if has(container, field) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&path.child(field), detail);
        }
    }
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        if text(policy, "restartPolicy") == "RestartContainer" {
            let path = path.child("resizePolicy").index(index).child("restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.invalid(&path, "RestartContainer", detail);
        }
    }
}

/// When a container starts again. Of rules without a policy no more is said where a container ends before the others start.
fn restart(errors: &mut ErrorList, container: &Value, init: bool, path: &Path) {
    const MOST: usize = 20;
    const MOST_CODES: usize = 255;
    let rules = items(container, "restartPolicyRules");
    let of_policy = path.child("restartPolicy");
    if has(container, "restartPolicy") {
        one_of(errors, &of_policy, text(container, "restartPolicy"), &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        errors.required(&of_policy, "must specify restartPolicy when restart rules are used");
        if init {
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

/// What holds for containers of every sort.
pub fn common(errors: &mut ErrorList, container: &Value, path: &Path, pod: Pod<'_>) {
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
    environment::variables(errors, container, path, pod.volumes);
    mounts::mounts(errors, container, &path.child("volumeMounts"), pod.volumes);
    mounts::devices(errors, container, &path.child("volumeDevices"), pod.volumes);
    let policy = text(container, "imagePullPolicy");
    one_of(errors, &path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    resources(errors, at(container, "resources"), &path.child("resources"));
    claims(errors, at(container, "resources"), &path.child("resources"), pod.claims);
    resize_policy(errors, container, pod.spec, &path.child("resizePolicy"));
    security::container(errors, container, pod.spec, path);
}

fn resize_policy(errors: &mut ErrorList, container: &Value, spec: &Value, path: &Path) {
    let mut known = HashSet::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let resource = text(policy, "resourceName");
        if !known.insert(resource) {
            errors.duplicate(&path.index(index), resource);
        }
        required_of(errors, path, resource, &["cpu", "memory"]);
        let restart = text(policy, "restartPolicy");
        required_of(errors, path, restart, &["NotRequired", "RestartContainer"]);
        if text(spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, restart, detail);
        }
    }
}

/// A word of a few that must be given.
fn required_of(errors: &mut ErrorList, path: &Path, value: &str, allowed: &[&str]) {
    match value {
        "" => errors.required(path, ""),
        value => one_of(errors, path, value, allowed),
    }
}

/// Claims of devices that a container, or the pod as a whole, is to have.
pub fn claims(errors: &mut ErrorList, resources: &Value, path: &Path, known: &[&str]) {
    let (mut claimed, mut parts) = (HashSet::new(), HashSet::new());
    for (index, claim) in items(resources, "claims").iter().enumerate() {
        let path = path.child("claims").index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if !request.is_empty() {
            errors.invalid_each(&path.child("request"), request, names::dns1123_label(request));
        }
        // A claim is had as a whole or in parts.
        match request {
            "" if !claimed.insert(name) | parts.iter().any(|(of, _)| *of == name) => errors.duplicate(&path, name),
            "" => {}
            request if !parts.insert((name, request)) => errors.duplicate(&path, format!("{name}/{request}")),
            _ if claimed.contains(name) => errors.duplicate(&path, name),
            _ => {}
        }
        if !known.contains(&name) {
            let which = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{which}");
            errors.push(FieldError::new(Fault::NotFound, &path, name, detail));
        }
    }
}

/// Ports of the host: each once.
pub fn host_ports(errors: &mut ErrorList, spec: &Value, path: &Path) {
    let mut taken = HashSet::new();
    each_host_port(spec, path, |container, init, item, path| {
        let key = format!("{}/{}/{}", text(item, "protocol"), text(item, "hostIP"), int(item, "hostPort"));
        let passing = init && text(container, "restartPolicy") != "Always";
        if !passing && !taken.insert(key.clone()) {
            errors.duplicate(&path, key);
        }
    });
}

/// With the host's network, ports of the host are the container's.
pub fn network_ports(errors: &mut ErrorList, spec: &Value, path: &Path) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    each_host_port(spec, path, |_, _, item, path| {
        let number = int(item, "hostPort");
        if number != int(item, "containerPort") {
            errors.invalid(&path, number, "must match `containerPort` when `hostNetwork` is true");
        }
    });
}

fn each_host_port(spec: &Value, path: &Path, mut check: impl FnMut(&Value, bool, &Value, Path)) {
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            for (port, item) in items(container, "ports").iter().enumerate() {
                if int(item, "hostPort") != 0 {
                    let path = path.child(list).index(index).child("ports").index(port).child("hostPort");
                    check(container, list == "initContainers", item, path);
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
            if list == "limits" {
                Name(name).check_pages(errors, &path_of, value);
            } else {
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
pub fn pod_resources(errors: &mut ErrorList, pod: Pod<'_>, path: &Path) {
    let own = at(pod.spec, "resources");
    let path = path.child("resources");
    if own.is_null() {
        return;
    }
    if text(pod.spec, "os.name") == "windows" {
        return errors.forbidden(&path, "may not be set for a windows pod");
    }
    if !items(own, "claims").is_empty() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    for list in ["limits", "requests"] {
        for (name, value) in entries(own, list) {
            let path_of = path.child(list).key(name);
            let mut of_name = ErrorList::new();
            Name(name).check_plain(&mut of_name, &path_of);
            if of_name.is_empty() && !of_pods(name) {
                errors.not_supported(&path_of, name.as_str(), &["cpu", "hugepages-", "memory"]);
            }
            errors.extend(of_name);
            Name(name).check_amount(errors, &path_of, value);
            if list == "limits" {
                Name(name).check_pages(errors, &path_of, value);
            } else {
                not_above_limit(errors, own, name, value, &path.child("requests"));
                if at(own, "limits").get(name).is_none() && !Name(name).may_be_overcommitted() {
                    errors.required(&path.child("limits"), "Limit must be set for non overcommitable resources");
                }
            }
        }
    }
    claims(errors, own, &path, pod.claims);
    sums(errors, pod.spec, own, &path);
}

/// Resources that pods have as a whole.
fn of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// A pod has at least what its containers ask for, and none of them may take more.
fn sums(errors: &mut ErrorList, spec: &Value, own: &Value, path: &Path) {
    let whole = json!({"spec": {"containers": spec["containers"], "initContainers": spec["initContainers"]}});
    let sums = pintle_api::quota::pod::total(&whole, pintle_api::quota::pod::Side::Requests);
    for (name, value) in entries(own, "requests").filter(|(name, _)| of_pods(name)) {
        if let Some((sum, given)) = sums.get(name).zip(quantity(value)).filter(|(sum, given)| given < sum) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&path.child("requests").key(name), given.to_string(), detail);
        }
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            for (name, value) in entries(own, "limits").filter(|(name, _)| of_pods(name)) {
                let given = at(container, "resources.limits").get(name).and_then(quantity);
                if let Some((given, most)) = given.zip(quantity(value)).filter(|(given, most)| given > most) {
                    let path = path.child(list).index(index).key(name).child("limits");
                    let detail = format!("must be less than or equal to pod limits of {most}");
                    errors.invalid(&path, given.to_string(), detail);
                }
            }
        }
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

fn probes(errors: &mut ErrorList, container: &Value, spec: &Value, path: &Path) {
    for hook in ["postStart", "preStop"] {
        let handler = at(container, "lifecycle").get(hook).unwrap_or(&Value::Null);
        let path = path.child("lifecycle").child(hook);
        if !handler.is_null() {
            self::handler(errors, handler, spec, &path);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, name);
        if probe.is_null() {
            continue;
        }
        let path = path.child(name);
        handler(errors, probe, spec, &path);
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

fn handler(errors: &mut ErrorList, handler: &Value, spec: &Value, path: &Path) {
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
            "sleep" => {
                let grace = number(spec, "terminationGracePeriodSeconds").unwrap_or_default();
                if let Some(seconds) = number(action, "seconds").filter(|seconds| !(0..=grace).contains(seconds)) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&path, seconds, detail);
                }
            }
            _ => {}
        }
    }
    if given == 0 {
        errors.required(path, "must specify a handler type");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(list: &str, more: Value, pod: Value) -> String {
        let mut container =
            json!({"name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut spec = json!({list: [container]});
        spec.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
        let mut errors = ErrorList::new();
        let holder = Pod { spec: &spec, volumes: &HashSet::new(), claims: &["a"] };
        all(&mut errors, holder, list, &Path::new("s"), &mut HashSet::new());
        errors.to_string().replace(&format!("s.{list}[0]."), "")
    }

    #[test]
    fn containers() {
        let resize = |restart: &str| json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": restart}]});
        for (list, given, pod, expected) in [
            ("containers", json!({}), json!({}), ""),
            (
                "containers",
                resize("RestartContainer"),
                json!({"restartPolicy": "Never"}),
                "resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            ),
            (
                "initContainers",
                resize("RestartContainer"),
                json!({}),
                "resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers",
            ),
            (
                "containers",
                json!({"resources": {"claims": [{"name": "a"}, {"name": "a", "request": "r"}, {"name": "b"}, {}]}}),
                json!({}),
                "[resources.claims[1]: Duplicate value: \"a\", resources.claims[2]: Not found: \"b\": must be one of the names in pod.spec.resourceClaims: a, resources.claims[3]: Required value]",
            ),
            (
                "containers",
                json!({"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}}),
                json!({}),
                "resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ),
            (
                "containers",
                json!({"lifecycle": {"preStop": {"sleep": {"seconds": 9}}}}),
                json!({"terminationGracePeriodSeconds": 5}),
                "lifecycle.preStop.sleep: Invalid value: 9: must be non-negative and less than terminationGracePeriodSeconds (5)",
            ),
            (
                "initContainers",
                json!({"restartPolicyRules": [{"action": "Restart"}]}),
                json!({}),
                "restartPolicy: Required value: must specify restartPolicy when restart rules are used",
            ),
        ] {
            assert_eq!(faults(list, given.clone(), pod), expected, "{given}");
        }
    }

    #[test]
    fn pods_have_what_their_containers_ask_for() {
        let spec = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "containers": [{"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}]});
        let mut errors = ErrorList::new();
        pod_resources(&mut errors, Pod { spec: &spec, volumes: &HashSet::new(), claims: &[] }, &Path::new("s"));
        assert_eq!(
            errors.to_string(),
            "[s.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests \
             of 2, s.resources.containers[0][cpu].limits: Invalid value: \"3\": must be less than or equal to pod limits of 2]"
        );
    }
}
