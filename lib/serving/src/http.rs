//! The HTTPS loop: accepts, shakes hands, serves HTTP/1.1 and HTTP/2, drains on shutdown. Every wait for a client is
//! bounded, so that half-open and slow connections hold nothing for long.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{BoxError, Service, ServiceExt};
use tracing::{debug, warn};

use crate::cork::{BUFFER, Hold};
use crate::tls::{PeerCertificates, Tls};

/// A client has so long for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// And so long for a request's headers.
const HEADERS: Duration = Duration::from_secs(10);
/// HTTP/2 clients are asked whether they are there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 1000;
/// So much of an answer is made before the client has taken it. More makes fewer turns between who makes and who sends.
const SEND_BUFFER: usize = 1 << 20;
/// On shutdown, requests have so long to finish.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after accepting failed, for want of descriptors for instance.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub Option<SocketAddr>);

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket; the same TLS runs over it.
    Unix(UnixListener),
}

impl Listener {
    /// Binds a TCP address.
    pub async fn tcp(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
        Ok(Self::Tcp(listener))
    }

    /// Binds a Unix socket; a stale one at the path is replaced.
    pub fn unix(path: &std::path::Path) -> anyhow::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing the old socket {}", path.display()));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))?;
        Ok(Self::Unix(listener))
    }

    /// The TCP address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

/// Serves until shutdown, then drains. Requests carry [`PeerAddress`] and, if the client showed any,
/// [`PeerCertificates`] as extensions.
pub async fn serve<S, B>(listener: Listener, tls: Tls, service: S, shutdown: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection(stream, peer, tls.clone(), service.clone(), shutdown.clone());
                connections.spawn(connection);
            }
            Err(error) => {
                warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        debug!(open = connections.len(), "connections left after draining");
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn accept(listener: &Listener) -> std::io::Result<(Box<dyn Stream>, PeerAddress)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            let _ = stream.set_nodelay(true);
            Ok((Box::new(stream), PeerAddress(Some(peer))))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            Ok((Box::new(stream), PeerAddress(None)))
        }
    }
}

async fn connection<S, B>(stream: Box<dyn Stream>, peer: PeerAddress, tls: Tls, service: S, shutdown: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let hold = Hold::default();
    let handshake = TlsAcceptor::from(tls.config()).accept(hold.gate(stream));
    let mut stream = match tokio::time::timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(?peer, %error, "TLS handshake failed"),
        Err(_) => return debug!(?peer, "TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates().map(|chain| {
        PeerCertificates(std::sync::Arc::new(
            chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        ))
    });
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if let Some(certificates) = &certificates {
            request.extensions_mut().insert(certificates.clone());
        }
        service.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(HANDSHAKE)
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .enable_connect_protocol();
    stream.get_mut().1.set_buffer_limit(Some(BUFFER));
    let (corked, held) = hold.cork(stream);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(corked), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = poll_fn(|context| held.poll(connection.as_mut(), context)) => served,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            poll_fn(|context| held.poll(connection.as_mut(), context)).await
        }
    };
    match served {
        Ok(Err(error)) => debug!(?peer, %error, "connection ended"),
        Err(error) => debug!(?peer, %error, "connection broke"),
        Ok(Ok(())) => {}
    }
}
