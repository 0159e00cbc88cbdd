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
use crate::retry::is_not_found;

/// How often the server is asked whether it has a resource that it did not have.
pub const DISCOVERY_PERIOD: Duration = Duration::from_secs(15);
/// How long a count waits for the first list of its resource.
const LISTING: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 5000 });

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
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    feeds: HashMap<(String, String), Feed>,
    /// What the server has, and when it said so.
    resources: Vec<Resource>,
    asked: Option<Instant>,
}

impl Census {
    /// Nothing is followed yet.
    pub fn new(ctx: Context, notify: Notify) -> Self {
        Self { ctx, notify, known: Arc::default() }
    }

    /// How many objects there are; `None` if nobody can tell at present: the server has no such resource, or does not list it.
    pub async fn count(&self, group: &str, resource: &str, namespace: &str) -> anyhow::Result<Option<usize>> {
        let Some(mut feed) = self.feed(group, resource).await? else { return Ok(None) };
        let listed = tokio::time::timeout(LISTING, feed.synced.wait_for(|done| *done)).await;
        let Ok(Ok(_)) = listed else { return Ok(None) };
        let count = feed.names.read().get(namespace).map_or(0, HashSet::len);
        Ok(Some(count))
    }

    async fn feed(&self, group: &str, resource: &str) -> kube::Result<Option<Feed>> {
        let key = (group.to_owned(), resource.to_owned());
        if let Some(feed) = self.known.lock().feeds.get(&key) {
            return Ok(Some(feed.clone()));
        }
        let Some(found) = self.find(group, resource).await? else { return Ok(None) };
        let mut known = self.known.lock();
        Ok(Some(known.feeds.entry(key.clone()).or_insert_with(|| self.start(key, &found)).clone()))
    }

    async fn find(&self, group: &str, resource: &str) -> kube::Result<Option<Resource>> {
        let look = |resources: &[Resource]| {
            let mut found = resources.iter().filter(|r| r.api.group == group && r.api.plural == resource);
            found.find(|r| r.namespaced && r.can("list") && r.can("watch")).cloned()
        };
        {
            let known = self.known.lock();
            let recent = known.asked.is_some_and(|at| at.elapsed() < DISCOVERY_PERIOD);
            let found = look(&known.resources);
            if recent || found.is_some() {
                return Ok(found);
            }
        }
        let fresh = discovery::resources(&self.ctx.client).await?;
        let found = look(&fresh);
        let mut known = self.known.lock();
        (known.asked, known.resources) = (Some(Instant::now()), fresh);
        Ok(found)
    }

    fn start(&self, key: (String, String), resource: &Resource) -> Feed {
        let (tx, synced) = watch::channel(false);
        let feed = Feed { names: Arc::default(), synced };
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.ctx.client.clone(), &resource.api);
        let (names, notify, shutdown) = (feed.names.clone(), self.notify.clone(), self.ctx.shutdown.clone());
        let known = self.known.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = follow(api, &names, &notify, &tx) => {}
            }
            tracing::info!(group = key.0, resource = key.1, "resource is gone, no longer followed");
            {
                let mut known = known.lock();
                known.feeds.remove(&key);
                known.resources.retain(|r| (&r.api.group, &r.api.plural) != (&key.0, &key.1));
            }
            names.read().keys().for_each(|namespace| notify(namespace));
        });
        feed
    }
}

/// Follows a resource until the server no longer has it.
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
                let changed = differing(&names.read(), &new);
                *names.write() = new;
                synced.send_replace(true);
                changed.iter().for_each(|namespace| notify(namespace));
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
            Err(error) if is_gone(&error) => return,
            Err(error) => tracing::debug!(%error, "watch failed, retrying"),
        }
    }
}

fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => is_not_found(error),
        _ => false,
    }
}

/// Namespaces with objects in one of the two that are not in the other one.
fn differing(old: &Names, new: &Names) -> Vec<String> {
    let none = HashSet::new();
    let all: HashSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |ns: &&String| old.get(*ns).unwrap_or(&none) != new.get(*ns).unwrap_or(&none);
    all.into_iter().filter(differs).cloned().collect()
}

