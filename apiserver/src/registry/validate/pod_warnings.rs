//! Warnings about pods, in all kinds that have one.

use std::collections::HashSet;

use pintle_api::quota::amounts::quantity;
use pintle_machinery::field_path::Path;
use pintle_machinery::names;
use serde_json::Value;

use crate::registry::value::{at, entries, has, int, items, text};

/// Labels of nodes that have other names now: old, since when, new.
const LABELS: [(&str, &str, &str); 6] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("failure-domain.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
];
/// Sources of volumes that do nothing any more: field, as it is shown, since when.
const VOLUMES: [(&str, &str, &str); 9] = [
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// About the pod at that place (dotted) of an object.
pub fn all(object: &Value, place: &str) -> Vec<String> {
    let mut told = Vec::new();
    let (spec, path) = (at(object, place), Path::new(place));
    let metadata = match place.strip_suffix("spec").map(|outer| format!("{outer}metadata")) {
        Some(place) => annotations(at(object, &place), &Path::new(&place)),
        None => Vec::new(),
    };
    if spec.is_null() {
        return told;
    }
    nodes(&mut told, spec, &path);
    lists(&mut told, spec, &path);
    volumes(&mut told, spec, &path);
    for (name, amount) in entries(spec, "overhead") {
        fractional(&mut told, name, amount, &path.child("overhead").key(name));
    }
    told.extend(metadata);
    containers(&mut told, spec, &path);
    if int(spec, "terminationGracePeriodSeconds") < 0 {
        let path = path.child("terminationGracePeriodSeconds");
        told.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    selectors(&mut told, spec, &path);
    for volume in items(spec, "volumes") {
        if has(volume, "projected") && items(volume, "projected.sources").is_empty() {
            told.push(format!("volume \"{}\" (Projected) has no sources provided", text(volume, "name")));
        }
    }
    told
}

fn deprecated(told: &mut Vec<String>, key: &str, path: &Path) {
    if let Some((_, since, instead)) = LABELS.iter().find(|(old, _, _)| *old == key) {
        told.push(format!("{path}: {key} is deprecated since {since}; use \"{instead}\" instead"));
    }
}

/// Where it may run.
fn nodes(told: &mut Vec<String>, spec: &Value, path: &Path) {
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some((_, since, instead)) = LABELS.iter().find(|(old, _, _)| old == key) {
            let path = path.child("nodeSelector").key(key);
            told.push(format!("{path}: deprecated since {since}; use \"{instead}\" instead"));
        }
    }
    let (affinity, of_affinity) = (at(spec, "affinity.nodeAffinity"), path.child("affinity").child("nodeAffinity"));
    let terms = at(affinity, REQUIRED);
    for (index, term) in items(terms, "nodeSelectorTerms").iter().enumerate() {
        let path = of_affinity.child(REQUIRED).child("nodeSelectorTerms").index(index);
        expressions(told, term, &path, false);
    }
    for (index, preferred) in items(affinity, PREFERRED).iter().enumerate() {
        let path = of_affinity.child(PREFERRED).index(index).child("preference");
        expressions(told, at(preferred, "preference"), &path, true);
    }
    for (index, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = path.child("topologySpreadConstraints").index(index);
        deprecated(told, text(constraint, "topologyKey"), &path.child("topologyKey"));
        if !has(constraint, "labelSelector") {
            told.push(format!("{}: {NULL_SELECTOR}", path.child("labelSelector")));
        }
    }
}

fn expressions(told: &mut Vec<String>, term: &Value, path: &Path, preferred: bool) {
    for (index, expression) in items(term, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        deprecated(told, text(expression, "key"), &path.child("key"));
        for (index, value) in items(expression, "values").iter().enumerate().filter(|_| preferred) {
            let value = value.as_str().unwrap_or_default();
            for fault in names::label_value(value) {
                told.push(format!("{}: {value} is invalid, {fault}", path.child("values").index(index)));
            }
        }
    }
}

/// Names and addresses that are told twice or not at all.
fn lists(told: &mut Vec<String>, spec: &Value, path: &Path) {
    let mut seen = HashSet::new();
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let ip = text(alias, "ip");
        if !seen.insert(ip) {
            told.push(format!("{}: duplicate ip \"{ip}\"", path.child("hostAliases").index(index).child("ip")));
        }
    }
    let mut seen = HashSet::new();
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        let path = path.child("imagePullSecrets").index(index).child("name");
        match text(secret, "name") {
            "" => told.push(format!("{path}: invalid empty name \"\"")),
            name if !seen.insert(name) => told.push(format!("{path}: duplicate name \"{name}\"")),
            _ => {}
        }
    }
}

