//! How many objects a resource has in each namespace. A resource is followed from the first time that it is asked about:
//! clusters pay for what their quotas name, and for nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::context::Context;
use crate::discovery::{self, Resource};
use crate::meta;

/// How often the server is asked whether it has a resource that it did not have.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(15);

/// Names of objects by namespace.
type Names = HashMap<String, HashSet<String>>;
/// Told the namespace in which objects came or went.
type Notify = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
struct Feed {
    names: Arc<RwLock<Names>>,
    synced: watch::Receiver<bool>,
}

/// All that is followed.
pub struct Census {
    ctx: Context,
    notify: Notify,
    feeds: Mutex<HashMap<(String, String), Feed>>,
    known: Mutex<(Option<Instant>, Vec<Resource>)>,
}

impl Census {
    /// Nothing is followed yet.
    pub fn new(ctx: Context, notify: Notify) -> Self {
        Self { ctx, notify, feeds: Mutex::default(), known: Mutex::default() }
    }

    /// How many objects there are; `None` if the server has no such resource.
    pub async fn count(&self, group: &str, resource: &str, namespace: &str) -> anyhow::Result<Option<usize>> {
        let Some(mut feed) = self.feed(group, resource).await? else { return Ok(None) };
        feed.synced.wait_for(|done| *done).await?;
        let count = feed.names.read().get(namespace).map_or(0, HashSet::len);
        Ok(Some(count))
    }

    async fn feed(&self, group: &str, resource: &str) -> kube::Result<Option<Feed>> {
        let key = (group.to_owned(), resource.to_owned());
        if let Some(feed) = self.feeds.lock().get(&key) {
            return Ok(Some(feed.clone()));
        }
        let Some(found) = self.find(group, resource).await? else { return Ok(None) };
        let mut feeds = self.feeds.lock();
        Ok(Some(feeds.entry(key).or_insert_with(|| self.start(&found)).clone()))
    }

    async fn find(&self, group: &str, resource: &str) -> kube::Result<Option<Resource>> {
        let look = |known: &[Resource]| {
            let mut found = known.iter().filter(|r| r.api.group == group && r.api.plural == resource);
            found.find(|r| r.namespaced && r.can("list") && r.can("watch")).cloned()
        };
        {
            let known = self.known.lock();
            let recent = known.0.is_some_and(|at| at.elapsed() < DISCOVERY_PERIOD);
            let found = look(&known.1);
            if recent || found.is_some() {
                return Ok(found);
            }
        }
        let fresh = discovery::resources(&self.ctx.client).await?;
        let found = look(&fresh);
        *self.known.lock() = (Some(Instant::now()), fresh);
        Ok(found)
    }

    fn start(&self, resource: &Resource) -> Feed {
        let (tx, synced) = watch::channel(false);
        let feed = Feed { names: Arc::default(), synced };
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.ctx.client.clone(), &resource.api);
        let (names, notify, shutdown) = (feed.names.clone(), self.notify.clone(), self.ctx.shutdown.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = follow(api, &names, &notify, &tx) => {}
            }
        });
        feed
    }
}

async fn follow(
    api: Api<PartialObjectMeta<DynamicObject>>,
    names: &RwLock<Names>,
    notify: &Notify,
    synced: &watch::Sender<bool>,
) {
    let mut stream = Box::pin(watcher::watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = Names::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => drop(put(&mut listed, &object.metadata)),
            Ok(Event::InitDone) => {
                let new = std::mem::take(&mut listed);
                let old = std::mem::replace(&mut *names.write(), new);
                synced.send_replace(true);
                old.keys().for_each(|namespace| notify(namespace));
            }
            Ok(Event::Apply(object)) => {
                if put(&mut names.write(), &object.metadata) {
                    notify(meta::namespace(&object.metadata));
                }
            }
            Ok(Event::Delete(object)) => {
                let namespace = meta::namespace(&object.metadata);
                if let Some(own) = names.write().get_mut(namespace) {
                    own.remove(meta::name(&object.metadata));
                }
                notify(namespace);
            }
            Err(error) => tracing::debug!(%error, "watch failed, retrying"),
        }
    }
}

/// True if it was not there.
fn put(names: &mut Names, object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    names.entry(meta::namespace(object).to_owned()).or_default().insert(meta::name(object).to_owned())
}
