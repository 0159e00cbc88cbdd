//! Questions that the whole kubelet asks about a pod's specification. All pure.

use std::borrow::Cow;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, ObjectReference, Pod, PodSpec};

use crate::quantity;

/// Which list of the specification a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `spec.initContainers`, sidecars included.
    Init,
    /// `spec.containers`.
    App,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

/// Quality-of-service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Every container has equal requests and limits for CPU and memory.
    Guaranteed,
    /// Some request or limit is set.
    Burstable,
    /// No request or limit is set.
    BestEffort,
}

impl Qos {
    /// The name in `status.qosClass`.
    pub fn name(self) -> &'static str {
        match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        }
    }
}

/// The annotation that a static pod's source and its mirror carry.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// The annotation of a mirror pod: the hash of the static pod that it mirrors.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation that says where a pod came from: `file` or `api`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// When a static pod was first read.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

static EMPTY: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

/// The specification; an empty one if the object has none (the API server does not allow that).
pub fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap_or_else(|| &EMPTY)
}

/// The pod's uid.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// `name_namespace(uid)`, the form that upstream's messages use.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// An annotation's value.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// True for a pod that a file on this node defines.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, CONFIG_SOURCE).is_some_and(|s| s != "api")
}

/// True for the API object that shows a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}

/// The init containers.
pub fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}

/// Every container with its kind: init, app, ephemeral, each in its list's order.
pub fn containers(pod: &Pod) -> Vec<(Kind, Cow<'_, Container>)> {
    let spec = spec(pod);
    let init = init_containers(pod).iter().map(|c| (Kind::Init, Cow::Borrowed(c)));
    let app = spec.containers.iter().map(|c| (Kind::App, Cow::Borrowed(c)));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    init.chain(app).chain(ephemeral.map(|e| (Kind::Ephemeral, Cow::Owned(from_ephemeral(e))))).collect()
}

/// A container by name.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<(Kind, Cow<'a, Container>)> {
    containers(pod).into_iter().find(|(_, c)| c.name == name)
}

/// The part of an ephemeral container that is an ordinary container's.
fn from_ephemeral(e: &EphemeralContainer) -> Container {
    Container {
        args: e.args.clone(),
        command: e.command.clone(),
        env: e.env.clone(),
        env_from: e.env_from.clone(),
        image: e.image.clone(),
        image_pull_policy: e.image_pull_policy.clone(),
        name: e.name.clone(),
        security_context: e.security_context.clone(),
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path.clone(),
        termination_message_policy: e.termination_message_policy.clone(),
        tty: e.tty,
        volume_devices: e.volume_devices.clone(),
        volume_mounts: e.volume_mounts.clone(),
        working_dir: e.working_dir.clone(),
        ..Container::default()
    }
}

/// The container whose namespaces an ephemeral container joins.
pub fn target_container<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let all = spec(pod).ephemeral_containers.as_deref().unwrap_or_default();
    all.iter().find(|e| e.name == name)?.target_container_name.as_deref().filter(|t| !t.is_empty())
}

/// True for an init container that goes on running beside the app containers.
pub fn is_sidecar(kind: Kind, container: &Container) -> bool {
    kind == Kind::Init && container.restart_policy.as_deref() == Some("Always")
}

/// The pod's restart policy.
pub fn restart_policy(pod: &Pod) -> &str {
    spec(pod).restart_policy.as_deref().unwrap_or("Always")
}

/// True if a container that ended so is to be run again; `exit_code` is `None` for one whose end is not known.
pub fn restarts(pod: &Pod, kind: Kind, container: &Container, exit_code: Option<i32>) -> bool {
    if kind == Kind::Ephemeral {
        return false;
    }
    let failed = exit_code != Some(0);
    if let Some(code) = exit_code {
        for rule in container.restart_policy_rules.iter().flatten() {
            let Some(on) = &rule.exit_codes else { continue };
            let listed = on.values.iter().flatten().any(|v| *v == code);
            let applies = if on.operator == "NotIn" { !listed } else { listed };
            if applies && rule.action == "Restart" {
                return true;
            }
        }
    }
    match (container.restart_policy.as_deref(), restart_policy(pod)) {
        (Some("Always"), _) => true,
        (Some("OnFailure"), _) => failed,
        (Some("Never"), _) | (None, "Never") => false,
        // An init container that ended well is done, whatever the policy.
        (None, "Always") => kind == Kind::App || failed,
        _ => failed,
    }
}

