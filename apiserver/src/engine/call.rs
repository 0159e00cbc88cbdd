//! One request to a resource, with everything that the verbs need to know about it.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::status::{ApiError, GroupResource};

use crate::access::UserInfo;
use crate::cache::follower::Caches;
use crate::http::info::RequestInfo;
use crate::http::negotiate::Accepted;
use crate::http::query::Query;
use crate::registry::Context;
use crate::resource::Resource;
use crate::state::State;

/// A request that has passed authentication and authorization.
pub struct Call {
    /// The server.
    pub state: Arc<State>,
    /// The resource.
    pub resource: Arc<Resource>,
    /// What is asked for.
    pub info: RequestInfo,
    /// Query parameters.
    pub query: Query,
    /// Request headers.
    pub headers: HeaderMap,
    /// Who asks.
    pub user: UserInfo,
    /// The form of the answer.
    pub accepted: Accepted,
    /// When.
    pub now: jiff::Timestamp,
    /// Warnings for the client so far.
    pub warnings: Mutex<Vec<String>>,
}

impl Call {
    /// The caches that the resource's is among.
    pub fn caches(&self) -> &Caches {
        self.state.caches_of(&self.resource)
    }

    /// As errors name the resource.
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// `pods "x" not found`
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.group_resource(), &self.info.name)
    }

    /// What per-kind hooks are told.
    pub fn context(&self) -> Context<'_> {
        let (group, version) = self.resource.stored();
        Context {
            group,
            version,
            resource: &self.resource.name,
            subresource: Some(self.info.subresource.as_str()).filter(|name| !name.is_empty()),
            namespace: if self.resource.namespaced { &self.info.namespace } else { "" },
            labelled: true,
            now: self.now,
        }
    }

    /// Key of the addressed object.
    pub fn key(&self) -> String {
        self.resource.key(&self.info.namespace, &self.info.name)
    }

    /// `dryRun=All`; other values are refused.
    pub fn dry_run(&self) -> Result<bool, ApiError> {
        let mut dry_run = false;
        for value in self.query.all("dryRun") {
            match value {
                "All" => dry_run = true,
                "" => {}
                other => return Err(self.unsupported_option("dryRun", serde_json::json!([other]), &["All"])),
            }
        }
        Ok(dry_run)
    }

    /// Who owns the fields that this request sets: the parameter, else the client's name.
    pub fn manager(&self) -> String {
        if let Some(manager) = self.query.text("fieldManager") {
            return manager.to_owned();
        }
        let agent =
            self.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    }

    /// The same request for another object of the resource.
    pub fn for_object(&self, info: RequestInfo) -> Call {
        Call {
            state: self.state.clone(),
            resource: self.resource.clone(),
            info,
            query: self.query.clone(),
            headers: self.headers.clone(),
            user: self.user.clone(),
            accepted: self.accepted,
            now: self.now,
            warnings: Mutex::default(),
        }
    }

    /// Adds a warning for the client.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().push(text.into());
    }

    /// A query parameter with a value that is none of its.
    pub fn unsupported_option(&self, name: &str, value: serde_json::Value, supported: &[&str]) -> ApiError {
        let mut errors = ErrorList::new();
        errors.not_supported(&Path::new(name), value, supported);
        ApiError::invalid(&GroupResource::new("meta.k8s.io", self.options_kind()), "", errors)
    }

    fn options_kind(&self) -> &'static str {
        match self.info.verb.as_str() {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => "PatchOptions",
            _ => "DeleteOptions",
        }
    }
}
