//! From a request to its answer.

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, request};
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pintle_cri::messages::{ContainerState, ContainerStatusRequest};
use pintle_serving::{
    delegated,
    streams::upgrade::{self, Kind},
    tls::PeerCertificates,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Server,
    answer::{self, Body},
    auth::Needed,
    logs::{self, Options},
    query::Query,
    route::{Route, Target},
    streaming::{self, Wanted},
};

/// How long a command of `/run` may take.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Pieces of a log that wait for the client.
const LOG_QUEUE: usize = 4;

/// The server, shared by all requests.
#[derive(Clone)]
pub(super) struct Shared(Arc<Inner>);

struct Inner {
    server: Server,
    shutdown: CancellationToken,
}

/// An answer that ends the handling early.
type Answer = Result<Response<Body>, Response<Body>>;

impl Shared {
    pub(super) fn new(server: Server, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Inner { server, shutdown }))
    }

    /// Answers one request.
    pub(super) async fn serve(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let certificates = request.extensions().get::<PeerCertificates>().cloned();
        let permitted =
            self.0.permit(request.method(), request.uri().path(), request.headers(), certificates.as_ref()).await;
        Ok(match permitted {
            Err(refusal) => refusal,
            Ok(()) => match self.0.route(request).await {
                Ok(answer) | Err(answer) => answer,
            },
        })
    }
}

