//! HTTP requests of probes and lifecycle hooks: one GET, no verification of certificates, redirects followed on the same
//! host.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 10;
/// Bytes of the answer that are read.
const MAX_BODY: usize = 10 << 10;

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Beginning of the body.
    pub body: String,
    /// The answer is a redirect to another host.
    pub elsewhere: bool,
}

/// A port by number or by the name that the container gives it.
pub fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let named = |name: &str| {
        let ports = container.ports.as_deref().unwrap_or_default();
        ports.iter().find(|p| p.name.as_deref() == Some(name)).map(|p| p.container_port)
    };
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => text.parse().ok().or_else(|| named(text)),
    };
    let number = number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| match port {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(text) => format!("couldn't find port: {text:?}"),
    })
}

/// Host and port in one, IPv6 in brackets.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Performs the action against `host` (unless the action names another).
pub async fn get(
    action: &HTTPGetAction,
    container: &Container,
    host: &str,
    agent: &str,
    limit: Duration,
) -> Result<Answer, String> {
    let port = port(container, &action.port)?;
    let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(host);
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let path = action.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let url = format!("{scheme}://{}{path}", authority(host, port));
    let mut headers: Vec<(String, String)> =
        action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
    let has = |headers: &[(String, String)], name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !has(&headers, "user-agent") {
        headers.push(("User-Agent".to_owned(), agent.to_owned()));
    }
    if !has(&headers, "accept") {
        headers.push(("Accept".to_owned(), "*/*".to_owned()));
    }
    let work = follow(&url, &headers);
    let late = || format!("Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    tokio::time::timeout(limit, work).await.map_err(|_| late())?.map_err(|e| format!("Get \"{url}\": {e}"))
}

async fn follow(url: &str, headers: &[(String, String)]) -> Result<Answer, String> {
    let mut uri: Uri = url.parse().map_err(|e| format!("{e}"))?;
    for _ in 0..MAX_REDIRECTS {
        let (answer, location) = once(&uri, headers).await?;
        let Some(location) = location.filter(|_| answer.status.is_redirection()) else { return Ok(answer) };
        let next = join(&uri, &location)?;
        if next.host() != uri.host() {
            return Ok(Answer { elsewhere: true, ..answer });
        }
        uri = next;
    }
    Err(format!("stopped after {MAX_REDIRECTS} redirects"))
}

fn join(base: &Uri, location: &str) -> Result<Uri, String> {
    let target: Uri = location.parse().map_err(|e| format!("{e}"))?;
    if target.authority().is_some() && target.scheme().is_some() {
        return Ok(target);
    }
    let mut parts = base.clone().into_parts();
    let text = target.path_and_query().map(|p| p.as_str().to_owned()).unwrap_or_default();
    let absolute = if text.starts_with('/') { text } else { format!("/{text}") };
    parts.path_and_query = Some(absolute.parse().map_err(|e| format!("{e}"))?);
    Uri::from_parts(parts).map_err(|e| e.to_string())
}

async fn once(uri: &Uri, headers: &[(String, String)]) -> Result<(Answer, Option<String>), String> {
    let https = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    let bare = host.trim_matches(['[', ']']);
    let dialed = format!("dial tcp {}", authority(bare, port));
    let tcp = TcpStream::connect((bare, port)).await.map_err(|e| format!("{dialed}: {}", connect_error(&e)))?;
    if https {
        let name = ServerName::try_from(bare.to_owned()).map_err(|e| e.to_string())?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls_config()?));
        let stream = connector.connect(name, tcp).await.map_err(|e| e.to_string())?;
        exchange(stream, uri, headers).await
    } else {
        exchange(tcp, uri, headers).await
    }
}

/// Wording of Go for the usual failures.
pub fn connect_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

async fn exchange<S>(stream: S, uri: &Uri, headers: &[(String, String)]) -> Result<(Answer, Option<String>), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let mut request = Request::get(uri.path_and_query().map_or("/", |p| p.as_str()));
    if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
        request = request.header(http::header::HOST, uri.authority().map_or("", |a| a.as_str()));
    }
    request = request.header(http::header::CONNECTION, "close");
    for (name, value) in headers.iter().filter(|(_, v)| !v.is_empty()) {
        let name = HeaderName::try_from(name.as_str()).map_err(|e| e.to_string())?;
        request = request.header(name, HeaderValue::from_str(value).map_err(|e| e.to_string())?);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = answer.status();
    let location = answer.headers().get(http::header::LOCATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
    let body = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
    driver.abort();
    Ok((Answer { status, body, elsewhere: false }, location))
}

fn tls_config() -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))).with_no_client_auth())
}

/// Accepts every certificate: a probe asks whether something answers, not who.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
