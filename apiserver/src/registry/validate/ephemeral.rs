//! Errors of ephemeral containers, which are added to a pod that runs, and of resizes.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::names;
use serde_json::Value;

use crate::registry::value::{at, has, items, text};
use pintle_api::quota::qos;

/// What they can't have.
const FORBIDDEN: [&str; 8] = [
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resources",
    "resizePolicy",
    "restartPolicy",
];

/// The ephemeral containers of a pod.
pub fn containers(spec: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let others = ["containers", "initContainers"].into_iter().flat_map(|list| items(spec, list));
    let others: HashSet<&str> = others.map(|container| text(container, "name")).collect();
    let mut taken = others.clone();
    for (index, container) in items(spec, "ephemeralContainers").iter().enumerate() {
        let path = path.child("ephemeralContainers").index(index);
        let (name, image) = (text(container, "name"), text(container, "image"));
        match name {
            "" => errors.required(&path.child("name"), ""),
            name => errors.invalid_each(&path.child("name"), name, names::dns1123_label(name)),
        }
        if !name.is_empty() && !taken.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if image.is_empty() {
            errors.required(&path.child("image"), "");
        } else if image.trim() != image {
            errors.invalid(&path.child("image"), image, "must not have leading or trailing whitespace");
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target);
        }
        let given = |field: &&str| match at(container, field) {
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            value => !value.is_null(),
        };
        for field in FORBIDDEN.iter().filter(|field| given(field)) {
            errors.forbidden(&path.child(field), "cannot be set for an Ephemeral Container");
        }
    }
    errors
}

/// A resize: a pod stays in its class.
pub fn resize(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    if qos::class(new) != qos::class(old) {
        let class = text(old, "status.qosClass");
        errors.invalid(&Path::new("spec"), class, "Pod QOS Class may not change as a result of resizing");
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in items(new, &format!("spec.{list}")).iter().enumerate() {
            if has(container, "resources") {
                let path = Path::new("spec").child(list).index(index).child("resources");
                super::containers::resources(&mut errors, at(container, "resources"), &path);
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn they_have_names_of_their_own_and_little_else() {
        let containers = |container: Value| {
            let spec = json!({"containers": [{"name": "c"}], "ephemeralContainers": [container]});
            containers(&spec, &Path::new("spec")).to_string()
        };
        assert_eq!(containers(json!({"name": "e", "image": "i", "resources": {}})), "");
        assert_eq!(
            containers(json!({"name": "c", "image": "i"})),
            "spec.ephemeralContainers[0].name: Duplicate value: \"c\""
        );
        assert_eq!(
            containers(json!({"name": "e", "image": "i", "ports": [{"containerPort": 1}]})),
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"
        );
    }

    #[test]
    fn classes_stay() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}, "status": {"qosClass": "BestEffort"}});
        assert_eq!(
            resize(&pod(json!({"requests": {"cpu": "1"}})), &pod(json!({}))).to_string(),
            "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing"
        );
    }
}
