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
    /// By plural name, in discovery's order.
    index: HashMap<String, Vec<Arc<Resource>>>,
}

impl Served {
    fn new(resources: Vec<Arc<Resource>>, config: &Config, before: Option<&Self>) -> Self {
        let mut index: HashMap<String, Vec<Arc<Resource>>> = HashMap::new();
        for resource in &resources {
            index.entry(resource.name.clone()).or_default().push(resource.clone());
        }
        Self {
            discovery: crate::discovery::Discovery::new(pintle_api::schema(), &resources, config),
            openapi: crate::openapi::OpenApi::new(
                pintle_api::schema(),
                &resources,
                before.map(|before| &before.openapi),
            ),
            index,
            resources,
        }
    }

    fn find(&self, name: &str, wanted: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.index.get(name)?.iter().find(|resource| wanted(resource)).cloned()
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
    /// The resources' caches, but for those of [`State::caches_of`].
    pub caches: Arc<Caches>,
    /// The caches of resources that are in a store of their own, by their keys' prefix.
    separate: HashMap<String, Arc<Caches>>,
    /// Ends watches and background tasks.
    pub shutdown: CancellationToken,
    /// What has been counted.
    pub metrics: crate::metrics::Metrics,
    /// Who may do what.
    pub auth: Auth,
    /// What the cluster's users let judge requests.
    pub webhooks: crate::webhooks::Configs,
    /// Who charges quotas.
    pub quota_turns: crate::admission::Turns,
    bootstrapped: watch::Sender<bool>,
    /// Resources that no definition made.
    builtin: Vec<Arc<Resource>>,
    served: RwLock<Arc<Served>>,
    served_changes: watch::Sender<()>,
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
        let own = |(prefix, store)| {
            let cache = caches.remove(&prefix)?;
            Some((prefix, Arc::new(Caches::new(store, [cache]))))
        };
        let separate = config.store.separate().into_iter().filter_map(own).collect();
        let caches = Arc::new(Caches::new(config.store.clone(), caches.into_values()));
        let served = RwLock::new(Arc::new(Served::new(resources.clone(), &config, None)));
        Ok(Self {
            store: config.store.clone(),
            schema: pintle_api::schema(),
            caches,
            separate,
            shutdown,
            metrics: crate::metrics::Metrics::default(),
            auth: Auth::new(&config, &resources)?,
            webhooks: Default::default(),
            quota_turns: Default::default(),
            bootstrapped: watch::channel(false).0,
            builtin: resources,
            served,
            served_changes: watch::channel(()).0,
            config,
        })
    }

    /// The caches that a resource's is among: they share the revisions of a store.
    pub fn caches_of(&self, resource: &Resource) -> &Arc<Caches> {
        let own = resource.cache.as_ref().and_then(|cache| self.separate.get(&cache.prefix));
        own.unwrap_or(&self.caches)
    }

    /// The caches of all stores.
    pub fn all_caches(&self) -> impl Iterator<Item = &Arc<Caches>> {
        std::iter::once(&self.caches).chain(self.separate.values())
    }

    /// Waits until the first listing of each store is in the caches.
    pub async fn cached(&self) {
        for caches in self.all_caches() {
            caches.ready().await;
        }
    }

    /// Waits until all caches show what the stores held when this was called.
    pub async fn consistent(&self) -> Result<(), pintle_store::Error> {
        for caches in self.all_caches() {
            caches.consistent().await?;
        }
        Ok(())
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
        self.served_changes.send_replace(());
    }

    /// Tells when something else is served.
    pub fn served_changes(&self) -> watch::Receiver<()> {
        self.served_changes.subscribe()
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
        self.served.read().find(name, |resource| resource.group == group && resource.version == version)
    }

    /// A resource in any version (the first served).
    pub fn any_version(&self, group: &str, name: &str) -> Option<Arc<Resource>> {
        self.served.read().find(name, |resource| resource.group == group)
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
