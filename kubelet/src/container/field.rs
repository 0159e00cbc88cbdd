//! The downward API: fields of the pod and resources of its containers as text.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::pods::spec;
use crate::quantity;

/// Addresses that are known only at run time.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The pod's, main one first.
    pub pod: Vec<String>,
    /// The node's, main one first.
    pub host: Vec<String>,
}

/// What the node can give to pods; the limit of a container that has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocatable {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Local disk in bytes.
    pub ephemeral_storage: i64,
}

/// The value of a `fieldRef` path; `Err` has upstream's message.
pub fn pod_field(pod: &Pod, path: &str, addresses: &Addresses) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("invalid subscript for field: {path}")),
        };
        return Ok(map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => spec::name(pod).to_owned(),
        "metadata.namespace" => spec::namespace(pod).to_owned(),
        "metadata.uid" => spec::uid(pod).to_owned(),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => spec::spec(pod).node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec::spec(pod).service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => first(&addresses.host),
        "status.hostIPs" => addresses.host.join(","),
        "status.podIP" => first(&addresses.pod),
        "status.podIPs" => addresses.pod.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// Splits `a.b['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// A map as lines `key="value"`, sorted; values quoted as Go quotes them.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten().map(|(k, v)| format!("{k}={}", quote(v)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A Go string literal.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The value of a `resourceFieldRef`, divided and rounded up.
pub fn resource_field(
    container: &Container,
    selector: &ResourceFieldSelector,
    allocatable: Allocatable,
) -> Result<String, String> {
    let (list, name) = selector.resource.split_once('.').unwrap_or(("", ""));
    let resources = container.resources.as_ref();
    let chosen = match list {
        "limits" => resources.and_then(|r| r.limits.as_ref()),
        "requests" => resources.and_then(|r| r.requests.as_ref()),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let divisor = selector.divisor.as_ref().map(|d| d.0.as_str()).filter(|d| *d != "0" && !d.is_empty()).unwrap_or("1");
    let divisor = quantity::nano(divisor).filter(|d| *d > 0).ok_or_else(|| format!("invalid divisor {divisor}"))?;
    let set = chosen.and_then(|m| m.get(name)).and_then(|q| quantity::nano(&q.0));
    let fallback = match (list, name) {
        ("limits", "cpu") => i128::from(allocatable.cpu_milli) * 1_000_000,
        ("limits", "memory") => i128::from(allocatable.memory) * 1_000_000_000,
        ("limits", "ephemeral-storage") => i128::from(allocatable.ephemeral_storage) * 1_000_000_000,
        _ => 0,
    };
    let value = set.filter(|v| *v > 0).unwrap_or(fallback);
    Ok(((value + divisor - 1) / divisor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u",
                "labels": {"b": "2", "a": "x\"y"}, "annotations": {"k/z": "v"}},
            "spec": {"nodeName": "node", "serviceAccountName": "sa", "containers": []},
        }))
        .unwrap();
        let at = Addresses { pod: vec!["10.0.0.1".into(), "fd::1".into()], host: vec!["1.1.1.1".into()] };
        let cases = [
            ("metadata.name", "p"),
            ("metadata.labels", "a=\"x\\\"y\"\nb=\"2\""),
            ("metadata.labels['b']", "2"),
            ("metadata.labels['c']", ""),
            ("metadata.annotations['k/z']", "v"),
            ("spec.nodeName", "node"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,fd::1"),
            ("status.hostIP", "1.1.1.1"),
        ];
        for (path, want) in cases {
            assert_eq!(pod_field(&pod, path, &at).as_deref(), Ok(want), "{path}");
        }
        assert!(pod_field(&pod, "spec.foo", &at).is_err());
    }

    #[test]
    fn resources() {
        let c: Container = serde_json::from_value(serde_json::json!({"name": "c", "resources": {
            "limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "125m"}}}))
        .unwrap();
        let all = Allocatable { cpu_milli: 2000, memory: 1 << 30, ephemeral_storage: 5 };
        let cases = [
            ("limits.cpu", "", "1"),
            ("limits.cpu", "1m", "250"),
            ("requests.cpu", "1m", "125"),
            ("limits.memory", "1Mi", "64"),
            ("limits.memory", "0", "67108864"),
            ("requests.memory", "1", "0"),
            ("limits.ephemeral-storage", "1", "5"),
        ];
        for (resource, divisor, want) in cases {
            let selector: ResourceFieldSelector =
                serde_json::from_value(serde_json::json!({"resource": resource, "divisor": divisor})).unwrap();
            assert_eq!(resource_field(&c, &selector, all).as_deref(), Ok(want), "{resource} {divisor}");
        }
    }
}
