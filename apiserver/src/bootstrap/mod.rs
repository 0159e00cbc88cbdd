//! Objects that the server itself keeps: namespaces, the `kubernetes` Service, priority classes, roles.

pub mod apiservices;
mod members;
mod objects;
mod rbac;
pub mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use pintle_machinery::status::ApiError;
use serde_json::Value;
use tracing::{info, warn};

use crate::engine::modify;
use crate::internal::{self, Address};
use crate::services;
use crate::state::State;

/// How often the objects are looked at again.
const INTERVAL: Duration = Duration::from_secs(10);
/// Pause before a failed first pass is repeated.
const RETRY: Duration = Duration::from_millis(200);

/// Creates what is missing, then keeps it as it should be until shutdown.
pub async fn run(state: Arc<State>) {
    state.cached().await;
    let mut first = true;
    loop {
        match pass(&state, first).await {
            Ok(()) if first => {
                first = false;
                // Authorization reads the cache: it has to know the roles before anybody is told to come in.
                if let Err(error) = state.consistent().await {
                    warn!(%error, "the cache is behind");
                }
                state.set_bootstrapped();
                info!("the system's own objects are in place");
            }
            Ok(()) => {}
            Err(error) => warn!(?error, "keeping the system's own objects failed, trying again"),
        }
        let pause = if first { RETRY } else { INTERVAL };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = state.shutdown.cancelled() => return members::leave(&state).await,
        }
    }
}

async fn pass(state: &Arc<State>, first: bool) -> Result<(), ApiError> {
    let namespace = |name| internal::ensure(state, Address::new("", "namespaces", "", name), objects::namespace(name));
    futures::future::try_join_all(objects::NAMESPACES.map(namespace)).await?;
    if first {
        services::repair(state).await?;
        rbac::reconcile(state).await?;
        for (name, object) in objects::priority_classes() {
            internal::ensure(state, Address::new("scheduling.k8s.io", "priorityclasses", "", name), object).await?;
        }
        let at = Address::new("networking.k8s.io", "servicecidrs", "", "kubernetes");
        internal::ensure(state, at, objects::service_cidr(&state.config)).await?;
        let mut ready = internal::call(state, "update", at)?;
        ready.info.subresource = "status".into();
        let make = |old: &Value| Ok(objects::ready_service_cidr(old));
        modify::modify(&ready, &make, modify::Ownership::Update, false).await?;
        let at = Address::new("", "configmaps", "kube-system", "extension-apiserver-authentication");
        keep(state, at, objects::authentication_config(&state.config), "data").await?;
    }
    let at = Address::new("", "services", "default", "kubernetes");
    internal::ensure(state, at, objects::kubernetes_service(&state.config)).await?;
    if state.config.advertise_address.is_loopback() {
        // Nobody but this machine could use it, and a loopback address is no valid endpoint.
        return Ok(());
    }
    let servers = members::renew(state).await?;
    let at = Address::new("", "endpoints", "default", "kubernetes");
    keep(state, at, objects::kubernetes_endpoints(&state.config, &servers), "subsets").await?;
    let at = Address::new("discovery.k8s.io", "endpointslices", "default", "kubernetes");
    keep(state, at, objects::kubernetes_slice(&state.config, &servers), "endpoints").await
}

/// Creates an object, or brings one of its fields to what it should be.
async fn keep(state: &Arc<State>, at: Address<'_>, object: Value, field: &str) -> Result<(), ApiError> {
    internal::ensure(state, at, object.clone()).await?;
    let Some(current) = internal::get(state, at).await? else { return Ok(()) };
    if current[field] == object[field] {
        return Ok(());
    }
    let make = |old: &Value| {
        let mut new = old.clone();
        new[field] = object[field].clone();
        Ok(new)
    };
    internal::update(state, at, &make).await
}
