//! Renders rule sets as nft scripts. A script is one transaction: it takes effect as a whole or not at all. Pure.

use std::fmt::Write as _;

use crate::ruleset::{Kind, Ruleset};

/// So many elements are put into one command.
const BATCH: usize = 200;

/// The table that a script writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// True for IPv6.
    pub v6: bool,
    /// The table's name.
    pub name: String,
}

impl Table {
    /// Family and name, as nft wants them.
    pub fn path(&self) -> String {
        format!("{} {}", if self.v6 { "ip6" } else { "ip" }, self.name)
    }

    /// Removes the table, whether it is there or not.
    pub fn remove(&self) -> String {
        format!("add table {0}\ndelete table {0}\n", self.path())
    }

    /// Replaces whatever the table has by the rule set.
    pub fn replace(&self, rules: &Ruleset) -> String {
        let t = self.path();
        let mut out = format!("{}add table {t}\n", self.remove());
        for (name, (kind, declaration)) in &rules.fixed {
            line(&mut out, format_args!("add {} {t} {name} {{ {declaration} ; }}", keyword(*kind)));
        }
        for (name, (declaration, _)) in &rules.base {
            let braces = if declaration.is_empty() { String::new() } else { format!(" {{ {declaration} }}") };
            line(&mut out, format_args!("add chain {t} {name}{braces}"));
        }
        let empty = Ruleset { fixed: rules.fixed.clone(), base: rules.base.clone(), ..Ruleset::default() };
        out += &self.change(&empty, rules);
        for (name, (_, list)) in &rules.base {
            list.iter().for_each(|rule| line(&mut out, format_args!("add rule {t} {name} {rule}")));
        }
        out
    }

