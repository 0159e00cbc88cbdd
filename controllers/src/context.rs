//! What every controller gets: client, settings, shared caches, shutdown.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Cached};
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::telemetry::Own;

/// Shared by all controllers of one process; clones are cheap and see the same caches.
#[derive(Clone)]
pub struct Context {
    /// The API.
    pub client: Client,
    /// Settings.
    pub config: Arc<Config>,
    /// Ends everything that was started through this context.
    pub shutdown: CancellationToken,
    caches: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
    own: Own,
}

impl Context {
    /// A context without any cache yet.
    pub fn new(client: Client, config: Config, shutdown: CancellationToken) -> Self {
        let own = Own::new(&config.telemetry);
        Self { client, config: Arc::new(config), shutdown, caches: Arc::default(), own }
    }

    /// The process-wide cache of a kind, in all namespaces; started by whoever asks first.
    pub fn cache<K: Cached>(&self) -> Cache<K> {
        let mut caches = self.caches.lock();
        let known = caches.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Cache<K>>());
        if let Some(cache) = known {
            return cache.clone();
        }
        let cache = Cache::start(Api::all(self.client.clone()), Default::default(), self.shutdown.clone());
        caches.insert(TypeId::of::<K>(), Box::new(cache.clone()));
        self.own.add_cache(&cache);
        cache
    }

    /// A work queue under upstream's name for it.
    pub fn queue<T: Hash + Eq + Clone + Send + 'static>(&self, name: &str) -> Queue<T> {
        let queue = Queue::new();
        self.own.add_queue(name, &queue);
        queue
    }

    /// An event recorder under a controller's name.
    pub fn recorder(&self, component: &str) -> Recorder {
        Recorder::new(self.client.clone(), component, "")
    }

    /// The API of a namespaced kind.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The API of a cluster-scoped kind, or of a namespaced one across namespaces.
    pub fn api_all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }
}
