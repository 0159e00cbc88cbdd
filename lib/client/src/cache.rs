//! A shared, watch-fed cache of one resource.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// What happened to an object, in the order the server reported it.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is new to the cache (also: was there when the subscription began).
    Added(Arc<K>),
    /// The object was replaced by a newer version.
    Updated {
        /// The version that the cache had.
        old: Arc<K>,
        /// The version that it has now.
        new: Arc<K>,
    },
    /// The object is gone; the last version that the cache saw.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest version of the object that the change is about.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Added(o) | Change::Deleted(o) | Change::Updated { new: o, .. } => o,
        }
    }
}

/// What a cached type must be able to do.
pub trait Cached: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static> Cached for K {}

/// (namespace, name); the namespace is empty for cluster-scoped objects.
type Key = (String, String);

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
}

/// A handle to the shared cache; clones see the same state. Dropping all handles does not stop the feed, the token does.
pub struct Cache<K> {
    state: Arc<RwLock<State<K>>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), synced: self.synced.clone() }
    }
}

impl<K: Cached> Cache<K> {
    /// Starts the feed: list, then watch, retried with back-off until `shutdown`. Managed fields are dropped to save
    /// memory: components do not use them.
    pub fn start(api: Api<K>, config: watcher::Config, shutdown: CancellationToken) -> Self {
        let state = Arc::new(RwLock::new(State { objects: BTreeMap::new(), subscribers: Vec::new() }));
        let (synced_tx, synced) = watch::channel(false);
        let cache = Self { state, synced };
        let feed = cache.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = feed.follow(api, config, synced_tx) => {}
            }
        });
        cache
    }

    async fn follow(&self, api: Api<K>, config: watcher::Config, synced: watch::Sender<bool>) {
        use kube::runtime::WatchStreamExt;
        let mut stream = Box::pin(watcher::watcher(api, config).default_backoff());
        let mut pending: HashMap<Key, Arc<K>> = HashMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => pending.clear(),
                Ok(Event::InitApply(object)) => {
                    let (key, object) = prepare(object);
                    pending.insert(key, object);
                }
                Ok(Event::InitDone) => {
                    self.replace(std::mem::take(&mut pending));
                    synced.send_replace(true);
                }
                Ok(Event::Apply(object)) => {
                    let (key, object) = prepare(object);
                    self.put(&mut self.state.write(), key, object);
                }
                Ok(Event::Delete(object)) => {
                    let (key, object) = prepare(object);
                    self.remove(&mut self.state.write(), &key, Some(object));
                }
                Err(error) => tracing::debug!(kind = %K::kind(&()), %error, "watch failed, retrying"),
            }
        }
    }

    fn replace(&self, fresh: HashMap<Key, Arc<K>>) {
        let mut state = self.state.write();
        let gone: Vec<Key> = state.objects.keys().filter(|k| !fresh.contains_key(*k)).cloned().collect();
        for key in gone {
            self.remove(&mut state, &key, None);
        }
        for (key, object) in fresh {
            self.put(&mut state, key, object);
        }
    }

    fn put(&self, state: &mut State<K>, key: Key, new: Arc<K>) {
        let change = match state.objects.insert(key, new.clone()) {
            Some(old) if old.meta().resource_version == new.meta().resource_version => return,
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        };
        publish(state, change);
    }

    fn remove(&self, state: &mut State<K>, key: &Key, last: Option<Arc<K>>) {
        if let Some(old) = state.objects.remove(key) {
            publish(state, Change::Deleted(last.unwrap_or(old)));
        }
    }

    /// Returns once the first full list is in the cache.
    pub async fn synced(&self) {
        // The sender lives as long as the feed; when it is gone the process is shutting down.
        let _ = self.synced.clone().wait_for(|done| *done).await;
    }

    /// True once the first full list is in the cache.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The object, if the cache has it. `ns` is `None` for cluster-scoped objects.
    pub fn get(&self, ns: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.state.read().objects.get(&(ns.unwrap_or_default().to_owned(), name.to_owned())).cloned()
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// The objects of one namespace, ordered by name.
    pub fn list_in(&self, ns: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        let from = (ns.to_owned(), String::new());
        state.objects.range(from..).take_while(|((n, _), _)| n == ns).map(|(_, o)| o.clone()).collect()
    }

    /// Number of cached objects.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// True if nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A feed of changes: first the present objects as [`Change::Added`], then every change in order, without a gap.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (tx, rx) = mpsc::unbounded_channel();
        let mut state = self.state.write();
        for object in state.objects.values() {
            let _ = tx.send(Change::Added(object.clone()));
        }
        state.subscribers.push(tx);
        rx
    }

    /// Calls `handle` with every change until `shutdown`; the usual way to feed a queue.
    pub fn on_change(&self, shutdown: CancellationToken, mut handle: impl FnMut(Change<K>) + Send + 'static) {
        let mut changes = self.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    change = changes.recv() => match change {
                        Some(change) => handle(change),
                        None => return,
                    },
                }
            }
        });
    }
}

fn prepare<K: Cached>(mut object: K) -> (Key, Arc<K>) {
    object.managed_fields_mut().clear();
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    (key, Arc::new(object))
}

fn publish<K>(state: &mut State<K>, change: Change<K>) {
    let mut last = state.subscribers.len();
    while last > 0 {
        last -= 1;
        let copy = match &change {
            Change::Added(o) => Change::Added(o.clone()),
            Change::Updated { old, new } => Change::Updated { old: old.clone(), new: new.clone() },
            Change::Deleted(o) => Change::Deleted(o.clone()),
        };
        if state.subscribers[last].send(copy).is_err() {
            state.subscribers.swap_remove(last);
        }
    }
}
