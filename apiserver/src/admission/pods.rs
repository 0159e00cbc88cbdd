//! What admission does to new pods: priority, tolerations, runtime class, limits and quota.

use pintle_machinery::quantity::Quantity;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::engine::{Call, meta};
use crate::internal::{self, Address};

/// Seconds that a pod stays on a node that is not ready or unreachable.
const TOLERATION_SECONDS: i64 = 300;

/// Priority: the number of the named class, or of the default one.
pub fn priority(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if name.is_empty() {
        let mut defaults = internal::list(&call.state, "scheduling.k8s.io", "priorityclasses", "");
        defaults.retain(|class| class["globalDefault"] == true);
        defaults.into_iter().min_by_key(|class| class["value"].as_i64().unwrap_or(0))
    } else {
        let at = Address::new("scheduling.k8s.io", "priorityclasses", "", &name);
        let found = internal::cached(&call.state, at);
        if found.is_none() {
            let message = format!("no PriorityClass with name {name} was found");
            return Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message));
        }
        found
    };
    let value = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
    let policy = class.as_ref().and_then(|class| class["preemptionPolicy"].as_str()).unwrap_or("PreemptLowerPriority");
    if let Some(own) = pod["spec"]["priority"].as_i64()
        && own != value
    {
        let message = "the integer value of priority (%d) must not be provided in pod spec; priority admission controller \
                       computed %d from the given PriorityClass name";
        let message = message.replacen("%d", &own.to_string(), 1).replacen("%d", &value.to_string(), 1);
        return Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message));
    }
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    pod["spec"]["priority"] = json!(value);
    if pod["spec"]["preemptionPolicy"].is_null() {
        pod["spec"]["preemptionPolicy"] = json!(policy);
    }
    Ok(())
}

/// DefaultTolerationSeconds: pods wait a while before they leave a node in trouble.
pub fn tolerations(pod: &mut Value) {
    let mut list = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|toleration| {
            let own_key = toleration["key"].as_str().unwrap_or_default();
            let effect = toleration["effect"].as_str().unwrap_or_default();
            (own_key == key || own_key.is_empty()) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                             "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
    pod["spec"]["tolerations"] = json!(list);
}

/// RuntimeClass: the named class must be there; its overhead and scheduling become the pod's.
pub fn runtime_class(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str().map(str::to_owned) else { return Ok(()) };
    let at = Address::new("node.k8s.io", "runtimeclasses", "", &name);
    let forbidden = |message: String| ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message);
    let class = internal::cached(&call.state, at)
        .ok_or_else(|| forbidden(format!("pod rejected: RuntimeClass \"{name}\" not found")))?;
    let overhead = class["overhead"]["podFixed"].clone();
    if !overhead.is_null() {
        if !pod["spec"]["overhead"].is_null() && pod["spec"]["overhead"] != overhead {
            return Err(forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into()));
        }
        pod["spec"]["overhead"] = overhead;
    }
    if let Some(selector) = class["scheduling"]["nodeSelector"].as_object() {
        for (key, value) in selector {
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
    }
    if let Some(list) = class["scheduling"]["tolerations"].as_array() {
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        all.extend(list.iter().filter(|toleration| !all.contains(toleration)).cloned().collect::<Vec<_>>());
        pod["spec"]["tolerations"] = json!(all);
    }
    Ok(())
}

/// LimitRanger: defaults of the namespace's limit ranges, then their bounds.
pub fn limit_ranges(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let ranges = internal::list(&call.state, "", "limitranges", &call.info.namespace);
    let limits = || ranges.iter().flat_map(|range| range["spec"]["limits"].as_array().cloned().unwrap_or_default());
    let mut set = Vec::new();
    for limit in limits().filter(|limit| limit["type"] == "Container") {
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                default_resources(container, &limit, what, &mut set);
            }
        }
    }
    if !set.is_empty() {
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] =
            json!(format!("LimitRanger plugin set: {}", set.join("; ")));
    }
    let mut faults = Vec::new();
    for limit in limits().filter(|limit| limit["type"] == "Container") {
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                check_bounds(container, &limit, &mut faults);
            }
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => {
            let message = if faults.len() == 1 { faults.concat() } else { format!("[{}]", faults.join(", ")) };
            Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message))
        }
    }
}

