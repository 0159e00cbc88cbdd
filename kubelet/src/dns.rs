//! Resolver settings and host names of pods. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pintle_cri::messages::DNSConfig;

use crate::pods::spec;

/// Most name servers that a resolver uses.
const MAX_SERVERS: usize = 3;
/// Most search domains.
const MAX_SEARCHES: usize = 32;
/// Longest list of search domains in characters.
const MAX_SEARCH_CHARS: usize = 2048;

/// What the node knows about DNS.
#[derive(Clone, Debug, Default)]
pub struct NodeDns {
    /// The cluster's DNS.
    pub servers: Vec<IpAddr>,
    /// The cluster's domain.
    pub domain: String,
    /// Text of the node's own resolver configuration.
    pub resolv_conf: String,
}

/// Reads a resolver configuration.
pub fn parse(text: &str) -> DNSConfig {
    let mut dns = DNSConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            // The last line counts; a lone dot is the root and adds nothing.
            Some("search") => {
                dns.searches = words.filter(|w| *w != ".").map(|w| w.trim_end_matches('.').to_owned()).collect()
            }
            Some("options") => dns.options = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    dns
}

/// The resolver settings of a pod.
pub fn for_pod(pod: &Pod, node: &NodeDns) -> DNSConfig {
    let s = spec::spec(pod);
    let host = parse(&node.resolv_conf);
    let policy = match s.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "ClusterFirst" if spec::host_network(pod) => "Default",
        "ClusterFirst" | "ClusterFirstWithHostNet" if node.servers.is_empty() => "Default",
        other => other,
    };
    let mut dns = match policy {
        "None" => DNSConfig::default(),
        "Default" => host,
        _ => cluster_first(spec::namespace(pod), node, host),
    };
    if let Some(own) = &s.dns_config {
        merge_own(&mut dns, own);
    }
    dns.servers.truncate(MAX_SERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    while dns.searches.iter().map(|s| s.len() + 1).sum::<usize>() > MAX_SEARCH_CHARS + 1 {
        dns.searches.pop();
    }
    dns
}