/// True if it was not there.
fn put(names: &mut Names, object: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> bool {
    names.entry(meta::namespace(object).to_owned()).or_default().insert(meta::name(object).to_owned())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU8, Ordering};

    use http::{Request, Response};
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt, Full, StreamBody};
    use kube::client::Body;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Config;

    const SERVED: u8 = 0;
    const SILENT: u8 = 1;
    const GONE: u8 = 2;

    type Answer = UnsyncBoxBody<bytes::Bytes, Infallible>;

    /// A server with `gadgets.example.com`, one in namespace `a`.
    async fn answer(request: Request<Body>, mode: Arc<AtomicU8>) -> Result<Response<Answer>, Infallible> {
        let mode = mode.load(Ordering::SeqCst);
        let verbs = json!(["list", "watch"]);
        let version = json!({"groupVersion": "example.com/v1", "version": "v1"});
        let aggregated = format!("{:?}", request.headers().get("accept")).contains("apidiscovery");
        let status = |code| json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
        let (code, value) = match request.uri().path() {
            "/api" | "/apis" if aggregated => (406, status(406)),
            "/api" => (200, json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
            "/apis" => (
                200,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups":
                [{"name": "example.com", "versions": [version.clone()], "preferredVersion": version}]}),
            ),
            "/api/v1" => (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})),
            "/apis/example.com/v1" => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources":
                [{"name": "gadgets", "singularName": "gadget", "kind": "Gadget", "namespaced": true, "verbs": verbs}]}),
            ),
            _ if mode == GONE => (404, status(404)),
            _ if mode == SILENT => std::future::pending().await,
            _ if request.uri().query().unwrap_or_default().contains("watch=true") => {
                let silence = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, Infallible>>();
                return Ok(Response::new(StreamBody::new(silence).boxed_unsync()));
            }
            _ => (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items":
                [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "g", "namespace": "a"}}]}),
            ),
        };
        let body = Full::from(serde_json::to_vec(&value).expect("JSON")).boxed_unsync();
        Ok(Response::builder().status(code).header("content-type", "application/json").body(body).expect("an answer"))
    }

    fn census(mode: &Arc<AtomicU8>) -> (Census, Arc<Mutex<Vec<String>>>) {
        let mode = mode.clone();
        let service = tower::service_fn(move |request| answer(request, mode.clone()));
        let client = pintle_client::connect::from_service(service);
        let ctx = Context::new(client, Config::default(), CancellationToken::new());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let told = woken.clone();
        (Census::new(ctx, Arc::new(move |namespace: &str| told.lock().push(namespace.to_owned()))), woken)
    }

    #[tokio::test]
    async fn a_resource_that_is_not_listed_holds_nobody_up() {
        let mode = Arc::new(AtomicU8::new(SILENT));
        let (census, _) = census(&mode);
        let count = tokio::time::timeout(Duration::from_secs(30), census.count("example.com", "gadgets", "a")).await;
        assert_eq!(count.expect("in time").expect("no failure"), None);
        assert_eq!(census.known.lock().feeds.len(), 1, "asked for, but nothing came");
        assert_eq!(census.count("example.com", "others", "a").await.expect("no failure"), None);
    }

    #[tokio::test]
    async fn a_resource_that_went_is_followed_anew_when_it_is_back() {
        let mode = Arc::new(AtomicU8::new(GONE));
        let (census, woken) = census(&mode);
        assert_eq!(census.count("example.com", "gadgets", "a").await.expect("no failure"), None);
        assert!(census.known.lock().feeds.is_empty(), "no longer asked for");
        census.known.lock().asked = None;
        mode.store(SERVED, Ordering::SeqCst);
        assert_eq!(census.count("example.com", "gadgets", "a").await.expect("no failure"), Some(1));
        assert_eq!(*woken.lock(), ["a"], "what the first list shows is news");
    }

    #[test]
    fn both_sides_of_a_difference_are_told() {
        let names = |all: &[(&str, &str)]| {
            let mut names = Names::new();
            for (namespace, name) in all {
                names.entry((*namespace).to_owned()).or_default().insert((*name).to_owned());
            }
            names
        };
        let (old, new) = (names(&[("a", "x"), ("b", "x"), ("d", "x")]), names(&[("b", "x"), ("c", "x"), ("d", "y")]));
        let mut told = differing(&old, &new);
        told.sort();
        assert_eq!(told, ["a", "c", "d"]);
    }
}
