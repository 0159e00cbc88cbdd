//! One HTTP/1.1 request to another server, plain or over TLS, upgrades included: what proxying needs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::BoxError;

use crate::tls::certificates;

/// A server has so long to accept a connection and shake hands.
const CONNECT: Duration = Duration::from_secs(10);

/// Connects to servers, as one client identity.
#[derive(Debug, Clone)]
pub struct Dialer {
    tls: Arc<ClientConfig>,
    /// Name that certificates have to be for, where it isn't the host's.
    name: Option<String>,
}

impl Dialer {
    /// With a client certificate (PEM chain and key) if given; servers are checked against `ca` (PEM), or not at all.
    pub fn new(identity: Option<(&[u8], &[u8])>, ca: Option<&[u8]>) -> anyhow::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .context("choosing TLS versions")?;
        let builder = match ca {
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca)? {
                    roots.add(certificate).context("reading a certificate authority")?;
                }
                builder.with_root_certificates(roots)
            }
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider))),
        };
        let tls = match identity {
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).context("reading the client key")?;
                builder.with_client_auth_cert(certificates(chain)?, key).context("using the client certificate")?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self { tls: Arc::new(tls), name: None })
    }

    /// Wants certificates for that name, wherever the server is.
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Sends a request. Its URI must be in origin form; the response may be an upgrade ([`hyper::upgrade::on`]).
    pub async fn send<B>(&self, target: &Target, request: Request<B>) -> anyhow::Result<Response<Incoming>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Ok(stream) = tokio::time::timeout(CONNECT, self.connect(target)).await else {
            bail!("dial tcp {}:{}: i/o timeout", target.host, target.port);
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream?)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "proxied connection ended");
            }
        });
        Ok(sender.send_request(request.map(Box::pin)).await?)
    }

    async fn connect(&self, target: &Target) -> anyhow::Result<Box<dyn Stream>> {
        let address = (target.host.as_str(), target.port);
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("dial tcp {}:{}", target.host, target.port))?;
        let _ = stream.set_nodelay(true);
        if !target.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.name.as_ref().unwrap_or(&target.host).clone()).context("server name")?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await.context("tls")?;
        Ok(Box::new(stream))
    }
}

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Over TLS.
    pub tls: bool,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Takes any server certificate; upstream does that with kubelets unless it is given their authority.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
