//! The runtime's configuration of a container and of a sandbox.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use pintle_cri::messages as cri;

use super::expand::expand;
use crate::pods::model::label;
use crate::pods::plan;
use crate::pods::spec;

/// Where a container's termination message is, unless it says otherwise.
pub const TERMINATION_PATH: &str = "/dev/termination-log";

/// What goes into a container besides its specification.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Mounts.
    pub mounts: Vec<cri::Mount>,
    /// The image as the runtime knows it.
    pub image_ref: String,
    /// Control-group values.
    pub resources: cri::LinuxContainerResources,
    /// Security context.
    pub security: cri::LinuxContainerSecurityContext,
    /// Restart count.
    pub restart_count: u32,
}

/// The container's configuration.
pub fn container(pod: &Pod, container: &Container, prepared: Prepared) -> cri::ContainerConfig {
    let values: BTreeMap<&str, &str> = prepared.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let lookup = |name: &str| values.get(name).map(|v| (*v).to_owned());
    let expanded = |list: &Option<Vec<String>>| list.iter().flatten().map(|text| expand(text, lookup)).collect();
    let image = container.image.clone().unwrap_or_default();
    let count = prepared.restart_count;
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt: count }),
        image: Some(cri::ImageSpec {
            image: prepared.image_ref,
            user_specified_image: image,
            ..cri::ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: pod_labels(pod, Some(&container.name)),
        annotations: annotations(pod, container, count),
        log_path: format!("{}/{count}.log", container.name),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(prepared.resources),
            security_context: Some(prepared.security),
        }),
        envs: prepared
            .env
            .iter()
            .map(|(k, v)| cri::KeyValue { key: k.clone(), value: v.clone().into_bytes() })
            .collect(),
        mounts: prepared.mounts,
        ..cri::ContainerConfig::default()
    }
}

fn pod_labels(pod: &Pod, container: Option<&str>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (label::POD_NAME.to_owned(), spec::name(pod).to_owned()),
        (label::POD_NAMESPACE.to_owned(), spec::namespace(pod).to_owned()),
        (label::POD_UID.to_owned(), spec::uid(pod).to_owned()),
    ]);
    match container {
        Some(name) => {
            labels.insert(label::CONTAINER_NAME.to_owned(), name.to_owned());
        }
        // A sandbox carries the pod's own labels as well.
        None => {
            for (key, value) in pod.metadata.labels.iter().flatten() {
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    labels
}

fn annotations(pod: &Pod, container: &Container, restart_count: u32) -> BTreeMap<String, String> {
    let path = container.termination_message_path.as_deref().unwrap_or(TERMINATION_PATH);
    let policy = container.termination_message_policy.as_deref().unwrap_or("File");
    let mut map = BTreeMap::from([
        (label::HASH.to_owned(), plan::hash(container)),
        (label::RESTART_COUNT.to_owned(), restart_count.to_string()),
        (label::TERMINATION_PATH.to_owned(), path.to_owned()),
        (label::TERMINATION_POLICY.to_owned(), policy.to_owned()),
        (label::GRACE_PERIOD.to_owned(), spec::grace_period(pod).to_string()),
    ]);
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        map.insert(label::DELETION_GRACE_PERIOD.to_owned(), grace.to_string());
    }
    if let Some(ports) = container.ports.as_ref().and_then(|p| serde_json::to_string(p).ok()) {
        map.insert(label::PORTS.to_owned(), ports);
    }
    map
}

/// What goes into a sandbox besides the pod's specification.
#[derive(Clone, Debug, Default)]
pub struct SandboxParts {
    /// The attempt's number.
    pub attempt: u32,
    /// Folder of the log files.
    pub log_directory: String,
    /// The pod's control group.
    pub cgroup_parent: String,
    /// Resolver settings.
    pub dns: cri::DNSConfig,
    /// Host name.
    pub hostname: String,
    /// Control-group values of the pod.
    pub resources: cri::LinuxContainerResources,
    /// Security context.
    pub security: cri::LinuxSandboxSecurityContext,
}

/// The sandbox's configuration.
pub fn sandbox(pod: &Pod, parts: SandboxParts) -> cri::PodSandboxConfig {
    let s = spec::spec(pod);
    let sysctls = s.security_context.as_ref().and_then(|c| c.sysctls.as_ref()).into_iter().flatten();
    let ports = if spec::host_network(pod) { Vec::new() } else { port_mappings(pod) };
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: spec::name(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            attempt: parts.attempt,
        }),
        // On the host's network the name is the host's.
        hostname: if spec::host_network(pod) { String::new() } else { parts.hostname },
        log_directory: parts.log_directory,
        dns_config: Some(parts.dns),
        port_mappings: ports,
        labels: pod_labels(pod, None),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: parts.cgroup_parent,
            security_context: Some(parts.security),
            sysctls: sysctls.map(|s| (s.name.replace('/', "."), s.value.clone())).collect(),
            overhead: None,
            resources: Some(parts.resources),
        }),
    }
}

fn port_mappings(pod: &Pod) -> Vec<cri::PortMapping> {
    let all = spec::containers(pod);
    let ports = all.iter().flat_map(|(_, c)| c.ports.iter().flatten());
    let mapping = |p: &k8s_openapi::api::core::v1::ContainerPort| cri::PortMapping {
        protocol: match p.protocol.as_deref() {
            Some("UDP") => cri::Protocol::Udp as i32,
            Some("SCTP") => cri::Protocol::Sctp as i32,
            _ => cri::Protocol::Tcp as i32,
        },
        container_port: p.container_port,
        host_port: p.host_port.unwrap_or(0),
        host_ip: p.host_ip.clone().unwrap_or_default(),
    };
    ports.map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "a", "image": "i", "command": ["sh", "-c", "echo $(X)"], "args": ["$$(X)"]}]},
        }))
        .unwrap();
        let prepared =
            Prepared { env: vec![("X".to_owned(), "1".to_owned())], restart_count: 2, ..Prepared::default() };
        let c = container(&pod, &spec::spec(&pod).containers[0], prepared);
        assert_eq!(c.command, ["sh", "-c", "echo 1"]);
        assert_eq!(c.args, ["$(X)"]);
        assert_eq!(c.log_path, "a/2.log");
        assert_eq!(c.labels[label::CONTAINER_NAME], "a");
        assert_eq!(c.annotations[label::RESTART_COUNT], "2");
        assert_eq!(c.annotations[label::TERMINATION_POLICY], "File");
    }
}