fn volumes(told: &mut Vec<String>, spec: &Value, path: &Path) {
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.child("volumes").index(index);
        source(told, volume, &path);
        let claim = at(volume, "ephemeral.volumeClaimTemplate.spec");
        claim_sizes(told, claim, &path.child("ephemeral").child("volumeClaimTemplate").child("spec"));
    }
}

/// A source of a volume that does nothing any more.
pub fn source(told: &mut Vec<String>, volume: &Value, path: &Path) {
    for (_, shown, words) in VOLUMES.iter().filter(|(field, _, _)| has(volume, field)) {
        told.push(format!("{}: {words}", path.child(shown)));
    }
}

/// Sizes that a claim asks for come in whole bytes.
pub fn claim_sizes(told: &mut Vec<String>, spec: &Value, path: &Path) {
    for list in ["requests", "limits"] {
        if let Some(size) = at(spec, "resources").get(list).and_then(|list| list.get("storage")) {
            fractional(told, "storage", size, &path.child("resources").child(list).key("storage"));
        }
    }
}

/// Bytes come whole.
fn fractional(told: &mut Vec<String>, name: &str, amount: &Value, path: &Path) {
    let Some(amount) = quantity(amount).filter(|_| matches!(name, "memory" | "storage" | "ephemeral-storage")) else {
        return;
    };
    if amount.milli_value() % 1000 != 0 {
        told.push(format!("{path}: fractional byte value \"{amount}\" is invalid, must be an integer"));
    }
}

fn annotations(metadata: &Value, path: &Path) -> Vec<String> {
    let words = |key: &str| match key {
        "seccomp.security.alpha.kubernetes.io/pod" => {
            Some("non-functional in v1.27+; use the \"seccompProfile\" field instead")
        }
        key if key.starts_with("container.seccomp.security.alpha.kubernetes.io/") => {
            Some("non-functional in v1.27+; use the \"seccompProfile\" field instead")
        }
        key if key.starts_with("container.apparmor.security.beta.kubernetes.io/") => {
            Some("deprecated since v1.30; use the \"appArmorProfile\" field instead")
        }
        _ => None,
    };
    let told =
        |(key, _): (&String, _)| words(key).map(|words| format!("{}: {words}", path.child("annotations").key(key)));
    entries(metadata, "annotations").filter_map(told).collect()
}

fn containers(told: &mut Vec<String>, spec: &Value, path: &Path) {
    for list in ["initContainers", "containers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            let path = path.child(list).index(index);
            for resource in ["memory", "ephemeral-storage"] {
                for list in ["limits", "requests"] {
                    if let Some(amount) = at(container, "resources").get(list).and_then(|list| list.get(resource)) {
                        fractional(told, resource, amount, &path.child("resources").child(list).key(resource));
                    }
                }
            }
            let mut seen = HashSet::new();
            for (index, variable) in items(container, "env").iter().enumerate() {
                let name = text(variable, "name");
                if !seen.insert(name) {
                    let path = path.child("env").index(index);
                    told.push(format!(
                        "{path}: hides previous definition of \"{name}\", which may be dropped when using apply"
                    ));
                }
            }
        }
    }
    let (mut named, mut before) = (Vec::new(), Vec::new());
    for list in ["initContainers", "containers"] {
        for (index, container) in items(spec, list).iter().enumerate() {
            ports(told, container, &path.child(list).index(index).child("ports"), &mut named, &mut before);
        }
    }
}

