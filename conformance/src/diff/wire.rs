//! Requests as they are sent and answers as they come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// A server must have answered by then.
const TIMEOUT: Duration = Duration::from_secs(70);
/// Who asks, unless a header says otherwise.
const AGENT: &str = "pintle-conformance/1";

/// A request to either server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `GET`, …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Request {
    /// Without a body.
    pub fn new(method: &str, path: impl Into<String>) -> Self {
        Self { method: method.to_owned(), path: path.into(), ..Self::default() }
    }

    /// With a JSON body.
    pub fn json(method: &str, path: impl Into<String>, body: &Value) -> Self {
        Self::new(method, path).typed("application/json", body)
    }

    /// With JSON of another content type.
    pub fn typed(self, content_type: &str, body: &Value) -> Self {
        self.header("Content-Type", content_type).bytes(body.to_string().into_bytes())
    }

    /// With a header more.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With these bytes as body.
    pub fn bytes(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }

    /// With each `from` in path and body replaced: what is another value for each server.
    pub fn replaced(&self, from: &str, to: &str) -> Self {
        let mut request = self.clone();
        request.path = request.path.replace(from, to);
        if let Ok(text) = std::str::from_utf8(&request.body)
            && text.contains(from)
        {
            request.body = text.replace(from, to).into_bytes();
        }
        request
    }

    /// As a person reads it.
    pub fn show(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.path.replace('\u{1f}', " "));
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        if !self.body.is_empty() {
            text.push_str(&String::from_utf8_lossy(&self.body));
            text.push('\n');
        }
        text
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The server broke the connection, twice.
    #[default]
    Broken,
    /// With an HTTP status.
    Http(u16),
    /// With an exit status of kubectl; `None` if a signal ended it.
    Exit(Option<i32>),
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Broken => f.write_str("broken connection"),
            Status::Http(code) => code.fmt(f),
            Status::Exit(Some(code)) => write!(f, "exit {code}"),
            Status::Exit(None) => f.write_str("ended by a signal"),
        }
    }
}

/// What a server said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// How it ended.
    pub status: Status,
    /// Headers, lower-case names.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    /// The body as JSON, if it is.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// One of the two servers.
pub struct Server {
    /// What people call it.
    pub name: &'static str,
    /// How kubectl reaches it.
    pub kubeconfig: PathBuf,
    client: kube::Client,
}

impl Server {
    /// Reached by a kubeconfig.
    pub async fn connect(name: &'static str, kubeconfig: &Path) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        // "Come again later" is an answer too.
        config.default_retry = false;
        let client = kube::Client::try_from(config).context("making a client")?;
        Ok(Self { name, kubeconfig: kubeconfig.to_owned(), client })
    }

    /// Sends a request and reads the whole answer; once more if the connection breaks. A server that breaks it again
    /// has no other answer.
    pub async fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        if let Ok(answer) = self.send_once(request).await {
            return Ok(answer);
        }
        match self.send_once(request).await {
            Err(error) if error.is::<kube::Error>() => {
                Ok(Answer { body: format!("{error:#}").into_bytes(), ..Answer::default() })
            }
            other => other,
        }
    }

    /// The version that it gives.
    pub async fn version(&self) -> anyhow::Result<String> {
        let answer = self.send(&Request::new("GET", "/version")).await?;
        let version = answer.json().and_then(|value| value["gitVersion"].as_str().map(str::to_owned));
        version.with_context(|| format!("{} does not tell its version", self.name))
    }

    async fn send_once(&self, request: &Request) -> anyhow::Result<Answer> {
        let mut builder = http::Request::builder().method(request.method.as_str()).uri(&request.path);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        if !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
            builder = builder.header("user-agent", AGENT);
        }
        let built = builder.body(Body::from(request.body.clone())).context("making the request")?;
        let answer = tokio::time::timeout(TIMEOUT, self.exchange(built)).await;
        answer
            .with_context(|| format!("{}: no answer to {} {}", self.name, request.method, request.path))?
            .with_context(|| format!("{}: {} {}", self.name, request.method, request.path))
    }

    async fn exchange(&self, request: http::Request<Body>) -> anyhow::Result<Answer> {
        let (parts, body) = self.client.send(request).await?.into_parts();
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &parts.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.entry(name.as_str().to_owned()).or_default().push(value);
        }
        let body = body.collect().await?.to_bytes().to_vec();
        Ok(Answer { status: Status::Http(parts.status.as_u16()), headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_breaks_twice_is_an_answer() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let broken = tokio::spawn(async move {
            for _ in 0..2 {
                drop(listener.accept().await.unwrap());
            }
        });
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let server = Server { name: "ours", kubeconfig: PathBuf::new(), client };
        let answer = server.send(&Request::new("GET", "/readyz")).await.unwrap();
        assert_eq!(answer.status, Status::Broken);
        broken.await.unwrap();
    }
}
