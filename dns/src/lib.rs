//! Cluster DNS: the records of Kubernetes' DNS specification (1.1.0), straight from shared caches; other names are relayed
//! to the resolvers of the node.
//!
//! - [`records`]: the records, pure: what Services and EndpointSlices say, looked up by name and type;
//! - [`answer`]: one query message to one response message, pure but for the relay;
//! - [`run`]: caches, sockets (UDP and TCP), relay.
//!
//! Invariants: a lookup never waits for the API; a packet that is no query is dropped; what waits for a resolver is bounded
//! in number and time.

pub mod answer;
pub mod records;
mod relay;
mod server;
mod telemetry;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hickory_proto::rr::Name;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use parking_lot::RwLock;
use pintle_client::cache::{Cache, Change};
use pintle_serving::telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::records::Records;
use crate::telemetry::Metrics;

/// What the server needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's domain, `cluster.local`.
    pub domain: String,
    /// Addresses to listen on, UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// File that names the resolvers for other names; none: other names do not exist.
    pub resolv_conf: Option<PathBuf>,
    /// Life of a record in resolvers' caches, seconds.
    pub ttl: u32,
    /// Where it tells about itself.
    pub telemetry: Telemetry,
}

/// Serves until `shutdown`. The sockets are open before the caches are filled: until then queries fail as SERVFAIL.
pub async fn run(config: Config, client: kube::Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let domain = Name::from_ascii(format!("{}.", config.domain.trim_end_matches('.')))
        .with_context(|| format!("cluster domain {}", config.domain))?;
    let metrics = Arc::new(Metrics::new(&config.telemetry, domain.clone()));
    let records = Arc::new(RwLock::new(Records::default()));
    let services: Cache<Service> = Cache::start(Api::all(client.clone()), Default::default(), shutdown.clone());
    let slices: Cache<EndpointSlice> = Cache::start(Api::all(client), Default::default(), shutdown.clone());
    follow(&services, &slices, &records, &shutdown);
    let ready = {
        let (records, metrics) = (records.clone(), metrics.clone());
        async move {
            services.synced().await;
            slices.synced().await;
            records.write().set_complete();
            metrics.complete();
            tracing::info!("cluster DNS has all records");
        }
    };
    tokio::spawn(ready);
    server::serve(config, domain, records, metrics, shutdown).await
}

fn follow(
    services: &Cache<Service>,
    slices: &Cache<EndpointSlice>,
    records: &Arc<RwLock<Records>>,
    shutdown: &CancellationToken,
) {
    let to = records.clone();
    services.on_change(shutdown.clone(), move |change| match change {
        Change::Deleted(service) => to.write().remove_service(&service),
        other => to.write().put_service(other.object()),
    });
    let to = records.clone();
    slices.on_change(shutdown.clone(), move |change| match change {
        Change::Deleted(slice) => to.write().remove_slice(&slice),
        Change::Updated { old, new } => {
            let mut records = to.write();
            records.remove_slice(&old);
            records.put_slice(&new);
        }
        Change::Added(slice) => to.write().put_slice(&slice),
    });
}
