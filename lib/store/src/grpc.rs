//! Calls over gRPC: connecting by TCP, TLS or a unix socket, and telling failures apart by whether the server may have done
//! what it was asked.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint as TonicEndpoint, Uri};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::error::{Error, Result};

/// A listing of thousands of objects is larger than gRPC's default.
const MAX_MESSAGE: usize = 1 << 30;
/// A connection attempt takes no longer.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A peer that does not answer pings for this long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// HTTP/2 windows: lists and watches are large.
const WINDOW: u32 = 4 << 20;

/// Files with TLS credentials, read at each connection so that rotated ones are taken up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that the server's certificate must chain to.
    pub ca: Option<PathBuf>,
    /// Client certificate chain.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Address {
    /// Parses `http://host:port`, `https://host:port`, `host:port` or `unix:///path`.
    pub(crate) fn parse(url: &str, default_port: u16) -> Result<Self> {
        let bad = |why: &str| Error::Config(format!("{url:?} is not an endpoint: {why}"));
        if let Some(path) = url.strip_prefix("unix://") {
            return Ok(Self::Unix(path.into()));
        }
        let (tls, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(bad("want http, https or unix")),
            None => (false, url),
        };
        let authority: tonic::codegen::http::uri::Authority =
            rest.trim_end_matches('/').parse().map_err(|_| bad("want host:port"))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Self::Tcp { host, port: authority.port_u16().unwrap_or(default_port), tls })
    }

    /// A lazily made, self-healing connection.
    pub(crate) fn channel(&self, tls: &TlsFiles) -> Result<Channel> {
        let (address, tls) = (self.clone(), tls.clone());
        let authority = match self {
            Self::Tcp { host, port, .. } if host.contains(':') => format!("http://[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("http://{host}:{port}"),
            Self::Unix(_) => "http://localhost".to_owned(),
        };
        let connector = tower::service_fn(move |_: Uri| {
            let (address, tls) = (address.clone(), tls.clone());
            async move {
                let connected = tokio::time::timeout(CONNECT_LIMIT, address.connect(&tls)).await;
                let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                connected.map(TokioIo::new).map_err(|error| Unreachable { address, error })
            }
        });
        let endpoint = TonicEndpoint::from_shared(authority).map_err(|e| Error::Config(e.to_string()))?;
        let endpoint = endpoint
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .tcp_nodelay(true);
        Ok(endpoint.connect_with_connector_lazy(connector))
    }

    async fn connect(&self, tls: &TlsFiles) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Tcp { host, port, tls: secure } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                if !secure {
                    return Ok(Box::new(stream));
                }
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config(tls)?));
                Ok(Box::new(connector.connect(name, stream).await?))
            }
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

fn client_config(files: &TlsFiles) -> io::Result<ClientConfig> {
    let named = |path: &PathBuf| {
        let path = path.display().to_string();
        move |error: rustls::pki_types::pem::Error| io::Error::other(format!("{path}: {error}"))
    };
    let ca = files.ca.as_ref().ok_or_else(|| io::Error::other("https needs a file with the server's authority"))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(named(ca))? {
        roots.add(certificate.map_err(named(ca))?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_root_certificates(roots);
    let mut config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(named(cert))?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(named(key))?;
            builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// No connection could be made: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("{address:?}: {error}")]
struct Unreachable {
    address: Address,
    error: io::Error,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server has certainly not done it; another one may.
    NotDone(String),
    /// The server may have done it, or may still.
    InDoubt(String),
    /// The server said no.
    Refused(Status),
}

impl Failure {
    pub(crate) fn of(status: Status) -> Self {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&status);
        while let Some(error) = source {
            if let Some(unreachable) = error.downcast_ref::<Unreachable>() {
                return Self::NotDone(unreachable.to_string());
            }
            source = error.source();
        }
        let text = format!("{}: {}", status.code(), status.message());
        match status.code() {
            Code::Unavailable if status.message().contains("no leader") => Self::NotDone(text),
            Code::ResourceExhausted if status.message().contains("too many requests") => Self::NotDone(text),
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted => Self::InDoubt(text),
            _ => Self::Refused(status),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::NotDone(text) | Self::InDoubt(text) => text.clone(),
            Self::Refused(status) => status.message().to_owned(),
        }
    }
}

/// One request, one answer.
pub(crate) fn unary<Q, A>(
    channel: Channel,
    path: &'static str,
    limit: Duration,
    request: Q,
) -> BoxFuture<'static, std::result::Result<A, Failure>>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let call = async move {
        let mut grpc = client(channel);
        grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let request = with_leader(tonic::Request::new(request));
        Ok(grpc.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    };
    Box::pin(async move {
        match tokio::time::timeout(limit, call).await {
            Ok(result) => result.map_err(Failure::of),
            Err(_) => Err(Failure::InDoubt(format!("no answer within {limit:?}"))),
        }
    })
}

/// Requests and answers in both directions.
pub(crate) async fn streaming<Q, A>(
    channel: Channel,
    path: &'static str,
    requests: impl futures::Stream<Item = Q> + Send + 'static,
) -> std::result::Result<tonic::Streaming<A>, Failure>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = client(channel);
    grpc.ready().await.map_err(|e| Failure::of(Status::from_error(Box::new(e))))?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let request = with_leader(tonic::Request::new(requests));
    let answer = grpc.streaming(request, PathAndQuery::from_static(path), codec).await.map_err(Failure::of)?;
    Ok(answer.into_inner())
}

fn client(channel: Channel) -> tonic::client::Grpc<Channel> {
    tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

/// A member of etcd that has lost the others then says so at once, instead of leaving us waiting.
fn with_leader<T>(mut request: tonic::Request<T>) -> tonic::Request<T> {
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed() {
        let tcp = |host: &str, port, tls| Address::Tcp { host: host.into(), port, tls };
        for (text, wanted) in [
            ("http://127.0.0.1:2379", tcp("127.0.0.1", 2379, false)),
            ("https://etcd-0.example:4001/", tcp("etcd-0.example", 4001, true)),
            ("https://[::1]:1", tcp("::1", 1, true)),
            ("etcd", tcp("etcd", 2379, false)),
            ("unix:///run/kms.sock", Address::Unix("/run/kms.sock".into())),
        ] {
            assert_eq!(Address::parse(text, 2379).expect(text), wanted);
        }
        for text in ["ftp://x", "http://a b", ""] {
            assert!(matches!(Address::parse(text, 1), Err(Error::Config(_))), "{text}");
        }
    }

    #[tokio::test]
    async fn a_failed_connection_is_known_to_have_done_nothing() {
        let channel = Address::parse("http://127.0.0.1:1", 1).expect("address").channel(&TlsFiles::default());
        let request = crate::messages::StatusRequest {};
        let answer: std::result::Result<crate::messages::StatusResponse, _> =
            unary(channel.expect("lazy"), "/x/Y", Duration::from_secs(5), request).await;
        assert!(matches!(answer, Err(Failure::NotDone(_))), "{answer:?}");
    }
}
