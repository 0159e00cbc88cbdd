//! The API server as a whole: built from configuration, a service for requests, tasks that run beside it.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use pintle_serving::http::Listener;
use pintle_serving::tls::Tls;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::access::UserInfo;
use crate::config::Config;
use crate::http::body::{self, Body, BoxError};
use crate::pipeline;
use crate::state::State;

/// An API server.
#[derive(Clone)]
pub struct ApiServer {
    state: Arc<State>,
}

impl ApiServer {
    /// Builds a server and starts what runs beside requests; it is ready when [`ApiServer::ready`] returns.
    pub fn build(config: Config) -> anyhow::Result<Self> {
        let shutdown = CancellationToken::new();
        let state = Arc::new(State::new(config, shutdown.clone())?);
        for caches in state.all_caches() {
            let (caches, shutdown) = (caches.clone(), shutdown.clone());
            tokio::spawn(async move { caches.run(shutdown).await });
        }
        tokio::spawn(crate::bootstrap::run(state.clone()));
        tokio::spawn(crate::bootstrap::apiservices::run(state.clone()));
        tokio::spawn(crate::bootstrap::verdicts::run(state.clone()));
        tokio::spawn(crate::custom::registry::run(state.clone()));
        tokio::spawn(crate::custom::controller::run(state.clone()));
        Ok(Self { state })
    }

    /// Waits until requests are answered from a filled cache and the system's own objects are there.
    pub async fn ready(&self) {
        self.state.cached().await;
        self.state.wait_bootstrapped().await;
    }

    /// The service that answers requests: behind a listener, or called in this process.
    pub fn service(&self) -> ApiService {
        ApiService { state: self.state.clone(), user: None }
    }

    /// The service for a component in this process: its requests are that user's and need no credentials.
    pub fn service_as(&self, user: UserInfo) -> ApiService {
        ApiService { state: self.state.clone(), user: Some(user) }
    }

    /// Serves the listeners until shutdown, then drains. Boxed, so that what a connection runs through is compiled here, for speed,
    /// and not with whoever awaits it.
    pub fn serve(&self, listeners: Vec<Listener>, tls: Tls, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        let server = self.clone();
        async move {
            let loops = listeners
                .into_iter()
                .map(|listener| pintle_serving::http::serve(listener, tls.clone(), server.service(), shutdown.clone()));
            let ended = async {
                shutdown.cancelled().await;
                server.stop();
            };
            tokio::join!(futures::future::join_all(loops), ended);
        }
        .boxed()
    }

    /// Ends watches and background tasks.
    pub fn stop(&self) {
        self.state.shutdown.cancel();
    }
}

/// Answers requests. In-process callers put a [`crate::access::UserInfo`] into the request's extensions.
#[derive(Clone)]
pub struct ApiService {
    state: Arc<State>,
    user: Option<UserInfo>,
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        answer(self.state.clone(), request.map(body::boxed))
    }
}

/// The way of all requests, whatever their body: compiled here.
fn answer(state: Arc<State>, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    async move {
        // A fault in one request must not take its connection's other requests along.
        match AssertUnwindSafe(pipeline::handle(state, request)).catch_unwind().await {
            Ok(response) => Ok(response),
            Err(_) => Ok(pipeline::fault()),
        }
    }
    .boxed()
}
