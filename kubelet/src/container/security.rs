//! Security contexts of sandboxes and containers.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, SeccompProfile};
use pintle_cri::messages as cri;

use crate::pods::spec;

/// Paths that an ordinary container does not see.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Paths that an ordinary container cannot write.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The user that an image names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageUser {
    /// As a number, if it is one.
    pub uid: Option<i64>,
    /// As a name; empty if there is none.
    pub name: String,
}

/// Namespaces of the sandbox, and of a container without target.
pub fn namespaces(pod: &Pod) -> cri::NamespaceOption {
    let s = spec::spec(pod);
    let host =
        |wanted: Option<bool>| if wanted == Some(true) { cri::NamespaceMode::Node } else { cri::NamespaceMode::Pod };
    let pid = match (s.host_pid, s.share_process_namespace) {
        (Some(true), _) => cri::NamespaceMode::Node,
        (_, Some(true)) => cri::NamespaceMode::Pod,
        _ => cri::NamespaceMode::Container,
    };
    cri::NamespaceOption {
        network: host(s.host_network) as i32,
        pid: pid as i32,
        ipc: host(s.host_ipc) as i32,
        ..cri::NamespaceOption::default()
    }
}

fn id(value: Option<i64>) -> Option<cri::Int64Value> {
    value.map(|value| cri::Int64Value { value })
}

/// Pod-wide supplemental groups and the fsGroup.
fn groups(pod: &Pod) -> Vec<i64> {
    let context = spec::spec(pod).security_context.as_ref();
    let own = context.and_then(|c| c.supplemental_groups.clone()).unwrap_or_default();
    own.into_iter().chain(context.and_then(|c| c.fs_group)).collect()
}

fn groups_policy(pod: &Pod) -> i32 {
    let policy = spec::spec(pod).security_context.as_ref().and_then(|c| c.supplemental_groups_policy.as_deref());
    match policy {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict as i32,
        _ => cri::SupplementalGroupsPolicy::Merge as i32,
    }
}

fn seccomp(profile: Option<&SeccompProfile>, privileged: bool) -> cri::SecurityProfile {
    let kind = match profile.map(|p| p.type_.as_str()) {
        _ if privileged => cri::ProfileType::Unconfined,
        Some("RuntimeDefault") => cri::ProfileType::RuntimeDefault,
        Some("Localhost") => cri::ProfileType::Localhost,
        _ => cri::ProfileType::Unconfined,
    };
    let local = profile.and_then(|p| p.localhost_profile.clone()).filter(|_| kind == cri::ProfileType::Localhost);
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref: local.unwrap_or_default() }
}

fn apparmor(profile: Option<&AppArmorProfile>) -> Option<cri::SecurityProfile> {
    let profile = profile?;
    let kind = match profile.type_.as_str() {
        "Localhost" => cri::ProfileType::Localhost,
        "RuntimeDefault" => cri::ProfileType::RuntimeDefault,
        _ => cri::ProfileType::Unconfined,
    };
    let localhost_ref = profile.localhost_profile.clone().unwrap_or_default();
    Some(cri::SecurityProfile { profile_type: kind as i32, localhost_ref })
}

/// True if any container of the pod is privileged: its sandbox must be then.
fn any_privileged(pod: &Pod) -> bool {
    let privileged = |c: &Container| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true);
    spec::containers(pod).iter().any(|(_, c)| privileged(c))
}

/// The sandbox's security context.
pub fn for_sandbox(pod: &Pod) -> cri::LinuxSandboxSecurityContext {
    let context = spec::spec(pod).security_context.as_ref();
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: id(context.and_then(|c| c.run_as_user)),
        run_as_group: id(context
            .and_then(|c| c.run_as_group)
            .filter(|_| context.is_some_and(|c| c.run_as_user.is_some()))),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged: any_privileged(pod),
        // The pause process is always confined by the runtime's default.
        seccomp: Some(cri::SecurityProfile {
            profile_type: cri::ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        }),
        ..cri::LinuxSandboxSecurityContext::default()
    }
}

