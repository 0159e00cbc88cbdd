//! What a Service needs: pure.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::Claim;

fn ty(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

/// It asks for no address.
pub fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// Of a type that has addresses of the cluster.
pub fn has_addresses(service: &Value) -> bool {
    matches!(ty(service), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Wants a cluster address.
pub fn needs_address(service: &Value) -> bool {
    has_addresses(service) && !is_headless(service)
}

/// Load balancers lead to it.
pub fn is_balanced(service: &Value) -> bool {
    ty(service) == "LoadBalancer"
}

/// Its ports want node ports.
pub fn is_exposed(service: &Value) -> bool {
    let of_balancer = || service["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
    ty(service) == "NodePort" || is_balanced(service) && of_balancer()
}

/// Traffic comes to it from outside of the cluster.
pub fn takes_outsiders(service: &Value) -> bool {
    let addressed = || service["spec"]["externalIPs"].as_array().is_some_and(|addresses| !addresses.is_empty());
    matches!(ty(service), "NodePort" | "LoadBalancer") || ty(service) == "ClusterIP" && addressed()
}

/// Node ports that ports tell.
pub fn node_ports(service: &Value) -> impl Iterator<Item = i64> + '_ {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(|port| port["nodePort"].as_i64().unwrap_or(0))
}

/// Indices of the ports that want a node port: all, or those that say which where no others are allotted.
pub fn ports_in_need(service: &Value) -> Vec<usize> {
    let (all, told) = (is_exposed(service), is_balanced(service));
    let wants = |port: &i64| all || told && *port != 0;
    node_ports(service).enumerate().filter(|(_, port)| wants(port)).map(|(index, _)| index).collect()
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
    use serde_json::json;

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
