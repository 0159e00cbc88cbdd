//! The reconcile driver: workers that take keys from a queue and call a function with each.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::queue::Queue;

/// So many failures of a key in a row are reported as a warning, once.
const LOUD_FAILURES: u32 = 8;

/// What a reconciler wants next for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    Done,
    /// Another look after this long, whatever happens.
    RequeueAfter(Duration),
}

/// Runs `workers` workers until `shutdown`. An error (or a panic) of `reconcile` puts the key back with exponential
/// back-off; success ends the back-off.
pub async fn run<T, F, Fut>(queue: Queue<T>, workers: usize, shutdown: CancellationToken, reconcile: F)
where
    T: Hash + Eq + Clone + Send + Debug,
    F: Fn(T) -> Fut,
    Fut: Future<Output = anyhow::Result<Action>>,
{
    let close = queue.clone();
    let all = futures::future::join_all((0..workers).map(|_| worker(&queue, &reconcile)));
    tokio::select! {
        () = shutdown.cancelled() => close.close(),
        _ = all => {}
    }
}

async fn worker<T, F, Fut>(queue: &Queue<T>, reconcile: &F)
where
    T: Hash + Eq + Clone + Send + Debug,
    F: Fn(T) -> Fut,
    Fut: Future<Output = anyhow::Result<Action>>,
{
    while let Some(key) = queue.next().await {
        let outcome = std::panic::AssertUnwindSafe(reconcile(key.clone())).catch_unwind().await;
        match outcome {
            Ok(Ok(action)) => {
                queue.forget(&key);
                queue.done(&key);
                if let Action::RequeueAfter(delay) = action {
                    queue.add_after(key, delay);
                }
            }
            Ok(Err(error)) => {
                // Conflicts and stale caches are everyday; what goes on failing is worth a look.
                let error = format!("{error:#}");
                if queue.failures(&key) == LOUD_FAILURES {
                    tracing::warn!(?key, error, "reconcile goes on failing, will retry");
                } else {
                    tracing::debug!(?key, error, "reconcile failed, will retry");
                }
                queue.done(&key);
                queue.add_rate_limited(key);
            }
            Err(_) => {
                tracing::error!(?key, "reconcile panicked, will retry");
                queue.done(&key);
                queue.add_rate_limited(key);
            }
        }
    }
}
