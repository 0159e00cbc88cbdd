//! Where a relayed request goes.

use std::sync::Arc;

use pintle_machinery::status::{ApiError, GroupResource, Status};
use pintle_serving::dial::Target;
use serde_json::Value;

use super::{Plan, Relay};
use crate::engine::meta;
use crate::http::info::RequestInfo;
use crate::http::query::Query;
use crate::internal::{self, Address};
use crate::state::State;

/// The kubelet's port unless its node says otherwise.
const KUBELET_PORT: u16 = 10250;
/// Kinds of node addresses, best first.
const ADDRESS_TYPES: [&str; 5] = ["InternalIP", "Hostname", "InternalDNS", "ExternalDNS", "ExternalIP"];

/// Finds the server and the path there.
pub async fn plan(
    state: &Arc<State>,
    relay: Relay,
    info: &RequestInfo,
    query: &Query,
    raw_query: Option<&str>,
) -> Result<Plan, ApiError> {
    let rest = |base: &str| {
        let path = if info.rest.is_empty() { "/" } else { info.rest.as_str() };
        let query = raw_query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{base}{}{query}", encode_path(path))
    };
    match relay {
        Relay::Kubelet => kubelet(state, info, query).await,
        Relay::Node => {
            let (_, name, port) = split_name(&info.name);
            let mut target = node_target(state, name).await?;
            if let Ok(port) = port.parse() {
                target.port = port;
            }
            Ok(Plan { target, path: rest(""), kubelet: true })
        }
        Relay::Pod => {
            let (scheme, name, port) = split_name(&info.name);
            let pod = pod(state, &info.namespace, name).await?;
            let host = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
            if host.is_empty() {
                return Err(ApiError::BadRequest("address not allowed".into()));
            }
            let port = if port.is_empty() { first_port(&pod) } else { named_port(&pod, port)? };
            Ok(Plan { target: Target { host, port, tls: scheme == "https" }, path: rest(""), kubelet: false })
        }
        Relay::Service => {
            let (scheme, name, port) = split_name(&info.name);
            let (host, port) = endpoint(state, &info.namespace, name, port).await?;
            Ok(Plan { target: Target { host, port, tls: scheme == "https" }, path: rest(""), kubelet: false })
        }
    }
}

/// `scheme:name:port`, `name:port` or `name`.
fn split_name(text: &str) -> (&str, &str, &str) {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [scheme, name, port] => (scheme, name, port),
        [name, port] => ("", name, port),
        _ => ("", text, ""),
    }
}

/// The path was decoded; what may not stand in a path is encoded again.
fn encode_path(path: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte);
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if keep(byte) { out.push(byte as char) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

async fn pod(state: &Arc<State>, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let found = internal::get(state, Address::new("", "pods", namespace, name)).await?;
    found.ok_or_else(|| ApiError::not_found(&GroupResource::new("", "pods"), name))
}

async fn kubelet(state: &Arc<State>, info: &RequestInfo, query: &Query) -> Result<Plan, ApiError> {
    let pod = pod(state, &info.namespace, &info.name).await?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if info.subresource == "portforward" {
        let target = assigned(state, &info.name, node).await?;
        let ports: String = query.all("ports").map(|port| format!("&port={port}")).collect();
        let path = format!("/portForward/{}/{}{}", info.namespace, info.name, ports.replacen('&', "?", 1));
        return Ok(Plan { target, path, kubelet: true });
    }
    let container = container(&pod, query.text("container").unwrap_or_default())?;
    let target = assigned(state, &info.name, node).await?;
    let base = match info.subresource.as_str() {
        "log" => "containerLogs",
        other => other,
    };
    let parameters = match info.subresource.as_str() {
        "log" => log_parameters(query),
        _ => stream_parameters(query),
    };
    let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
    Ok(Plan { target, path: format!("/{base}/{}/{}/{container}{query}", info.namespace, info.name), kubelet: true })
}

/// The pod is on no node yet: there is nobody to ask for its log.
pub async fn unassigned(state: &Arc<State>, info: &RequestInfo) -> Result<bool, ApiError> {
    let pod = pod(state, &info.namespace, &info.name).await?;
    Ok(pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty))
}

async fn assigned(state: &Arc<State>, pod: &str, node: &str) -> Result<Target, ApiError> {
    if node.is_empty() {
        return Err(ApiError::BadRequest(format!("pod {pod} does not have a host assigned")));
    }
    // A node that is absent is told as upstream tells it: as if it were a pod.
    node_target(state, node).await.map_err(|error| match error {
        ApiError::NotFound { name, .. } => ApiError::not_found(&GroupResource::new("", "pods"), &name),
        other => other,
    })
}

/// The container that is meant; the only one if none is named.
fn container(pod: &Value, wanted: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    let (main, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let name = meta::text(pod, "name");
    if !wanted.is_empty() {
        let known = main.iter().chain(&init).chain(&ephemeral).any(|own| own == wanted);
        return match known {
            true => Ok(wanted.to_owned()),
            false => Err(ApiError::BadRequest(format!("container {wanted} is not valid for pod {name}"))),
        };
    }
    if let [only] = main.as_slice()
        && init.is_empty()
        && ephemeral.is_empty()
    {
        return Ok(only.clone());
    }
    let annotation = &pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"];
    if let Some(default) = annotation.as_str().filter(|default| main.iter().any(|own| own == default)) {
        return Ok(default.to_owned());
    }
    let mut message = format!("a container name must be specified for pod {name}, choose one of: [{}]", main.join(" "));
    if !init.is_empty() {
        message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
    }
    if !ephemeral.is_empty() {
        message.push_str(&format!(" or one of the ephemeral containers: [{}]", ephemeral.join(" ")));
    }
    Err(ApiError::BadRequest(message))
}

/// A kubelet takes log options under their own names.
fn log_parameters(query: &Query) -> Vec<String> {
    let mut out = Vec::new();
    for name in ["follow", "previous", "timestamps"] {
        if query.flag(name) {
            out.push(format!("{name}=true"));
        }
    }
    for name in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
        if let Some(value) = query.text(name) {
            out.push(format!("{name}={}", encode_value(value)));
        }
    }
    out
}