/// What is at a path.
type Placed<'a, T> = Vec<(T, Path)>;

/// Ports that hide each other; `named` and `before` are those of the containers before.
fn ports<'a>(
    told: &mut Vec<String>,
    container: &'a Value,
    path: &Path,
    named: &mut Placed<'a, &'a str>,
    before: &mut Placed<'a, &'a Value>,
) {
    for (index, port) in items(container, "ports").iter().enumerate() {
        let own = path.index(index);
        if !text(port, "hostIP").is_empty() && int(port, "hostPort") == 0 {
            told.push(format!(
                "{own}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                text(port, "name"),
                int(port, "containerPort"),
                text(port, "protocol"),
                text(port, "hostIP")
            ));
        }
        let key = |port: &Value| (int(port, "containerPort"), text(port, "protocol").to_owned());
        for (other, at_other) in before.iter().filter(|(other, _)| key(other) == key(port)) {
            let place = |port: &Value| (int(port, "hostPort"), text(port, "hostIP").to_owned());
            let ((number, host), (other_number, other_host)) = (place(port), place(other));
            if number == other_number && host == other_host {
                told.push(format!("{own}: duplicate port definition with {at_other}"));
            } else if number == 0 || other_number == 0 {
                told.push(format!("{own}: overlapping port definition with {at_other}"));
            } else if number == other_number && (host.is_empty() || other_host.is_empty()) {
                told.push(format!("{own}: dangerously ambiguous port definition with {at_other}"));
            }
        }
        before.push((port, own.clone()));
        let name = text(port, "name");
        match named.iter().find(|(other, _)| *other == name) {
            _ if name.is_empty() => {}
            Some((_, first)) => told.push(format!(
                "{own}: duplicate port name \"{name}\" with {first}, services and probes that select ports by name will use {first}"
            )),
            None => named.push((name, own)),
        }
    }
}

/// Terms about other pods that match none.
fn selectors(told: &mut Vec<String>, spec: &Value, path: &Path) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (terms, path) = (&at(spec, "affinity")[kind], path.child("affinity").child(kind));
        for (index, term) in items(terms, REQUIRED).iter().enumerate() {
            if !has(term, "labelSelector") {
                told.push(format!("{}: {NULL_SELECTOR}", path.child(REQUIRED).index(index).child("labelSelector")));
            }
        }
        for (index, term) in items(terms, PREFERRED).iter().enumerate() {
            if !has(term, "podAffinityTerm.labelSelector") {
                let path = path.child(PREFERRED).index(index).child("podAffinityTerm").child("labelSelector");
                told.push(format!("{path}: {NULL_SELECTOR}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods() {
        let port = |port: Value| json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP"}, port]}]});
        for (spec, expected) in [
            (json!({"nodeSelector": {"a": "b"}}), ""),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "a"}]}),
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ),
            (
                json!({"affinity": {"podAffinity": {PREFERRED: [{"podAffinityTerm": {}}]}}}),
                "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
            ),
            (json!({"imagePullSecrets": [{}]}), "spec.imagePullSecrets[0].name: invalid empty name \"\""),
            (
                json!({"volumes": [{"name": "v", "rbd": {}}]}),
                "spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
            ),
            (json!({"volumes": [{"name": "v", "projected": {}}]}), "volume \"v\" (Projected) has no sources provided"),
            (
                json!({"overhead": {"memory": "1500m"}}),
                "spec.overhead[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
            ),
            (
                json!({"terminationGracePeriodSeconds": -1}),
                "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP", "hostIP": "1.2.3.4"}]}]}),
                "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}",
            ),
            (
                port(json!({"containerPort": 80, "protocol": "TCP"})),
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ),
            (
                port(json!({"containerPort": 80, "protocol": "TCP", "hostPort": 1})),
                "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
            ),
        ] {
            assert_eq!(all(&json!({"spec": spec}), "spec").join("\n"), expected, "{spec}");
        }
    }
}
