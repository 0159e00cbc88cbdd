//! Relaying to kubelets, pods and services: exec, attach, log, portforward, proxy. Bytes pass through, upgrades included.

mod rewrite;
mod target;

use std::sync::Arc;

use futures::StreamExt;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pintle_machinery::status::{ApiError, Status};
use pintle_serving::dial::{Dialer, Target};
use serde_json::{Value, json};

use self::rewrite::{Links, Page};
use crate::engine::Answer;
use crate::http::body::{self, Body};
use crate::http::info::RequestInfo;
use crate::http::query::Query;
use crate::resource::Resource;
use crate::state::State;

pub use self::target::endpoint as service_endpoint;

/// What is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relay {
    /// A pod's subresource that its kubelet serves.
    Kubelet,
    /// A request to a node's kubelet as it is.
    Node,
    /// A request to a pod.
    Pod,
    /// A request to an endpoint of a service.
    Service,
}

/// A relayed request: to where, and the path there.
pub struct Plan {
    /// Server.
    pub target: Target,
    /// Path and query there.
    pub path: String,
    /// The server is a kubelet: our client certificate goes along.
    pub kubelet: bool,
}

/// Most bytes of a kubelet's reason that are passed on.
const MAX_REASON: usize = 50_000;
/// Headers that end at each hop.
const HOP_BY_HOP: [&str; 7] = [
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];

/// The request is to be relayed.
pub fn of(resource: &Resource, info: &RequestInfo) -> Option<Relay> {
    if !resource.group.is_empty() {
        return None;
    }
    Some(match (resource.name.as_str(), info.subresource.as_str()) {
        ("pods", "log" | "exec" | "attach" | "portforward") => Relay::Kubelet,
        ("pods", "proxy") => Relay::Pod,
        ("nodes", "proxy") => Relay::Node,
        ("services", "proxy") => Relay::Service,
        _ => return None,
    })
}

/// The options of a connection, as admission sees them; none: it is a read.
pub fn options(relay: Relay, info: &RequestInfo, query: &Query) -> Option<Value> {
    let kind = match (relay, info.subresource.as_str()) {
        (Relay::Kubelet, "exec") => "PodExecOptions",
        (Relay::Kubelet, "attach") => "PodAttachOptions",
        (Relay::Kubelet, "portforward") => "PodPortForwardOptions",
        (Relay::Kubelet, _) => return None,
        (Relay::Pod, _) => "PodProxyOptions",
        (Relay::Node, _) => "NodeProxyOptions",
        (Relay::Service, _) => "ServiceProxyOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.get(name).is_some() {
            options[name] = json!(query.flag(name));
        }
    }
    if let Some(container) = query.text("container") {
        options["container"] = json!(container);
    }
    let command: Vec<&str> = query.all("command").collect();
    if !command.is_empty() {
        options["command"] = json!(command);
    }
    if matches!(relay, Relay::Pod | Relay::Node | Relay::Service) {
        options["path"] = json!(info.rest);
    }
    Some(options)
}

/// Relays it.
pub async fn relay(
    state: &Arc<State>,
    relay: Relay,
    parts: Parts,
    body: Body,
    info: &RequestInfo,
    query: &Query,
) -> Answer {
    if relay != Relay::Kubelet
        && info.rest.is_empty()
        && !parts.uri.path().ends_with('/')
        && matches!(parts.method, Method::GET | Method::HEAD)
    {
        return Ok(redirect_to_slash(&parts));
    }
    if info.subresource == "log" && target::unassigned(state, info).await? {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let plan = target::plan(state, relay, info, query, parts.uri.query()).await?;
    let dialer = match (plan.kubelet, &state.config.kubelet_client) {
        (true, Some(client)) => Dialer::new(Some((&client.certificate, &client.key)), client.ca.as_deref()),
        _ => Dialer::new(None, None),
    };
    let dialer = dialer.map_err(|error| ApiError::Internal(error.to_string()))?;
    let links = (relay != Relay::Kubelet).then(|| links(&parts, &plan, info));
    let answer = forward(&dialer, &plan, parts, body).await?;
    match links {
        _ if info.subresource == "log" => logs_or_error(answer).await,
        Some(links) => Ok(with_links(answer, links)),
        None => Ok(answer),
    }
}

/// A kubelet that has no logs to give says why in plain text; clients are told by a Status, as for all else.
async fn logs_or_error(answer: Response<Body>) -> Answer {
    let status = answer.status();
    if status != StatusCode::BAD_REQUEST && status != StatusCode::INTERNAL_SERVER_ERROR {
        return Ok(answer);
    }
    let body = body::read(answer.into_body(), MAX_REASON).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&body).into_owned();
    Err(if status == StatusCode::BAD_REQUEST { ApiError::BadRequest(reason) } else { ApiError::Internal(reason) })
}

