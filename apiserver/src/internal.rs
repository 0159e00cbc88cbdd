//! The server's own requests to itself: the same engine, no HTTP.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::cache::entry::Entry;
use crate::engine::modify::{self, Make, Ownership};
use crate::engine::{Call, create, storage_error};
use crate::http::info::RequestInfo;
use crate::http::negotiate::Accepted;
use crate::http::query::Query;
use crate::pipeline::system_user;
use crate::state::State;

/// An object's address.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    /// API group.
    pub group: &'a str,
    /// Plural resource name.
    pub resource: &'a str,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

impl<'a> Address<'a> {
    /// From its parts.
    pub fn new(group: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> Self {
        Self { group, resource, namespace, name }
    }
}

/// A call of the server itself.
pub fn call(state: &Arc<State>, verb: &str, at: Address<'_>) -> Result<Call, ApiError> {
    let resource = state.any_version(at.group, at.resource).ok_or(ApiError::NoSuchResource)?;
    let info = RequestInfo {
        verb: verb.to_owned(),
        is_resource: true,
        group: resource.group.clone(),
        version: resource.version.clone(),
        namespace: at.namespace.to_owned(),
        resource: resource.name.clone(),
        name: at.name.to_owned(),
        ..RequestInfo::default()
    };
    let mut headers = HeaderMap::new();
    headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static("kube-apiserver"));
    Ok(Call {
        state: state.clone(),
        resource,
        info,
        query: Query::default(),
        headers,
        user: system_user(),
        accepted: Accepted::JSON,
        now: jiff::Timestamp::now(),
        warnings: Mutex::default(),
    })
}

/// Reads an object from the store, in its stored form.
pub async fn get(state: &Arc<State>, at: Address<'_>) -> Result<Option<Value>, ApiError> {
    let resource = state.any_version(at.group, at.resource).ok_or(ApiError::NoSuchResource)?;
    let kv = state.store.get(&resource.key(at.namespace, at.name)).await.map_err(storage_error)?;
    Ok(kv.map(modify::Current::parse).transpose()?.map(|current| current.value))
}

/// Reads an object from the cache, in its stored form. It is parsed once and kept with its cache entry.
pub fn cached(state: &State, at: Address<'_>) -> Option<Arc<Value>> {
    let resource = state.any_version(at.group, at.resource)?;
    let (snapshot, _) = resource.cache.as_ref()?.snapshot();
    snapshot.get(&resource.key(at.namespace, at.name)).map(|entry| entry.shared())
}

/// The same, or else from the store.
pub async fn known(state: &Arc<State>, at: Address<'_>) -> Result<Option<Arc<Value>>, ApiError> {
    match cached(state, at) {
        Some(found) => Ok(Some(found)),
        None => Ok(get(state, at).await?.map(Arc::new)),
    }
}

/// All objects of a resource (in a namespace) from the cache, each parsed once and kept: for resources with few objects.
pub fn list(state: &State, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
    entries(state, group, resource, namespace).iter().map(|entry| entry.shared()).collect()
}

/// All objects of a resource (in a namespace), not parsed.
pub fn entries(state: &State, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Entry>> {
    let Some(resource) = state.any_version(group, resource) else { return Vec::new() };
    let Some(cache) = &resource.cache else { return Vec::new() };
    let (snapshot, _) = cache.snapshot();
    snapshot.range(&resource.prefix(namespace), None).cloned().collect()
}

/// Creates an object.
pub async fn create(state: &Arc<State>, at: Address<'_>, object: Value) -> Result<(), ApiError> {
    let call = call(state, "create", Address { name: "", ..at })?;
    let mut object = object;
    object["kind"] = call.resource.kind.clone().into();
    object["apiVersion"] = call.resource.api_version().into();
    // Boxed: admission of the inner request may itself create objects.
    Box::pin(create::create_object(&call, object, false)).await.map(drop)
}

/// Creates an object unless it is there.
pub async fn ensure(state: &Arc<State>, at: Address<'_>, object: Value) -> Result<(), ApiError> {
    if get(state, at).await?.is_some() {
        return Ok(());
    }
    match create(state, at, object).await {
        Err(ApiError::AlreadyExists { .. }) => Ok(()),
        other => other,
    }
}

/// Changes an object.
pub async fn update(state: &Arc<State>, at: Address<'_>, make: Make<'_>) -> Result<(), ApiError> {
    let call = call(state, "update", at)?;
    Box::pin(modify::modify(&call, make, Ownership::Update, false)).await.map(drop)
}

/// Removes an object at once; one that is not there is fine.
pub async fn remove(state: &Arc<State>, at: Address<'_>) -> Result<(), ApiError> {
    let resource = state.any_version(at.group, at.resource).ok_or(ApiError::NoSuchResource)?;
    let key = resource.key(at.namespace, at.name);
    for _ in 0..5 {
        let Some(kv) = state.store.get(&key).await.map_err(storage_error)? else { return Ok(()) };
        match state.store.delete(&key, kv.mod_revision).await {
            Ok(_) => return Ok(()),
            Err(pintle_store::Error::Conflict { .. }) => {}
            Err(error) => return Err(storage_error(error)),
        }
    }
    Ok(())
}
