//! Fields behind feature gates that are off: objects lose them, unless they had them before.

use serde_json::Value;

use super::Rules;
use super::value::{at, get_mut};
use crate::features::Gates;

/// A gate, and the dotted path of a field behind it. What is behind no gate, or one that is long gone, is never on.
pub type Gated<'a> = (&'static str, &'a str);

/// Such fields of containers.
const OF_CONTAINERS: [Gated<'_>; 10] = [
    ("VolumeBindMountOptions", "volumeMounts[].bindMountOptions"),
    ("H2CContainerProbe", "livenessProbe.httpGet.protocol"),
    ("H2CContainerProbe", "readinessProbe.httpGet.protocol"),
    ("H2CContainerProbe", "startupProbe.httpGet.protocol"),
    ("H2CContainerProbe", "lifecycle.postStart.httpGet.protocol"),
    ("H2CContainerProbe", "lifecycle.preStop.httpGet.protocol"),
    ("GRPCContainerProbeTLS", "livenessProbe.grpc.mode"),
    ("GRPCContainerProbeTLS", "readinessProbe.grpc.mode"),
    ("GRPCContainerProbeTLS", "startupProbe.grpc.mode"),
    ("ContainerStopSignals", "lifecycle.stopSignal"),
];

/// Such fields of pods.
const OF_PODS: [Gated<'_>; 15] = [
    ("GenericWorkload", "schedulingGroup"),
    ("EvictionRequestAPI", "evictionResponders"),
    ("AtomicWriteVolumeUserFields", "volumes[].secret.defaultUser"),
    ("AtomicWriteVolumeUserFields", "volumes[].secret.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].configMap.defaultUser"),
    ("AtomicWriteVolumeUserFields", "volumes[].configMap.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].downwardAPI.defaultUser"),
    ("AtomicWriteVolumeUserFields", "volumes[].downwardAPI.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.defaultUser"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].secret.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].configMap.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].downwardAPI.items[].user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].serviceAccountToken.user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].clusterTrustBundle.user"),
    ("AtomicWriteVolumeUserFields", "volumes[].projected.sources[].podCertificate.user"),
];

/// What the rules of a kind say, and all pods have in common.
pub fn apply(gates: &Gates, rules: &Rules, new: &mut Value, old: Option<&Value>) {
    drop(gates, rules.disabled, new, old);
    let Some(place) = rules.pod_spec else { return };
    let old = old.map(|old| at(old, place));
    if let Some(spec) = get_mut(new, place) {
        drop(gates, &OF_PODS, spec, old);
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
            let before = old.and_then(|old| old[list].as_array()).map_or(&[][..], Vec::as_slice);
            for path in off(gates, &OF_CONTAINERS).filter(|path| !before.iter().any(|container| has(container, path))) {
                containers.iter_mut().for_each(|container| remove(container, path));
            }
        }
    }
}

/// The paths behind gates that are off.
fn off<'a>(gates: &Gates, fields: &'a [Gated<'a>]) -> impl Iterator<Item = &'a str> {
    let (mut asked, mut on) = (None, false);
    fields.iter().filter_map(move |(gate, path)| {
        // Those behind one gate follow each other.
        if asked != Some(*gate) {
            (asked, on) = (Some(*gate), gates.on(gate));
        }
        (!on).then_some(*path)
    })
}

/// Takes fields out of an object, by dotted paths (`a[].b` for all items, `a{}.b` for all values), unless the old object has them.
fn drop(gates: &Gates, fields: &[Gated<'_>], new: &mut Value, old: Option<&Value>) {
    for path in off(gates, fields).filter(|path| !old.is_some_and(|old| has(old, path))) {
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

/// What goes with the last of its fields.
const EMPTIED: &str = "lifecycle";

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
            let Some(inner) = object.get_mut(first) else { return };
            let had = *inner != Value::Object(Default::default());
            remove(inner, rest);
            if first == EMPTIED && had && *inner == Value::Object(Default::default()) {
                object.remove(first);
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
        let stopped = json!({"lifecycle": {"stopSignal": "SIGTERM"}});
        let mut container = stopped.clone();
        drop(&Gates::default(), &[("", "lifecycle.stopSignal")], &mut container, None);
        assert_eq!(container, json!({}));
        let object = json!({"a": 1, "b": {"c": 2}, "d": [{"e": 3, "f": 4}, {}]});
        let paths = ["a", "b.c", "d[].e", "x.y", "b.c.z", "b{}.c"].map(|path| ("", path));
        let drop = |new: &mut Value, old: Option<&Value>| drop(&Gates::default(), &paths, new, old);
        let mut new = object.clone();
        drop(&mut new, None);
        assert_eq!(new, json!({"b": {}, "d": [{"f": 4}, {}]}));
        let mut new = object.clone();
        drop(&mut new, Some(&json!({"b": {"c": 0}, "d": [{}, {"e": 1}]})));
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
        apply(&Gates::default(), &rules, &mut new, None);
        assert_eq!(new, without);
        let mut new = with.clone();
        apply(&Gates::default(), &rules, &mut new, Some(&with));
        assert_eq!(new, with);
        let gates = ["VolumeBindMountOptions=true".to_owned(), "AtomicWriteVolumeUserFields=1".to_owned()];
        apply(&Gates::parse(&gates).unwrap(), &rules, &mut new, None);
        assert_eq!(new, with, "with their gates they stay");
    }
}
