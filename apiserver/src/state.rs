//! What all requests share.

use std::collections::HashMap;
use std::sync::Arc;

use pintle_machinery::schema::Schema;
use pintle_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::Auth;
use crate::cache::Cache;
use crate::cache::follower::Caches;
use crate::config::Config;
use crate::conversion::GroupVersion;
use crate::registry;
use crate::resource::{Resource, key_prefix};

/// The server's state. Immutable but for the caches and what stands behind the store.
pub struct State {
    /// What the server was told.
    pub config: Config,
    /// The store.
    pub store: Arc<dyn Store>,
    /// All kinds.
    pub schema: &'static Schema,
    /// All resources, in discovery's order.
    pub resources: Vec<Arc<Resource>>,
    /// Their caches.
    pub caches: Arc<Caches>,
    /// Ends watches and background tasks.
    pub shutdown: CancellationToken,
    /// Prepared answers of discovery.
    pub discovery: crate::discovery::Discovery,
    /// What has been counted.
    pub metrics: crate::metrics::Metrics,
    /// OpenAPI documents.
    pub openapi: crate::openapi::OpenApi,
    /// Who may do what.
    pub auth: Auth,
    /// Who charges quotas.
    pub quota_turns: crate::admission::Turns,
    bootstrapped: watch::Sender<bool>,
    index: HashMap<(String, String, String), Arc<Resource>>,
}

impl State {
    /// From configuration.
    pub fn new(config: Config, shutdown: CancellationToken) -> anyhow::Result<Self> {
        let mut caches: HashMap<String, Arc<Cache>> = HashMap::new();
        let mut resources = Vec::new();
        for api in pintle_api::resources().iter().filter(|api| config.features.serves(api)) {
            let storage = storage_version(api);
            let rules = registry::rules(api.group, api.plural);
            let stored = api.verbs.contains(&"get") && api.plural != "componentstatuses";
            let cache = stored.then(|| {
                let prefix = key_prefix(api.group, api.plural);
                let stored = registry::rules(storage.0, api.plural);
                caches.entry(prefix.clone()).or_insert_with(|| Arc::new(Cache::new(prefix, stored))).clone()
            });
            resources.push(Arc::new(Resource::built_in(api, storage, cache, rules)));
        }
        let index = resources
            .iter()
            .map(|resource| {
                ((resource.group.clone(), resource.version.clone(), resource.name.clone()), resource.clone())
            })
            .collect();
        let caches = Arc::new(Caches::new(config.store.clone(), caches.into_values()));
        let discovery = crate::discovery::Discovery::new(pintle_api::schema(), &resources, &config);
        Ok(Self {
            store: config.store.clone(),
            schema: pintle_api::schema(),
            caches,
            shutdown,
            discovery,
            index,
            metrics: crate::metrics::Metrics::default(),
            openapi: crate::openapi::OpenApi::new(pintle_api::schema(), &resources),
            auth: Auth::new(&config, &resources)?,
            quota_turns: Default::default(),
            bootstrapped: watch::channel(false).0,
            resources,
            config,
        })
    }

    /// Some resource of that group is served.
    pub fn serves(&self, group: &str) -> bool {
        self.resources.iter().any(|resource| resource.group == group)
    }

    /// The system's own objects are there.
    pub fn bootstrapped(&self) -> bool {
        *self.bootstrapped.borrow()
    }

    /// Says that they are.
    pub fn set_bootstrapped(&self) {
        self.bootstrapped.send_replace(true);
    }

    /// Waits for that.
    pub async fn wait_bootstrapped(&self) {
        let _ = self.bootstrapped.subscribe().wait_for(|done| *done).await;
    }

    /// The resource of that group, version and plural name.
    pub fn resource(&self, group: &str, version: &str, name: &str) -> Option<&Arc<Resource>> {
        self.index.get(&(group.to_owned(), version.to_owned(), name.to_owned()))
    }

    /// A resource in any version (the first served).
    pub fn any_version(&self, group: &str, name: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| resource.group == group && resource.name == name)
    }
}

/// Group and version in which a resource is stored: the preferred one of its versions, served or not.
pub(crate) fn storage_version(api: &pintle_api::Resource) -> GroupVersion<'static> {
    if api.plural == "events" {
        return ("", "v1");
    }
    let first = pintle_api::resources().iter().find(|one| one.group == api.group && one.plural == api.plural);
    first.map_or((api.group, api.version), |first| (first.group, first.version))
}
