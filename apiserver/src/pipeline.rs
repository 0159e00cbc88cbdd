//! A request's way: what it asks for, who asks, whether they may, then the verb; failures become a Status.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use parking_lot::Mutex;
use pintle_machinery::codec::scalar;
use pintle_machinery::status::{ApiError, Details, Status};

use crate::access::UserInfo;
use crate::codec::{self, BODY_LIMIT};
use crate::engine::{self, Answer, Call, present};
use crate::http::body::{self, Body, BoxError, ReadError};
use crate::http::compress;
use crate::http::info::RequestInfo;
use crate::http::negotiate::{self, Accepted, Encoding, Encodings};
use crate::http::query::Query;
use crate::resource::Resource;
use crate::state::State;
use crate::{backup, deprecated, discovery, health, subresource, webhooks};

/// A client has so long to send its body.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Answers a request.
pub async fn handle<B>(state: Arc<State>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let encodings = Encodings::of(&state.config.features.gates);
    let accepted = negotiate::accept(&parts.headers, query.get("pretty"), encodings, false).unwrap_or(Accepted::JSON);
    let head = parts.method == http::Method::HEAD;
    let observed = state.metrics.start(&info);
    let routed = match deadline(&info, &query) {
        Ok(None) => route(&state, parts, body, info, query).await,
        Ok(Some(limit)) => match tokio::time::timeout(limit, route(&state, parts, body, info, query)).await {
            Ok(routed) => routed,
            Err(_) => Err(ApiError::Timeout(OVERDUE.into())),
        },
        Err(error) => Err(error),
    };
    let mut response = match routed {
        Ok(response) => response,
        Err(error) => failure(&state, &error, accepted),
    };
    state.metrics.finish(observed, response.status().as_u16());
    let audit = uuid::Uuid::new_v4().to_string();
    if let Ok(value) = HeaderValue::from_str(&audit) {
        response.headers_mut().insert("audit-id", value);
    }
    if head {
        *response.body_mut() = body::empty();
    }
    response
}

/// What a client is told whose request took longer than it or the server allows.
const OVERDUE: &str = "request did not complete within the allotted timeout";

/// Requests that go on until somebody ends them.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// How long a read may take by the parameter `timeout`. A write is not given up halfway.
fn deadline(info: &RequestInfo, query: &Query) -> Result<Option<std::time::Duration>, ApiError> {
    let long = info.verb == "watch" || LONG_RUNNING.contains(&info.subresource.as_str());
    let Some(text) = query.text("timeout").filter(|_| !long) else { return Ok(None) };
    let nanoseconds = scalar::parse_duration(text)
        .map_err(|error| ApiError::BadRequest(format!("invalid timeout specified in the request URL - {error}")))?;
    let limit = u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0);
    let reads = matches!(info.verb.as_str(), "get" | "list");
    Ok(limit.filter(|_| reads).map(std::time::Duration::from_nanos))
}

/// The answer to a request that hit a fault of ours.
pub fn fault() -> Response<Body> {
    let status = ApiError::Internal("the request hit an internal fault".into()).status();
    present::bytes(StatusCode::INTERNAL_SERVER_ERROR, Encoding::Json.media_type(), status.to_json())
}

/// A failure in the client's encoding.
fn failure(state: &State, error: &ApiError, accepted: Accepted) -> Response<Body> {
    let mut status = error.status();
    if let ApiError::NotAcceptable(representations) = error {
        let list = representations.join(", ");
        status.message = format!("406: Not Acceptable\n\nAvailable representations: {list}");
        status.details = Some(Default::default());
    }
    let value = status.to_value();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let encoding = accepted.encoding;
    let (encoding, bytes) = match codec::encode(state.schema, &value, encoding, accepted.pretty) {
        Ok(bytes) if encoding != Encoding::Json => (encoding, bytes),
        _ if accepted.pretty => (Encoding::Json, serde_json::to_vec_pretty(&status).unwrap_or_default().into()),
        _ => {
            let mut bytes = status.to_json();
            bytes.push(b'\n');
            (Encoding::Json, bytes.into())
        }
    };
    let mut response = present::bytes(code, encoding.media_type(), bytes);
    if let Some(seconds) = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}

