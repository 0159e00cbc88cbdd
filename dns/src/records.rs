//! The records of a cluster, as <https://github.com/kubernetes/dns/blob/master/docs/specification.md> has them: pure data
//! and look-up. Names here are lower-case labels in reading order, without the cluster's domain.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// (namespace, name).
type Key = (String, String);

/// Version of the specification, served as TXT of `dns-version`.
const SPECIFICATION: &str = "1.1.0";

/// What a name holds; targets are labels below the cluster's domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// A or AAAA.
    Address(IpAddr),
    /// SRV: port, target.
    Srv(u16, String),
    /// CNAME to a name outside the cluster (absolute).
    Alias(String),
    /// PTR: target.
    Pointer(String),
    /// TXT.
    Text(String),
}

/// The kind of record asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Service location.
    Srv,
    /// Text.
    Txt,
    /// Anything else; only aliases answer that.
    Other,
}

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Records of the wanted kind (or an alias).
    Data(Vec<Data>),
    /// The name exists, without records of that kind.
    NoData,
    /// No such name.
    NoName,
}

impl Found {
    fn of(data: Vec<Data>) -> Self {
        if data.is_empty() { Found::NoData } else { Found::Data(data) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    name: String,
    protocol: String,
    number: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Addresses(Vec<IpAddr>),
    Headless,
    Alias(String),
}

#[derive(Clone, Debug)]
struct ServiceRecord {
    target: Target,
    ports: Vec<Port>,
}

#[derive(Clone, Debug)]
struct Endpoint {
    /// The pod's host name, or its address with dashes.
    label: String,
    address: IpAddr,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    endpoints: Vec<Endpoint>,
    ports: Vec<Port>,
}

/// All records of a cluster.
#[derive(Debug, Default)]
pub struct Records {
    services: BTreeMap<Key, ServiceRecord>,
    /// Slices by the Service that they are of, then by name.
    slices: HashMap<Key, BTreeMap<String, Slice>>,
    pointers: HashMap<IpAddr, BTreeSet<Key>>,
    complete: bool,
}

impl Records {
    /// True once all present objects have been put in.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Says that all present objects have been put in.
    pub fn set_complete(&mut self) {
        self.complete = true;
    }

    /// Adds or replaces a Service.
    pub fn put_service(&mut self, service: &Service) {
        let Some(spec) = &service.spec else { return };
        self.remove_service(service);
        let target = if spec.type_.as_deref() == Some("ExternalName") {
            Target::Alias(spec.external_name.clone().unwrap_or_default())
        } else {
            let ips =
                spec.cluster_ips.clone().or_else(|| spec.cluster_ip.clone().map(|ip| vec![ip])).unwrap_or_default();
            if ips.iter().any(|ip| ip == "None") {
                Target::Headless
            } else {
                Target::Addresses(ips.iter().filter_map(|ip| ip.parse().ok()).collect())
            }
        };
        let ports = spec.ports.iter().flatten().map(|p| port(p.name.as_ref(), p.protocol.as_ref(), p.port)).collect();
        let key = key(service.metadata.namespace.as_ref(), service.metadata.name.as_ref());
        if let Target::Addresses(addresses) = &target {
            for address in addresses {
                self.pointers.entry(*address).or_default().insert(key.clone());
            }
        }
        self.services.insert(key, ServiceRecord { target, ports });
    }

    /// Removes a Service.
    pub fn remove_service(&mut self, service: &Service) {
        let key = key(service.metadata.namespace.as_ref(), service.metadata.name.as_ref());
        if let Some(ServiceRecord { target: Target::Addresses(addresses), .. }) = self.services.remove(&key) {
            for address in addresses {
                self.unpoint(address, &key);
            }
        }
    }

    /// Adds a slice; its ready endpoints count.
    pub fn put_slice(&mut self, slice: &EndpointSlice) {
        let Some(key) = slice_key(slice) else { return };
        let mut record = Slice {
            ports: slice
                .ports
                .iter()
                .flatten()
                .filter_map(|p| Some(port(p.name.as_ref(), p.protocol.as_ref(), p.port?)))
                .collect(),
            ..Slice::default()
        };
        for endpoint in slice.endpoints.iter().flatten() {
            // An unknown readiness counts as ready (EndpointConditions).
            if endpoint.conditions.as_ref().and_then(|c| c.ready) == Some(false) {
                continue;
            }
            for address in endpoint.addresses.iter().filter_map(|a| a.parse::<IpAddr>().ok()) {
                let label = endpoint.hostname.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| dashed(address));
                self.pointers.entry(address).or_default().insert(key.clone());
                record.endpoints.push(Endpoint { label, address });
            }
        }
        self.slices.entry(key).or_default().insert(slice.metadata.name.clone().unwrap_or_default(), record);
    }

    /// Removes a slice.
    pub fn remove_slice(&mut self, slice: &EndpointSlice) {
        let Some(key) = slice_key(slice) else { return };
        let Some(slices) = self.slices.get_mut(&key) else { return };
        let gone = slices.remove(slice.metadata.name.as_deref().unwrap_or_default()).unwrap_or_default();
        let still: Vec<IpAddr> = slices.values().flat_map(|s| &s.endpoints).map(|e| e.address).collect();
        if slices.is_empty() {
            self.slices.remove(&key);
        }
        for endpoint in gone.endpoints.iter().filter(|e| !still.contains(&e.address)) {
            self.unpoint(endpoint.address, &key);
        }
    }

    fn unpoint(&mut self, address: IpAddr, key: &Key) {
        if let Some(keys) = self.pointers.get_mut(&address) {
            keys.remove(key);
            if keys.is_empty() {
                self.pointers.remove(&address);
            }
        }
    }

    /// The records of a name below the cluster's domain, given as labels in reading order.
    pub fn lookup(&self, labels: &[&str], wanted: Wanted) -> Found {
        match labels {
            [] | ["svc" | "pod"] => Found::NoData,
            ["dns-version"] => match wanted {
                Wanted::Txt => Found::Data(vec![Data::Text(SPECIFICATION.to_owned())]),
                _ => Found::NoData,
            },
            [.., namespace, "svc"] if !self.has_namespace(namespace) => Found::NoName,
            [_, "svc"] => Found::NoData,
            [service, namespace, "svc"] => self.service(namespace, service, wanted),
            [port, protocol, service, namespace, "svc"] if port.starts_with('_') => {
                self.port(namespace, service, port, protocol, wanted)
            }
            [label, service, namespace, "svc"] => self.endpoint(namespace, service, label, wanted),
            [_, "pod"] => Found::NoData,
            [dashed, _, "pod"] => pod_address(dashed).map_or(Found::NoName, |ip| addresses([ip], wanted)),
            _ => Found::NoName,
        }
    }

    /// The names of an address: those of Services whose cluster address it is, and of named endpoints.
    pub fn pointers(&self, address: IpAddr) -> Found {
        let Some(keys) = self.pointers.get(&address) else { return Found::NoName };
        let mut names = Vec::new();
        for key in keys {
            match self.services.get(key) {
                Some(ServiceRecord { target: Target::Addresses(own), .. }) if own.contains(&address) => {
                    names.push(Data::Pointer(format!("{}.{}.svc", key.1, key.0)));
                }
                _ => {
                    let named = self.endpoints(key).filter(|(e, _)| e.address == address);
                    names.extend(named.map(|(e, _)| Data::Pointer(format!("{}.{}.{}.svc", e.label, key.1, key.0))));
                }
            }
        }
        names.sort();
        names.dedup();
        if names.is_empty() { Found::NoName } else { Found::Data(names) }
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        let from = (namespace.to_owned(), String::new());
        self.services.range(from..).next().is_some_and(|((ns, _), _)| ns == namespace)
    }

    fn find(&self, namespace: &str, service: &str) -> Option<(Key, &ServiceRecord)> {
        let key = (namespace.to_owned(), service.to_owned());
        let record = self.services.get(&key)?;
        Some((key, record))
    }

    fn endpoints<'a>(&'a self, key: &Key) -> impl Iterator<Item = (&'a Endpoint, &'a [Port])> {
        let slices = self.slices.get(key).into_iter().flat_map(BTreeMap::values);
        slices.flat_map(|slice| slice.endpoints.iter().map(|e| (e, slice.ports.as_slice())))
    }