/// A kubelet names the streams in its own way.
fn stream_parameters(query: &Query) -> Vec<String> {
    let streams = [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")];
    let flags = streams.iter().filter(|(name, _)| query.flag(name)).map(|(_, theirs)| format!("{theirs}=1"));
    flags.chain(query.all("command").map(|word| format!("command={}", encode_value(word)))).collect()
}

fn encode_value(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Where a node's kubelet listens.
async fn node_target(state: &Arc<State>, name: &str) -> Result<Target, ApiError> {
    let node = internal::get(state, Address::new("", "nodes", "", name)).await?;
    let node = node.ok_or_else(|| ApiError::not_found(&GroupResource::new("", "nodes"), name))?;
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let host = ADDRESS_TYPES
        .iter()
        .find_map(|ty| addresses.iter().find(|address| address["type"] == *ty)?["address"].as_str())
        .ok_or_else(|| {
            ApiError::Internal(format!("no preferred addresses found; known addresses: [] of node {name}"))
        })?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0).unwrap_or(KUBELET_PORT);
    Ok(Target { host: host.to_owned(), port, tls: true })
}

fn first_port(pod: &Value) -> u16 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.next().and_then(|port| port["containerPort"].as_u64()).and_then(|port| u16::try_from(port).ok()).unwrap_or(80)
}

fn named_port(pod: &Value, port: &str) -> Result<u16, ApiError> {
    if let Ok(number) = port.parse() {
        return Ok(number);
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports
        .find(|own| own["name"] == port)
        .and_then(|own| own["containerPort"].as_u64())
        .and_then(|port| u16::try_from(port).ok())
        .ok_or_else(|| ApiError::BadRequest(format!("pod has no port named \"{port}\"")))
}

/// A ready endpoint of a service's port.
/// Address and port of a ready endpoint of a service's port, by its name or number.
pub async fn endpoint(state: &Arc<State>, namespace: &str, name: &str, port: &str) -> Result<(String, u16), ApiError> {
    let service = internal::get(state, Address::new("", "services", namespace, name)).await?;
    let service = service.ok_or_else(|| ApiError::not_found(&GroupResource::new("", "services"), name))?;
    let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let chosen = match port {
        "" if ports.len() == 1 => ports.first(),
        wanted => {
            ports.iter().find(|own| own["name"] == wanted || wanted.parse().is_ok_and(|port: u64| own["port"] == port))
        }
    };
    let unavailable = |message: String| ApiError::Other(Box::new(Status::failure(503, "ServiceUnavailable", message)));
    let chosen =
        chosen.ok_or_else(|| unavailable(format!("no service port \"{port}\" found for service \"{name}\"")))?;
    let port_name = chosen["name"].as_str().unwrap_or_default();
    let mut slices = internal::entries(state, "discovery.k8s.io", "endpointslices", namespace);
    slices.retain(|slice| slice.labels.get("kubernetes.io/service-name").is_some_and(|service| service == name));
    let mut found = Vec::new();
    for slice in slices.iter().map(|entry| entry.value()) {
        let ports = slice["ports"].as_array().into_iter().flatten();
        let Some(number) = ports
            .filter(|port| port["name"].as_str().unwrap_or_default() == port_name)
            .find_map(|port| port["port"].as_u64().and_then(|port| u16::try_from(port).ok()))
        else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"].as_bool().unwrap_or(true)
                && let Some(address) = endpoint["addresses"][0].as_str()
            {
                found.push((address.to_owned(), number));
            }
        }
    }
    if found.is_empty() {
        return Err(unavailable(format!("no endpoints available for service \"{name}\"")));
    }
    let at = rand::random_range(0..found.len());
    Ok(found.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_have_scheme_and_port() {
        assert_eq!(split_name("https:web:443"), ("https", "web", "443"));
        assert_eq!(split_name("web:http"), ("", "web", "http"));
        assert_eq!(split_name("web"), ("", "web", ""));
        assert_eq!(encode_path("/a b/ü"), "/a%20b/%C3%BC");
    }

    #[test]
    fn container_is_named_or_the_only_one() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(container(&pod, "b").unwrap(), "b");
        let message = container(&pod, "").unwrap_err().status().message;
        assert_eq!(message, "a container name must be specified for pod p, choose one of: [a b]");
        assert!(container(&pod, "x").is_err());
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(container(&one, "").unwrap(), "a");
    }

    #[test]
    fn parameters_are_the_kubelets() {
        let query = Query::parse(Some("stdin=true&stdout=true&tty=false&command=sh&command=-c&command=echo%20a"));
        assert_eq!(stream_parameters(&query), ["input=1", "output=1", "command=sh", "command=-c", "command=echo%20a"]);
        let query = Query::parse(Some("follow=true&tailLines=5&container=c"));
        assert_eq!(log_parameters(&query), ["follow=true", "tailLines=5"]);
    }
}