/// Fills in what a container leaves out, and says so.
fn default_resources(container: &mut Value, limit: &Value, what: &str, set: &mut Vec<String>) {
    for (from, to, name) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
        let mut filled = Vec::new();
        for (resource, quantity) in limit[from].as_object().into_iter().flatten() {
            let place = &mut container["resources"][to];
            if place[resource].is_null() {
                place[resource] = quantity.clone();
                filled.push(resource.as_str());
            }
        }
        if !filled.is_empty() {
            set.push(format!("{} {name} for {what} {}", filled.join(", "), text(&container["name"])));
        }
    }
}

fn check_bounds(container: &Value, limit: &Value, faults: &mut Vec<String>) {
    let of = |map: &str, resource: &str| parse(&container["resources"][map][resource]);
    for (resource, bound) in limit["max"].as_object().into_iter().flatten() {
        let Some(most) = parse(bound) else { continue };
        match of("limits", resource) {
            Some(value) if value > most => faults.push(format!(
                "maximum {resource} usage per Container is {}, but limit is {}",
                text(bound),
                text(&container["resources"]["limits"][resource])
            )),
            None => faults
                .push(format!("maximum {resource} usage per Container is {}.  No limit is specified", text(bound))),
            _ => {}
        }
    }
    for (resource, bound) in limit["min"].as_object().into_iter().flatten() {
        let Some(least) = parse(bound) else { continue };
        match of("requests", resource) {
            Some(value) if value < least => faults.push(format!(
                "minimum {resource} usage per Container is {}, but request is {}",
                text(bound),
                text(&container["resources"]["requests"][resource])
            )),
            None => faults
                .push(format!("minimum {resource} usage per Container is {}.  No request is specified", text(bound))),
            _ => {}
        }
    }
}

fn parse(value: &Value) -> Option<Quantity> {
    text(value).parse().ok()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// ResourceQuota, as far as counts of objects go.
pub fn quota(call: &Call, new: &Value) -> Result<(), ApiError> {
    if !call.resource.namespaced || !call.info.subresource.is_empty() {
        return Ok(());
    }
    let name = &call.resource.name;
    let keys = match call.resource.group.as_str() {
        "" => vec![name.clone(), format!("count/{name}")],
        group => vec![format!("count/{name}.{group}")],
    };
    for quota in internal::list(&call.state, "", "resourcequotas", &call.info.namespace) {
        for key in &keys {
            let Some(hard) = quota["spec"]["hard"][key].as_str().and_then(|text| text.parse::<usize>().ok()) else {
                continue;
            };
            let used = internal::list(&call.state, &call.resource.group, name, &call.info.namespace).len();
            if used >= hard {
                let quota_name = meta::text(&quota, "name");
                let message = format!(
                    "exceeded quota: {quota_name}, requested: {key}=1, used: {key}={used}, limited: {key}={hard}"
                );
                return Err(ApiError::forbidden(&call.group_resource(), meta::text(new, "name"), message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_tolerations_are_added_once() {
        let mut pod = json!({"spec": {}});
        tolerations(&mut pod);
        tolerations(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
        let mut all = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        tolerations(&mut all);
        assert_eq!(all["spec"]["tolerations"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn limits_have_defaults_and_bounds() {
        let limit = json!({"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "500m"}});
        let mut container = json!({"name": "c", "resources": {}});
        let mut set = Vec::new();
        default_resources(&mut container, &limit, "container", &mut set);
        assert_eq!(set, ["cpu request for container c", "cpu limit for container c"]);
        assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}));
        let mut faults = Vec::new();
        check_bounds(&container, &limit, &mut faults);
        assert_eq!(faults, ["maximum cpu usage per Container is 500m, but limit is 1"]);
    }
}