    fn service(&self, namespace: &str, service: &str, wanted: Wanted) -> Found {
        let Some((key, record)) = self.find(namespace, service) else { return Found::NoName };
        match &record.target {
            Target::Alias(name) => Found::Data(vec![Data::Alias(name.clone())]),
            Target::Addresses(_) | Target::Headless if wanted == Wanted::Srv => self.locations(&key, record, |_| true),
            Target::Addresses(ips) => addresses(ips.iter().copied(), wanted),
            Target::Headless => match self.endpoints(&key).next() {
                None => Found::NoName,
                Some(_) => addresses(self.endpoints(&key).map(|(e, _)| e.address), wanted),
            },
        }
    }

    fn port(&self, namespace: &str, service: &str, port: &str, protocol: &str, wanted: Wanted) -> Found {
        let Some((key, record)) = self.find(namespace, service) else { return Found::NoName };
        let (Some(port), Some(protocol)) = (port.strip_prefix('_'), protocol.strip_prefix('_')) else {
            return Found::NoName;
        };
        let wants = |p: &Port| p.name == port && p.protocol == protocol;
        match self.locations(&key, record, wants) {
            Found::Data(data) if wanted == Wanted::Srv => Found::Data(data),
            Found::Data(_) => Found::NoData,
            _ => Found::NoName,
        }
    }

