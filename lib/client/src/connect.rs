//! How a component reaches the API server.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Wake, Poll};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, Service};

/// Is told of every request's method, host and answer's code (`<error>` without one), and how long that took.
pub type Observer = Arc<dyn Fn(&Method, &str, &str, Duration) + Send + Sync>;

/// A client from a kubeconfig file's current context.
pub async fn from_kubeconfig(path: &Path) -> anyhow::Result<Client> {
    Client::try_from(config(path).await?).context("building the API client")
}

/// The same, observed.
pub async fn from_kubeconfig_observed(path: &Path, observer: Observer) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config(path).await?).context("building the API client")?;
    Ok(builder.with_layer(&tower::layer::layer_fn(|inner| Observed { inner, observer: observer.clone() })).build())
}

async fn config(path: &Path) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("kubeconfig {}", path.display()))?;
    // Watches are kept alive by the server's own timeout; an idle one is no error.
    config.read_timeout = None;
    Ok(config)
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

/// Any service of requests, observed.
#[derive(Clone)]
pub struct Observed<S> {
    /// The service.
    pub inner: S,
    /// Who is told.
    pub observer: Observer,
}

impl<S, A, B> Service<Request<A>> for Observed<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, wake: &mut Wake<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(wake)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let observer = self.observer.clone();
        let method = request.method().clone();
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let begin = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or("<error>", |status| status.as_str());
            observer(&method, &host, code, begin.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn requests_are_observed() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = seen.clone();
        let observer: Observer = Arc::new(move |method: &Method, host: &str, code: &str, _| {
            told.lock().push(format!("{method} {host} {code}"));
        });
        let inner = tower::service_fn(|request: Request<()>| async move {
            if request.uri().path() == "/lost" {
                Err("lost")
            } else {
                Ok(Response::builder().status(404).body(()).unwrap())
            }
        });
        let service = Observed { inner, observer };
        let ask = |path: &str| Request::builder().uri(format!("https://h:1{path}")).body(()).unwrap();
        service.clone().oneshot(ask("/x")).await.unwrap();
        service.oneshot(ask("/lost")).await.unwrap_err();
        assert_eq!(*seen.lock(), ["GET h:1 404", "GET h:1 <error>"]);
    }
}
