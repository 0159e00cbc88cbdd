//! The subsets of a Service's Endpoints.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Pod, Service,
};

use crate::{meta, pods, services};

/// Most addresses that one Endpoints object holds.
const CAPACITY: usize = 1000;
/// Annotation that tells about addresses left out.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Label with the controller that the object belongs to.
pub const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");

/// The Endpoints as they should be, made from those that are there.
pub fn desired(service: &Service, pods: &[Arc<Pod>], present: Option<&Endpoints>) -> Endpoints {
    let mut wanted = present.cloned().unwrap_or_default();
    wanted.metadata.name = service.metadata.name.clone();
    wanted.metadata.namespace = service.metadata.namespace.clone();
    let mut labels = meta::labels(&service.metadata).clone();
    labels.remove(services::HEADLESS);
    if service.spec.as_ref().is_some_and(services::is_headless) {
        labels.insert(services::HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    wanted.metadata.labels = Some(labels);
    let mut subsets = subsets(service, pods);
    let truncated = truncate(&mut subsets);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    if annotations.is_empty() {
        wanted.metadata.annotations = None;
    }
    wanted.subsets = Some(subsets).filter(|s| !s.is_empty());
    wanted
}

/// Ready and other addresses by the set of ports that they share.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let publish = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses).unwrap_or(false);
    let headless = service.spec.as_ref().is_some_and(services::is_headless);
    let mut by_ports: BTreeMap<String, EndpointSubset> = BTreeMap::new();
    for pod in pods {
        let gone = pods::is_finished(pod) || (meta::is_deleting(&pod.metadata) && !publish);
        let Some(address) = address(service, pod).filter(|_| !gone) else { continue };
        let ports = endpoint_ports(service, pod);
        if ports.is_empty() && !(headless && services::ports(service).is_empty()) {
            continue;
        }
        let subset = by_ports.entry(format!("{ports:?}")).or_insert_with(|| EndpointSubset {
            ports: Some(ports).filter(|p| !p.is_empty()),
            ..EndpointSubset::default()
        });
        let ready = publish || pods::is_ready(pod);
        let list = if ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    let mut subsets: Vec<_> = by_ports.into_values().collect();
    for subset in &mut subsets {
        for list in [&mut subset.addresses, &mut subset.not_ready_addresses].into_iter().flatten() {
            list.sort_by_key(|a| (a.ip.parse::<IpAddr>().ok(), a.target_ref.as_ref().and_then(|r| r.uid.clone())));
        }
    }
    subsets
}

fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let one = |port: &k8s_openapi::api::core::v1::ServicePort| {
        Some(EndpointPort {
            name: port.name.clone().filter(|n| !n.is_empty()),
            port: services::target_port(pod, port)?,
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut ports: Vec<EndpointPort> = services::ports(service).iter().filter_map(one).collect();
    ports.sort_by(|a, b| (&a.name, a.port, &a.protocol).cmp(&(&b.name, b.port, &b.protocol)));
    ports
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let family = service.spec.as_ref()?.ip_families.as_ref().and_then(|f| f.first());
    let v6 = match family {
        Some(family) => family == "IPv6",
        None => services::addresses(pod).first()?.is_ipv6(),
    };
    let ip = services::addresses(pod).into_iter().find(|ip| ip.is_ipv6() == v6)?;
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: services::hostname(pod, service),
        node_name: Some(pods::node_name(pod).to_owned()).filter(|n| !n.is_empty()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
    })
}

/// Cuts the addresses down to what one object may hold, ready ones first; true if any had to go.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let mut room = CAPACITY;
    let mut cut = false;
    for ready in [true, false] {
        for subset in subsets.iter_mut() {
            let list = if ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
            for list in list.iter_mut() {
                cut |= list.len() > room;
                list.truncate(room);
                room -= list.len();
            }
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::testing::{backend, service};

    fn view(service: &Service, pods: &[Pod]) -> Vec<(Vec<String>, Vec<String>)> {
        let pods: Vec<_> = pods.iter().cloned().map(Arc::new).collect();
        let ips = |list: &Option<Vec<EndpointAddress>>| list.iter().flatten().map(|a| a.ip.clone()).collect();
        let wanted = desired(service, &pods, None);
        wanted.subsets.iter().flatten().map(|s| (ips(&s.addresses), ips(&s.not_ready_addresses))).collect()
    }

    #[test]
    fn sorted_and_separated() {
        let s = service(json!({"ports": [{"port": 80, "targetPort": "http"}]}));
        let mut unready = backend("c", "10.0.0.3", 8080);
        unready.status.as_mut().unwrap().conditions = None;
        let pods = [backend("a", "10.0.0.10", 8080), backend("b", "10.0.0.9", 8080), unready];
        assert_eq!(view(&s, &pods), [(vec!["10.0.0.9".into(), "10.0.0.10".into()], vec!["10.0.0.3".into()])]);
        assert!(view(&s, &[]).is_empty());
    }

    #[test]
    fn stable_against_itself() {
        let s = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let pods = [Arc::new(backend("a", "10.0.0.1", 80))];
        let first = desired(&s, &pods, None);
        assert!(first.metadata.labels.as_ref().unwrap().contains_key(services::HEADLESS));
        assert_eq!(desired(&s, &pods, Some(&first)), first);
    }

    #[test]
    fn too_many_addresses() {
        let s = service(json!({"ports": [{"port": 80}]}));
        let pods: Vec<_> = (0..1001)
            .map(|i| Arc::new(backend(&format!("p{i}"), &format!("10.0.{}.{}", i / 250, i % 250), 80)))
            .collect();
        let wanted = desired(&s, &pods, None);
        assert_eq!(wanted.subsets.unwrap()[0].addresses.as_ref().unwrap().len(), CAPACITY);
        assert_eq!(wanted.metadata.annotations.unwrap()[OVER_CAPACITY], "truncated");
    }
}