    /// SRV data of the ports that `wants`: of the Service itself, or of each endpoint when it is headless.
    fn locations(&self, key: &Key, record: &ServiceRecord, wants: impl Fn(&Port) -> bool) -> Found {
        let service = format!("{}.{}.svc", key.1, key.0);
        let mut data: Vec<Data> = match record.target {
            Target::Addresses(_) => {
                record.ports.iter().filter(|p| wants(p)).map(|p| Data::Srv(p.number, service.clone())).collect()
            }
            Target::Headless => self
                .endpoints(key)
                .flat_map(|(e, ports)| ports.iter().map(move |p| (e, p)))
                .filter(|(_, p)| wants(p))
                .map(|(e, p)| Data::Srv(p.number, format!("{}.{service}", e.label)))
                .collect(),
            Target::Alias(_) => Vec::new(),
        };
        data.sort();
        data.dedup();
        Found::of(data)
    }

    fn endpoint(&self, namespace: &str, service: &str, label: &str, wanted: Wanted) -> Found {
        let Some((key, record)) = self.find(namespace, service) else { return Found::NoName };
        let protocol = label.strip_prefix('_');
        if protocol.is_some_and(|protocol| record.ports.iter().any(|p| p.protocol == protocol)) {
            return Found::NoData;
        }
        let ips: Vec<IpAddr> = self.endpoints(&key).filter(|(e, _)| e.label == label).map(|(e, _)| e.address).collect();
        if ips.is_empty() || record.target != Target::Headless {
            return Found::NoName;
        }
        addresses(ips, wanted)
    }
}

fn addresses(ips: impl IntoIterator<Item = IpAddr>, wanted: Wanted) -> Found {
    let fits = |ip: &IpAddr| match wanted {
        Wanted::A => ip.is_ipv4(),
        Wanted::Aaaa => ip.is_ipv6(),
        _ => false,
    };
    let mut data: Vec<Data> = ips.into_iter().filter(fits).map(Data::Address).collect();
    data.sort();
    data.dedup();
    Found::of(data)
}

fn key(namespace: Option<&String>, name: Option<&String>) -> Key {
    (namespace.cloned().unwrap_or_default(), name.cloned().unwrap_or_default())
}

fn slice_key(slice: &EndpointSlice) -> Option<Key> {
    let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
    Some(key(slice.metadata.namespace.as_ref(), Some(service)))
}

fn port(name: Option<&String>, protocol: Option<&String>, number: i32) -> Port {
    Port {
        name: name.cloned().unwrap_or_default(),
        protocol: protocol.map_or("tcp".to_owned(), |p| p.to_ascii_lowercase()),
        number: u16::try_from(number).unwrap_or_default(),
    }
}

/// `10.1.2.3` as `10-1-2-3`.
fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

