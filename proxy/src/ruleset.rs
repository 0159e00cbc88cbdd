//! The contents of one nftables table as a value, and what a set of portals makes of it. Pure.
//!
//! Fixed base chains look a packet's destination up in maps; a map's verdict leads to the service's own chain, which picks an
//! endpoint by random number. So a packet costs one lookup however many services there are, and a changed service touches
//! its own chains and map elements only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use crate::model::Portal;

/// What rules depend on beside services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// True for IPv6.
    pub v6: bool,
    /// Addresses of all pods, where known: traffic to a service from elsewhere is masqueraded.
    pub cluster_cidr: Option<IpNet>,
    /// Pods of this node; their traffic that leaves the cluster is masqueraded.
    pub masquerade_pods: Option<IpNet>,
    /// Destinations that pods reach with their own address, beside the cluster's.
    pub no_masquerade: Vec<IpNet>,
    /// Masquerade all service traffic.
    pub masquerade_all: bool,
    /// Node ports answer on loopback addresses too.
    pub localhost_node_ports: bool,
    /// Node ports answer on these addresses only; empty for all addresses of the node.
    pub node_port_addresses: Vec<IpNet>,
    /// The bit of the packet mark that says "masquerade".
    pub mark: u32,
}

/// The contents of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Base chains: declaration and rules. They stay the same as long as the settings do.
    pub base: BTreeMap<String, (String, Vec<String>)>,
    /// Maps and sets that stay: declaration.
    pub fixed: BTreeMap<&'static str, (Kind, String)>,
    /// Chains of services.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Sets of services: declaration.
    pub sets: BTreeMap<String, String>,
    /// Elements of the fixed sets and maps: (set, key) → value.
    pub elements: BTreeMap<(&'static str, String), String>,
}

/// A set or a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A set.
    Set,
    /// A map.
    Map,
}

/// Service addresses: `ip . protocol . port`.
pub const SERVICES: &str = "services";
/// Node ports: `protocol . port`.
pub const NODE_PORTS: &str = "node-ports";
/// Service addresses without a usable endpoint.
pub const DEAD_SERVICES: &str = "dead-services";
/// Node ports without a usable endpoint.
pub const DEAD_NODE_PORTS: &str = "dead-node-ports";
/// All cluster IPs.
pub const CLUSTER_IPS: &str = "cluster-ips";
/// Pairs (pod, same pod).
pub const HAIRPIN: &str = "hairpin";

/// The table's contents for these portals.
pub fn build(portals: &[Portal], settings: &Settings) -> Ruleset {
    let mut out = Ruleset { base: base_chains(settings), fixed: fixed_sets(settings.v6), ..Ruleset::default() };
    for portal in portals {
        Builder { portal, settings, out: &mut out }.add();
    }
    out
}

fn family(v6: bool) -> (&'static str, &'static str) {
    if v6 { ("ip6", "ipv6_addr") } else { ("ip", "ipv4_addr") }
}

fn fixed_sets(v6: bool) -> BTreeMap<&'static str, (Kind, String)> {
    let (_, addr) = family(v6);
    let portal = format!("type {addr} . inet_proto . inet_service : verdict");
    let node_port = "type inet_proto . inet_service : verdict".to_owned();
    BTreeMap::from([
        (SERVICES, (Kind::Map, portal.clone())),
        (DEAD_SERVICES, (Kind::Map, portal)),
        (NODE_PORTS, (Kind::Map, node_port.clone())),
        (DEAD_NODE_PORTS, (Kind::Map, node_port)),
        (CLUSTER_IPS, (Kind::Set, format!("type {addr}"))),
        (HAIRPIN, (Kind::Set, format!("type {addr} . {addr}"))),
    ])
}

fn join(nets: &[IpNet]) -> String {
    nets.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ")
}

