//! What a Service and its EndpointSlices mean for one node: which addresses lead to which endpoints. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// The label by which a slice names its service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The node that rules are made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// The node's zone, where known.
    pub zone: Option<String>,
}

/// Where traffic for one kind of client may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// Endpoints anywhere.
    pub cluster: Vec<SocketAddr>,
    /// Endpoints on this node.
    pub local: Vec<SocketAddr>,
    /// All endpoints on this node that a pod could reach itself by.
    pub hairpin: Vec<IpAddr>,
}

/// One port of a service in one IP family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Namespace and name of the service.
    pub service: (String, String),
    /// The port's name, often empty.
    pub port_name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// The service port.
    pub port: u16,
    /// The port on every node.
    pub node_port: Option<u16>,
    /// The cluster IP.
    pub cluster_ip: IpAddr,
    /// External IPs.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of the load balancer.
    pub balancer_ips: Vec<IpAddr>,
    /// Who may use the load balancer's addresses; empty for all.
    pub source_ranges: Vec<IpNet>,
    /// Client affinity in seconds.
    pub affinity: Option<u32>,
    /// Traffic from inside stays on the node.
    pub internal_local: bool,
    /// Traffic from outside stays on the node.
    pub external_local: bool,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_port: Option<u16>,
    /// The endpoints.
    pub backends: Backends,
}

impl Portal {
    /// Endpoints for clients inside the cluster.
    pub fn internal(&self) -> &[SocketAddr] {
        if self.internal_local { &self.backends.local } else { &self.backends.cluster }
    }

    /// Endpoints for clients outside the cluster.
    pub fn external(&self) -> &[SocketAddr] {
        if self.external_local { &self.backends.local } else { &self.backends.cluster }
    }
}

/// The portals of a service in the family of IPv4 or IPv6.
pub fn portals<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    place: &Place,
    v6: bool,
) -> Vec<Portal> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let labels = service.metadata.labels.as_ref();
    if spec.type_.as_deref() == Some("ExternalName") || labels.is_some_and(|l| l.contains_key(OTHER_PROXY)) {
        return Vec::new();
    }
    let Some(cluster_ip) = cluster_ip(service, v6) else { return Vec::new() };
    let slices: Vec<&EndpointSlice> = slices.into_iter().filter(|s| serves(s, v6)).collect();
    let own = |list: Vec<IpAddr>| -> Vec<IpAddr> { list.into_iter().filter(|ip| ip.is_ipv6() == v6).collect() };
    let external_ips = own(spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect());
    let balancer_ips = own(balancer_ips(service));
    let ranges = spec.load_balancer_source_ranges.iter().flatten().filter_map(|r| r.trim().parse::<IpNet>().ok());
    let source_ranges: Vec<IpNet> = ranges.filter(|r| matches!(r, IpNet::V6(_)) == v6).collect();
    let sticky = spec.session_affinity.as_deref() == Some("ClientIP");
    let timeout =
        spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref()).and_then(|c| c.timeout_seconds);
    let reachable = matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
    spec.ports
        .iter()
        .flatten()
        .filter_map(|port| {
            Some(Portal {
                service: (service.metadata.namespace.clone()?, service.metadata.name.clone()?),
                port_name: port.name.clone().unwrap_or_default(),
                protocol: protocol(port)?,
                port: u16::try_from(port.port).ok()?,
                node_port: port.node_port.filter(|p| reachable && *p > 0).and_then(|p| u16::try_from(p).ok()),
                cluster_ip,
                external_ips: external_ips.clone(),
                balancer_ips: balancer_ips.clone(),
                source_ranges: source_ranges.clone(),
                affinity: sticky.then(|| timeout.and_then(|t| u32::try_from(t).ok()).unwrap_or(10800)),
                internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
                external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
                health_check_port: spec.health_check_node_port.filter(|p| *p > 0).and_then(|p| u16::try_from(p).ok()),
                backends: backends(&slices, port, place),
            })
        })
        .collect()
}

fn protocol(port: &ServicePort) -> Option<String> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
    matches!(protocol.as_str(), "tcp" | "udp" | "sctp").then_some(protocol)
}

fn cluster_ip(service: &Service, v6: bool) -> Option<IpAddr> {
    let spec = service.spec.as_ref()?;
    let single = spec.cluster_ip.iter();
    let all = spec.cluster_ips.iter().flatten().chain(single).filter_map(|ip| ip.parse::<IpAddr>().ok());
    all.into_iter().find(|ip| ip.is_ipv6() == v6)
}

fn balancer_ips(service: &Service) -> Vec<IpAddr> {
    if service.spec.as_ref().and_then(|s| s.type_.as_deref()) != Some("LoadBalancer") {
        return Vec::new();
    }
    let ingress = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()).and_then(|b| b.ingress.as_ref());
    let direct = ingress.into_iter().flatten().filter(|i| i.ip_mode.as_deref() != Some("Proxy"));
    direct.filter_map(|i| i.ip.as_ref()?.parse().ok()).collect()
}

fn serves(slice: &EndpointSlice, v6: bool) -> bool {
    let labels = slice.metadata.labels.as_ref();
    let foreign = labels.is_some_and(|l| l.contains_key(OTHER_PROXY) || l.contains_key(HEADLESS));
    slice.address_type == if v6 { "IPv6" } else { "IPv4" } && !foreign
}

struct Candidate {
    ready: bool,
    draining: bool,
    local: bool,
    near: Option<bool>,
}