async fn route<B>(state: &Arc<State>, mut parts: Parts, body: B, info: RequestInfo, query: Query) -> Answer
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let user = state.auth.user(&parts, &info, &query)?;
    state.auth.authorize(&user, &info, &query)?;
    if !info.is_resource {
        return other_path(state, &parts, &info, &query).await;
    }
    let Some(resource) = &state.resource(&info.group, &info.version, &info.resource) else {
        return match state.serves(&info.group) {
            true => Err(ApiError::NoSuchResource),
            false => Ok(no_such_path()),
        };
    };
    if head_of_object(&parts, &info) {
        return Err(ApiError::MethodNotAllowed);
    }
    if let Some(upgrade) = subresource::proxy::of(resource, &info) {
        if let Some(options) = subresource::proxy::options(upgrade, &info, &query) {
            let (info, query) = (info.clone(), query.clone());
            let call = Call {
                state: state.clone(),
                resource: resource.clone(),
                info,
                query,
                headers: parts.headers.clone(),
                user,
                accepted: Accepted::JSON,
                now: jiff::Timestamp::now(),
                warnings: Mutex::default(),
            };
            webhooks::connect(&call, &options).await?;
        }
        let body = http_body_util::BodyExt::boxed_unsync(http_body_util::BodyExt::map_err(body, Into::into));
        return subresource::proxy::relay(state, upgrade, parts, body, &info, &query).await;
    }
    // What is answered and never stored, a review, has no other forms than its own.
    let stored = resource.cache.is_some() || info.verb != "create";
    let forms =
        stored && matches!(info.verb.as_str(), "get" | "list" | "watch" | "create" | "update" | "patch" | "delete");
    let encodings = Encodings::of(&state.config.features.gates);
    let offered = if info.verb == "watch" { encodings.streamed() } else { encodings };
    let accepted = negotiate::accept(&parts.headers, query.get("pretty"), offered, forms)
        .ok_or_else(|| not_acceptable(&parts.headers, &info, encodings))?;
    let reads = matches!(info.verb.as_str(), "get" | "list") && resource.cache.is_some();
    let packs = reads && info.subresource.is_empty() && compress::is_of_use(&parts);
    let call = Call {
        state: state.clone(),
        resource: resource.clone(),
        info,
        query,
        headers: std::mem::take(&mut parts.headers),
        user,
        accepted,
        now: jiff::Timestamp::now(),
        warnings: Mutex::default(),
    };
    let bytes = match call.info.verb.as_str() {
        "get" | "list" | "watch" => bytes::Bytes::new(),
        _ => match tokio::time::timeout(BODY_TIMEOUT, body::read(body, BODY_LIMIT)).await {
            Ok(read) => read.map_err(read_error)?,
            Err(_) => return Err(ApiError::Timeout(OVERDUE.into())),
        },
    };
    let answer = verb(call, &bytes).await?;
    match packs {
        true => compress::compressed(answer).await.map_err(|error| ApiError::Internal(error.to_string())),
        false => Ok(answer),
    }
}

fn not_acceptable(headers: &http::HeaderMap, info: &RequestInfo, encodings: Encodings) -> ApiError {
    // The encoding is there and the form is not.
    if negotiate::clauses(headers).iter().any(|clause| encodings.named(clause.media_type).is_some()) {
        let types = encodings.media_types().map(str::to_owned).collect();
        return ApiError::Other(Box::new(ApiError::NotAcceptable(types).status()));
    }
    // Collections can be watched.
    let streams = encodings.streams().filter(|_| matches!(info.verb.as_str(), "list" | "watch"));
    ApiError::NotAcceptable(encodings.media_types().chain(streams).map(str::to_owned).collect())
}

/// HEAD is for proxied requests only.
fn head_of_object(parts: &Parts, info: &RequestInfo) -> bool {
    parts.method == http::Method::HEAD && info.subresource != "proxy"
}

fn read_error(error: ReadError) -> ApiError {
    match error {
        ReadError::TooLarge(limit) => ApiError::RequestEntityTooLarge(format!("limit is {limit}")),
        ReadError::Broken(error) => ApiError::BadRequest(error.to_string()),
    }
}

/// The verb that the request names, on the resource or its subresource.
async fn verb(call: Call, body: &[u8]) -> Answer {
    check_served(&call.resource, &call.info)?;
    if let Some(text) = deprecated::warning(&call.resource) {
        call.warn(text);
    }
    let writes = matches!(call.info.verb.as_str(), "create" | "update" | "patch");
    if writes && let Err(error) = codec::FieldValidation::of(&call) {
        return Ok(with_warnings(&call.warnings, failure(&call.state, &error, call.accepted)));
    }
    if call.info.verb == "watch" && call.accepted.encoding == Encoding::Yaml {
        let streams = Encodings::of(&call.state.config.features.gates).streams().map(str::to_owned).collect();
        return Err(ApiError::Other(Box::new(ApiError::NotAcceptable(streams).status())));
    }
    if call.info.verb == "watch" && call.info.subresource.is_empty() && call.resource.cache.is_some() {
        let warnings = Mutex::new(std::mem::take(&mut *call.warnings.lock()));
        let (state, accepted) = (call.state.clone(), call.accepted);
        let watched = engine::watch::watch(call).await;
        return Ok(with_warnings(&warnings, watched.unwrap_or_else(|error| failure(&state, &error, accepted))));
    }
    let response = match dispatch(&call, body).await {
        Ok(response) => response,
        // No route takes such a patch: nobody comes to warn.
        Err(ApiError::Other(status)) if call.info.verb == "patch" && status.code == 415 => {
            return Err(ApiError::Other(status));
        }
        Err(error) => failure(&call.state, &error, call.accepted),
    };
    Ok(with_warnings(&call.warnings, response))
}