fn base_chains(s: &Settings) -> BTreeMap<String, (String, Vec<String>)> {
    let (ip, _) = family(s.v6);
    let portal = format!("{ip} daddr . meta l4proto . th dport vmap");
    let loopback = if s.v6 { "::1" } else { "127.0.0.0/8" };
    let mut here = "fib daddr type local".to_owned();
    if !s.node_port_addresses.is_empty() {
        let _ = write!(here, " {ip} daddr {{ {} }}", join(&s.node_port_addresses));
    }
    if !s.localhost_node_ports || s.v6 {
        let _ = write!(here, " {ip} daddr != {loopback}");
    }
    let node_port = format!("{here} meta l4proto . th dport vmap");
    let dead_service = format!("ct state new {portal} @{DEAD_SERVICES}");
    let nat = |hook: &str, priority: &str| format!("type nat hook {hook} priority {priority} ; policy accept ;");
    // Before routing, so that it works on a node without a route to the service range; after translation, so that a cluster
    // IP which is still there has no such port.
    let filter = |hook: &str, priority: &str| format!("type filter hook {hook} priority {priority} ; policy accept ;");
    let dead_node_port = format!("ct state new {node_port} @{DEAD_NODE_PORTS}");
    let refusals = vec![dead_node_port, dead_service, format!("{ip} daddr @{CLUSTER_IPS} reject")];
    let mut masquerade = vec![
        format!("meta mark & {0:#x} == {0:#x} meta mark set meta mark ^ {0:#x} masquerade fully-random", s.mark),
        format!("ct status dnat {ip} saddr . {ip} daddr @{HAIRPIN} masquerade fully-random"),
    ];
    if let Some(pods) = &s.masquerade_pods {
        let multicast: IpNet = if s.v6 { "ff00::/8" } else { "224.0.0.0/4" }.parse().unwrap_or(*pods);
        let near = [multicast].into_iter().chain(s.cluster_cidr.or(Some(*pods))).chain(s.no_masquerade.iter().copied());
        let near: Vec<IpNet> = IpNet::aggregate(&near.filter(|n| matches!(n, IpNet::V6(_)) == s.v6).collect());
        masquerade.push(format!("{ip} saddr {pods} {ip} daddr != {{ {} }} masquerade fully-random", join(&near)));
    }
    let chains = [
        ("mark-masquerade", String::new(), vec![format!("meta mark set meta mark | {:#x}", s.mark)]),
        ("refuse", String::new(), vec!["reject".to_owned()]),
        ("discard", String::new(), vec!["drop".to_owned()]),
        ("services", String::new(), vec![format!("{portal} @{SERVICES}"), format!("{node_port} @{NODE_PORTS}")]),
        ("prerouting", nat("prerouting", "dstnat"), vec!["jump services".to_owned()]),
        ("output", nat("output", "-100"), vec!["jump services".to_owned()]),
        ("postrouting", nat("postrouting", "srcnat"), masquerade),
        ("filter-prerouting", filter("prerouting", "-90"), refusals.clone()),
        ("filter-output", filter("output", "filter"), refusals),
    ];
    chains.into_iter().map(|(name, declaration, rules)| (name.to_owned(), (declaration, rules))).collect()
}

struct Builder<'a> {
    portal: &'a Portal,
    settings: &'a Settings,
    out: &'a mut Ruleset,
}

