//! Services and what leads to them.

use jiff::Timestamp;
use serde_json::Value;

use super::{NONE, UNSET, age, first_of, join, labels, name, or, selector};
use crate::registry::value::{at, has, int, items, text};

/// Services.
pub fn services(service: &Value, now: Timestamp) -> Vec<Value> {
    let ip = items(service, "spec.clusterIPs").first().and_then(Value::as_str);
    vec![
        name(service),
        text(service, "spec.type").into(),
        or(ip.unwrap_or(text(service, "spec.clusterIP")), NONE).into(),
        external(service).into(),
        service_ports(service).into(),
        age(service, now),
        labels(service, "spec.selector").into(),
    ]
}

fn external(service: &Value) -> String {
    let mut ips: Vec<&str> = items(service, "spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match text(service, "spec.type") {
        "ExternalName" => return text(service, "spec.externalName").into(),
        "LoadBalancer" => {
            let balancer = load_balancer(service);
            let mut all: Vec<&str> = balancer.iter().map(String::as_str).collect();
            all.append(&mut ips);
            return or(&all.join(","), "<pending>").into();
        }
        _ => {}
    }
    or(&ips.join(","), NONE).into()
}

fn load_balancer(object: &Value) -> Vec<String> {
    let ingress = items(object, "status.loadBalancer.ingress");
    let mut all: Vec<String> =
        ingress.iter().map(|point| or(text(point, "ip"), text(point, "hostname")).to_owned()).collect();
    all.sort();
    all.dedup();
    all
}

fn service_ports(service: &Value) -> String {
    let ports = items(service, "spec.ports").iter().map(|port| {
        let node = match int(port, "nodePort") {
            0 => String::new(),
            node => format!(":{node}"),
        };
        format!("{}{node}/{}", int(port, "port"), text(port, "protocol"))
    });
    or(&ports.collect::<Vec<_>>().join(","), NONE).into()
}

/// Endpoints.
pub fn endpoints(endpoints: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in items(endpoints, "subsets") {
        let addresses = items(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = items(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses.map(str::to_owned));
            continue;
        }
        for port in ports {
            let number = int(port, "port");
            all.extend(addresses.clone().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{number}"),
                false => format!("{ip}:{number}"),
            }));
        }
    }
    vec![name(endpoints), or(&first_of(&all, 3), NONE).into(), age(endpoints, now)]
}

/// EndpointSlices.
pub fn endpointslices(slice: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = items(slice, "ports")
        .iter()
        .map(|port| match at(port, "port").as_i64() {
            Some(number) => number.to_string(),
            None => or(text(port, "name"), "*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = items(slice, "endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    vec![
        name(slice),
        text(slice, "addressType").into(),
        or(&first_of(&ports, 3), UNSET).into(),
        or(&first_of(&addresses, 3), UNSET).into(),
        age(slice, now),
    ]
}

/// Ingresses.
pub fn ingresses(ingress: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = items(ingress, "spec.rules")
        .iter()
        .map(|rule| text(rule, "host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    let ports = if items(ingress, "spec.tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(ingress),
        or(text(ingress, "spec.ingressClassName"), NONE).into(),
        or(&first_of(&hosts, 3), "*").into(),
        load_balancer(ingress).join(",").into(),
        ports.into(),
        age(ingress, now),
    ]
}

/// IngressClasses.
pub fn ingressclasses(class: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(class, "spec.parameters");
    let shown = match (parameters.is_null(), text(parameters, "apiGroup")) {
        (true, _) => NONE.to_owned(),
        (false, "") => format!("{}/{}", text(parameters, "kind"), text(parameters, "name")),
        (false, group) => format!("{}.{group}/{}", text(parameters, "kind"), text(parameters, "name")),
    };
    vec![name(class), text(class, "spec.controller").into(), shown.into(), age(class, now)]
}

/// NetworkPolicies.
pub fn networkpolicies(policy: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(policy), selector(policy, "spec.podSelector").into(), age(policy, now)]
}

/// IPAddresses. Upstream gives the age without a column for it.
pub fn ipaddresses(address: &Value, now: Timestamp) -> Vec<Value> {
    let parent = at(address, "spec.parentRef");
    let group = text(parent, "group");
    let resource = text(parent, "resource");
    let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let place = [text(parent, "namespace"), text(parent, "name")];
    let place = join(place.into_iter().filter(|part| !part.is_empty()), "/");
    vec![name(address), format!("{resource}/{place}").into(), age(address, now)]
}

/// ServiceCIDRs.
pub fn servicecidrs(cidr: &Value, now: Timestamp) -> Vec<Value> {
    let cidrs = join(items(cidr, "spec.cidrs").iter().filter_map(Value::as_str), ",");
    vec![name(cidr), cidrs.into(), age(cidr, now)]
}

/// APIServices.
pub fn apiservices(service: &Value, now: Timestamp) -> Vec<Value> {
    let backend = match has(service, "spec.service") {
        true => format!("{}/{}", text(service, "spec.service.namespace"), text(service, "spec.service.name")),
        false => "Local".into(),
    };
    let available = super::condition(service, "Available").map_or("Unknown".to_owned(), |condition| {
        match (text(condition, "status"), text(condition, "reason")) {
            ("True", _) => "True".into(),
            (status, reason) => format!("{status} ({reason})"),
        }
    });
    vec![name(service), backend.into(), available.into(), age(service, now)]
}
