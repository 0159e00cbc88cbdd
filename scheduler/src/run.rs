//! The shell: caches in, effects out, one task that owns the core.

use std::sync::Arc;
use std::time::Instant;

use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, Resource};
use pintle_client::cache::{Cache, Cached, Change};
use pintle_serving::telemetry::Telemetry;
use rand::Rng;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cache::OwnerKey;
use crate::core::{Core, Effect, Input};
use crate::cycle::Profile;
use crate::effects::Actor;
use crate::queue::Pauses;
use crate::selector::Selector;
use crate::telemetry::Metrics;

/// So many requests to the API are under way at once.
const MAX_REQUESTS: usize = 64;

/// What the scheduler is told.
#[derive(Clone)]
pub struct Config {
    /// The profiles; a pod picks one by name.
    pub profiles: Vec<Profile>,
    /// Pauses between attempts.
    pub pauses: Pauses,
    /// Share of the nodes to find before scoring; 0 lets the size of the cluster decide.
    pub percentage_of_nodes_to_score: usize,
    /// The name of this machine, for events.
    pub host: String,
    /// Where it tells about itself.
    pub telemetry: Telemetry,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            profiles: vec![Profile::with_defaults("default-scheduler")],
            pauses: Pauses::default(),
            percentage_of_nodes_to_score: 0,
            host: String::new(),
            telemetry: Telemetry::default(),
        }
    }
}

type Inputs = SelectAll<BoxStream<'static, Input>>;

/// Schedules pods until told to stop.
///
/// # Errors
/// None at present: whatever the API answers is retried.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new(&config.telemetry));
    let mut inputs = sources(&client, &shutdown).await;
    metrics.synced();
    let (bound, bindings) = mpsc::unbounded_channel();
    inputs.push(UnboundedReceiverStream::new(bindings).boxed());
    let actor = Actor::new(client, config.host.clone());
    let permits = Arc::new(Semaphore::new(MAX_REQUESTS));
    let pick = Box::new(|n: usize| rand::rng().random_range(0..n.max(1)));
    let mut core = Core::new(config.profiles, config.pauses, config.percentage_of_nodes_to_score, Instant::now(), pick);
    info!("scheduler runs");
    while !shutdown.is_cancelled() {
        while let Some(Some(input)) = inputs.next().now_or_never() {
            core.handle(input, Instant::now());
        }
        let begin = Instant::now();
        let effects = core.step(begin);
        metrics.sizes(&core);
        if let Some(effects) = effects {
            metrics.attempt(&effects, begin.elapsed());
            for effect in effects {
                spawn(&actor, &permits, &bound, &metrics, begin, effect);
            }
            tokio::task::yield_now().await;
            continue;
        }
        let due = core.next_due();
        let pause = async {
            match due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = pause => {}
            input = inputs.next() => match input {
                Some(input) => core.handle(input, Instant::now()),
                None => break,
            },
        }
    }
    Ok(())
}

fn spawn(
    actor: &Actor,
    permits: &Arc<Semaphore>,
    bound: &mpsc::UnboundedSender<Input>,
    metrics: &Arc<Metrics>,
    begin: Instant,
    effect: Effect,
) {
    let (actor, permits, bound, metrics) = (actor.clone(), permits.clone(), bound.clone(), metrics.clone());
    let profile = match &effect {
        Effect::Bind { pod, .. } => pod.scheduler_name().to_owned(),
        _ => String::new(),
    };
    tokio::spawn(async move {
        // Volumes may take long to come; nobody else is to wait for them.
        let outcome = match actor.prepare(&effect).await {
            false => effect.pod_to_bind().map(|uid| (uid, false)),
            true => {
                let _permit = permits.acquire_owned().await;
                actor.carry_out(effect).await
            }
        };
        if let Some((uid, written)) = outcome {
            metrics.bound(&profile, written, begin.elapsed());
            let _ = bound.send(Input::Bound { uid, written });
        }
    });
}

/// Starts all caches and waits until each has the present state.
async fn sources(client: &Client, shutdown: &CancellationToken) -> Inputs {
    let all = watcher::Config::default;
    let live = all().fields("status.phase!=Succeeded,status.phase!=Failed");
    let streams = tokio::join!(
        source::<Pod>(client, live, shutdown, Input::Pod),
        source::<Node>(client, all(), shutdown, Input::Node),
        source::<Namespace>(client, all(), shutdown, Input::Namespace),
        source::<PodDisruptionBudget>(client, all(), shutdown, Input::Budget),
        source::<PersistentVolumeClaim>(client, all(), shutdown, Input::Claim),
        source::<PersistentVolume>(client, all(), shutdown, Input::Volume),
        source::<StorageClass>(client, all(), shutdown, Input::Class),
        source::<Service>(client, all(), shutdown, |c| owner("Service", c, |s| {
            Some(Selector::equals(s.spec.as_ref()?.selector.as_ref()))
        })),
        source::<ReplicationController>(client, all(), shutdown, |c| owner("ReplicationController", c, |r| {
            Some(Selector::equals(r.spec.as_ref()?.selector.as_ref()))
        })),
        source::<ReplicaSet>(client, all(), shutdown, |c| owner("ReplicaSet", c, |r| {
            Some(Selector::new(&r.spec.selector))
        })),
        source::<StatefulSet>(client, all(), shutdown, |c| owner("StatefulSet", c, |s| {
            Some(Selector::new(&s.spec.selector))
        })),
    );
    let (a, b, c, d, e, f, g, h, i, j, k) = streams;
    select_all([a, b, c, d, e, f, g, h, i, j, k])
}

async fn source<K: Cached>(
    client: &Client,
    config: watcher::Config,
    shutdown: &CancellationToken,
    wrap: fn(Change<K>) -> Input,
) -> BoxStream<'static, Input> {
    let cache: Cache<K> = Cache::start(Api::all(client.clone()), config, shutdown.clone());
    tokio::select! {
        () = cache.synced() => {}
        () = shutdown.cancelled() => {}
    }
    UnboundedReceiverStream::new(cache.subscribe()).map(wrap).boxed()
}

fn owner<K: Resource<DynamicType = ()>>(
    kind: &'static str,
    change: Change<K>,
    selector: fn(&K) -> Option<Selector>,
) -> Input {
    let object = change.object();
    let meta = object.meta();
    let key = OwnerKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        kind,
        name: meta.name.clone().unwrap_or_default(),
    };
    let gone = matches!(change, Change::Deleted(_));
    Input::Owner(key, selector(object).filter(|_| !gone))
}