fn backends(slices: &[&EndpointSlice], port: &ServicePort, place: &Place) -> Backends {
    let mut found: BTreeMap<SocketAddr, Candidate> = BTreeMap::new();
    for slice in slices {
        let wanted = |name: &Option<String>| name.as_deref().unwrap_or("") == port.name.as_deref().unwrap_or("");
        let own = slice.ports.iter().flatten().find(|p| wanted(&p.name));
        let Some(number) = own.and_then(|p| p.port).and_then(|p| u16::try_from(p).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(ip) = endpoint.addresses.first().and_then(|a| a.parse().ok()) else { continue };
            let candidate = candidate(endpoint, place);
            found.entry(SocketAddr::new(ip, number)).and_modify(|c| c.ready |= candidate.ready).or_insert(candidate);
        }
    }
    let usable = |pick: &dyn Fn(&Candidate) -> bool| -> Vec<SocketAddr> {
        found.iter().filter(|(_, c)| pick(c)).map(|(at, _)| *at).collect()
    };
    // Endpoints that are going away but still serve are the fallback when none is ready.
    let or_draining = |ready: Vec<SocketAddr>, draining: &dyn Fn(&Candidate) -> bool| {
        if ready.is_empty() { usable(draining) } else { ready }
    };
    let hinted = found.values().filter(|c| c.ready).all(|c| c.near.is_some());
    let near = usable(&|c| c.ready && hinted && c.near == Some(true));
    let ready = if near.is_empty() { usable(&|c| c.ready) } else { near };
    let local = or_draining(usable(&|c| c.ready && c.local), &|c| c.draining && c.local);
    let hairpin = found.iter().filter(|(_, c)| c.local).map(|(at, _)| at.ip()).collect();
    Backends { cluster: or_draining(ready, &|c| c.draining), local, hairpin }
}

fn candidate(endpoint: &Endpoint, place: &Place) -> Candidate {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
    let serving = conditions.and_then(|c| c.serving).unwrap_or(ready);
    let terminating = conditions.and_then(|c| c.terminating).unwrap_or(false);
    let hints = endpoint.hints.as_ref();
    let nodes = hints.and_then(|h| h.for_nodes.as_ref()).filter(|n| !n.is_empty());
    let zones = hints.and_then(|h| h.for_zones.as_ref()).filter(|z| !z.is_empty());
    let by_node = nodes.map(|n| n.iter().any(|n| n.name == place.node));
    let by_zone = zones.and_then(|z| place.zone.as_ref().map(|own| z.iter().any(|z| z.name == *own)));
    Candidate {
        ready,
        draining: serving && terminating,
        local: endpoint.node_name.as_deref() == Some(place.node.as_str()),
        near: by_node.or(by_zone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slice(endpoints: Value) -> EndpointSlice {
        serde_json::from_value(json!({"metadata": {"name": "s"}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints}))
        .expect("a slice")
    }

    fn service(spec: Value) -> Service {
        let mut all = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}]});
        for (k, v) in spec.as_object().into_iter().flatten() {
            all[k] = v.clone();
        }
        serde_json::from_value(json!({"metadata": {"namespace": "d", "name": "web"}, "spec": all})).expect("a service")
    }

    fn addresses(list: &[SocketAddr]) -> String {
        list.iter()
            .map(|a| a.ip().to_string().rsplit('.').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn endpoints_by_condition() {
        let place = Place { node: "n1".into(), zone: Some("z1".into()) };
        let ep = |n: u8, node: &str, conditions: Value| json!({"addresses": [format!("10.0.0.{n}")], "nodeName": node, "conditions": conditions});
        let draining = json!({"ready": false, "serving": true, "terminating": true});
        let hinted = |n: u8, zone: &str| json!({"addresses": [format!("10.0.0.{n}")], "nodeName": "x", "hints": {"forZones": [{"name": zone}]}});
        for (name, endpoints, cluster, local) in [
            ("ready", json!([ep(1, "n1", json!({"ready": true})), ep(2, "n2", json!({}))]), "1 2", "1"),
            ("not ready", json!([ep(1, "n1", json!({"ready": false})), ep(2, "n2", json!({}))]), "2", ""),
            ("draining and ready", json!([ep(1, "n1", draining.clone()), ep(2, "n2", json!({}))]), "2", "1"),
            ("only draining", json!([ep(1, "n1", draining.clone()), ep(2, "n2", draining)]), "1 2", "1"),
            ("hints", json!([hinted(1, "z1"), hinted(2, "z2")]), "1", ""),
            ("hints for others only", json!([hinted(1, "z3"), hinted(2, "z2")]), "1 2", ""),
            ("hints on some", json!([hinted(1, "z1"), ep(2, "x", json!({}))]), "1 2", ""),
        ] {
            let got = portals(&service(json!({})), [&slice(endpoints)], &place, false);
            assert_eq!(addresses(&got[0].backends.cluster), cluster, "{name}");
            assert_eq!(addresses(&got[0].backends.local), local, "{name}");
        }
    }

    #[test]
    fn services_that_are_not_ours() {
        let place = Place::default();
        for (spec, v6, want) in [
            (json!({}), false, 1),
            (json!({}), true, 1),
            (json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}), true, 0),
            (json!({"clusterIP": "None", "clusterIPs": ["None"]}), false, 0),
            (json!({"type": "ExternalName"}), false, 0),
        ] {
            assert_eq!(portals(&service(spec.clone()), [], &place, v6).len(), want, "{spec} {v6}");
        }
    }
}
