//! The small server that every component has: `/healthz`, `/livez`, `/readyz`, `/metrics`.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::{
    delegated::{Attributes, Delegated, Error, User},
    health::Checks,
    http::{Listener, serve},
    metrics::{CONTENT_TYPE, Registry},
    tls::{PeerCertificates, Tls},
};

/// What a component shows.
pub struct Component {
    /// Its health checks; open to everybody.
    pub checks: Checks,
    /// Its metrics.
    pub metrics: Registry,
    /// Who may read the metrics; without it, everybody who reaches the port.
    pub auth: Option<Delegated>,
}

/// Serves a component until shutdown: HTTPS with an identity, plain HTTP without.
pub async fn serve_component(
    listener: TcpListener,
    tls: Option<Tls>,
    component: Component,
    shutdown: CancellationToken,
) {
    let component = Arc::new(component);
    let service = service_fn(move |request: Request<Incoming>| {
        let component = component.clone();
        async move {
            Ok::<_, Infallible>(
                component.respond(&request.into_parts().0).await.map(|body| Full::new(Bytes::from(body))),
            )
        }
    });
    match tls {
        Some(tls) => serve(Listener::Tcp(listener), tls, service, shutdown).await,
        None => serve_plain(listener, service, shutdown).await,
    }
}

async fn serve_plain<S>(listener: TcpListener, service: S, shutdown: CancellationToken)
where
    S: tower::Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let accept = async {
        loop {
            let Ok((tcp, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            let (service, shutdown) =
                (hyper_util::service::TowerToHyperService::new(service.clone()), shutdown.clone());
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http1().timer(TokioTimer::new()).header_read_timeout(std::time::Duration::from_secs(10));
                let connection = builder.serve_connection(TokioIo::new(tcp), service);
                tokio::select! { _ = connection => {} () = shutdown.cancelled() => {} }
            });
        }
    };
    tokio::select! { () = accept => {} () = shutdown.cancelled() => {} }
}

impl Component {
    async fn respond(&self, request: &request::Parts) -> Response<String> {
        let uri = &request.uri;
        if let Some(response) = self.checks.respond(uri.path(), uri.query()).await {
            return response;
        }
        if uri.path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        }
        if let Some(refusal) = self.refuse(request).await {
            return refusal;
        }
        let mut response = Response::new(self.metrics.render());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        response
    }

    async fn refuse(&self, request: &request::Parts) -> Option<Response<String>> {
        let auth = self.auth.as_ref()?;
        match permitted(auth, request).await {
            Ok((_, true)) => None,
            Ok((user, false)) => {
                let message = format!("forbidden: User {:?} cannot get path \"/metrics\"\n", user.name);
                Some(text(StatusCode::FORBIDDEN, &message))
            }
            Err(Error::Unauthorized) => Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n")),
            Err(error @ Error::Unavailable(_)) => {
                tracing::warn!(%error, "metrics request could not be authorized");
                Some(text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n"))
            }
        }
    }
}

async fn permitted(auth: &Delegated, request: &request::Parts) -> Result<(User, bool), Error> {
    let user = auth.authenticate(&request.headers, request.extensions.get::<PeerCertificates>()).await?;
    let attributes = Attributes::Path { verb: "get".into(), path: request.uri.path().into() };
    let allowed = auth.authorize(&user, &attributes).await?;
    Ok((user, allowed))
}

fn text(status: StatusCode, body: &str) -> Response<String> {
    let mut response = Response::new(body.to_owned());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_plain_component_shows_health_and_metrics() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (checks, metrics) = (Checks::default(), Registry::default());
        metrics.counter("things_total", "Things.", []).inc([]);
        let shutdown = CancellationToken::new();
        let component = Component { checks, metrics, auth: None };
        let server = tokio::spawn(serve_component(listener, None, component, shutdown.clone()));
        for (path, expected) in [("/healthz", "ok"), ("/metrics", "things_total 1\n"), ("/x", "404 page not found\n")] {
            let mut tcp = tokio::net::TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            tcp.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            tcp.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with(expected), "{path}: {answer}");
        }
        shutdown.cancel();
        server.await.unwrap();
    }
}
