//! Health and metrics of components: upstream's ports on the loopback address, whether a component runs alone or all of
//! them in one process.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use pintle_client::connect::Observer;
use pintle_serving::component::{Component, serve_component};
use pintle_serving::delegated::{Delegated, Settings};
use pintle_serving::metrics::DURATION_BUCKETS;
use pintle_serving::telemetry::Telemetry;
use pintle_serving::tls::SelfSigned;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A component's port for health and metrics.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    number: u16,
    /// HTTPS, and metrics only for those whom the API server allows to read them.
    secure: bool,
}

/// kube-scheduler's.
pub const SCHEDULER: Port = Port { number: 10259, secure: true };
/// kube-controller-manager's.
pub const CONTROLLER_MANAGER: Port = Port { number: 10257, secure: true };
/// kube-proxy's for metrics.
pub const PROXY: Port = Port { number: 10249, secure: false };
/// CoreDNS' for metrics.
pub const DNS: Port = Port { number: 9153, secure: false };

impl Port {
    /// The same at another number, as a flag says.
    pub fn at(self, number: Option<u16>) -> Self {
        Self { number: number.unwrap_or(self.number), ..self }
    }

    /// Serves until `shutdown`; fails if the port is taken. Port 0 turns it off. Who may read the metrics of a secure port
    /// is asked by `client`; certificates of clients are those of `client_ca`.
    pub async fn serve(
        self,
        telemetry: &Telemetry,
        client: &Client,
        client_ca: Option<Vec<u8>>,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        if self.number == 0 {
            return Ok(());
        }
        let address = SocketAddr::from(([127, 0, 0, 1], self.number));
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
        let (tls, auth) = match self.secure {
            true => {
                let tls = SelfSigned::new(&["localhost", "127.0.0.1"])?.tls(client_ca.as_deref())?;
                (Some(tls), Some(Delegated::new(client.clone(), Settings::new(client_ca))?))
            }
            false => (None, None),
        };
        let component = Component { checks: telemetry.checks.clone(), metrics: telemetry.metrics.clone(), auth };
        tokio::spawn(serve_component(listener, tls, component, shutdown.clone()));
        Ok(())
    }

    /// Serves if the port is free: a component of an all-in-one process works without.
    pub async fn try_serve(
        self,
        telemetry: &Telemetry,
        client: &Client,
        client_ca: Option<Vec<u8>>,
        shutdown: &CancellationToken,
    ) {
        if let Err(error) = self.serve(telemetry, client, client_ca, shutdown).await {
            tracing::warn!(error = format!("{error:#}"), "health and metrics of a component are not served");
        }
    }
}

/// Counts a component's requests to the API server.
pub fn requests(telemetry: &Telemetry) -> Observer {
    let help = "Number of HTTP requests, partitioned by status code, method, and host.";
    let requests = telemetry.metrics.counter("rest_client_requests_total", help, ["code", "host", "method"]);
    let help = "Request latency in seconds. Broken down by verb, and host.";
    let name = "rest_client_request_duration_seconds";
    let durations = telemetry.metrics.histogram(name, help, ["host", "verb"], DURATION_BUCKETS);
    Arc::new(move |method, host, code, took| {
        requests.inc([code, host, method.as_str()]);
        durations.observe([host, method.as_str()], took.as_secs_f64());
    })
}