    /// Turns one rule set into another with the same base; empty if they are the same.
    pub fn change(&self, old: &Ruleset, new: &Ruleset) -> String {
        let t = self.path();
        let mut out = String::new();
        let stale = |key: &(&'static str, String), value: &String| new.elements.get(key) != Some(value);
        self.elements(&mut out, "delete", old.elements.iter().filter(|(k, v)| stale(k, v)), old);
        for (name, declaration) in new.sets.iter().filter(|(n, _)| !old.sets.contains_key(*n)) {
            line(&mut out, format_args!("add set {t} {name} {{ {declaration} }}"));
        }
        let changed: Vec<_> = new.chains.iter().filter(|(n, r)| old.chains.get(*n) != Some(r)).collect();
        for (name, _) in &changed {
            line(&mut out, format_args!("add chain {t} {name}"));
            line(&mut out, format_args!("flush chain {t} {name}"));
        }
        for (name, rules) in &changed {
            rules.iter().for_each(|rule| line(&mut out, format_args!("add rule {t} {name} {rule}")));
        }
        let gone: Vec<&String> = old.chains.keys().filter(|n| !new.chains.contains_key(*n)).collect();
        gone.iter().for_each(|name| line(&mut out, format_args!("flush chain {t} {name}")));
        gone.iter().for_each(|name| line(&mut out, format_args!("delete chain {t} {name}")));
        for name in old.sets.keys().filter(|n| !new.sets.contains_key(*n)) {
            line(&mut out, format_args!("delete set {t} {name}"));
        }
        let fresh = |key: &(&'static str, String), value: &String| old.elements.get(key) != Some(value);
        self.elements(&mut out, "add", new.elements.iter().filter(|(k, v)| fresh(k, v)), new);
        out
    }

    fn elements<'a>(
        &self,
        out: &mut String,
        verb: &str,
        elements: impl Iterator<Item = (&'a (&'static str, String), &'a String)>,
        rules: &Ruleset,
    ) {
        let mut batch: Vec<(&str, String)> = Vec::new();
        for ((set, key), value) in elements {
            if batch.len() >= BATCH || batch.first().is_some_and(|(s, _)| s != set) {
                self.flush_elements(out, verb, &mut batch);
            }
            let is_map = rules.fixed.get(set).is_some_and(|(kind, _)| *kind == Kind::Map);
            batch.push((set, if is_map { format!("{key} : {value}") } else { key.clone() }));
        }
        self.flush_elements(out, verb, &mut batch);
    }

    fn flush_elements(&self, out: &mut String, verb: &str, batch: &mut Vec<(&str, String)>) {
        let Some((set, _)) = batch.first() else { return };
        let list: Vec<&str> = batch.iter().map(|(_, e)| e.as_str()).collect();
        line(out, format_args!("{verb} element {} {set} {{ {} }}", self.path(), list.join(", ")));
        batch.clear();
    }
}

fn keyword(kind: Kind) -> &'static str {
    match kind {
        Kind::Set => "set",
        Kind::Map => "map",
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::model::{Backends, Portal};
    use crate::ruleset::{Settings, build};

    fn settings() -> Settings {
        Settings {
            v6: false,
            cluster_cidr: "10.244.0.0/16".parse().ok(),
            masquerade_pods: "10.244.1.0/24".parse().ok(),
            no_masquerade: Vec::new(),
            masquerade_all: false,
            localhost_node_ports: false,
            node_port_addresses: Vec::new(),
            mark: 0x4000,
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn portal(cluster: &[&str], local: &[&str]) -> Portal {
        let list = |l: &[&str]| l.iter().map(|t| at(t)).collect();
        Portal {
            service: ("d".to_owned(), "web".to_owned()),
            port_name: "http".to_owned(),
            protocol: "tcp".to_owned(),
            port: 80,
            node_port: Some(30080),
            cluster_ip: IpAddr::V4(Ipv4Addr::new(10, 96, 0, 9)),
            external_ips: Vec::new(),
            balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            affinity: None,
            internal_local: false,
            external_local: false,
            health_check_port: None,
            backends: Backends {
                cluster: list(cluster),
                local: list(local),
                hairpin: list(local).iter().map(|a: &SocketAddr| a.ip()).collect(),
            },
        }
    }

    fn table() -> Table {
        Table { v6: false, name: "pintle".to_owned() }
    }

    /// Names without their hashes.
    fn plain(script: &str) -> String {
        let word = |w: &str| {
            let mut parts: Vec<&str> = w.splitn(3, '-').collect();
            if parts.len() == 3 && parts[1].len() == 10 && parts[2].contains('/') {
                parts.remove(1);
            }
            parts.join("-")
        };
        script.lines().map(|l| l.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
    }

    fn step(old: &[Portal], new: &[Portal]) -> String {
        plain(&table().change(&build(old, &settings()), &build(new, &settings())))
    }

    #[test]
    fn a_new_service() {
        let got = step(&[], &[portal(&["10.244.1.2:8080", "10.244.2.2:8080"], &["10.244.1.2:8080"])]);
        let want = "\
add chain ip pintle external-d/web/tcp/http
flush chain ip pintle external-d/web/tcp/http
add chain ip pintle internal-d/web/tcp/http
flush chain ip pintle internal-d/web/tcp/http
add rule ip pintle external-d/web/tcp/http jump mark-masquerade
add rule ip pintle external-d/web/tcp/http meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.2 . 8080, 1 : 10.244.2.2 . 8080 }
add rule ip pintle internal-d/web/tcp/http ip saddr != 10.244.0.0/16 jump mark-masquerade
add rule ip pintle internal-d/web/tcp/http meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.2 . 8080, 1 : 10.244.2.2 . 8080 }
add element ip pintle cluster-ips { 10.96.0.9 }
add element ip pintle hairpin { 10.244.1.2 . 10.244.1.2 }
add element ip pintle node-ports { tcp . 30080 : goto external-d/web/tcp/http }
add element ip pintle services { 10.96.0.9 . tcp . 80 : goto internal-d/web/tcp/http }
";
        assert_eq!(got, want);
        assert_eq!(step(&[portal(&["10.0.0.1:1"], &[])], &[portal(&["10.0.0.1:1"], &[])]), "");
    }

    #[test]
    fn the_last_endpoint_goes() {
        let got = step(&[portal(&["10.244.2.2:8080"], &[])], &[portal(&[], &[])]);
        let want = "\
delete element ip pintle node-ports { tcp . 30080 : goto external-d/web/tcp/http }
delete element ip pintle services { 10.96.0.9 . tcp . 80 : goto internal-d/web/tcp/http }
flush chain ip pintle external-d/web/tcp/http
flush chain ip pintle internal-d/web/tcp/http
delete chain ip pintle external-d/web/tcp/http
delete chain ip pintle internal-d/web/tcp/http
add element ip pintle dead-node-ports { tcp . 30080 : goto refuse }
add element ip pintle dead-services { 10.96.0.9 . tcp . 80 : goto refuse }
";
        assert_eq!(got, want);
    }

    #[test]
    fn policies_and_affinity() {
        let mut local = portal(&["10.244.2.2:80"], &[]);
        local.external_local = true;
        let got = step(&[], &[local.clone()]);
        assert!(got.contains("dead-node-ports { tcp . 30080 : goto discard }"), "{got}");
        local.backends.local = vec![at("10.244.1.2:80")];
        local.balancer_ips = vec!["1.2.3.4".parse().expect("ip")];
        local.source_ranges = vec!["9.0.0.0/8".parse().expect("net")];
        let got = step(&[], &[local]);
        for want in [
            "external-d/web/tcp/http ip saddr 10.244.0.0/16 goto cluster-d/web/tcp/http",
            "external-d/web/tcp/http meta l4proto tcp dnat to 10.244.1.2:80",
            "firewall-d/web/tcp/http ip saddr != { 9.0.0.0/8 } drop",
            "1.2.3.4 . tcp . 80 : goto firewall-d/web/tcp/http",
        ] {
            assert!(got.contains(want), "{want}\n{got}");
        }
        let mut sticky = portal(&["10.244.1.2:80", "10.244.2.2:80"], &[]);
        sticky.affinity = Some(60);
        let got = step(&[], &[sticky.clone()]);
        for want in [
            "add set ip pintle endpoint-d/web/tcp/http { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }",
            "internal-d/web/tcp/http numgen random mod 2 vmap { 0 : goto endpoint-d/web/tcp/http, 1 : goto endpoint-d/web/tcp/http }",
        ] {
            assert!(got.contains(want), "{want}\n{got}");
        }
        let mut shorter = sticky.clone();
        shorter.affinity = Some(5);
        assert!(step(&[sticky], &[shorter]).contains("delete set ip pintle endpoint-d/web/tcp/http"));
    }
}
