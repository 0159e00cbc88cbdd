//! Errors of ephemeral containers, which are added to a pod that runs, and of resizes.

use std::collections::HashSet;

use pintle_machinery::field_path::{ErrorList, Path};
use serde_json::Value;

use super::containers::{self, Pod};
use crate::registry::value::{at, has, items, text};
use pintle_api::quota::qos;

/// What they can't have.
const FORBIDDEN: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
const DETAIL: &str = "cannot be set for an Ephemeral Container";

/// The ephemeral containers of a pod; `taken` are the names of its other ones.
pub fn containers(errors: &mut ErrorList, pod: Pod<'_>, path: &Path, taken: &mut HashSet<String>) {
    let others = taken.clone();
    for (index, container) in items(pod.spec, "ephemeralContainers").iter().enumerate() {
        let path = path.child("ephemeralContainers").index(index);
        containers::common(errors, container, &path, pod);
        containers::unique(errors, container, &path, taken, true);
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target);
        }
        for field in FORBIDDEN.into_iter().filter(|field| is_given(container, field)) {
            errors.forbidden(&path.child(field), DETAIL);
        }
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !text(mount, field).is_empty()) {
                errors.forbidden(&path.child("volumeMounts").index(index).child(field), DETAIL);
            }
        }
    }
}

/// Whether a field says something; empty lists and resources do not, empty structs that are pointed to do.
fn is_given(container: &Value, field: &str) -> bool {
    match at(container, field) {
        Value::Object(map) => field != "resources" || !map.is_empty(),
        Value::Array(list) => matches!(field, "resizePolicy" | "restartPolicyRules") || !list.is_empty(),
        value => !value.is_null(),
    }
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
                containers::resources(&mut errors, at(container, "resources"), &path);
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
        let faults = |more: Value| {
            let mut container =
                json!({"name": "e", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"});
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec = json!({"containers": [{"name": "c"}], "ephemeralContainers": [container]});
            let mut errors = ErrorList::new();
            let volumes = HashSet::from(["v"]);
            let pod = Pod { spec: &spec, volumes: &volumes, claims: &[] };
            containers(&mut errors, pod, &Path::new("s"), &mut HashSet::from(["c".to_owned()]));
            errors.to_string().replace("s.ephemeralContainers[0].", "")
        };
        let forbidden = |field: &str| format!("{field}: Forbidden: cannot be set for an Ephemeral Container");
        for (given, expected) in [
            (json!({"resources": {}, "ports": []}), String::new()),
            (json!({"name": "c"}), "name: Duplicate value: \"c\"".to_owned()),
            (json!({"image": ""}), "image: Required value".to_owned()),
            (json!({"targetContainerName": "x"}), "targetContainerName: Not found: \"x\"".to_owned()),
            (json!({"restartPolicyRules": []}), forbidden("restartPolicyRules")),
            (json!({"lifecycle": {}}), forbidden("lifecycle")),
            (json!({"ports": [{"containerPort": 1, "protocol": "TCP"}]}), forbidden("ports")),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b"}]}),
                forbidden("volumeMounts[0].subPath"),
            ),
        ] {
            assert_eq!(faults(given.clone()), expected, "{given}");
        }
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
