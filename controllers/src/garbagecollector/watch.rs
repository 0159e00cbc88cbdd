//! Follows the metadata of every deletable resource and keeps the graph; resources come and go with discovery.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use pintle_client::queue::Queue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::graph::{Graph, Node, Place, Uid};
use crate::discovery::{self, Resource};
use crate::meta;

/// How often the server is asked for its resources.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// How long the first lists of all resources are waited for.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Resources that own nothing and are owned by nobody, but are many.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Of any object nothing but the metadata is asked for.
type Metadata = PartialObjectMeta<DynamicObject>;

/// The graph with the table of resources that it points into.
#[derive(Default)]
pub struct World {
    /// Who depends on whom.
    pub graph: Graph,
    /// Resources by position; rows are only ever added.
    pub resources: Vec<Resource>,
}

/// A feed of one resource.
struct Feed {
    stop: CancellationToken,
    synced: watch::Receiver<bool>,
}

/// All feeds.
pub struct Watches {
    client: Client,
    world: Arc<RwLock<World>>,
    queue: Queue<Uid>,
    shutdown: CancellationToken,
    feeds: Mutex<HashMap<usize, Feed>>,
}

impl Watches {
    /// No feeds yet; what they see goes into `world`, what is to be looked at into `queue`.
    pub fn new(client: Client, world: Arc<RwLock<World>>, queue: Queue<Uid>, shutdown: CancellationToken) -> Self {
        Self { client, world, queue, shutdown, feeds: Mutex::default() }
    }

    /// Follows discovery for ever; `ready` is called once every feed of the first round has its first list.
    pub async fn run(&self, ready: impl FnOnce()) {
        let mut ready = Some(ready);
        loop {
            match discovery::resources(&self.client).await {
                Ok(resources) => self.follow(resources),
                Err(error) => tracing::warn!(%error, "discovery failed, will retry"),
            }
            if !self.feeds.lock().is_empty()
                && let Some(ready) = ready.take()
            {
                // One resource that can't be listed must not keep all others from being collected.
                if tokio::time::timeout(FIRST_LISTS, self.synced()).await.is_err() {
                    tracing::warn!("some resources could not be listed in time, going on without them");
                }
                ready();
            }
            let pause = if ready.is_some() { Duration::from_secs(1) } else { DISCOVERY_PERIOD };
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn synced(&self) {
        let all: Vec<_> = self.feeds.lock().values().map(|f| f.synced.clone()).collect();
        for mut synced in all {
            // A feed that ends meanwhile has nothing to wait for.
            let _ = synced.wait_for(|done| *done).await;
        }
    }

    /// Starts feeds of new resources and ends those of resources that are gone.
    fn follow(&self, resources: Vec<Resource>) {
        let wanted = |r: &Resource| {
            let ignored = IGNORED.contains(&(r.api.group.as_str(), r.api.plural.as_str()));
            !ignored && ["list", "watch", "delete"].iter().all(|verb| r.can(verb))
        };
        let mut feeds = self.feeds.lock();
        let mut current = Vec::new();
        for resource in resources.into_iter().filter(wanted) {
            let row = self.row(&resource);
            current.push(row);
            feeds.entry(row).or_insert_with(|| self.start(row, resource));
        }
        let gone: Vec<usize> = feeds.keys().copied().filter(|row| !current.contains(row)).collect();
        for row in gone {
            if let Some(feed) = feeds.remove(&row) {
                feed.stop.cancel();
            }
            let uids = self.world.read().graph.of_resources(&|r| r == row);
            self.forget(uids);
        }
    }

    fn row(&self, resource: &Resource) -> usize {
        let mut world = self.world.write();
        let known = world.resources.iter().position(|r| r.api == resource.api);
        known.unwrap_or_else(|| {
            world.resources.push(resource.clone());
            world.resources.len() - 1
        })
    }

    fn start(&self, row: usize, resource: Resource) -> Feed {
        let stop = self.shutdown.child_token();
        let (tx, synced) = watch::channel(false);
        let api: Api<Metadata> = Api::all_with(self.client.clone(), &resource.api);
        let (world, queue, until) = (self.world.clone(), self.queue.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = until.cancelled() => {}
                () = feed(api, row, &world, &queue, &tx) => {}
            }
        });
        Feed { stop, synced }
    }

    fn forget(&self, uids: Vec<Uid>) {
        let wake: Vec<_> = {
            let mut world = self.world.write();
            uids.iter().flat_map(|uid| world.graph.remove(uid)).collect()
        };
        wake.into_iter().for_each(|uid| self.queue.add(uid));
    }
}

async fn feed(api: Api<Metadata>, row: usize, world: &RwLock<World>, queue: &Queue<Uid>, synced: &watch::Sender<bool>) {
    let mut stream = Box::pin(watcher::watcher(api, watcher::Config::default()).default_backoff());
    let mut listed: Vec<Uid> = Vec::new();
    while let Some(event) = stream.next().await {
        let wake = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(meta::uid(&object.metadata).to_owned());
                put(world, row, &object.metadata)
            }
            Ok(Event::Apply(object)) => put(world, row, &object.metadata),
            Ok(Event::Delete(object)) => world.write().graph.remove(meta::uid(&object.metadata)),
            Ok(Event::InitDone) => {
                let mut world = world.write();
                let gone = world.graph.of_resources(&|r| r == row);
                let listed: std::collections::HashSet<Uid> = listed.drain(..).collect();
                synced.send_replace(true);
                gone.iter().filter(|uid| !listed.contains(*uid)).flat_map(|uid| world.graph.remove(uid)).collect()
            }
            Err(error) => {
                tracing::debug!(%error, "watch failed, retrying");
                continue;
            }
        };
        wake.into_iter().for_each(|uid| queue.add(uid));
    }
}

fn put(
    world: &RwLock<World>,
    row: usize,
    object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Vec<Uid> {
    let place = Place { resource: row, ns: meta::namespace(object).to_owned(), name: meta::name(object).to_owned() };
    world.write().graph.put(meta::uid(object).to_owned(), Node::new(place, object))
}
