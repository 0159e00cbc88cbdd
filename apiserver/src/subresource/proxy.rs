//! Relaying to kubelets, pods and services: exec, attach, log, portforward, proxy.

use std::sync::Arc;

use http::request::Parts;
use pintle_machinery::status::ApiError;

use crate::access::UserInfo;
use crate::engine::Answer;
use crate::http::body::Body;
use crate::http::info::RequestInfo;
use crate::http::query::Query;
use crate::resource::Resource;
use crate::state::State;

/// What is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relay {
    /// A pod's subresource that its kubelet serves.
    Kubelet,
}

/// The request is to be relayed.
pub fn of(resource: &Resource, info: &RequestInfo) -> Option<Relay> {
    let _ = (resource, info);
    None
}

/// Relays it.
pub async fn relay(
    state: &Arc<State>,
    user: &UserInfo,
    relay: Relay,
    parts: Parts,
    body: Body,
    info: &RequestInfo,
    query: &Query,
) -> Answer {
    let _ = (state, user, relay, parts, body, info, query);
    Err(ApiError::MethodNotAllowed)
}
