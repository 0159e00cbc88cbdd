//! HTTP/1.1 upgrades: what a request asks for, the answer, and the client side.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Error;

/// The header that lists a SPDY client's protocols, and names the chosen one in the answer.
pub const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";
const SPDY: &str = "SPDY/3.1";
const WEBSOCKET: &str = "websocket";
/// How much of a refusal's body is kept for the message.
const REFUSAL_LIMIT: usize = 64 * 1024;

/// A transport that can be boxed.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Any bidirectional byte stream.
pub type Io = Box<dyn Transport>;

/// What a request wants to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// SPDY/3.1.
    Spdy,
    /// WebSocket.
    WebSocket,
}

/// What the request's headers ask for, if it is something that this module knows.
pub fn requested(headers: &HeaderMap) -> Option<Kind> {
    let wants_upgrade = tokens(headers, header::CONNECTION.as_str()).any(|token| token.eq_ignore_ascii_case("upgrade"));
    if !wants_upgrade {
        return None;
    }
    tokens(headers, header::UPGRADE.as_str()).find_map(|token| match token {
        _ if token.eq_ignore_ascii_case(SPDY) => Some(Kind::Spdy),
        _ if token.eq_ignore_ascii_case(WEBSOCKET) => Some(Kind::WebSocket),
        _ => None,
    })
}

/// The protocols that the client offers, in its order.
pub fn offered(kind: Kind, headers: &HeaderMap) -> Vec<&str> {
    let name = match kind {
        Kind::Spdy => STREAM_PROTOCOL,
        Kind::WebSocket => header::SEC_WEBSOCKET_PROTOCOL.as_str(),
    };
    tokens(headers, name).collect()
}

/// An upgrade that was agreed to: send [`Accepted::response`], then wait for [`Accepted::io`].
pub struct Accepted {
    /// 101, without a body.
    pub response: Response<()>,
    /// What the connection becomes.
    pub kind: Kind,
    /// The chosen protocol; empty if the client offered none.
    pub protocol: &'static str,
    upgraded: OnUpgrade,
}

impl Accepted {
    /// The bare connection, once the answer is on its way.
    pub async fn io(self) -> Result<Io, Error> {
        Ok(Box::new(TokioIo::new(self.upgraded.await?)))
    }
}

/// An upgrade that can't be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status to answer with.
    pub status: StatusCode,
    /// The text to answer with.
    pub message: String,
    accepted: Vec<&'static str>,
}

impl Refusal {
    /// The answer.
    pub fn response(self) -> Response<String> {
        let mut response = Response::new(self.message);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for protocol in self.accepted {
            headers.append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(protocol));
        }
        response
    }
}

/// Agrees to an upgrade, in the first protocol of the client's list that is `supported`.
pub fn accept<B>(request: &mut Request<B>, supported: &[&'static str]) -> Result<Accepted, Refusal> {
    let refuse = |status, message: String| Refusal { status, message, accepted: Vec::new() };
    let Some(kind) = requested(request.headers()) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "you must upgrade the connection\n".into()));
    };
    let protocol = negotiate(&offered(kind, request.headers()), supported)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    match kind {
        Kind::Spdy => {
            headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
            headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
        }
        Kind::WebSocket => {
            let accept = request
                .headers()
                .get(header::SEC_WEBSOCKET_KEY)
                .and_then(|key| HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok())
                .ok_or_else(|| refuse(StatusCode::BAD_REQUEST, "not a WebSocket handshake\n".into()))?;
            headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            if !protocol.is_empty() {
                headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
            }
        }
    }
    let upgraded = hyper::upgrade::on(request);
    Ok(Accepted { response, kind, protocol, upgraded })
}

fn negotiate(offered: &[&str], supported: &[&'static str]) -> Result<&'static str, Refusal> {
    if offered.is_empty() {
        return Ok("");
    }
    let chosen = offered.iter().find_map(|offer| supported.iter().find(|protocol| *protocol == offer));
    chosen.copied().ok_or_else(|| Refusal {
        status: StatusCode::FORBIDDEN,
        message: format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]\n",
            offered.join(" "),
            supported.join(" ")
        ),
        accepted: supported.iter().copied().filter(|protocol| !protocol.is_empty()).collect(),
    })
}

