//! What admission does to new pods: priority, tolerations, runtime class.

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
    if let Some(own) = pod["spec"]["preemptionPolicy"].as_str().filter(|own| *own != policy) {
        let message = format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller \
             computed {policy} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), message));
    }
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// One PriorityClass at most is the default.
pub fn only_default(call: &Call, class: &Value) -> Result<(), ApiError> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let name = meta::text(class, "name");
    let all = internal::list(&call.state, "scheduling.k8s.io", "priorityclasses", "");
    let other = all.iter().find(|other| other["globalDefault"] == true && meta::text(other, "name") != name);
    let Some(other) = other.map(|other| meta::text(other, "name")) else { return Ok(()) };
    let message = format!("PriorityClass {other} is already marked as default. Only one default can exist");
    Err(ApiError::forbidden(&call.group_resource(), name, message))
}

/// PodTopologyLabels: a pod knows in its labels where its node is.
pub fn topology(call: &Call, pod: &mut Value) {
    const KEYS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return;
    }
    let Some(node) = internal::cached(&call.state, Address::new("", "nodes", "", node)) else { return };
    for key in KEYS {
        if let Some(value) = node["metadata"]["labels"].get(key) {
            pod["metadata"]["labels"][key] = value.clone();
        }
    }
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

const NO_OVERHEAD: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// RuntimeClass: without a class there is no overhead. A pod that is not valid is told so before.
pub fn overhead(call: &Call, pod: &Value) -> Result<(), ApiError> {
    let spec = &pod["spec"];
    if spec["runtimeClassName"].is_string() || spec["overhead"].is_null() {
        return Ok(());
    }
    Err(ApiError::forbidden(&call.group_resource(), meta::text(pod, "name"), NO_OVERHEAD))
}

/// RuntimeClass: the named class must be there; its overhead and scheduling become the pod's.
pub fn runtime_class(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let pod_name = meta::text(pod, "name").to_owned();
    let forbidden = |message: String| ApiError::forbidden(&call.group_resource(), &pod_name, message);
    let Some(name) = pod["spec"]["runtimeClassName"].as_str().map(str::to_owned) else {
        return Ok(());
    };
    let at = Address::new("node.k8s.io", "runtimeclasses", "", &name);
    let class = internal::cached(&call.state, at)
        .ok_or_else(|| forbidden(format!("pod rejected: RuntimeClass \"{name}\" not found")))?;
    let overhead = class["overhead"]["podFixed"].clone();
    if !overhead.is_null() {
        if !pod["spec"]["overhead"].is_null() && pod["spec"]["overhead"] != overhead {
            return Err(forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into()));
        }
        pod["spec"]["overhead"] = overhead;
    } else if !pod["spec"]["overhead"].is_null() {
        return Err(forbidden(NO_OVERHEAD.into()));
    }
    if let Some(selector) = class["scheduling"]["nodeSelector"].as_object() {
        for (key, value) in selector {
            if let Some(own) = pod["spec"]["nodeSelector"].get(key).filter(|own| *own != value) {
                let (own, value) = (own.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
                return Err(forbidden(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                )));
            }
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
}
