//! How a component reaches the API server.

use std::path::Path;

use anyhow::Context;
use http::{Request, Response};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, Service};

/// A client from a kubeconfig file's current context.
pub async fn from_kubeconfig(path: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("kubeconfig {}", path.display()))?;
    // Watches are kept alive by the server's own timeout; an idle one is no error.
    config.read_timeout = None;
    Client::try_from(config).context("building the API client")
}

/// A client that calls an HTTP service in this process: no socket, no TLS.
pub fn from_service<S, B>(service: S) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static + Clone,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Client::new(service, "default")
}
