//! Who asks, and may they: the seam between the request's way and authentication and authorization.

use std::sync::Arc;

use http::request::Parts;
use pintle_machinery::status::ApiError;
use serde_json::Value;

use crate::auth::authz::Authorizer;
pub use crate::auth::{Attributes, UserInfo};
use crate::auth::{AUTHENTICATED, Objects};
use crate::cache::Cache;
use crate::config::{Config, StaticToken};
use crate::http::info::RequestInfo;
use crate::http::query::Query;
use crate::resource::Resource;

/// Authentication and authorization of the server.
pub struct Auth {
    tokens: Vec<StaticToken>,
    /// Decides who may do what.
    pub authorizer: Authorizer,
}

impl Auth {
    /// From configuration.
    pub fn new(config: &Config, resources: &[Arc<Resource>]) -> Self {
        let objects = Arc::new(CachedObjects::new(resources));
        Self { tokens: config.static_tokens.clone(), authorizer: Authorizer::new(objects) }
    }

    /// Who asks.
    pub async fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError> {
        if let Some(user) = parts.extensions.get::<UserInfo>() {
            return Ok(user.clone());
        }
        let header = parts.headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(header) = header else { return Ok(UserInfo::anonymous()) };
        let token = header.strip_prefix("Bearer ").unwrap_or_default().trim();
        let known = self.tokens.iter().find(|known| known.token == token).ok_or(ApiError::Unauthorized)?;
        let mut user = UserInfo {
            name: known.user.clone(),
            uid: known.uid.clone(),
            groups: known.groups.clone(),
            ..UserInfo::default()
        };
        user.join(AUTHENTICATED);
        Ok(user)
    }

    /// May they.
    pub fn authorize(&self, user: &UserInfo, info: &RequestInfo, query: &Query) -> Result<(), ApiError> {
        self.authorizer.check(user, &attributes(info, query))
    }
}

/// What authorization sees of a request.
pub fn attributes(info: &RequestInfo, query: &Query) -> Attributes {
    if !info.is_resource {
        return Attributes::path(&info.verb, &info.path);
    }
    Attributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: info.path.clone(),
        field_selector: query.text("fieldSelector").unwrap_or_default().to_owned(),
    }
}

/// The cluster's objects as the watch caches have them.
pub struct CachedObjects {
    caches: Vec<(String, String, Arc<Resource>, Arc<Cache>)>,
}

impl CachedObjects {
    /// Of these resources.
    pub fn new(resources: &[Arc<Resource>]) -> Self {
        let with_cache = resources.iter().filter_map(|resource| {
            let cache = resource.cache.clone()?;
            Some((resource.group.clone(), resource.name.clone(), resource.clone(), cache))
        });
        Self { caches: with_cache.collect() }
    }

    fn find(&self, group: &str, resource: &str) -> Option<(&Arc<Resource>, &Arc<Cache>)> {
        let found = self.caches.iter().find(|(g, r, ..)| g == group && r == resource)?;
        Some((&found.2, &found.3))
    }
}

impl Objects for CachedObjects {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let (resource, cache) = self.find(group, resource)?;
        let (snapshot, _) = cache.snapshot();
        snapshot.get(&resource.key(namespace, name)).map(|entry| entry.value())
    }

    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        let Some((resource, cache)) = self.find(group, resource) else { return Vec::new() };
        let (snapshot, _) = cache.snapshot();
        let prefix = resource.prefix(namespace.unwrap_or_default());
        snapshot.range(&prefix, None).map(|entry| entry.value()).collect()
    }

    fn pods_on(&self, node: &str) -> Vec<Value> {
        let Some((resource, cache)) = self.find("", "pods") else { return Vec::new() };
        let (snapshot, _) = cache.snapshot();
        let prefix = resource.prefix("");
        let on_node = snapshot.range(&prefix, None).filter(|entry| {
            entry.fields.get("spec.nodeName").is_some_and(|name| name == node)
        });
        on_node.map(|entry| entry.value()).collect()
    }

    fn revision(&self, group: &str, resource: &str) -> i64 {
        self.find(group, resource).map_or(0, |(_, cache)| cache.snapshot().1)
    }
}
