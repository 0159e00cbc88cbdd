//! What a Service needs: pure.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::Claim;

fn ty(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// Wants a cluster address.
pub fn needs_address(service: &Value) -> bool {
    ty(service) != "ExternalName" && !is_headless(service)
}

/// Indices of the ports that want a node port.
pub fn ports_in_need(service: &Value) -> Vec<usize> {
    let wants = match ty(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true),
        _ => false,
    };
    let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
    if wants { (0..count).collect() } else { Vec::new() }
}

/// Wants a port on which nodes tell load balancers whether they have endpoints.
pub fn needs_health_port(service: &Value) -> bool {
    ty(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

/// The port that it has for that.
pub fn health_port(service: &Value) -> Option<u16> {
    let port = service["spec"]["healthCheckNodePort"].as_u64()?;
    u16::try_from(port).ok().filter(|port| *port != 0)
}

/// The node port of an earlier port with the same number and another protocol: they share it.
pub fn sibling_port(service: &Value, index: usize) -> Option<u16> {
    let ports = service["spec"]["ports"].as_array()?;
    let own = &ports[index];
    let sibling =
        ports[..index].iter().find(|other| other["port"] == own["port"] && other["protocol"] != own["protocol"])?;
    u16::try_from(sibling["nodePort"].as_u64()?).ok().filter(|port| *port != 0)
}

/// What a stored Service holds.
pub fn claims_of(service: &Value) -> Vec<Claim> {
    let mut claims = Vec::new();
    if needs_address(service)
        && let Some(address) = service["spec"]["clusterIP"].as_str().and_then(|text| text.parse().ok())
    {
        claims.push(Claim::Address(address));
    }
    for index in ports_in_need(service) {
        let port = service["spec"]["ports"][index]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
        if let Some(port) = port.filter(|port| *port != 0)
            && !claims.contains(&Claim::Port(port))
        {
            claims.push(Claim::Port(port));
        }
    }
    claims.extend(health_port(service).filter(|_| needs_health_port(service)).map(Claim::Port));
    claims
}

/// Families of the addresses, and the list form of the address.
pub fn fill_families(service: &mut Value, v6: bool) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    if spec.get("type").is_some_and(|ty| ty == "ExternalName") {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
        return;
    }
    let empty = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "" || value == &json!([]));
    if empty(spec.get("clusterIP"))
        && let Some(first) = spec.get("clusterIPs").and_then(|list| list.get(0)).cloned()
    {
        spec.insert("clusterIP".into(), first);
    }
    if empty(spec.get("clusterIPs"))
        && let Some(address) = spec.get("clusterIP").filter(|address| *address != "").cloned()
    {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    let selectorless =
        empty(spec.get("selector")) || spec.get("selector").is_some_and(|selector| selector == &json!({}));
    let headless = spec.get("clusterIP").is_some_and(|address| address == "None");
    if headless && selectorless && empty(spec.get("ipFamilies")) && empty(spec.get("ipFamilyPolicy")) {
        // Whoever makes the endpoints may make them of any family.
        spec.insert("ipFamilies".into(), if v6 { json!(["IPv6", "IPv4"]) } else { json!(["IPv4", "IPv6"]) });
        spec.insert("ipFamilyPolicy".into(), json!("RequireDualStack"));
    }
    if empty(spec.get("ipFamilies")) {
        spec.insert("ipFamilies".into(), json!([if v6 { "IPv6" } else { "IPv4" }]));
    }
    if empty(spec.get("ipFamilyPolicy")) {
        spec.insert("ipFamilyPolicy".into(), json!("SingleStack"));
    }
}

/// An update that leaves out what the server chose keeps it.
pub fn carry_over(new: &mut Value, old: &Value) {
    let wants = needs_address(new) && needs_address(old);
    let none = |value: &Value| value.is_null() || *value == "" || *value == json!([]);
    if wants && none(&new["spec"]["clusterIP"]) {
        for field in ["clusterIP", "clusterIPs"] {
            if none(&new["spec"][field]) {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    }
    if ty(new) == "ExternalName" && ty(old) != "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            if new["spec"][field] == old["spec"][field]
                && let Some(spec) = new["spec"].as_object_mut()
            {
                spec.remove(field);
            }
        }
    }
    if ty(new) == "ClusterIP"
        && new["spec"]["externalIPs"].as_array().is_none_or(Vec::is_empty)
        && let Some(spec) = new["spec"].as_object_mut()
    {
        spec.remove("externalTrafficPolicy");
    }
    let had_ports = !ports_in_need(old).is_empty();
    if ports_in_need(new).is_empty() {
        // A node port that was the server's choice goes with the type.
        if had_ports && ty(new) == "ClusterIP" {
            for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
                let same = old["spec"]["ports"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|other| other["nodePort"] == port["nodePort"]);
                if same && let Some(port) = port.as_object_mut() {
                    port.remove("nodePort");
                }
            }
        }
        return;
    }
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
        if port["nodePort"].as_u64().unwrap_or(0) != 0 {
            continue;
        }
        let same = old["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|other| other["port"] == port["port"] && other["protocol"] == port["protocol"]);
        if let Some(number) = same.map(|other| other["nodePort"].clone()).filter(|number| !number.is_null()) {
            port["nodePort"] = number;
        }
    }
}

