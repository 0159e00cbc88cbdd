//! Pods and pod templates.

use pintle_machinery::schema::{Object, Value};

use super::{image::pull_policy, is_empty, items, object, set, set_number, set_text, text};

/// What a pod spec gets wherever it is.
pub fn spec(spec: &mut Object) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items(spec, list).for_each(container_defaults);
    }
    service_account(spec);
    for volume in items(spec, "volumes") {
        if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
            volume.insert("emptyDir".to_owned(), Value::Object(Object::new()));
        }
        if let Some(image) = object(volume, "image") {
            let policy = pull_policy(text(image, "reference"));
            set_text(image, "pullPolicy", policy);
        }
    }
}

/// What only pods get, not templates.
pub fn pod(spec: &mut Object) {
    set(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            requests_of_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
    requests_of_limits(spec);
}

/// The account's old name and its new one say the same; the new one wins.
fn service_account(spec: &mut Object) {
    let old = text(spec, "serviceAccount").to_owned();
    set_text(spec, "serviceAccountName", &old);
    let name = text(spec, "serviceAccountName").to_owned();
    if name.is_empty() {
        spec.remove("serviceAccountName");
        spec.remove("serviceAccount");
    } else {
        spec.insert("serviceAccount".to_owned(), Value::String(name));
    }
}

fn container_defaults(container: &mut Object) {
    let policy = pull_policy(text(container, "image"));
    set_text(container, "imagePullPolicy", policy);
}

fn host_ports(container: &mut Object) {
    for port in items(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            set_number(port, "hostPort", number);
        }
    }
}

/// A limit without a request is also the request.
fn requests_of_limits(holder: &mut Object) {
    let Some(resources) = object(holder, "resources") else { return };
    if is_empty(resources, "limits") {
        return;
    }
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(requests) = super::make(resources, "requests") {
        for (name, amount) in limits {
            set(requests, &name, amount);
        }
    }
}