/// True if the pod uses the node's network.
pub fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network.unwrap_or(false)
}

/// The pod's grace period for termination in seconds, as far as the specification says.
pub fn grace_period(pod: &Pod) -> i64 {
    spec(pod).termination_grace_period_seconds.unwrap_or(30)
}

/// True for a pod that has ended for good.
pub fn is_terminal_phase(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The quality-of-service class.
pub fn qos(pod: &Pod) -> Qos {
    if let Some(known) = pod.status.as_ref().and_then(|s| s.qos_class.as_deref()) {
        match known {
            "Guaranteed" => return Qos::Guaranteed,
            "Burstable" => return Qos::Burstable,
            "BestEffort" => return Qos::BestEffort,
            _ => {}
        }
    }
    qos_of(spec(pod))
}

fn qos_of(spec: &PodSpec) -> Qos {
    let mut any = false;
    let mut guaranteed = true;
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = all.map(|c| c.resources.as_ref());
    let pod_level = spec.resources.as_ref().filter(|r| r.requests.is_some() || r.limits.is_some());
    let every: Vec<_> = match pod_level {
        Some(r) => vec![Some(r)],
        None => of_containers.collect(),
    };
    for resources in every {
        for name in ["cpu", "memory"] {
            let of = |m: Option<&std::collections::BTreeMap<String, _>>| {
                m.and_then(|m| m.get(name)).and_then(|q: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| {
                    quantity::nano(&q.0).filter(|v| *v > 0)
                })
            };
            let limit = of(resources.and_then(|r| r.limits.as_ref()));
            let request = of(resources.and_then(|r| r.requests.as_ref())).or(limit);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

/// A reference to the pod for events.
pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace(pod).to_owned()),
        name: Some(name(pod).to_owned()),
        uid: annotation(pod, CONFIG_MIRROR).map(str::to_owned).or_else(|| pod.metadata.uid.clone()),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// A reference to a container of the pod for events.
pub fn container_reference(pod: &Pod, kind: Kind, container: &str) -> ObjectReference {
    let list = match kind {
        Kind::Init => "initContainers",
        Kind::App => "containers",
        Kind::Ephemeral => "ephemeralContainers",
    };
    ObjectReference { field_path: Some(format!("spec.{list}{{{container}}}")), ..reference(pod) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn qos_classes() {
        let with = |resources: serde_json::Value| {
            pod(serde_json::json!({"spec": {"containers": [{"name": "a", "resources": resources}]}}))
        };
        let cases = [
            (serde_json::json!({}), Qos::BestEffort),
            (serde_json::json!({"requests": {"cpu": "1"}}), Qos::Burstable),
            (serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}), Qos::Guaranteed),
            (
                serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}),
                Qos::Guaranteed,
            ),
            (serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m"}}), Qos::Burstable),
        ];
        for (resources, want) in cases {
            assert_eq!(qos(&with(resources.clone())), want, "{resources}");
        }
    }

    #[test]
    fn restart_rules() {
        let c = |policy: Option<&str>| Container { restart_policy: policy.map(str::to_owned), ..Container::default() };
        let p = |policy: &str| pod(serde_json::json!({"spec": {"restartPolicy": policy, "containers": []}}));
        let cases = [
            ("Always", Kind::App, None, Some(0), true),
            ("OnFailure", Kind::App, None, Some(0), false),
            ("OnFailure", Kind::App, None, Some(1), true),
            ("Never", Kind::App, None, Some(1), false),
            ("Always", Kind::Init, None, Some(0), false),
            ("Always", Kind::Init, None, Some(1), true),
            ("Never", Kind::Init, Some("Always"), Some(0), true),
            ("Always", Kind::Ephemeral, None, Some(1), false),
            ("Never", Kind::App, None, None, false),
            ("OnFailure", Kind::App, None, None, true),
        ];
        for (policy, kind, own, code, want) in cases {
            assert_eq!(restarts(&p(policy), kind, &c(own), code), want, "{policy} {kind:?} {own:?} {code:?}");
        }
    }
}