fn pod_address(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse().ok().map(IpAddr::V4);
    v4.or_else(|| label.replace('-', ":").parse().ok().map(IpAddr::V6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        let mut records = Records::default();
        let services = serde_json::json!([
            {"metadata": {"name": "web", "namespace": "a"}, "spec": {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]}},
            {"metadata": {"name": "db", "namespace": "a"}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}},
            {"metadata": {"name": "out", "namespace": "a"}, "spec": {"type": "ExternalName", "externalName": "example.test"}},
        ]);
        for service in services.as_array().unwrap() {
            records.put_service(&serde_json::from_value(service.clone()).unwrap());
        }
        records.put_slice(&slice(
            "db-1",
            &[("db-0", "10.1.0.1", true), ("", "10.1.0.2", true), ("db-2", "10.1.0.3", false)],
        ));
        records
    }

    fn slice(name: &str, endpoints: &[(&str, &str, bool)]) -> EndpointSlice {
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|(host, ip, ready)| serde_json::json!({"hostname": host, "addresses": [ip], "conditions": {"ready": ready}}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "a", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}))
        .unwrap()
    }

    fn ip(text: &str) -> Data {
        Data::Address(text.parse().unwrap())
    }

    fn look(records: &Records, name: &str, wanted: Wanted) -> Found {
        records.lookup(&name.split('.').collect::<Vec<_>>(), wanted)
    }

    #[test]
    fn names_of_the_specification() {
        let r = records();
        let data = |d: &[Data]| Found::Data(d.to_vec());
        let cases = [
            ("web.a.svc", Wanted::A, data(&[ip("10.0.0.5")])),
            ("web.a.svc", Wanted::Aaaa, Found::NoData),
            ("web.b.svc", Wanted::A, Found::NoName),
            ("other.a.svc", Wanted::A, Found::NoName),
            ("a.svc", Wanted::A, Found::NoData),
            ("b.svc", Wanted::A, Found::NoName),
            ("svc", Wanted::A, Found::NoData),
            ("_http._tcp.web.a.svc", Wanted::Srv, data(&[Data::Srv(80, "web.a.svc".into())])),
            ("_http._udp.web.a.svc", Wanted::Srv, Found::NoName),
            ("_tcp.web.a.svc", Wanted::Srv, Found::NoData),
            ("db.a.svc", Wanted::A, data(&[ip("10.1.0.1"), ip("10.1.0.2")])),
            ("db-0.db.a.svc", Wanted::A, data(&[ip("10.1.0.1")])),
            ("10-1-0-2.db.a.svc", Wanted::A, data(&[ip("10.1.0.2")])),
            ("db-2.db.a.svc", Wanted::A, Found::NoName),
            (
                "_sql._tcp.db.a.svc",
                Wanted::Srv,
                data(&[Data::Srv(5432, "10-1-0-2.db.a.svc".into()), Data::Srv(5432, "db-0.db.a.svc".into())]),
            ),
            ("out.a.svc", Wanted::A, data(&[Data::Alias("example.test".into())])),
            ("1-2-3-4.a.pod", Wanted::A, data(&[ip("1.2.3.4")])),
            ("nonsense.a.pod", Wanted::A, Found::NoName),
            ("dns-version", Wanted::Txt, data(&[Data::Text("1.1.0".into())])),
            ("x.y.z", Wanted::A, Found::NoName),
        ];
        for (name, wanted, expected) in cases {
            assert_eq!(look(&r, name, wanted), expected, "{name} {wanted:?}");
        }
    }

    #[test]
    fn pointers_follow_services_and_endpoints() {
        let mut r = records();
        let point = |r: &Records, a: &str| r.pointers(a.parse().unwrap());
        assert_eq!(point(&r, "10.0.0.5"), Found::Data(vec![Data::Pointer("web.a.svc".into())]));
        assert_eq!(point(&r, "10.1.0.1"), Found::Data(vec![Data::Pointer("db-0.db.a.svc".into())]));
        assert_eq!(point(&r, "10.9.9.9"), Found::NoName);
        r.remove_slice(&slice("db-1", &[]));
        assert_eq!(point(&r, "10.1.0.1"), Found::NoName);
        assert_eq!(look(&r, "db.a.svc", Wanted::A), Found::NoName, "headless without endpoints");
    }
}
