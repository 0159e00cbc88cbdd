//! What the portmap plugin leaves in the machine's own network: its chains stay when the last host port has gone, and so do
//! the tables that iptables made for them.

use pintle_host::process::run;
use serde_json::Value;

/// Every chain of the plugin that all pods share begins so.
const PREFIX: &str = "CNI-HOSTPORT-";
/// The chain that leads to the pods' own chains; nothing in it means that no host port is in use.
const USED: &str = "-A CNI-HOSTPORT-DNAT ";
/// How the plugin marks what it made for a pod of our network: a pod that was still being set up leaves it behind.
const OWN: &str = r#"dnat name: \"pintle\""#;
/// Chains of iptables' table `nat`.
const BASE: [&str; 4] = ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"];

/// Removes the chains if no host port is in use, and iptables' tables if nothing is in them then.
pub async fn remove_unused() {
    let Ok(rules) = run("iptables", &["-w", "-t", "nat", "-S"]).await else { return };
    let commands = removal(&rules);
    if commands.is_empty() {
        return;
    }
    for command in commands {
        let arguments: Vec<&str> = ["-w", "-t", "nat"].into_iter().chain(command.iter().map(String::as_str)).collect();
        if let Err(error) = run("iptables", &arguments).await {
            tracing::warn!(error = format!("{error:#}"), "chains of host ports are left");
            return;
        }
    }
    for family in ["ip", "ip6"] {
        let listed = run("nft", &["-j", "list", "table", family, "nat"]).await;
        if listed.is_ok_and(|listed| is_idle(&listed))
            && let Err(error) = run("nft", &["delete", "table", family, "nat"]).await
        {
            tracing::warn!(error = format!("{error:#}"), "an empty table is left");
        }
    }
}

/// The commands that remove our pods' chains and, unless others use them, the shared ones, given the table's rules.
fn removal(rules: &str) -> Vec<Vec<String>> {
    let chains: Vec<&str> =
        rules.lines().filter_map(|l| l.strip_prefix("-N ")).filter(|c| c.starts_with(PREFIX)).collect();
    if chains.is_empty() {
        return Vec::new();
    }
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let used: Vec<&str> = rules.lines().filter(|line| line.starts_with(USED)).collect();
    let own: Vec<usize> = (0..used.len()).filter(|index| used[*index].contains(OWN)).collect();
    let mut commands: Vec<Vec<String>> =
        own.iter().rev().map(|index| command(&["-D", "CNI-HOSTPORT-DNAT", &(index + 1).to_string()])).collect();
    let pods = own.iter().filter_map(|index| used[*index].rsplit_once("-j ").map(|(_, chain)| chain.trim()));
    for chain in pods {
        commands.extend([command(&["-F", chain]), command(&["-X", chain])]);
    }
    if own.len() < used.len() {
        return commands;
    }
    for base in BASE {
        let prefix = format!("-A {base} ");
        let calls = rules.lines().filter(|line| line.starts_with(&prefix)).enumerate();
        let ours = calls.filter(|(_, line)| line.contains(&format!(" -j {PREFIX}"))).map(|(index, _)| index + 1);
        // From the last on, so that the numbers hold.
        let ours: Vec<usize> = ours.collect();
        commands.extend(ours.iter().rev().map(|number| command(&["-D", base, &number.to_string()])));
    }
    commands.extend(chains.iter().map(|chain| command(&["-F", chain])));
    commands.extend(chains.iter().map(|chain| command(&["-X", chain])));
    commands
}

/// True if a table, as `nft -j` lists it, has just iptables' own chains, without a rule, and lets everything pass.
fn is_idle(listed: &str) -> bool {
    let Ok(listed) = serde_json::from_str::<Value>(listed) else { return false };
    let Some(parts) = listed["nftables"].as_array() else { return false };
    parts.iter().filter_map(Value::as_object).flatten().all(|(kind, part)| match kind.as_str() {
        "metainfo" | "table" => true,
        "chain" => BASE.iter().any(|base| part["name"] == *base) && part["policy"] == "accept",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: &str = "-P PREROUTING ACCEPT\n-P POSTROUTING ACCEPT\n-N CNI-HOSTPORT-DNAT\n-N CNI-HOSTPORT-MASQ\n-N OTHER\n\
        -A PREROUTING -j OTHER\n-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
        -A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n\
        -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n";

    #[test]
    fn chains_go_when_no_port_is_in_use() {
        let commands: Vec<String> = removal(LEFT).iter().map(|words| words.join(" ")).collect();
        let expected = [
            "-D PREROUTING 2",
            "-D POSTROUTING 1",
            "-F CNI-HOSTPORT-DNAT",
            "-F CNI-HOSTPORT-MASQ",
            "-X CNI-HOSTPORT-DNAT",
            "-X CNI-HOSTPORT-MASQ",
        ];
        assert_eq!(commands, expected);
        assert!(removal(&format!("{LEFT}-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-1\n")).is_empty());
        let other = "-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-1\n";
        let own = r#"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"pintle\" id: \"c\"" -j CNI-DN-2"#;
        let shown = |rules: String| removal(&rules).iter().map(|command| command.join(" ")).collect::<Vec<_>>();
        let pod = ["-D CNI-HOSTPORT-DNAT 2", "-F CNI-DN-2", "-X CNI-DN-2"];
        assert_eq!(shown(format!("{LEFT}{other}{own}\n")), pod);
        assert_eq!(shown(format!("{LEFT}{own}\n"))[..3], ["-D CNI-HOSTPORT-DNAT 1", "-F CNI-DN-2", "-X CNI-DN-2"]);
        assert!(shown(format!("{LEFT}{own}\n")).contains(&"-X CNI-HOSTPORT-DNAT".to_owned()));
        assert!(removal("-P PREROUTING ACCEPT\n-N OTHER\n").is_empty());
    }

    #[test]
    fn only_an_idle_table_goes() {
        let table =
            |parts: &str| format!(r#"{{"nftables": [{{"metainfo": {{}}}}, {{"table": {{"name": "nat"}}}}{parts}]}}"#);
        let chain = |name: &str, policy: &str| format!(r#", {{"chain": {{"name": "{name}", "policy": "{policy}"}}}}"#);
        for (parts, expected) in [
            (String::new(), true),
            (chain("OUTPUT", "accept") + &chain("PREROUTING", "accept"), true),
            (chain("OUTPUT", "drop"), false),
            (chain("OTHER", "accept"), false),
            (chain("OUTPUT", "accept") + r#", {"rule": {"chain": "OUTPUT"}}"#, false),
        ] {
            assert_eq!(is_idle(&table(&parts)), expected, "{parts}");
        }
        assert!(!is_idle("nonsense"));
    }
}