impl Builder<'_> {
    fn add(&mut self) {
        let portal = self.portal;
        self.element(CLUSTER_IPS, portal.cluster_ip.to_string(), String::new());
        for ip in &portal.backends.hairpin {
            self.element(HAIRPIN, format!("{ip} . {ip}"), String::new());
        }
        self.cluster_ip();
        let outside = portal.node_port.is_some() || !portal.external_ips.is_empty() || !portal.balancer_ips.is_empty();
        if outside {
            self.outside();
        }
    }

    fn element(&mut self, set: &'static str, key: String, value: String) {
        self.out.elements.entry((set, key)).or_insert(value);
    }

    /// What becomes of packets for which there is no endpoint.
    fn dead_verdict(&self) -> String {
        // Endpoints elsewhere are only out of reach by policy; saying "refused" would be wrong.
        if self.portal.backends.cluster.is_empty() { "goto refuse" } else { "goto discard" }.to_owned()
    }

    fn key(&self, ip: IpAddr) -> String {
        format!("{ip} . {} . {}", self.portal.protocol, self.portal.port)
    }

    fn cluster_ip(&mut self) {
        let key = self.key(self.portal.cluster_ip);
        if self.portal.internal().is_empty() {
            let verdict = self.dead_verdict();
            return self.element(DEAD_SERVICES, key, verdict);
        }
        let (ip, _) = family(self.settings.v6);
        let mut rules = Vec::new();
        if self.settings.masquerade_all {
            rules.push("jump mark-masquerade".to_owned());
        } else if let Some(cidr) = &self.settings.cluster_cidr {
            rules.push(format!("{ip} saddr != {cidr} jump mark-masquerade"));
        }
        rules.extend(self.balance(self.portal.internal()));
        let chain = self.chain("internal");
        self.out.chains.insert(chain.clone(), rules);
        self.element(SERVICES, key, format!("goto {chain}"));
    }

    fn outside(&mut self) {
        let portal = self.portal;
        let (services, node_ports, open, guarded) = if portal.external().is_empty() {
            let verdict = self.dead_verdict();
            (DEAD_SERVICES, DEAD_NODE_PORTS, verdict.clone(), verdict)
        } else {
            let open = format!("goto {}", self.external_chain());
            let guarded = self.firewall_chain().map_or(open.clone(), |chain| format!("goto {chain}"));
            (SERVICES, NODE_PORTS, open, guarded)
        };
        if let Some(port) = portal.node_port {
            self.element(node_ports, format!("{} . {port}", portal.protocol), open.clone());
        }
        for ip in &portal.external_ips {
            self.element(services, self.key(*ip), open.clone());
        }
        for ip in &portal.balancer_ips {
            self.element(services, self.key(*ip), guarded.clone());
        }
    }

    fn external_chain(&mut self) -> String {
        let (ip, _) = family(self.settings.v6);
        let mut rules = Vec::new();
        if self.portal.external_local {
            // Pods and the node itself reach endpoints anywhere, as by the cluster IP.
            let cluster = self.chain("cluster");
            let everywhere = self.balance(&self.portal.backends.cluster);
            self.out.chains.insert(cluster.clone(), everywhere);
            if let Some(cidr) = &self.settings.cluster_cidr {
                rules.push(format!("{ip} saddr {cidr} goto {cluster}"));
            }
            rules.push("fib saddr type local jump mark-masquerade".to_owned());
            rules.push(format!("fib saddr type local goto {cluster}"));
        } else {
            rules.push("jump mark-masquerade".to_owned());
        }
        rules.extend(self.balance(self.portal.external()));
        let chain = self.chain("external");
        self.out.chains.insert(chain.clone(), rules);
        chain
    }

    fn firewall_chain(&mut self) -> Option<String> {
        if self.portal.source_ranges.is_empty() || self.portal.balancer_ips.is_empty() {
            return None;
        }
        let (ip, _) = family(self.settings.v6);
        let ranges = join(&IpNet::aggregate(&self.portal.source_ranges));
        let rules = vec![format!("{ip} saddr != {{ {ranges} }} drop"), format!("goto {}", self.chain("external"))];
        let chain = self.chain("firewall");
        self.out.chains.insert(chain.clone(), rules);
        Some(chain)
    }

    /// Rules that send a connection to one of the endpoints.
    fn balance(&mut self, endpoints: &[SocketAddr]) -> Vec<String> {
        let (ip, _) = family(self.settings.v6);
        let protocol = format!("meta l4proto {}", self.portal.protocol);
        let Some(timeout) = self.portal.affinity else {
            return match endpoints {
                [one] => vec![format!("{protocol} dnat to {one}")],
                many => {
                    let cases = numbered(many.iter().map(|a| format!("{} . {}", a.ip(), a.port())));
                    vec![format!("{protocol} dnat {ip} to numgen random mod {} map {{ {cases} }}", many.len())]
                }
            };
        };
        // A client that was here before goes where it went; each endpoint remembers its own clients.
        let chains: Vec<String> = endpoints.iter().map(|at| self.endpoint_chain(*at, timeout)).collect();
        let mut rules: Vec<String> = chains.iter().map(|c| format!("{ip} saddr @{c} goto {c}")).collect();
        let cases = numbered(chains.iter().map(|c| format!("goto {c}")));
        rules.push(format!("numgen random mod {} vmap {{ {cases} }}", chains.len()));
        rules
    }

    fn endpoint_chain(&mut self, at: SocketAddr, timeout: u32) -> String {
        let (ip, addr) = family(self.settings.v6);
        // A set's timeout can't be changed, so that it is part of the name.
        let name = self.name("endpoint", &format!("{at} {timeout}"));
        let declaration = format!("type {addr} ; flags dynamic,timeout ; timeout {timeout}s ;");
        self.out.sets.insert(name.clone(), declaration);
        let rules = vec![
            format!("update @{name} {{ {ip} saddr }}"),
            format!("meta l4proto {} dnat to {at}", self.portal.protocol),
        ];
        self.out.chains.insert(name.clone(), rules);
        name
    }

    fn chain(&self, role: &str) -> String {
        self.name(role, "")
    }

    /// A name that says what it is, and is unique by its hash however long the parts are.
    fn name(&self, role: &str, extra: &str) -> String {
        let portal = self.portal;
        let (namespace, name) = &portal.service;
        let text = format!("{namespace}/{name}/{}/{}", portal.protocol, portal.port_name);
        let hash = hex(&Sha256::digest(format!("{text}|{extra}"))[..5]);
        let mut out = format!("{role}-{hash}-{}", text.trim_end_matches('/'));
        out.truncate(100);
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn numbered(cases: impl Iterator<Item = String>) -> String {
    cases.enumerate().map(|(n, case)| format!("{n} : {case}")).collect::<Vec<_>>().join(", ")
}