/// The request's path without the part that goes to the server.
fn links(parts: &Parts, plan: &Plan, info: &RequestInfo) -> Links {
    let path = parts.uri.path();
    let prefix = path.strip_suffix(info.rest.as_str()).unwrap_or(path).trim_end_matches('/').to_owned();
    Links { authority: format!("{}:{}", plan.target.host, plan.target.port), prefix }
}

/// Redirections and the links in pages lead through the proxy again. A packed page is passed as it is.
fn with_links(mut answer: Response<Body>, links: Links) -> Response<Body> {
    let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(|link| links.rewrite(link));
    if let Some(value) = location.and_then(|link| HeaderValue::from_str(&link).ok()) {
        answer.headers_mut().insert(LOCATION, value);
    }
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let page = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"));
    if !page || answer.headers().contains_key(CONTENT_ENCODING) {
        return answer;
    }
    answer.headers_mut().remove(CONTENT_LENGTH);
    answer.map(|body| {
        let pieces = body.into_data_stream().map(Some).chain(futures::stream::once(async { None }));
        let pages = pieces.scan(Page::new(links), |page, piece| {
            let piece = match piece {
                Some(Ok(piece)) => Ok(page.push(&piece)),
                Some(Err(error)) => Err(error),
                None => Ok(page.finish()),
            };
            std::future::ready(Some(piece.map(Frame::data)))
        });
        BodyExt::boxed_unsync(StreamBody::new(pages))
    })
}

fn redirect_to_slash(parts: &Parts) -> Response<Body> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::from_str(&format!("{}/{query}", parts.uri.path())) {
        response.headers_mut().insert(LOCATION, value);
    }
    response
}

async fn forward(dialer: &Dialer, plan: &Plan, mut parts: Parts, body: Body) -> Answer {
    let upgrading = parts.headers.contains_key(UPGRADE);
    let client = parts.extensions.remove::<OnUpgrade>();
    let mut headers = end_to_end(&parts.headers, upgrading);
    headers.remove(AUTHORIZATION);
    let authority = format!("{}:{}", plan.target.host, plan.target.port);
    if let Ok(value) = HeaderValue::from_str(&authority) {
        headers.insert(HOST, value);
    }
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() =
        plan.path.parse().map_err(|error: http::uri::InvalidUri| ApiError::BadRequest(error.to_string()))?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    let response = dialer.send(&plan.target, request).await.map_err(|error| unreachable(plan, &error))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(response, client);
    }
    let (mut head, incoming) = response.into_parts();
    head.headers = end_to_end(&head.headers, false);
    head.version = Version::default();
    Ok(Response::from_parts(head, incoming.map_err(Into::into).boxed_unsync()))
}

/// Headers without those that concern one connection only; an upgrade keeps its two.
fn end_to_end(headers: &HeaderMap, upgrading: bool) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut out = HeaderMap::new();
    for (name, value) in headers {
        let connection = name == CONNECTION || name == UPGRADE;
        let hop = HOP_BY_HOP.contains(&name.as_str()) || named.iter().any(|other| other == name.as_str());
        if (connection && upgrading) || (!connection && !hop) {
            out.append(HeaderName::clone(name), value.clone());
        }
    }
    out
}

/// Both sides have left HTTP: from here on bytes pass.
fn switch(mut response: Response<hyper::body::Incoming>, client: Option<OnUpgrade>) -> Answer {
    let client = client.ok_or_else(|| ApiError::BadRequest("this connection can't be upgraded".into()))?;
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (client, server) = match tokio::join!(client, server) {
            (Ok(client), Ok(server)) => (client, server),
            (client, server) => {
                return tracing::debug!(?client, ?server, "an upgrade did not happen");
            }
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
            tracing::debug!(%error, "an upgraded connection ended");
        }
    });
    let (mut head, _) = response.into_parts();
    head.extensions = http::Extensions::new();
    Ok(Response::from_parts(head, body::empty()))
}

fn unreachable(plan: &Plan, error: &anyhow::Error) -> ApiError {
    let message = format!("error trying to reach service: {error:#}");
    match plan.kubelet {
        true => ApiError::Internal(format!("error dialing backend: {error:#}")),
        false => ApiError::Other(Box::new(Status::failure(503, "ServiceUnavailable", message))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_headers_stay_behind_and_upgrades_keep_theirs() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "Upgrade, X-Own"), ("upgrade", "SPDY/3.1"), ("x-own", "1"), ("accept", "*/*"), ("te", "x")]
        {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let names = |upgrading| {
            let mut names: Vec<String> = end_to_end(&headers, upgrading).keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(names(false), ["accept"]);
        assert_eq!(names(true), ["accept", "connection", "upgrade"]);
    }
}