/// The connection behind an upgrade that the other side agreed to, and its answer.
pub struct Connected {
    /// The other side's 101.
    pub response: Response<()>,
    /// The bare connection.
    pub io: Io,
}

/// Asks `url` (plain HTTP) to upgrade to SPDY, offering `protocols`.
pub async fn connect_spdy(url: &Uri, protocols: &[&str]) -> Result<Connected, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    for protocol in protocols {
        let value = HeaderValue::from_str(protocol).map_err(|_| Error::Protocol("bad protocol name".into()))?;
        headers.append(STREAM_PROTOCOL, value);
    }
    connect(url, Method::POST, headers).await
}

/// Sends an upgrade request with the given headers to `url` (plain HTTP).
pub async fn connect(url: &Uri, method: Method, headers: HeaderMap) -> Result<Connected, Error> {
    let authority = url.authority().ok_or_else(|| Error::Protocol(format!("no host in {url}")))?;
    if url.scheme_str() != Some("http") {
        return Err(Error::Protocol(format!("scheme of {url} is not supported")));
    }
    let tcp = tokio::net::TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
    tcp.set_nodelay(true)?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = url.path_and_query().map_or_else(|| Uri::from_static("/"), |path| path.clone().into());
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Error::Protocol("bad host".into()))?;
    request.headers_mut().insert(header::HOST, host);
    connect_over(tcp, request).await
}

/// Sends an upgrade request over a connection that exists.
pub async fn connect_over<T>(io: T, request: Request<Empty<Bytes>>) -> Result<Connected, Error>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(response).await);
    }
    let io = hyper::upgrade::on(&mut response).await?;
    Ok(Connected { response: response.map(|_| ()), io: Box::new(TokioIo::new(io)) })
}

async fn refused(response: Response<hyper::body::Incoming>) -> Error {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL_LIMIT).collect().await;
    let text = body.map(|body| body.to_bytes()).unwrap_or_default();
    Error::Refused { status, message: String::from_utf8_lossy(&text).trim_end().to_owned() }
}

/// Those headers of a request that belong to an upgrade and go along when it is passed on.
pub(super) fn upgrade_headers(request: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let passed = [
        header::CONNECTION.as_str(),
        header::UPGRADE.as_str(),
        STREAM_PROTOCOL,
        header::SEC_WEBSOCKET_KEY.as_str(),
        header::SEC_WEBSOCKET_PROTOCOL.as_str(),
        header::SEC_WEBSOCKET_VERSION.as_str(),
    ];
    for (name, value) in request {
        if passed.contains(&name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

fn tokens<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn requests_are_told_apart() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<Kind>);
        let cases: &[Case] = &[
            (&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")], Some(Kind::Spdy)),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")], Some(Kind::WebSocket)),
            (&[("upgrade", "websocket")], None),
            (&[("connection", "Upgrade"), ("upgrade", "h2c")], None),
        ];
        for (headers, kind) in cases {
            assert_eq!(requested(request(headers).headers()), *kind, "{headers:?}");
        }
    }

    #[test]
    fn the_clients_first_known_protocol_wins() {
        let mut asked = request(&[
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v9.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "channel.k8s.io"),
        ]);
        let accepted = accept(&mut asked, &["channel.k8s.io", "v4.channel.k8s.io"]).ok().unwrap();
        assert_eq!(accepted.protocol, "v4.channel.k8s.io");
        assert_eq!(accepted.response.headers()[STREAM_PROTOCOL], "v4.channel.k8s.io");
        let refusal = accept(&mut asked, &["x"]).err().unwrap();
        assert_eq!(refusal.status, StatusCode::FORBIDDEN);
        assert_eq!(refusal.response().headers()[ACCEPTED_PROTOCOLS], "x");
    }

    #[test]
    fn websocket_handshakes_are_answered() {
        let mut asked = request(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ]);
        let accepted = accept(&mut asked, &["v4.channel.k8s.io"]).ok().unwrap();
        assert_eq!(accepted.response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted.response.headers()["sec-websocket-protocol"], "v4.channel.k8s.io");
        let mut keyless = request(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(accept(&mut keyless, &[]).err().unwrap().status, StatusCode::BAD_REQUEST);
        assert_eq!(accept(&mut request(&[]), &[]).err().unwrap().status, StatusCode::BAD_REQUEST);
    }
}
