//! Exec, attach and port-forward: the client's upgraded connection is joined with the runtime's streaming server.
//!
//! A SPDY client is passed through to the runtime, which speaks SPDY itself; a WebSocket client is translated.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use pintle_cri::messages::{AttachRequest, ExecRequest, PortForwardRequest};
use pintle_serving::streams::{
    self, log, portforward,
    remote::{self, Client, Session, Streams},
    tunnel,
    upgrade::{self, Kind},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    answer::{self, Body},
    query::Query,
};

/// The protocol that the runtime is asked for when a client is translated.
const RUNTIME_PROTOCOL: &[&str] = &["v4.channel.k8s.io"];

/// What a client wants to be connected with.
pub(super) enum Wanted {
    /// A command in the container of this id.
    Exec(String),
    /// The streams of the container of this id.
    Attach(String),
    /// Ports of the sandbox of this id.
    Ports(String),
}

/// Answers an upgrade request, and goes on in the background until one side ends or the server shuts down.
pub(super) async fn serve(
    runtime: &pintle_cri::Client,
    wanted: Wanted,
    mut request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Response<Body> {
    match connect(runtime, wanted, &mut request, shutdown).await {
        Ok(response) | Err(response) => response,
    }
}

async fn connect(
    runtime: &pintle_cri::Client,
    wanted: Wanted,
    request: &mut Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Response<Body>> {
    let query = Query::parse(request.uri().query());
    let streams = match wanted {
        Wanted::Ports(_) => Streams::default(),
        _ => Streams::from_pairs(query.pairs())
            .map_err(|error| answer::text(StatusCode::BAD_REQUEST, format!("{error}\n")))?,
    };
    let kind = upgrade::requested(request.headers());
    let Some(kind) = kind else {
        return Err(answer::text(StatusCode::BAD_REQUEST, "you must upgrade the connection\n"));
    };
    let forwards_ports = matches!(wanted, Wanted::Ports(_));
    let url = runtime_url(runtime, wanted, &query, streams)
        .await
        .map_err(|error| answer::text(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    match (kind, forwards_ports) {
        (Kind::Spdy, _) => pass_through(&url, request, shutdown).await,
        (Kind::WebSocket, true) => forward_ports(&url, &query, request, shutdown).await,
        (Kind::WebSocket, false) => translate(&url, streams, request, shutdown).await,
    }
}

/// Where the runtime serves what is wanted.
async fn runtime_url(
    runtime: &pintle_cri::Client,
    wanted: Wanted,
    query: &Query,
    streams: Streams,
) -> Result<Uri, String> {
    let Streams { stdin, stdout, stderr, tty } = streams;
    let url = match wanted {
        Wanted::Exec(container_id) => {
            let cmd = query.all("command").map(str::to_owned).collect();
            let request = ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
            runtime.exec(request).await.map(|answer| answer.url)
        }
        Wanted::Attach(container_id) => {
            let request = AttachRequest { container_id, stdin, tty, stdout, stderr };
            runtime.attach(request).await.map(|answer| answer.url)
        }
        Wanted::Ports(pod_sandbox_id) => {
            let request = PortForwardRequest { pod_sandbox_id, port: Vec::new() };
            runtime.port_forward(request).await.map(|answer| answer.url)
        }
    };
    url.map_err(|error| error.to_string())?.parse().map_err(|_| "the runtime's URL can't be read".into())
}

async fn pass_through(
    url: &Uri,
    request: &mut Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Response<Body>> {
    let (response, joined) = tunnel::pass_through(request, url).await.map_err(refused)?;
    run(joined, shutdown);
    Ok(answer::empty(response))
}

async fn translate(
    url: &Uri,
    streams: Streams,
    request: &mut Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Response<Body>> {
    let mut accepted = accept(request, remote::WEBSOCKET_PROTOCOLS)?;
    let connected = upgrade::connect_spdy(url, RUNTIME_PROTOCOL).await.map_err(refused)?;
    let response = std::mem::take(&mut accepted.response);
    run(
        async move {
            let (client, session) =
                tokio::try_join!(Client::open(connected, streams), Session::accept(accepted, streams))?;
            remote::bridge(session, client).await
        },
        shutdown,
    );
    Ok(answer::empty(response))
}

async fn forward_ports(
    url: &Uri,
    query: &Query,
    request: &mut Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Response<Body>> {
    let offered = upgrade::offered(Kind::WebSocket, request.headers());
    if offered.contains(&tunnel::PORT_FORWARD_PROTOCOL) {
        let mut accepted = accept(request, &[tunnel::PORT_FORWARD_PROTOCOL])?;
        let connected = upgrade::connect_spdy(url, &[portforward::SPDY_PROTOCOL]).await.map_err(refused)?;
        let response = std::mem::take(&mut accepted.response);
        run(tunnel::unwrap_websocket(accepted, connected.io), shutdown);
        return Ok(answer::empty(response));
    }
    let ports = portforward::parse_ports(query.all("port").chain(query.all("ports")))
        .map_err(|error| answer::text(StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    let mut accepted = accept(request, portforward::WEBSOCKET_PROTOCOLS)?;
    let connected = upgrade::connect_spdy(url, &[portforward::SPDY_PROTOCOL]).await.map_err(refused)?;
    let response = std::mem::take(&mut accepted.response);
    run(async move { portforward::bridge(accepted, &ports, connected).await }, shutdown);
    Ok(answer::empty(response))
}

/// Sends the pieces of a log to a client that asked for them over WebSocket.
pub(super) fn send_log(
    pieces: mpsc::Receiver<Bytes>,
    request: &mut Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Response<Body>> {
    let mut accepted = accept(request, log::PROTOCOLS)?;
    let response = std::mem::take(&mut accepted.response);
    let pieces = futures::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (Ok::<_, Infallible>(piece), pieces))
    });
    run(log::send(accepted, pieces), shutdown);
    Ok(answer::empty(response))
}

fn accept(request: &mut Request<Incoming>, protocols: &[&'static str]) -> Result<upgrade::Accepted, Response<Body>> {
    upgrade::accept(request, protocols).map_err(|refusal| answer::full(refusal.response()))
}

fn run(work: impl Future<Output = Result<(), streams::Error>> + Send + 'static, shutdown: CancellationToken) {
    tokio::spawn(async move {
        let result = tokio::select! { result = work => result, () = shutdown.cancelled() => Ok(()) };
        if let Err(error) = result {
            tracing::debug!(%error, "stream ended");
        }
    });
}

/// What a client reads when the runtime could not be connected with.
fn refused(error: streams::Error) -> Response<Body> {
    match error {
        streams::Error::Refused { status, message } => answer::text(status, message),
        error => answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
