//! What all requests share.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
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

/// What is served at the moment. Immutable: a change of the definitions makes another.
pub struct Served {
    /// All resources, in discovery's order.
    pub resources: Vec<Arc<Resource>>,
    /// Prepared answers of discovery.
    pub discovery: crate::discovery::Discovery,
    /// OpenAPI documents.
    pub openapi: crate::openapi::OpenApi,
    index: HashMap<(String, String, String), Arc<Resource>>,
}

impl Served {
    fn new(resources: Vec<Arc<Resource>>, config: &Config, before: Option<&Self>) -> Self {
        let key = |resource: &Resource| (resource.group.clone(), resource.version.clone(), resource.name.clone());
        Self {
            discovery: crate::discovery::Discovery::new(pintle_api::schema(), &resources, config),
            openapi: crate::openapi::OpenApi::new(
                pintle_api::schema(),
                &resources,
                before.map(|before| &before.openapi),
            ),
            index: resources.iter().map(|resource| (key(resource), resource.clone())).collect(),
            resources,
        }
    }
}

/// The server's state. Immutable but for the caches, what is served and what stands behind the store.
pub struct State {
    /// What the server was told.
    pub config: Config,
    /// The store.
    pub store: Arc<dyn Store>,
    /// All kinds.
    pub schema: &'static Schema,
    /// The resources' caches.
    pub caches: Arc<Caches>,
    /// Ends watches and background tasks.
    pub shutdown: CancellationToken,
    /// What has been counted.
    pub metrics: crate::metrics::Metrics,
    /// Who may do what.
    pub auth: Auth,
    /// Who charges quotas.
    pub quota_turns: crate::admission::Turns,
    bootstrapped: watch::Sender<bool>,
    /// Resources that no definition made.
    builtin: Vec<Arc<Resource>>,
    served: RwLock<Arc<Served>>,
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
        let caches = Arc::new(Caches::new(config.store.clone(), caches.into_values()));
        let served = RwLock::new(Arc::new(Served::new(resources.clone(), &config, None)));
        Ok(Self {
            store: config.store.clone(),
            schema: pintle_api::schema(),
            caches,
            shutdown,
            metrics: crate::metrics::Metrics::default(),
            auth: Auth::new(&config, &resources)?,
            quota_turns: Default::default(),
            bootstrapped: watch::channel(false).0,
            builtin: resources,
            served,
            config,
        })
    }

    /// What is served at the moment.
    pub fn served(&self) -> Arc<Served> {
        self.served.read().clone()
    }

    /// Serves these resources beside the built-in ones from now on.
    pub fn serve_custom(&self, custom: Vec<Arc<Resource>>) {
        let resources = self.builtin.iter().cloned().chain(custom).collect();
        let served = Arc::new(Served::new(resources, &self.config, Some(&self.served())));
        *self.served.write() = served;
    }

    /// Some resource of that group is served.
    pub fn serves(&self, group: &str) -> bool {
        self.served().resources.iter().any(|resource| resource.group == group)
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
    pub fn resource(&self, group: &str, version: &str, name: &str) -> Option<Arc<Resource>> {
        self.served().index.get(&(group.to_owned(), version.to_owned(), name.to_owned())).cloned()
    }

    /// A resource in any version (the first served).
    pub fn any_version(&self, group: &str, name: &str) -> Option<Arc<Resource>> {
        let served = self.served();
        served.resources.iter().find(|resource| resource.group == group && resource.name == name).cloned()
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