impl Inner {
    async fn permit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        certificates: Option<&PeerCertificates>,
    ) -> Result<(), Response<Body>> {
        let auth = &self.server.auth;
        let user = auth.authenticate(headers, certificates).await.map_err(unauthenticated)?;
        let needed = Needed::of(method, path);
        match needed.check(auth, &user, self.server.host.node_name()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(answer::text(StatusCode::FORBIDDEN, needed.refusal(&user))),
            Err(error) => {
                tracing::warn!(%error, "authorizing a request failed");
                let message = format!("Authorization error (user={}, verb={method}, resource=nodes)\n", user.name);
                Err(answer::text(StatusCode::INTERNAL_SERVER_ERROR, message))
            }
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        let Some(route) = Route::parse(request.uri().path()) else {
            return Err(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        };
        allow(&route, request.method())?;
        match route {
            Route::Exec(target) => self.stream(target, request, Wanted::Exec).await,
            Route::Attach(target) => self.stream(target, request, Wanted::Attach).await,
            Route::PortForward(target) => self.forward(target, request).await,
            Route::Logs(target) if upgrade::requested(request.headers()) == Some(Kind::WebSocket) => {
                self.logs_over_websocket(target, request).await
            }
            route => self.plain(route, request.into_parts().0).await,
        }
    }

    async fn plain(&self, route: Route, request: request::Parts) -> Answer {
        let server = &self.server;
        let query = Query::parse(request.uri.query());
        Ok(match route {
            Route::Health => {
                let found = server.checks.respond(request.uri.path(), request.uri.query()).await;
                found.map_or_else(|| answer::text(StatusCode::NOT_FOUND, "404 page not found\n"), answer::full)
            }
            Route::Pods => pod_list(server.host.pods().iter().map(Arc::as_ref)),
            Route::RunningPods => pod_list(server.host.running_pods().await.map_err(failed)?.iter()),
            Route::Logs(target) => answer::stream(self.logs(target, &query).await?),
            Route::Run(target) => self.run(target, &query).await?,
            Route::Summary => {
                let summary = server.host.summary().await.map_err(failed)?;
                let lean = query.get("only_cpu_and_memory") == Some("true");
                answer::json(&if lean { summary.cpu_and_memory() } else { summary })
            }
            Route::Metrics => answer::metrics(server.metrics.render()),
            Route::ProbeMetrics => answer::metrics(server.probe_metrics.render()),
            Route::ResourceMetrics => answer::metrics(server.host.summary().await.map_err(failed)?.resource_metrics()),
            Route::CadvisorMetrics => answer::metrics(server.host.summary().await.map_err(failed)?.cadvisor_metrics()),
            Route::Config => answer::json(&json!({"kubeletconfig": server.host.config()})),
            Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => {
                answer::text(StatusCode::BAD_REQUEST, "you must upgrade the connection\n")
            }
        })
    }

    async fn stream(
        &self,
        target: Target,
        request: Request<Incoming>,
        wanted: impl FnOnce(String) -> Wanted,
    ) -> Answer {
        let container = self.running_container(&target).await?;
        Ok(streaming::serve(&self.server.runtime, wanted(container), request, self.shutdown.clone()).await)
    }

    async fn forward(&self, target: Target, request: Request<Incoming>) -> Answer {
        let pod = self.pod(&target).ok_or_else(|| missing("pod does not exist\n"))?;
        let sandbox = self.server.host.sandbox(&pod).await.map_err(failed)?;
        let name = format!("{}_{}", target.pod, target.namespace);
        let sandbox = sandbox.ok_or_else(|| failed(anyhow::anyhow!("failed to find sandbox of pod {name:?}")))?;
        Ok(streaming::serve(&self.server.runtime, Wanted::Ports(sandbox), request, self.shutdown.clone()).await)
    }

    async fn run(&self, target: Target, query: &Query) -> Answer {
        let container = self.running_container(&target).await?;
        let command = query.get("cmd").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let result = self
            .server
            .runtime
            .exec_sync(&container, command, RUN_LIMIT)
            .await
            .map_err(|error| failed(error.into()))?;
        if result.exit_code != 0 {
            let output = String::from_utf8_lossy(&result.stderr).into_owned();
            let message = format!("command exited with {}: {output}", result.exit_code);
            return Err(answer::text(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        Ok(answer::text(StatusCode::OK, [result.stdout, result.stderr].concat()))
    }

    async fn logs_over_websocket(&self, target: Target, mut request: Request<Incoming>) -> Answer {
        let query = Query::parse(request.uri().query());
        let pieces = self.logs(target, &query).await?;
        streaming::send_log(pieces, &mut request, self.shutdown.clone())
    }

    /// The pieces of a log as they are read.
    async fn logs(&self, target: Target, query: &Query) -> Result<mpsc::Receiver<Bytes>, Response<Body>> {
        let options = Options::parse(query, Timestamp::now()).map_err(|invalid| match invalid {
            logs::Invalid::Undecodable => {
                answer::text(StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#)
            }
            logs::Invalid::Forbidden => {
                answer::text(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#)
            }
        })?;
        let Target { pod: name, container, .. } = &target;
        let pod = self.pod(&target).ok_or_else(|| missing(&format!("pod {name:?} does not exist\n")))?;
        if !has_container(&pod, container) {
            return Err(missing(&format!("container {container:?} not found in pod {name:?}\n")));
        }
        let bad = |message: String| answer::text(StatusCode::BAD_REQUEST, message);
        let id = logs::container_id(&pod, container, options.previous).map_err(bad)?;
        let runtime = self.server.runtime.clone();
        let path = log_path(&runtime, &id).await.map_err(|message| {
            tracing::debug!(message, container = id, "no log");
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?;
        let (out, pieces) = mpsc::channel(LOG_QUEUE);
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            let sending = logs::send(&path, &options, Follower { runtime, id }, out);
            let sent = tokio::select! { sent = sending => sent, () = shutdown.cancelled() => Ok(()) };
            if let Err(error) = sent {
                tracing::debug!(%error, path = %path.display(), "reading a log failed");
            }
        });
        Ok(pieces)
    }

    async fn running_container(&self, target: &Target) -> Result<String, Response<Body>> {
        let pod = self.pod(target).ok_or_else(|| missing("pod does not exist\n"))?;
        let found = self.server.host.running_container(&pod, &target.container).await.map_err(failed)?;
        found.ok_or_else(|| failed(anyhow::anyhow!("container not found ({:?})", target.container)))
    }

    fn pod(&self, target: &Target) -> Option<Arc<Pod>> {
        self.server.host.pods().into_iter().find(|pod| {
            let meta = &pod.metadata;
            meta.name.as_ref() == Some(&target.pod)
                && meta.namespace.as_ref() == Some(&target.namespace)
                && (target.uid.is_none() || meta.uid == target.uid)
        })
    }
}

/// Asks the runtime whether a followed container still runs.
struct Follower {
    runtime: pintle_cri::Client,
    id: String,
}

impl logs::Source for Follower {
    async fn is_running(&mut self) -> bool {
        let request = ContainerStatusRequest { container_id: self.id.clone(), verbose: false };
        match self.runtime.container_status(request).await {
            Ok(answer) => answer.status.is_some_and(|status| status.state == ContainerState::Running as i32),
            // A runtime that can't be reached says nothing about the container.
            Err(error) => !error.is_not_found(),
        }
    }
}

async fn log_path(runtime: &pintle_cri::Client, id: &str) -> Result<PathBuf, String> {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer = runtime.container_status(request).await;
    let gone = || format!("unable to retrieve container logs for {id}");
    let path = answer.ok().and_then(|answer| answer.status).map(|status| status.log_path).ok_or_else(gone)?;
    let path = PathBuf::from(path);
    if tokio::fs::try_exists(&path).await.unwrap_or(false) { Ok(path) } else { Err(gone()) }
}

/// Refuses methods that a route does not have.
fn allow(route: &Route, method: &Method) -> Result<(), Response<Body>> {
    let allowed = match route {
        Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => *method == Method::GET || *method == Method::POST,
        Route::Run(_) => *method == Method::POST,
        _ => *method == Method::GET || *method == Method::HEAD,
    };
    if allowed { Ok(()) } else { Err(answer::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")) }
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ordinary = spec.containers.iter().map(|container| &container.name);
    let init = spec.init_containers.iter().flatten().map(|container| &container.name);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| &container.name);
    ordinary.chain(init).chain(ephemeral).any(|found| found == name)
}

fn pod_list<'a>(pods: impl Iterator<Item = &'a Pod>) -> Response<Body> {
    answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods.collect::<Vec<_>>()}))
}

fn missing(message: &str) -> Response<Body> {
    answer::text(StatusCode::NOT_FOUND, message.to_owned())
}

fn failed(error: anyhow::Error) -> Response<Body> {
    answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn unauthenticated(error: delegated::Error) -> Response<Body> {
    if let delegated::Error::Unavailable(error) = &error {
        tracing::warn!(%error, "authenticating a request failed");
    }
    answer::text(StatusCode::UNAUTHORIZED, "Unauthorized")
}