/// An address of the range: at an offset from its dynamic part, or a random one. The network's own address, the first
/// (the API server's) and the broadcast address are never given out.
pub fn candidate(cidr: IpNet, offset: Option<usize>, random: u64) -> Option<IpAddr> {
    let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len()).min(32);
    let size = 1u64 << bits;
    // The lower part of the range is for addresses that users choose.
    let reserved = (size / 16).clamp(16, 256).min(size / 2);
    let first = reserved.max(2);
    let usable = size.checked_sub(first + 1).filter(|usable| *usable > 0)?;
    let at = first + offset.map_or(random, |offset| offset as u64) % usable;
    match cidr.network() {
        IpAddr::V4(network) => Some(IpAddr::V4(u32::from(network).checked_add(at as u32)?.into())),
        IpAddr::V6(network) => Some(IpAddr::V6(u128::from(network).checked_add(u128::from(at))?.into())),
    }
}

/// The first address of the range: the API server's own Service has it.
pub fn first_address(cidr: IpNet) -> IpAddr {
    match cidr.network() {
        IpAddr::V4(network) => IpAddr::V4((u32::from(network) + 1).into()),
        IpAddr::V6(network) => IpAddr::V6((u128::from(network) + 1).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_follow_the_type() {
        let service = |ty: &str| json!({"spec": {"type": ty, "clusterIP": "10.0.0.9", "ports": [{"port": 80, "nodePort": 30001}]}});
        let address = Claim::Address("10.0.0.9".parse().unwrap());
        assert_eq!(claims_of(&service("ClusterIP")), std::slice::from_ref(&address));
        assert_eq!(claims_of(&service("NodePort")), [address, Claim::Port(30001)]);
        let mut balanced = service("LoadBalancer");
        balanced["spec"]["externalTrafficPolicy"] = json!("Local");
        balanced["spec"]["healthCheckNodePort"] = json!(30002);
        assert_eq!(claims_of(&balanced)[1..], [Claim::Port(30001), Claim::Port(30002)]);
        assert!(claims_of(&service("ExternalName")).is_empty());
        assert!(claims_of(&json!({"spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn updates_keep_what_was_chosen() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
                                  "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        carry_over(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        let mut plain = old.clone();
        plain["spec"]["type"] = json!("ClusterIP");
        carry_over(&mut plain, &old);
        assert_eq!(plain["spec"]["ports"][0].get("nodePort"), None);
        let mut external = old.clone();
        external["spec"]["type"] = json!("ExternalName");
        carry_over(&mut external, &old);
        assert_eq!(external["spec"].get("clusterIP"), None);
    }

    #[test]
    fn candidates_lie_in_the_range() {
        let cidr: IpNet = "10.96.0.0/16".parse().unwrap();
        for random in [0, 1, u64::MAX, 65_535] {
            let address = candidate(cidr, None, random).unwrap();
            assert!(cidr.contains(&address) && address > first_address(cidr), "{address}");
        }
        assert_eq!(first_address(cidr).to_string(), "10.96.0.1");
        assert_eq!(candidate("10.0.0.0/31".parse().unwrap(), None, 7), None);
    }
}
