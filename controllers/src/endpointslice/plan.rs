//! The endpoints behind a Service.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

use crate::slices::{Group, sort_ports};
use crate::{meta, pods, services};

/// Finds a node by name.
pub type Nodes<'a> = &'a dyn Fn(&str) -> Option<Arc<Node>>;

/// Groups for every address type that the Service has.
pub fn groups(service: &Service, pods: &[Arc<Pod>], nodes: Nodes<'_>) -> Vec<Group> {
    let types = address_types(service);
    types.into_iter().flat_map(|address_type| of_type(service, pods, nodes, address_type)).collect()
}

fn address_types(service: &Service) -> Vec<&'static str> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let families: Vec<_> =
        spec.ip_families.iter().flatten().map(|f| if f == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    if !families.is_empty() {
        return families;
    }
    let is_v6 = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_ipv6());
    vec![if is_v6 { "IPv6" } else { "IPv4" }]
}

fn of_type(service: &Service, pods: &[Arc<Pod>], nodes: Nodes<'_>, address_type: &'static str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|p| !pods::is_finished(p)) {
        let Some(endpoint) = endpoint(service, pod, nodes, address_type) else { continue };
        let ports = endpoint_ports(service, pod);
        let key = format!("{ports:?}");
        let at = *index.entry(key).or_insert_with(|| {
            groups.push(Group { address_type, ports, endpoints: Vec::new() });
            groups.len() - 1
        });
        groups[at].endpoints.push(endpoint);
    }
    if groups.is_empty() {
        groups.push(Group { address_type, ports: Vec::new(), endpoints: Vec::new() });
    }
    groups
}

fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let one = |port: &k8s_openapi::api::core::v1::ServicePort| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(services::target_port(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut ports: Vec<EndpointPort> = services::ports(service).iter().filter_map(one).collect();
    sort_ports(&mut ports);
    ports
}

fn endpoint(service: &Service, pod: &Pod, nodes: Nodes<'_>, address_type: &str) -> Option<Endpoint> {
    let wanted = |ip: &IpAddr| ip.is_ipv6() == (address_type == "IPv6");
    let address = services::addresses(pod).into_iter().find(wanted)?;
    let publish = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses).unwrap_or(false);
    let (serving, terminating) = (pods::is_ready(pod), meta::is_deleting(&pod.metadata));
    let node = Some(pods::node_name(pod).to_owned()).filter(|n| !n.is_empty());
    let zone = node
        .as_deref()
        .and_then(nodes)
        .and_then(|n| meta::labels(&n.metadata).get("topology.kubernetes.io/zone").cloned());
    Some(Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(publish || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: services::hostname(pod, service),
        node_name: node,
        zone,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// The Service's labels as its slices inherit them.
pub fn labels(service: &Service) -> BTreeMap<String, String> {
    let own = [services::HEADLESS, crate::slices::SERVICE_NAME, crate::slices::MANAGED_BY];
    let inherited = meta::labels(&service.metadata).iter().filter(|(k, _)| !own.contains(&k.as_str()));
    let mut labels: BTreeMap<String, String> = inherited.map(|(k, v)| (k.clone(), v.clone())).collect();
    if service.spec.as_ref().is_some_and(services::is_headless) {
        labels.insert(services::HEADLESS.to_owned(), String::new());
    }
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::testing::{backend, service};

    fn only(service: &Service, pods: Vec<Pod>) -> Group {
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        let mut groups = groups(service, &pods, &|_| None);
        assert_eq!(groups.len(), 1);
        groups.remove(0)
    }

    #[test]
    fn conditions() {
        let s = service(json!({"ports": [{"port": 80, "targetPort": "http"}]}));
        let open = service(json!({"publishNotReadyAddresses": true, "ports": [{"port": 80, "targetPort": "http"}]}));
        let ready = backend("a", "10.0.0.1", 8080);
        let mut unready = backend("b", "10.0.0.2", 8080);
        unready.status.as_mut().unwrap().conditions = None;
        let mut going = backend("c", "10.0.0.3", 8080);
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        going.metadata.deletion_timestamp = Some(now);
        for (name, s, pod, expected) in [
            ("ready", &s, &ready, (true, true, false)),
            ("unready", &s, &unready, (false, false, false)),
            ("going", &s, &going, (false, true, true)),
            ("published", &open, &unready, (true, false, false)),
            ("published going", &open, &going, (true, true, true)),
        ] {
            let c = only(s, vec![pod.clone()]).endpoints[0].conditions.clone().unwrap();
            assert_eq!((c.ready.unwrap(), c.serving.unwrap(), c.terminating.unwrap()), expected, "{name}");
        }
    }

    #[test]
    fn named_ports_split_groups() {
        let s = service(json!({"ports": [{"port": 80, "targetPort": "http"}]}));
        let pods = [backend("a", "10.0.0.1", 8080), backend("b", "10.0.0.2", 9090), backend("c", "10.0.0.3", 8080)];
        let groups = groups(&s, &pods.map(Arc::new), &|_| None);
        let view: Vec<_> = groups.iter().map(|g| (g.ports[0].port.unwrap(), g.endpoints.len())).collect();
        assert_eq!(view, [(8080, 2), (9090, 1)]);
    }

    #[test]
    fn families_and_finished_pods() {
        let both = service(json!({"ipFamilies": ["IPv4", "IPv6"], "ports": [{"port": 80}]}));
        let mut dual = backend("a", "10.0.0.1", 80);
        dual.status
            .as_mut()
            .unwrap()
            .pod_ips
            .as_mut()
            .unwrap()
            .push(k8s_openapi::api::core::v1::PodIP { ip: "fd00::1".into() });
        let groups = groups(&both, &[Arc::new(dual)], &|_| None);
        let view: Vec<_> = groups.iter().map(|g| (g.address_type, g.endpoints[0].addresses[0].as_str())).collect();
        assert_eq!(view, [("IPv4", "10.0.0.1"), ("IPv6", "fd00::1")]);
        let mut done = backend("b", "10.0.0.2", 80);
        done.status.as_mut().unwrap().phase = Some("Succeeded".into());
        assert!(only(&service(json!({"ports": [{"port": 80}]})), vec![done]).endpoints.is_empty());
    }
}