fn cluster_first(namespace: &str, node: &NodeDns, host: DNSConfig) -> DNSConfig {
    let domain = &node.domain;
    let mut searches = match domain.as_str() {
        "" => Vec::new(),
        _ => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()],
    };
    for search in host.searches {
        if !searches.contains(&search) {
            searches.push(search);
        }
    }
    DNSConfig {
        servers: node.servers.iter().map(IpAddr::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn merge_own(dns: &mut DNSConfig, own: &k8s_openapi::api::core::v1::PodDNSConfig) {
    let add = |to: &mut Vec<String>, more: &Option<Vec<String>>| {
        for item in more.iter().flatten() {
            if !to.contains(item) {
                to.push(item.clone());
            }
        }
    };
    add(&mut dns.servers, &own.nameservers);
    add(&mut dns.searches, &own.searches);
    for option in own.options.iter().flatten() {
        let name = option.name.clone().unwrap_or_default();
        let text = match &option.value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        };
        dns.options.retain(|o| o.split(':').next() != Some(&name));
        dns.options.push(text);
    }
}

/// The text of a resolver configuration.
pub fn render(dns: &DNSConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

/// Host name and domain of a pod; the domain is empty if it has no subdomain.
pub fn hostname(pod: &Pod, domain: &str) -> (String, String) {
    let s = spec::spec(pod);
    if let Some(name) = s.hostname_override.as_deref().filter(|n| !n.is_empty()) {
        return (name.to_owned(), String::new());
    }
    let own = s.hostname.as_deref().filter(|h| !h.is_empty());
    let mut host = own.unwrap_or_else(|| spec::name(pod)).to_owned();
    if own.is_none() && host.len() > 63 {
        host.truncate(63);
        host.truncate(host.trim_end_matches(['-', '.']).len());
    }
    let sub = s.subdomain.as_deref().filter(|d| !d.is_empty());
    let full = sub.map(|sub| format!("{sub}.{}.svc.{domain}", spec::namespace(pod))).unwrap_or_default();
    if s.set_hostname_as_fqdn == Some(true) && !full.is_empty() {
        host = format!("{host}.{full}");
    }
    (host, full)
}

/// The hosts file of a pod on its own network.
pub fn hosts_file(pod: &Pod, ips: &[String], hostname: &str, domain: &str) -> String {
    let mut text = String::from("# Kubernetes-managed hosts file.\n");
    const FIXED: [(&str, &str); 6] = [
        ("127.0.0.1", "localhost"),
        ("::1", "localhost ip6-localhost ip6-loopback"),
        ("fe00::0", "ip6-localnet"),
        ("fe00::0", "ip6-mcastprefix"),
        ("fe00::1", "ip6-allnodes"),
        ("fe00::2", "ip6-allrouters"),
    ];
    for (ip, names) in FIXED {
        text.push_str(&format!("{ip}\t{names}\n"));
    }
    for ip in ips {
        match domain {
            "" => text.push_str(&format!("{ip}\t{hostname}\n")),
            _ => text.push_str(&format!("{ip}\t{hostname}.{domain}\t{hostname}\n")),
        }
    }
    text + &aliases(pod)
}

/// The hosts file of a pod on the node's network: the node's own and the aliases.
pub fn hosts_file_of_node(pod: &Pod, node_hosts: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node_hosts}") + &aliases(pod)
}

fn aliases(pod: &Pod) -> String {
    let list = spec::spec(pod).host_aliases.as_deref().unwrap_or_default();
    if list.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in list {
        text.push_str(&format!(
            "{}\t{}\n",
            alias.ip,
            alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join("\t")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})).unwrap()
    }

    #[test]
    fn resolver_settings_by_policy() {
        let node = NodeDns {
            servers: vec!["10.96.0.10".parse().unwrap()],
            domain: "cluster.local".to_owned(),
            resolv_conf: "# c\nnameserver 192.0.2.1\nsearch example.org.\noptions rotate\n".to_owned(),
        };
        let cluster = "search n.svc.cluster.local svc.cluster.local cluster.local example.org\n\
                       nameserver 10.96.0.10\noptions ndots:5\n";
        let host = "search example.org\nnameserver 192.0.2.1\noptions rotate\n";
        let own = json!({"nameservers": ["1.1.1.1"], "searches": ["a.b"], "options": [{"name": "ndots", "value": "2"}, {"name": "x"}]});
        let cases = [
            (json!({"containers": []}), cluster),
            (json!({"containers": [], "dnsPolicy": "Default"}), host),
            (json!({"containers": [], "hostNetwork": true}), host),
            (json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), cluster),
            (
                json!({"containers": [], "dnsPolicy": "None", "dnsConfig": own}),
                "search a.b\nnameserver 1.1.1.1\noptions ndots:2 x\n",
            ),
            (
                json!({"containers": [], "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}),
                "search n.svc.cluster.local svc.cluster.local cluster.local example.org\nnameserver 10.96.0.10\noptions ndots:1\n",
            ),
        ];
        for (spec, want) in cases {
            assert_eq!(render(&for_pod(&pod(spec.clone()), &node)), want, "{spec}");
        }
    }

    #[test]
    fn names_and_hosts() {
        let p = pod(json!({"containers": [], "hostname": "h", "subdomain": "s",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}));
        let (host, domain) = hostname(&p, "cluster.local");
        assert_eq!((host.as_str(), domain.as_str()), ("h", "s.n.svc.cluster.local"));
        let text = hosts_file(&p, &["10.0.0.1".to_owned()], &host, &domain);
        assert!(text.contains("\n10.0.0.1\th.s.n.svc.cluster.local\th\n"), "{text}");
        assert!(text.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"), "{text}");
    }
}
