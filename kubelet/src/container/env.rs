//! A container's environment.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret, Service};

use super::expand::expand;
use super::field::{self, Addresses, Allocatable};
use crate::pods::spec;

/// ConfigMaps and Secrets by name, in the pod's namespace; what is missing does not exist.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, std::sync::Arc<ConfigMap>>,
    /// Secrets.
    pub secrets: BTreeMap<String, std::sync::Arc<Secret>>,
}

/// Names of the objects that an environment refers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
}

/// What a container's environment is made from.
pub struct Sources<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Objects by name.
    pub objects: &'a Objects,
    /// Services of the pod's namespace and of `default`.
    pub services: &'a [std::sync::Arc<Service>],
    /// Addresses.
    pub addresses: &'a Addresses,
    /// The node's allocatable resources.
    pub allocatable: Allocatable,
}

/// The objects that a container's environment needs.
pub fn needs(container: &Container) -> Needs {
    let mut needs = Needs::default();
    for from in container.env_from.iter().flatten() {
        needs.config_maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
        needs.secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
    }
    for from in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
        needs.config_maps.extend(from.config_map_key_ref.as_ref().map(|r| r.name.clone()));
        needs.secrets.extend(from.secret_key_ref.as_ref().map(|r| r.name.clone()));
    }
    needs
}

/// The environment in order; `Err` has upstream's message of a CreateContainerConfigError.
pub fn environment(container: &Container, sources: &Sources<'_>) -> Result<Vec<(String, String)>, String> {
    let services = service_variables(sources);
    let mut env = from_objects(container, sources)?;
    let mut known: BTreeMap<String, String> = env.iter().cloned().collect();
    for variable in container.env.iter().flatten() {
        let lookup = |name: &str| known.get(name).or_else(|| services.get(name)).cloned();
        if let Some(value) = value(variable, container, sources, lookup)? {
            known.insert(variable.name.clone(), value.clone());
            env.push((variable.name.clone(), value));
        }
    }
    env.extend(services.into_iter().filter(|(name, _)| !known.contains_key(name)));
    Ok(env)
}

fn from_objects(container: &Container, sources: &Sources<'_>) -> Result<Vec<(String, String)>, String> {
    let mut env: Vec<(String, String)> = Vec::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            match sources.objects.config_maps.get(&reference.name) {
                Some(map) => {
                    let data = map.data.iter().flatten();
                    env.extend(data.map(|(k, v)| (format!("{prefix}{k}"), v.clone())));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap \"{}\" not found", reference.name)),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.objects.secrets.get(&reference.name) {
                Some(secret) => {
                    let data = secret.data.iter().flatten();
                    env.extend(data.map(|(k, v)| (format!("{prefix}{k}"), String::from_utf8_lossy(&v.0).into_owned())));
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret \"{}\" not found", reference.name)),
            }
        }
    }
    // The last source of a name wins.
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    last.extend(env);
    Ok(last.into_iter().collect())
}

