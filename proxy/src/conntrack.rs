//! Which tracked UDP flows go nowhere after a change. UDP has no end of connection: a client that keeps its port would be sent to
//! an endpoint that is gone for as long as it talks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::model::Portal;

/// Arguments for `conntrack`, one list a run.
pub type Flush = Vec<String>;

#[derive(Default)]
struct Front {
    endpoints: BTreeSet<SocketAddr>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    Service(IpAddr, u16),
    NodePort(u16, bool),
}

fn fronts(portals: &[Portal]) -> BTreeMap<Address, Front> {
    let mut out: BTreeMap<Address, Front> = BTreeMap::new();
    for portal in portals.iter().filter(|p| p.protocol == "udp") {
        let outside = portal.external_ips.iter().chain(&portal.balancer_ips);
        let mut add = |address: Address, endpoints: &[SocketAddr]| {
            out.entry(address).or_default().endpoints.extend(endpoints);
        };
        add(Address::Service(portal.cluster_ip, portal.port), portal.internal());
        outside.for_each(|ip| add(Address::Service(*ip, portal.port), portal.external()));
        if let Some(port) = portal.node_port {
            add(Address::NodePort(port, portal.cluster_ip.is_ipv6()), portal.external());
        }
    }
    out
}

/// The flows to forget when the portals change.
pub fn stale(old: &[Portal], new: &[Portal]) -> Vec<Flush> {
    let (before, after) = (fronts(old), fronts(new));
    let none = Front::default();
    let mut out = Vec::new();
    for (address, front) in &before {
        let now = after.get(address).unwrap_or(&none);
        for gone in front.endpoints.difference(&now.endpoints) {
            let mut flush = select(address);
            flush.extend(["--dst-nat".to_owned(), gone.ip().to_string()]);
            out.push(flush);
        }
    }
    for (address, front) in &after {
        // Flows that began while nobody answered were never translated, and stay so.
        let served_before = before.get(address).is_some_and(|f| !f.endpoints.is_empty());
        if !front.endpoints.is_empty() && !served_before {
            out.push(select(address));
        }
    }
    out
}

fn select(address: &Address) -> Flush {
    let (v6, rest) = match address {
        Address::Service(ip, port) => {
            (ip.is_ipv6(), vec!["--orig-dst".to_owned(), ip.to_string(), "--dport".to_owned(), port.to_string()])
        }
        Address::NodePort(port, v6) => (*v6, vec!["--dport".to_owned(), port.to_string()]),
    };
    let mut out: Flush = ["-D", "-f", if v6 { "ipv6" } else { "ipv4" }, "-p", "udp"].map(str::to_owned).into();
    out.extend(rest);
    out
}