async fn dispatch(call: &Call, body: &[u8]) -> Answer {
    if !call.info.subresource.is_empty() && call.info.subresource != "status" {
        return subresource::handle(call, body).await;
    }
    if call.resource.cache.is_none() {
        return subresource::virtual_resource(call, body).await;
    }
    match call.info.verb.as_str() {
        "get" => engine::read::get(call).await,
        "list" => engine::read::list(call).await,
        "create" => engine::create::create(call, body).await,
        "update" => engine::update::update(call, body).await,
        "patch" => engine::patch::patch(call, body).await,
        "delete" => engine::delete::delete(call, body).await,
        "deletecollection" => engine::delete::delete_collection(call, body).await,
        _ => Err(ApiError::MethodNotAllowed),
    }
}

fn check_served(resource: &Resource, info: &RequestInfo) -> Result<(), ApiError> {
    if info.verb == "watch" && info.subresource.is_empty() && resource.allows("list") && !resource.allows("watch") {
        let message = format!("watch is not supported on resources of kind {:?}", resource.name);
        let details = Details { kind: resource.name.clone(), ..Details::default() };
        return Err(ApiError::Other(Box::new(Status::failure(405, "MethodNotAllowed", message).with_details(details))));
    }
    if !info.subresource.is_empty() {
        let Some(subresource) = resource.subresource(&info.subresource) else {
            return Err(match resource.custom {
                Some(_) => ApiError::not_found(&resource.group_resource(), &info.name),
                None => ApiError::NoSuchResource,
            });
        };
        return match subresource.verbs.contains(&info.verb) {
            true => Ok(()),
            false => Err(ApiError::MethodNotAllowed),
        };
    }
    if !resource.namespaced && !info.namespace.is_empty() && resource.name != "namespaces" {
        return Err(ApiError::NoSuchResource);
    }
    let needs_namespace = resource.namespaced && info.namespace.is_empty();
    if needs_namespace && !matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
        return Err(if info.name.is_empty() { ApiError::MethodNotAllowed } else { ApiError::NoSuchResource });
    }
    let nameless = matches!(info.verb.as_str(), "update" | "patch") && info.name.is_empty();
    if nameless {
        return Err(ApiError::MethodNotAllowed);
    }
    let named_create = info.verb == "create" && !info.name.is_empty();
    match resource.allows(&info.verb) && !named_create {
        true => Ok(()),
        false => Err(ApiError::MethodNotAllowed),
    }
}

/// Warnings go into headers, for failures too.
fn with_warnings(warnings: &Mutex<Vec<String>>, mut response: Response<Body>) -> Response<Body> {
    let warnings = std::mem::take(&mut *warnings.lock());
    let mut seen: Vec<String> = Vec::new();
    for text in warnings {
        if seen.contains(&text) {
            continue;
        }
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(http::header::WARNING, value);
        }
        seen.push(text);
    }
    response
}

/// Paths that are no resource, no discovery and no health.
const OTHER_PATHS: [&str; 6] =
    ["/.well-known/openid-configuration", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/version"];

/// Paths that are no resource.
async fn other_path(state: &State, parts: &Parts, info: &RequestInfo, query: &Query) -> Answer {
    let path = info.path.as_str();
    let served = state.served();
    if let Some(response) = health::answer(state, path, query).await {
        return Ok(response);
    }
    if let Some(response) = served.discovery.answer(path, &parts.headers, query.get("pretty")) {
        return response;
    }
    if let Some(response) = served.openapi.answer(path, query.get("hash"), &parts.headers).await {
        return Ok(response);
    }
    match path {
        backup::PATH => Ok(backup::answer(state.store.clone())),
        "/metrics" => {
            let text = state.metrics.render(state);
            Ok(present::bytes(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        "/.well-known/openid-configuration" => {
            let address = std::net::SocketAddr::new(state.config.advertise_address, state.config.advertise_port);
            let document = state.auth.issuer.discovery(&format!("https://{address}"));
            Ok(discovery::json_answer(&document, false))
        }
        "/openid/v1/jwks" => {
            let keys = state.auth.issuer.jwks().to_string();
            Ok(present::bytes(StatusCode::OK, "application/jwk-set+json", keys))
        }
        "/version" | "/version/" if !negotiate::takes_json(&parts.headers) => {
            Err(ApiError::NotAcceptable(vec![Encoding::Json.media_type().to_owned()]))
        }
        "/version" | "/version/" => Ok(discovery::json_answer(&discovery::version(), true)),
        "/" => {
            let mut paths: Vec<String> = served.discovery.paths();
            paths.extend(health::paths().chain(OTHER_PATHS.map(str::to_owned)));
            paths.sort();
            let paths = serde_json::json!({"paths": paths});
            Ok(discovery::json_answer(&paths, true))
        }
        _ => Ok(no_such_path()),
    }
}

fn no_such_path() -> Response<Body> {
    let mut response = present::bytes(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n");
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// A user for requests of this process itself.
pub fn system_user() -> UserInfo {
    UserInfo::new("system:apiserver", &["system:masters", "system:authenticated"])
}

/// A Status as an answer, for subresources that have no object to show.
pub fn status_answer(call: &Call, status: &Status) -> Answer {
    let code = if status.code == 0 { 200 } else { status.code };
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    present::object(call, code, &status.to_value())
}
