//! What a request's path means.

/// A container, as a path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod's name.
    pub(super) pod: String,
    /// The pod's uid, if it must be that very pod.
    pub(super) uid: Option<String>,
    /// The container; empty where a pod is meant.
    pub(super) container: String,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// `/healthz`, `/livez`, `/readyz` and their checks.
    Health,
    /// The pods of this node.
    Pods,
    /// The pods that the runtime runs.
    RunningPods,
    /// A container's log.
    Logs(Target),
    /// A command in a container.
    Exec(Target),
    /// A container's own streams.
    Attach(Target),
    /// A pod's ports.
    PortForward(Target),
    /// A command in a container, without a client's streams.
    Run(Target),
    /// Usage of the node and its pods.
    Summary,
    /// The kubelet's own metrics.
    Metrics,
    /// Usage as metrics.
    ResourceMetrics,
    /// Usage as cAdvisor names it.
    CadvisorMetrics,
    /// Probe results as metrics.
    ProbeMetrics,
    /// The configuration in effect.
    Config,
}

impl Route {
    /// Reads a path.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        Some(match parts[..] {
            // Upstream has just the first.
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["containerLogs", namespace, pod, container] => Self::Logs(target(namespace, pod, None, container)),
            ["exec", ref rest @ ..] => Self::Exec(container(rest)?),
            ["attach", ref rest @ ..] => Self::Attach(container(rest)?),
            ["run", ref rest @ ..] => Self::Run(container(rest)?),
            ["portForward", namespace, pod] => Self::PortForward(target(namespace, pod, None, "")),
            ["portForward", namespace, pod, uid] => Self::PortForward(target(namespace, pod, Some(uid), "")),
            ["stats", "summary"] => Self::Summary,
            ["metrics"] => Self::Metrics,
            ["metrics", "resource"] => Self::ResourceMetrics,
            ["metrics", "cadvisor"] => Self::CadvisorMetrics,
            ["metrics", "probes"] => Self::ProbeMetrics,
            ["configz"] => Self::Config,
            _ => return None,
        })
    }
}

fn container(parts: &[&str]) -> Option<Target> {
    match *parts {
        [namespace, pod, container] => Some(target(namespace, pod, None, container)),
        [namespace, pod, uid, container] => Some(target(namespace, pod, Some(uid), container)),
        _ => None,
    }
}

fn target(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> Target {
    let decode = super::query::decode;
    Target { namespace: decode(namespace), pod: decode(pod), uid: uid.map(decode), container: decode(container) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        assert_eq!(Route::parse("/exec/ns/p/c"), Some(Route::Exec(target("ns", "p", None, "c"))));
        assert_eq!(Route::parse("/attach/ns/p/u/c"), Some(Route::Attach(target("ns", "p", Some("u"), "c"))));
        assert_eq!(Route::parse("/portForward/ns/p"), Some(Route::PortForward(target("ns", "p", None, ""))));
        assert_eq!(Route::parse("/healthz/syncloop"), Some(Route::Health));
        assert_eq!(Route::parse("/readyz"), Some(Route::Health));
        assert_eq!(Route::parse("/runningpods/"), Some(Route::RunningPods));
        assert_eq!(Route::parse("/metrics/cadvisor"), Some(Route::CadvisorMetrics));
        for unknown in ["/", "/exec/ns/p", "/containerLogs/ns/p", "/metrics/x", "/debug/pprof"] {
            assert_eq!(Route::parse(unknown), None, "{unknown}");
        }
    }
}
