//! Kernel parameters that a pod may set without the node's operator having allowed them. Pure.

use k8s_openapi::api::core::v1::Pod;

use crate::pods::spec;

/// Parameters that concern nobody but the pod.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// What speaks against the pod's parameters.
pub fn forbidden(pod: &Pod) -> Option<String> {
    let s = spec::spec(pod);
    let wanted = s.security_context.as_ref().and_then(|c| c.sysctls.as_ref()).into_iter().flatten();
    for sysctl in wanted {
        let name = sysctl.name.replace('/', ".");
        let (shares_network, shares_ipc) = (spec::host_network(pod), s.host_ipc.unwrap_or(false));
        let why = match name.as_str() {
            n if !SAFE.contains(&n) => "not allowlisted",
            n if n.starts_with("net.") && shares_network => "not allowed with host net enabled",
            n if n.starts_with("kernel.") && shares_ipc => "not allowed with host ipc enabled",
            _ => continue,
        };
        return Some(format!("forbidden sysctl: {name:?} {why}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_pods_own_affairs() {
        let of = |name: &str, host: bool| {
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "hostNetwork": host,
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}}))
            .unwrap();
            forbidden(&pod)
        };
        assert_eq!(of("kernel.shm_rmid_forced", true), None);
        assert_eq!(of("net/ipv4/tcp_syncookies", false), None);
        assert_eq!(of("kernel.msgmax", false).as_deref(), Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted"));
        let text = of("net.ipv4.tcp_syncookies", true);
        assert!(text.is_some_and(|t| t.ends_with("not allowed with host net enabled")));
    }
}
