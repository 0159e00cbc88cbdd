//! Fields behind feature gates that are off: objects lose them, unless they had them before.

use serde_json::Value;

use super::Rules;
use super::value::{at, get_mut};

/// Such fields of containers.
const OF_CONTAINERS: [&str; 6] = [
    "volumeMounts[].bindMountOptions",
    "livenessProbe.httpGet.protocol",
    "readinessProbe.httpGet.protocol",
    "startupProbe.httpGet.protocol",
    "lifecycle.postStart.httpGet.protocol",
    "lifecycle.preStop.httpGet.protocol",
];

/// Such fields of pods.
const OF_PODS: [&str; 15] = [
    "schedulingGroup",
    "evictionResponders",
    "volumes[].secret.defaultUser",
    "volumes[].secret.items[].user",
    "volumes[].configMap.defaultUser",
    "volumes[].configMap.items[].user",
    "volumes[].downwardAPI.defaultUser",
    "volumes[].downwardAPI.items[].user",
    "volumes[].projected.defaultUser",
    "volumes[].projected.sources[].secret.items[].user",
    "volumes[].projected.sources[].configMap.items[].user",
    "volumes[].projected.sources[].downwardAPI.items[].user",
    "volumes[].projected.sources[].serviceAccountToken.user",
    "volumes[].projected.sources[].clusterTrustBundle.user",
    "volumes[].projected.sources[].podCertificate.user",
];

/// What the rules of a kind say, and all pods have in common.
pub fn apply(rules: &Rules, new: &mut Value, old: Option<&Value>) {
    drop(rules.disabled, new, old);
    let Some(place) = rules.pod_spec else { return };
    let old = old.map(|old| at(old, place));
    if let Some(spec) = get_mut(new, place) {
        drop(&OF_PODS, spec, old);
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let paths = OF_CONTAINERS.map(|path| format!("{list}[].{path}"));
            drop(&paths.each_ref().map(String::as_str), spec, old);
        }
    }
}

/// Takes fields out of an object, by dotted paths (`a[].b` for all items, `a{}.b` for all values), unless the old object has them.
fn drop(paths: &[&str], new: &mut Value, old: Option<&Value>) {
    for path in paths.iter().filter(|path| !old.is_some_and(|old| has(old, path))) {
        remove(new, path);
    }
}

fn has(value: &Value, path: &str) -> bool {
    let Some((first, rest)) = path.split_once('.') else { return !value[path].is_null() };
    match (first.strip_suffix("[]"), first.strip_suffix("{}")) {
        (Some(list), _) => value[list].as_array().into_iter().flatten().any(|item| has(item, rest)),
        (_, Some(map)) => value[map].as_object().into_iter().flatten().any(|(_, item)| has(item, rest)),
        _ => has(&value[first], rest),
    }
}

fn remove(value: &mut Value, path: &str) {
    let Some(object) = value.as_object_mut() else { return };
    let Some((first, rest)) = path.split_once('.') else {
        object.remove(path);
        return;
    };
    match (first.strip_suffix("[]"), first.strip_suffix("{}")) {
        (Some(list), _) => {
            let items = object.get_mut(list).and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(|item| remove(item, rest));
        }
        (_, Some(map)) => {
            let items = object.get_mut(map).and_then(Value::as_object_mut);
            items.into_iter().flatten().for_each(|(_, item)| remove(item, rest));
        }
        _ => {
            if let Some(inner) = object.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_off_goes_unless_it_was_there() {
        let object = json!({"a": 1, "b": {"c": 2}, "d": [{"e": 3, "f": 4}, {}]});
        let paths = ["a", "b.c", "d[].e", "x.y", "b.c.z", "b{}.c"];
        let mut new = object.clone();
        drop(&paths, &mut new, None);
        assert_eq!(new, json!({"b": {}, "d": [{"f": 4}, {}]}));
        let mut new = object.clone();
        drop(&paths, &mut new, Some(&json!({"b": {"c": 0}, "d": [{}, {"e": 1}]})));
        assert_eq!(new, json!({"b": {"c": 2}, "d": [{"e": 3, "f": 4}, {}]}));
    }

    #[test]
    fn pods_have_no_fields_behind_gates() {
        let rules = Rules { pod_spec: Some("spec"), ..Rules::NONE };
        let with = json!({"spec": {
            "volumes": [{"name": "v", "configMap": {"name": "c", "defaultUser": 1, "items": [{"key": "k", "user": 1}]}}],
            "containers": [{"volumeMounts": [{"name": "v", "bindMountOptions": ["x"]}]}]}});
        let without = json!({"spec": {
            "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "k"}]}}],
            "containers": [{"volumeMounts": [{"name": "v"}]}]}});
        let mut new = with.clone();
        apply(&rules, &mut new, None);
        assert_eq!(new, without);
        let mut new = with.clone();
        apply(&rules, &mut new, Some(&with));
        assert_eq!(new, with);
    }
}
