//! Sends a review to a webhook.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use http_body_util::Full;
use pintle_serving::dial::Target;

use super::config::{Client, Hook, Place};
use super::review::{Request, Verdict};
use crate::http::body;
use crate::state::State;
use crate::subresource::proxy::service_endpoint;

/// Most bytes of an answer.
const ANSWER_LIMIT: usize = 3 * 1024 * 1024;

/// Asks, within the hook's time. The error is what the client is told after the hook's name.
pub async fn send(state: &Arc<State>, hook: &Hook, request: &Request) -> Result<Verdict, String> {
    let seconds = hook.timeout.as_secs();
    let address = Address::of(&hook.client.place, seconds)?;
    let posted = |why: String| format!("failed to call webhook: Post \"{}\": {why}", address.url);
    let review = request.review.to_string();
    let answer = tokio::time::timeout(hook.timeout, post(state, &hook.client, &address, &review));
    let (code, answer) = match answer.await {
        Err(_) => return Err(posted("context deadline exceeded".into())),
        Ok(answer) => answer.map_err(|error| posted(format!("{error:#}")))?,
    };
    if !(200..300).contains(&code) {
        let text = String::from_utf8_lossy(&answer);
        return Err(format!("failed to call webhook: the server responded with the status code {code}: {text}"));
    }
    Verdict::read(&answer, &request.uid)
}

/// A URL in its parts.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    /// All of it.
    url: String,
    /// The name that the certificate is for.
    host: String,
    port: u16,
    /// Path and query.
    path: String,
}

impl Address {
    fn of(place: &Place, seconds: u64) -> Result<Self, String> {
        match place {
            Place::Service { namespace, name, port, path } => {
                let (host, path) = (format!("{name}.{namespace}.svc"), format!("{path}?timeout={seconds}s"));
                Ok(Self { url: format!("https://{host}:{port}{path}"), host, port: *port, path })
            }
            Place::Url(url) => {
                let uri: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
                if uri.scheme_str() != Some("https") {
                    return Err("the URL is none of https".into());
                }
                let host = uri.host().ok_or("the URL has no host")?.trim_matches(['[', ']']).to_owned();
                let path = format!("{}?timeout={seconds}s", uri.path());
                let port = uri.port_u16().unwrap_or(443);
                Ok(Self {
                    url: format!("{}?timeout={seconds}s", url.split('?').next().unwrap_or(url)),
                    host,
                    port,
                    path,
                })
            }
        }
    }
}

async fn post(state: &Arc<State>, client: &Client, address: &Address, review: &str) -> anyhow::Result<(u16, Bytes)> {
    let (host, port) = match &client.place {
        Place::Service { namespace, name, port, .. } => {
            let found = service_endpoint(state, namespace, name, &port.to_string()).await;
            found.map_err(|error| anyhow::anyhow!(error.status().message))?
        }
        Place::Url(_) => (address.host.clone(), address.port),
    };
    let target = Target { host, port, tls: true };
    let mut request = http::Request::new(Full::new(Bytes::from(review.to_owned())));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = address.path.parse()?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&format!("{}:{}", address.host, address.port))?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    let response = client.dialer(&address.host)?.send(&target, request).await?;
    let code = response.status().as_u16();
    let bytes = body::read(response.into_body(), ANSWER_LIMIT).await;
    Ok((code, bytes.map_err(|_| anyhow::anyhow!("the answer could not be read"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let service = Place::Service { namespace: "n".into(), name: "s".into(), port: 8443, path: "/p".into() };
        let address = Address::of(&service, 5).unwrap();
        assert_eq!((address.url.as_str(), address.host.as_str()), ("https://s.n.svc:8443/p?timeout=5s", "s.n.svc"));
        let address = Address::of(&Place::Url("https://hooks.example.com/a".into()), 10).unwrap();
        assert_eq!(
            (address.host.as_str(), address.port, address.path.as_str()),
            ("hooks.example.com", 443, "/a?timeout=10s")
        );
        assert!(Address::of(&Place::Url("nonsense".into()), 10).is_err());
    }
}