/// The value of one variable; `None` leaves it out (an optional reference to nothing).
fn value(
    variable: &EnvVar,
    container: &Container,
    sources: &Sources<'_>,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, String> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), lookup)));
    };
    let namespace = spec::namespace(sources.pod);
    if let Some(reference) = &from.field_ref {
        return field::pod_field(sources.pod, &reference.field_path, sources.addresses).map(Some);
    }
    if let Some(selector) = &from.resource_field_ref {
        let other = selector.container_name.as_deref().filter(|n| !n.is_empty());
        let other = other.and_then(|n| spec::container(sources.pod, n));
        let container = other.as_ref().map_or(container, |(_, c)| c);
        return field::resource_field(container, selector, sources.allocatable).map(Some);
    }
    if let Some(reference) = &from.config_map_key_ref {
        let optional = reference.optional == Some(true);
        let Some(map) = sources.objects.config_maps.get(&reference.name) else {
            return missing(optional, format!("configmap \"{}\" not found", reference.name));
        };
        return match map.data.as_ref().and_then(|d| d.get(&reference.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => missing(
                optional,
                format!("couldn't find key {} in ConfigMap {namespace}/{}", reference.key, reference.name),
            ),
        };
    }
    if let Some(reference) = &from.secret_key_ref {
        let optional = reference.optional == Some(true);
        let Some(secret) = sources.objects.secrets.get(&reference.name) else {
            return missing(optional, format!("secret \"{}\" not found", reference.name));
        };
        return match secret.data.as_ref().and_then(|d| d.get(&reference.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None => missing(
                optional,
                format!("couldn't find key {} in Secret {namespace}/{}", reference.key, reference.name),
            ),
        };
    }
    Ok(Some(String::new()))
}

fn missing(optional: bool, message: String) -> Result<Option<String>, String> {
    if optional { Ok(None) } else { Err(message) }
}

/// Variables of the Services: those of the pod's namespace if it wants them, and the API server's in any case.
fn service_variables(sources: &Sources<'_>) -> BTreeMap<String, String> {
    let links = spec::spec(sources.pod).enable_service_links.unwrap_or(true);
    let namespace = spec::namespace(sources.pod);
    let mut env = BTreeMap::new();
    let is_master = |s: &Service| {
        s.metadata.namespace.as_deref() == Some("default") && s.metadata.name.as_deref() == Some("kubernetes")
    };
    let (masters, others): (Vec<_>, Vec<_>) = sources.services.iter().partition(|s| is_master(s));
    // The namespace's own Service of that name wins over the API server's.
    for service in masters {
        service_env(service, &mut env);
    }
    for service in others.into_iter().filter(|s| links && s.metadata.namespace.as_deref() == Some(namespace)) {
        service_env(service, &mut env);
    }
    env
}

fn service_env(service: &Service, env: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { return };
    let Some(first) = spec.ports.as_ref().and_then(|p| p.first()) else { return };
    let upper = |text: &str| text.to_uppercase().replace('-', "_");
    let name = upper(service.metadata.name.as_deref().unwrap_or_default());
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    env.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
    env.insert(format!("{name}_SERVICE_PORT"), first.port.to_string());
    for (i, port) in spec.ports.iter().flatten().enumerate() {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            env.insert(format!("{name}_SERVICE_PORT_{}", upper(port_name)), port.port.to_string());
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        let prefix = format!("{name}_PORT_{}_{}", port.port, protocol.to_uppercase());
        if i == 0 {
            env.insert(format!("{name}_PORT"), url.clone());
        }
        env.insert(prefix.clone(), url);
        env.insert(format!("{prefix}_PROTO"), protocol.to_lowercase());
        env.insert(format!("{prefix}_PORT"), port.port.to_string());
        env.insert(format!("{prefix}_ADDR"), ip.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn env(container: serde_json::Value) -> Result<BTreeMap<String, String>, String> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}))
                .unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"k": "v", "A": "cm"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"s": "aGk="}})).unwrap();
        let objects = Objects {
            config_maps: [("cm".to_owned(), Arc::new(map))].into(),
            secrets: [("sec".to_owned(), Arc::new(secret))].into(),
        };
        let service = |ns: &str, name: &str, ip: &str| -> Arc<Service> {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name, "namespace": ns},
                    "spec": {"clusterIP": ip, "ports": [{"name": "web", "port": 80}]}}))
                .unwrap(),
            )
        };
        let services = [
            service("default", "kubernetes", "10.96.0.1"),
            service("n", "my-db", "10.96.0.7"),
            service("n", "headless", "None"),
            service("other", "x", "10.96.0.8"),
        ];
        let addresses = Addresses::default();
        let sources = Sources {
            pod: &pod,
            objects: &objects,
            services: &services,
            addresses: &addresses,
            allocatable: Allocatable::default(),
        };
        let container: Container = serde_json::from_value(container).unwrap();
        environment(&container, &sources).map(|e| e.into_iter().collect())
    }

    #[test]
    fn sources_and_expansion() {
        let got = env(json!({"name": "c",
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "no", "optional": true}}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)-$(P_k)-$(C)"},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "s"}}},
                {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": true}}},
                {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "H", "value": "$(MY_DB_SERVICE_HOST)"}]}))
        .unwrap();
        let cases = [
            ("A", Some("1")),
            ("B", Some("1-v-$(C)")),
            ("C", Some("hi")),
            ("D", None),
            ("E", Some("p")),
            ("H", Some("10.96.0.7")),
            ("P_A", Some("cm")),
            ("KUBERNETES_SERVICE_HOST", Some("10.96.0.1")),
            ("MY_DB_PORT", Some("tcp://10.96.0.7:80")),
            ("MY_DB_SERVICE_PORT_WEB", Some("80")),
            ("MY_DB_PORT_80_TCP_ADDR", Some("10.96.0.7")),
            ("HEADLESS_SERVICE_HOST", None),
            ("X_SERVICE_HOST", None),
        ];
        for (name, want) in cases {
            assert_eq!(got.get(name).map(String::as_str), want, "{name}");
        }
    }

    #[test]
    fn missing_references_are_errors_in_upstreams_words() {
        let key = |from| json!({"name": "c", "env": [{"name": "A", "valueFrom": from}]});
        let cases = [
            (key(json!({"configMapKeyRef": {"name": "no", "key": "k"}})), "configmap \"no\" not found"),
            (key(json!({"configMapKeyRef": {"name": "cm", "key": "x"}})), "couldn't find key x in ConfigMap n/cm"),
            (key(json!({"secretKeyRef": {"name": "no", "key": "k"}})), "secret \"no\" not found"),
            (key(json!({"secretKeyRef": {"name": "sec", "key": "x"}})), "couldn't find key x in Secret n/sec"),
            (json!({"name": "c", "envFrom": [{"secretRef": {"name": "no"}}]}), "secret \"no\" not found"),
        ];
        for (container, want) in cases {
            assert_eq!(env(container).unwrap_err(), want);
        }
    }
}
