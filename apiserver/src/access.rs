//! Who asks, and may they: the seam between the request's way and authentication and authorization.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use http::request::Parts;
use parking_lot::Mutex;
use pintle_machinery::status::ApiError;
use pintle_serving::tls::PeerCertificates;
use serde_json::Value;
use x509_parser::certificate::Validity;

use crate::auth::Objects;
use crate::auth::authn::Authenticator;
use crate::auth::authn::front_proxy::Roots;
use crate::auth::authn::impersonate::impersonate;
use crate::auth::authn::static_tokens::StaticTokens;
use crate::auth::authz::Authorizer;
use crate::auth::token::Issuer;
pub use crate::auth::{Attributes, UserInfo};
use crate::cache::Cache;
use crate::config::Config;
use crate::http::info::RequestInfo;
use crate::http::query::Query;
use crate::resource::Resource;

/// Client certificates whose verification is remembered, at most.
const REMEMBERED: usize = 4096;

/// Authentication and authorization of the server.
pub struct Auth {
    /// Recognizes users.
    pub authenticator: Authenticator,
    /// Decides who may do what.
    pub authorizer: Authorizer,
    /// Signs service account tokens.
    pub issuer: Arc<Issuer>,
    /// The cluster's objects.
    pub objects: Arc<CachedObjects>,
    client_roots: Option<Roots>,
    /// Certificates that were found good, and for how long they are.
    good: Mutex<HashMap<Box<[u8]>, Validity>>,
}

impl Auth {
    /// From configuration.
    pub fn new(config: &Config, resources: &[Arc<Resource>]) -> anyhow::Result<Self> {
        let objects = Arc::new(CachedObjects::new(resources));
        let further = &config.service_account_verify_keys;
        let issuer = Issuer::new(&config.issuer, &[], &config.service_account_key, further)
            .context("reading the service account keys")?;
        let issuer = Arc::new(issuer);
        let mut tokens = StaticTokens::default();
        for known in &config.static_tokens {
            let user = UserInfo {
                name: known.user.clone(),
                uid: known.uid.clone(),
                groups: known.groups.clone(),
                ..UserInfo::default()
            };
            tokens.add(&known.token, user);
        }
        let client_roots = config.client_ca.as_deref().map(Roots::from_pem).transpose().map_err(anyhow::Error::msg)?;
        Ok(Self {
            authenticator: Authenticator::new(objects.clone(), issuer.clone(), tokens, true),
            authorizer: Authorizer::new(objects.clone()),
            issuer,
            objects,
            client_roots,
            good: Mutex::default(),
        })
    }

    /// Who asks: from the request's credentials, or, in this process, from its extensions.
    pub fn user(&self, parts: &Parts, info: &RequestInfo, query: &Query) -> Result<UserInfo, ApiError> {
        let user = match parts.extensions.get::<UserInfo>() {
            Some(user) => user.clone(),
            None => {
                let certificate = self.certificate(parts)?;
                self.authenticator.authenticate(&parts.headers, certificate, jiff::Timestamp::now())?
            }
        };
        impersonate(&self.authorizer, user, &parts.headers, || attributes(info, query))
    }

    /// The client's certificate, if it showed one; a bad one is refused unless there is a token to go by.
    fn certificate<'a>(&self, parts: &'a Parts) -> Result<Option<&'a [u8]>, ApiError> {
        let Some(PeerCertificates(chain)) = parts.extensions.get::<PeerCertificates>() else { return Ok(None) };
        let Some(certificate) = chain.first() else { return Ok(None) };
        let good = self.client_roots.as_ref().is_some_and(|roots| self.verifies(roots, certificate));
        match good {
            true => Ok(Some(certificate)),
            false if self.client_roots.is_none() => Ok(None),
            false if parts.headers.contains_key(http::header::AUTHORIZATION) => Ok(None),
            false => Err(ApiError::Unauthorized),
        }
    }

    fn verifies(&self, roots: &Roots, certificate: &[u8]) -> bool {
        if self.good.lock().get(certificate).is_some_and(Validity::is_valid) {
            return true;
        }
        let good = roots.verifies(certificate);
        if good && let Some(validity) = validity(certificate) {
            let mut known = self.good.lock();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(certificate.into(), validity);
        }
        good
    }

    /// May they.
    pub fn authorize(&self, user: &UserInfo, info: &RequestInfo, query: &Query) -> Result<(), ApiError> {
        self.authorizer.check(user, &attributes(info, query))
    }
}

/// Since when and until when a certificate is good.
fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(certificate.validity().clone())
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
        let on_node = snapshot
            .range(&prefix, None)
            .filter(|entry| entry.fields.get("spec.nodeName").is_some_and(|name| name == node));
        on_node.map(|entry| entry.value()).collect()
    }

    fn revision(&self, group: &str, resource: &str) -> i64 {
        self.find(group, resource).map_or(0, |(_, cache)| cache.snapshot().1)
    }
}