/// A container's security context; `target` is the id of the container whose process namespace it joins.
pub fn for_container(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    target: Option<String>,
) -> cri::LinuxContainerSecurityContext {
    let of_pod = spec::spec(pod).security_context.as_ref();
    let own = container.security_context.as_ref();
    let privileged = own.and_then(|c| c.privileged).unwrap_or(false);
    let user = own.and_then(|c| c.run_as_user).or_else(|| of_pod.and_then(|c| c.run_as_user));
    let group = own.and_then(|c| c.run_as_group).or_else(|| of_pod.and_then(|c| c.run_as_group));
    let mut options = namespaces(pod);
    if let Some(target) = target {
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id = target;
    }
    let masked = !privileged && own.and_then(|c| c.proc_mount.as_deref()) != Some("Unmasked");
    let paths = |list: &[&str]| if masked { list.iter().map(|p| (*p).to_owned()).collect() } else { Vec::new() };
    let capabilities = own.and_then(|c| c.capabilities.as_ref());
    let profile =
        own.and_then(|c| c.seccomp_profile.as_ref()).or_else(|| of_pod.and_then(|c| c.seccomp_profile.as_ref()));
    let armor =
        own.and_then(|c| c.app_armor_profile.as_ref()).or_else(|| of_pod.and_then(|c| c.app_armor_profile.as_ref()));
    cri::LinuxContainerSecurityContext {
        capabilities: Some(cri::Capability {
            add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
            drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
            ..cri::Capability::default()
        }),
        privileged,
        namespace_options: Some(options),
        run_as_user: id(user.or(image.uid.filter(|_| image.name.is_empty()))),
        run_as_group: id(group),
        run_as_username: if user.is_none() { image.name.clone() } else { String::new() },
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or(false),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp(profile, privileged)),
        apparmor: apparmor(armor),
        ..cri::LinuxContainerSecurityContext::default()
    }
}

/// Checks `runAsNonRoot`; `Err` has upstream's message.
pub fn verify_non_root(pod: &Pod, container: &Container, image: &ImageUser) -> Result<(), String> {
    let of_pod = spec::spec(pod).security_context.as_ref();
    let own = container.security_context.as_ref();
    let wanted = own.and_then(|c| c.run_as_non_root).or_else(|| of_pod.and_then(|c| c.run_as_non_root));
    if wanted != Some(true) {
        return Ok(());
    }
    let user = own.and_then(|c| c.run_as_user).or_else(|| of_pod.and_then(|c| c.run_as_user));
    let at = format!("(pod: \"{}\", container: {})", spec::full_name(pod), container.name);
    match (user, image.uid) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {at}")),
        (Some(_), _) => Ok(()),
        (None, _) if !image.name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {at}",
            image.name
        )),
        (None, None | Some(0)) => Err(format!("container has runAsNonRoot and image will run as root {at}")),
        (None, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn non_root() {
        let image = |uid, name: &str| ImageUser { uid, name: name.to_owned() };
        let cases = [
            (json!({}), image(Some(0), ""), None),
            (json!({"runAsNonRoot": true}), image(Some(1), ""), None),
            (json!({"runAsNonRoot": true}), image(Some(0), ""), Some("image will run as root")),
            (json!({"runAsNonRoot": true}), image(None, ""), Some("image will run as root")),
            (json!({"runAsNonRoot": true}), image(None, "www"), Some("non-numeric user (www)")),
            (json!({"runAsNonRoot": true, "runAsUser": 5}), image(Some(0), ""), None),
            (json!({"runAsNonRoot": true, "runAsUser": 0}), image(Some(1), ""), Some("breaks non-root policy")),
        ];
        for (context, user, want) in cases {
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"securityContext": context, "containers": [{"name": "a"}]}}))
                    .unwrap();
            let got = verify_non_root(&pod, &spec::spec(&pod).containers[0], &user).err();
            match (got, want) {
                (None, None) => {}
                (Some(got), Some(want)) => assert!(got.contains(want), "{got}"),
                other => panic!("{context} {user:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn namespaces_of_the_pod() {
        let of = |spec| {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let n = namespaces(&pod);
            (n.network, n.pid, n.ipc)
        };
        assert_eq!(of(json!({"containers": []})), (0, 1, 0));
        assert_eq!(of(json!({"containers": [], "shareProcessNamespace": true})), (0, 0, 0));
        assert_eq!(of(json!({"containers": [], "hostNetwork": true, "hostPID": true, "hostIPC": true})), (2, 2, 2));
    }
}
