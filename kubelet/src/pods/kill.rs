//! Stops a container: event, preStop hook, TERM, KILL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;

use super::{hooks, spec};
use crate::shared::Shared;

/// What is left of the grace period after a hook is at least this, in seconds.
const MINIMUM: i64 = 2;

/// The container to stop.
pub struct Order {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Runtime id.
    pub id: String,
    /// Name in the pod.
    pub name: String,
    /// The pod's address, for HTTP hooks.
    pub ip: String,
    /// Grace period in seconds.
    pub grace: i64,
    /// Message of the event.
    pub message: String,
    /// The order repeats an earlier one with a shorter grace period: neither event nor hook.
    pub again: bool,
}

/// Carries the order out; ends when the container has ended.
pub async fn run(shared: &Shared, order: &Order) -> pintle_cri::Result<()> {
    let mut grace = order.grace;
    let known = spec::container(&order.pod, &order.name);
    if !order.again {
        let kind = known.as_ref().map_or(spec::Kind::App, |(k, _)| *k);
        let about = spec::container_reference(&order.pod, kind, &order.name);
        shared.events.normal(&about, "Killing", order.message.clone());
        let hook = known.as_ref().and_then(|(_, c)| c.lifecycle.as_ref()).and_then(|l| l.pre_stop.as_ref());
        if let (Some((_, container)), Some(hook), true) = (&known, hook, grace > 0) {
            let begun = Instant::now();
            let work = hooks::run(shared, &order.pod, container, &order.id, &order.ip, hook);
            let limit = Duration::from_secs(grace.unsigned_abs());
            if let Ok(Err(error)) = tokio::time::timeout(limit, work).await {
                tracing::info!(pod = spec::full_name(&order.pod), container = order.name, error, "preStop hook failed");
                shared.events.warning(&about, "FailedPreStopHook", "PreStopHook failed");
            }
            let used = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
            grace = (grace - used).max(MINIMUM);
        }
    }
    match shared.cri.stop_container(&order.id, grace).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
