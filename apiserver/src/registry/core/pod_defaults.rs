//! Defaults of pod specs, in pods and in templates.

use serde_json::{Value, json};

use crate::registry::value::{at, default, flag, get_mut, has, items_mut, object_mut, set, text};

/// The lists of containers in a pod spec.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Defaults of a Pod.
pub fn pod(pod: &mut Value) {
    let Some(spec) = get_mut(pod, "spec") else { return };
    pod_spec(spec);
    default(spec, "enableServiceLinks", true);
    let host_network = flag(spec, "hostNetwork");
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
}

/// Defaults of the pod template at a path.
pub fn template(object: &mut Value, path: &str) {
    if let Some(spec) = get_mut(object, path).and_then(|template| get_mut(template, "spec")) {
        pod_spec(spec);
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits = at(container, "resources.limits").clone();
    for (name, limit) in limits.as_object().into_iter().flatten() {
        default(object_mut(container, "resources.requests"), name, limit.clone());
    }
}

fn host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        if port["hostPort"].as_i64().unwrap_or_default() == 0 {
            let number = port["containerPort"].clone();
            set(port, "hostPort", number);
        }
    }
}

fn pod_spec(spec: &mut Value) {
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "securityContext", json!({}));
    match (text(spec, "serviceAccountName"), text(spec, "serviceAccount")) {
        ("", "") => {}
        ("", old) => {
            let name = old.to_owned();
            set(spec, "serviceAccountName", name);
        }
        (name, _) => {
            let name = name.to_owned();
            set(spec, "serviceAccount", name);
        }
    }
    for list in CONTAINER_LISTS {
        items_mut(spec, list).for_each(container);
    }
    items_mut(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    let image = text(container, "image").to_owned();
    default(container, "imagePullPolicy", pull_policy(&image));
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        default(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(field) = get_mut(variable, "valueFrom.fieldRef") {
            default(field, "apiVersion", "v1");
        }
        if let Some(field) = get_mut(variable, "valueFrom.resourceFieldRef") {
            default(field, "divisor", "0");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = get_mut(container, probe) {
            default_number(probe, "timeoutSeconds", 1);
            default_number(probe, "periodSeconds", 10);
            default_number(probe, "successThreshold", 1);
            default_number(probe, "failureThreshold", 3);
            handler(probe);
            if let Some(grpc) = get_mut(probe, "grpc") {
                set_absent(grpc, "service", "");
            }
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(hook) = get_mut(container, hook) {
            handler(hook);
        }
    }
}

fn handler(handler: &mut Value) {
    if let Some(http) = get_mut(handler, "httpGet") {
        default(http, "path", "/");
        default(http, "scheme", "HTTP");
    }
}

/// Zero counts as not set.
fn default_number(value: &mut Value, name: &str, to: i64) {
    if value[name].as_i64().unwrap_or_default() == 0 {
        set(value, name, to);
    }
}

fn set_absent(value: &mut Value, name: &str, to: &str) {
    if !has(value, name) {
        set(value, name, to);
    }
}

/// `Always` for images that may change under their name.
pub fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let (name, digest) = name.split_once('@').map_or((name, None), |(name, digest)| (name, Some(digest)));
    let tag = name.split_once(':').map(|(_, tag)| tag);
    match (tag, digest) {
        (Some("latest"), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

const MODE: i64 = 0o644;

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| name == "name" || value.is_null())) {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = get_mut(volume, source) {
            default(source, "defaultMode", MODE);
        }
    }
    items_mut(volume, "downwardAPI.items").for_each(downward_item);
    if let Some(path) = get_mut(volume, "hostPath") {
        set_absent(path, "type", "");
    }
    for source in items_mut(volume, "projected.sources") {
        if let Some(token) = get_mut(source, "serviceAccountToken") {
            default(token, "expirationSeconds", 3600);
        }
        items_mut(source, "downwardAPI.items").for_each(downward_item);
    }
    if let Some(claim) = get_mut(volume, "ephemeral.volumeClaimTemplate.spec") {
        default(claim, "volumeMode", "Filesystem");
    }
    let reference = text(volume, "image.reference").to_owned();
    if let Some(image) = get_mut(volume, "image") {
        default(image, "pullPolicy", pull_policy(&reference));
    }
}

fn downward_item(item: &mut Value) {
    if let Some(field) = get_mut(item, "fieldRef") {
        default(field, "apiVersion", "v1");
    }
    if let Some(field) = get_mut(item, "resourceFieldRef") {
        default(field, "divisor", "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        let cases = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn is_idempotent() {
        let mut once = json!({"spec": {"hostNetwork": true, "volumes": [{"name": "v"}], "containers": [{"name": "a",
            "image": "i", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}},
            "livenessProbe": {"httpGet": {"port": 80}}}]}});
        pod(&mut once);
        assert_eq!(once["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(once["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
        assert_eq!(once["spec"]["volumes"][0]["emptyDir"], json!({}));
        let mut twice = once.clone();
        pod(&mut twice);
        assert_eq!(once, twice);
    }
}
