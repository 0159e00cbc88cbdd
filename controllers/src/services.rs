//! Questions about Services and the pods behind them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pintle_client::cache::{Cache, Change};
use pintle_client::queue::Queue;

use crate::context::Context;
use crate::key::Key;
use crate::{meta, pods};

/// Label of headless Services' endpoints.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// The selector, if the Service has one that selects anything.
pub fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    service.spec.as_ref()?.selector.as_ref().filter(|s| !s.is_empty())
}

/// True if the labels are what the Service selects.
pub fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    selector(service).is_some_and(|s| s.iter().all(|(k, v)| labels.get(k) == Some(v)))
}

/// True if the Service has no address of its own.
pub fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// Ports of a Service.
pub fn ports(service: &Service) -> &[ServicePort] {
    service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default()
}

/// The number of the pod's port behind a Service's port; `None` if the pod has no port of that name.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c: &&Container| c.restart_policy.as_deref() == Some("Always"));
    let mut candidates = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let protocol = |p: Option<&str>| p.unwrap_or("TCP").to_owned();
    let fits = |p: &&ContainerPort| {
        p.name.as_deref() == Some(name) && protocol(p.protocol.as_deref()) == protocol(port.protocol.as_deref())
    };
    candidates.find(fits).map(|p| p.container_port)
}

/// The pod's addresses.
pub fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let many = status.pod_ips.iter().flatten().map(|p| p.ip.as_str());
    let all: Vec<IpAddr> = many.filter_map(|ip| ip.parse().ok()).collect();
    if !all.is_empty() {
        return all;
    }
    status.pod_ip.iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// The pod's name in the Service's domain, if it asks for one there.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let here = spec.subdomain.as_deref() == service.metadata.name.as_deref()
        && pod.metadata.namespace == service.metadata.namespace;
    spec.hostname.clone().filter(|h| here && !h.is_empty())
}

/// True if the change of a pod can matter to a Service.
fn matters(change: &Change<Pod>) -> bool {
    let Change::Updated { old, new } = change else { return true };
    let view = |p: &Pod| {
        (
            addresses(p),
            pods::is_ready(p),
            pods::is_finished(p),
            meta::is_deleting(&p.metadata),
            pods::node_name(p).to_owned(),
            p.metadata.labels.clone(),
        )
    };
    view(old) != view(new)
}

/// Wakes every Service when it changes and when a pod that it selects (or selected) does.
pub fn follow(ctx: &Context, services: &Cache<Service>, queue: &Queue<Key>) {
    let keys = queue.clone();
    services.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let (keys, services) = (queue.clone(), services.clone());
    ctx.cache::<Pod>().on_change(ctx.shutdown.clone(), move |change| {
        if !matters(&change) {
            return;
        }
        let new = change.object();
        let old = if let Change::Updated { old, .. } = &change { Some(meta::labels(&old.metadata)) } else { None };
        for service in services.list_in(meta::namespace(&new.metadata)) {
            if selects(&service, meta::labels(&new.metadata)) || old.is_some_and(|l| selects(&service, l)) {
                keys.add(Key::of(&*service));
            }
        }
    });
}

#[cfg(test)]
pub(crate) mod testing {
    //! Services and pods for the tests of the plans.

    use super::*;

    /// A Service from its spec.
    pub fn service(spec: serde_json::Value) -> Service {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "s-uid", "labels": {"team": "x"}}, "spec": spec,
        }))
        .unwrap()
    }

    /// A ready pod with an address and a port `http`.
    pub fn backend(name: &str, ip: &str, port: i32) -> Pod {
        let mut pod = pods::testing::ready(name, "node", jiff::Timestamp::UNIX_EPOCH);
        let status = pod.status.as_mut().unwrap();
        status.pod_ip = Some(ip.into());
        status.pod_ips = Some(vec![k8s_openapi::api::core::v1::PodIP { ip: ip.into() }]);
        pod.spec.as_mut().unwrap().containers = vec![Container {
            ports: Some(vec![ContainerPort {
                name: Some("http".into()),
                container_port: port,
                protocol: Some("TCP".into()),
                ..Default::default()
            }]),
            ..Default::default()
        }];
        pod
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{backend, service};
    use super::*;

    #[test]
    fn target_ports() {
        let pod = backend("a", "10.0.0.1", 8080);
        let port = |target: Option<IntOrString>, protocol: &str| ServicePort {
            port: 80,
            target_port: target,
            protocol: Some(protocol.into()),
            ..Default::default()
        };
        let name = |s: &str| Some(IntOrString::String(s.into()));
        for (target, protocol, expected) in [
            (None, "TCP", Some(80)),
            (Some(IntOrString::Int(9)), "TCP", Some(9)),
            (name("http"), "TCP", Some(8080)),
            (name("http"), "UDP", None),
            (name("other"), "TCP", None),
        ] {
            assert_eq!(target_port(&pod, &port(target.clone(), protocol)), expected, "{target:?} {protocol}");
        }
    }

    #[test]
    fn only_selectors_select() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        assert!(selects(&service(serde_json::json!({"selector": {"a": "b"}})), &labels));
        assert!(!selects(&service(serde_json::json!({"selector": {"a": "c"}})), &labels));
        assert!(!selects(&service(serde_json::json!({})), &labels));
    }
}
