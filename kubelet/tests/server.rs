//! The node's server in front of a real containerd: who may, logs, exec, attach, port-forward.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the log of a test")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod confined;
mod server_lab;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::TokioIo;
use pintle_kubelet::server::Server;
use pintle_serving::{
    delegated::{Delegated, Settings},
    health::Checks,
    http::Listener,
    metrics::Registry,
    streams::{
        remote::Outcome,
        spdy,
        tunnel::PORT_FORWARD_PROTOCOL,
        upgrade::{self, Connected, STREAM_PROTOCOL},
        websocket::{Channels, Encoding},
    },
    tls::SelfSigned,
};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use server_lab::Lab;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

type Secure = tokio_rustls::client::TlsStream<TcpStream>;

struct Node {
    address: SocketAddr,
    tls: tokio_rustls::TlsConnector,
    shutdown: CancellationToken,
}

impl Node {
    async fn start(lab: &Lab) -> Self {
        let identity = SelfSigned::new(&["localhost"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let server = Server {
            host: lab.host(),
            runtime: lab.runtime.clone(),
            auth: Delegated::new(judge(), Settings::new(None)).unwrap(),
            checks: Checks::default(),
            metrics: Registry::with_process(),
            probe_metrics: Registry::default(),
        };
        let tls = identity.tls(None).unwrap();
        tokio::spawn(server.run(Listener::Tcp(listener), tls, shutdown.clone()));
        let mut roots = rustls::RootCertStore::empty();
        for certificate in pintle_serving::tls::certificates(identity.certificate.as_bytes()).unwrap() {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { address, tls: Arc::new(client).into(), shutdown }
    }

    async fn connect(&self) -> Secure {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        self.tls.connect(ServerName::try_from("localhost").unwrap(), tcp).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, token: &str) -> (StatusCode, String) {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection);
        let request = request(method, path, token).body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn websocket(&self, path: &str, protocol: &'static str) -> Connected {
        let mut request = request("GET", path, "admin").body(Empty::new()).unwrap();
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        upgrade::connect_over(self.connect().await, request).await.unwrap()
    }

    async fn spdy(&self, path: &str, protocol: &'static str) -> Result<spdy::Connection, String> {
        let mut request = request("POST", path, "admin").body(Empty::new()).unwrap();
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
        let connected =
            upgrade::connect_over(self.connect().await, request).await.map_err(|error| error.to_string())?;
        assert_eq!(connected.response.headers()[STREAM_PROTOCOL], protocol);
        Ok(spdy::Connection::start(connected.io, spdy::Role::Client))
    }
}

fn request(method: &str, path: &str, token: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    if token.is_empty() { request } else { request.header(header::AUTHORIZATION, format!("Bearer {token}")) }
}

/// An API server that knows two users: `admin` may do everything, `guest` nothing.
fn judge() -> kube::Client {
    let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
        let path = request.uri().path().to_owned();
        let mut review: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
        review["status"] = if path.ends_with("tokenreviews") {
            let token = review["spec"]["token"].as_str().unwrap().to_owned();
            json!({"authenticated": token != "wrong", "user": {"username": token}})
        } else {
            json!({"allowed": review["spec"]["user"] == "admin"})
        };
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from(review.to_string())))
    });
    kube::Client::new(service, "default")
}

async fn collect(pieces: Option<mpsc::Receiver<Bytes>>) -> String {
    let mut pieces = pieces.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = pieces.recv().await {
        all.extend_from_slice(&piece);
    }
    String::from_utf8(all).unwrap()
}

fn headers(pairs: &[(&str, &str)]) -> spdy::Headers {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

async fn wait_for_log(node: &Node, path: &str, expected: &str) {
    for _ in 0..300 {
        if node.ask("GET", path, "admin").await.1 == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{path}: {:?}", node.ask("GET", path, "admin").await);
}

#[test]
fn the_nodes_server_serves_a_real_container() {
    confined::run("inner_server");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test above in namespaces of its own"]
async fn inner_server() {
    confined::prepare();
    // The runtime copies the two outputs apart from each other: only time orders them.
    let script = "for n in 1 2 3; do echo line $n; done; sleep 1; echo oops >&2; while :; do sleep 1; done";
    let lab = Lab::start("web", &[("main", script, false), ("reader", "cat", true)]).await;
    let node = Node::start(&lab).await;
    step("permissions", permissions(&node)).await;
    step("logs", logs(&node)).await;
    step("exec over WebSocket", exec_over_websocket(&node)).await;
    step("terminal", terminal(&node)).await;
    step("exec over SPDY", exec_over_spdy(&node)).await;
    step("attach", attach(&node)).await;
    step("ports", ports(&node)).await;
    node.shutdown.cancel();
}

/// One part of the test, so that a hanging one has a name.
async fn step(name: &str, work: impl Future<Output = ()>) {
    println!("{name}");
    tokio::time::timeout(Duration::from_secs(60), work).await.unwrap_or_else(|_| panic!("{name}: not in time"));
}

async fn permissions(node: &Node) {
    let unauthorized = (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
    assert_eq!(node.ask("GET", "/pods", "").await, unauthorized);
    assert_eq!(node.ask("GET", "/pods", "wrong").await, unauthorized);
    let (status, text) = node.ask("GET", "/healthz", "guest").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(text, "Forbidden (user=guest, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n");
    assert_eq!(node.ask("GET", "/healthz", "admin").await, (StatusCode::OK, "ok".into()));
    assert_eq!(node.ask("GET", "/nothing", "admin").await.0, StatusCode::NOT_FOUND);
    assert_eq!(node.ask("PUT", "/pods", "admin").await.0, StatusCode::METHOD_NOT_ALLOWED);
    let (_, pods) = node.ask("GET", "/pods", "admin").await;
    let pods: Value = serde_json::from_str(&pods).unwrap();
    assert_eq!((&pods["kind"], &pods["items"][0]["metadata"]["name"]), (&json!("PodList"), &json!("web")));
    let (_, metrics) = node.ask("GET", "/metrics", "admin").await;
    assert!(metrics.contains("process_resident_memory_bytes "), "{metrics}");
    assert_eq!(node.ask("GET", "/stats/summary", "admin").await.0, StatusCode::OK);
    let (_, config) = node.ask("GET", "/configz", "admin").await;
    assert_eq!(config, r#"{"kubeletconfig":{"kind":"KubeletConfiguration"}}"#);
}

async fn logs(node: &Node) {
    wait_for_log(node, "/containerLogs/default/web/main", "line 1\nline 2\nline 3\noops\n").await;
    wait_for_log(node, "/containerLogs/default/web/main?tailLines=2", "line 3\noops\n").await;
    wait_for_log(node, "/containerLogs/default/web/main?stream=Stderr", "oops\n").await;
    let previous = node.ask("GET", "/containerLogs/default/web/main?previous=true", "admin").await;
    let message = "previous terminated container \"main\" in pod \"web\" not found";
    assert_eq!(previous, (StatusCode::BAD_REQUEST, message.into()));
    let missing = node.ask("GET", "/containerLogs/default/nope/main", "admin").await;
    assert_eq!(missing, (StatusCode::NOT_FOUND, "pod \"nope\" does not exist\n".into()));
    let bad = node.ask("GET", "/containerLogs/default/web/main?tailLines=-1", "admin").await;
    assert_eq!(bad.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(node.ask("POST", "/run/default/web/main?cmd=echo+hi", "admin").await, (StatusCode::OK, "hi\n".into()));
}

async fn exec_over_websocket(node: &Node) {
    let command = "command=sh&command=-c&command=cat%3B+echo+err+%3E%262%3B+exit+3";
    let path = format!("/exec/default/web/main?input=1&output=1&error=1&{command}");
    let connected = node.websocket(&path, "v5.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[1, 2, 3]).await;
    let (stdout, stderr, status) = (channels.take(1), channels.take(2), channels.take(3));
    let stdin = channels.writer(0);
    let send = async {
        stdin.write(b"hello\n").await.unwrap();
        stdin.close().await.unwrap();
    };
    let (_, stdout, stderr, status) = tokio::join!(send, collect(stdout), collect(stderr), collect(status));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("hello\n", "err\n"));
    assert_eq!(Outcome::parse(status.as_bytes()).exit_code(), Some(3), "{status}");
}

/// A terminal takes the size that it is told, whenever the runtime gets to it.
async fn terminal(node: &Node) {
    let script =
        "until+test+%22%24(stty+size+2%3E%2Fdev%2Fnull)%22+%3D+%2245+123%22%3B+do+sleep+0.1%3B+done%3B+echo+resized";
    let path = format!("/exec/default/web/main?input=1&output=1&tty=1&command=sh&command=-c&command={script}");
    let connected = node.websocket(&path, "v4.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[1, 3]).await;
    let (stdout, status) = (channels.take(1), channels.take(3));
    channels.writer(4).write(br#"{"Width":123,"Height":45}"#).await.unwrap();
    let (stdout, status) = tokio::join!(collect(stdout), collect(status));
    assert_eq!(stdout, "resized\r\n");
    assert!(Outcome::parse(status.as_bytes()).is_success(), "{status}");
}

async fn exec_over_spdy(node: &Node) {
    let path = "/exec/default/web/main?output=1&command=echo&command=spdy";
    let connection = node.spdy(path, "v4.channel.k8s.io").await.unwrap();
    let error = connection.open(headers(&[("streamtype", "error")])).await.unwrap();
    let stdout = connection.open(headers(&[("streamtype", "stdout")])).await.unwrap();
    let (stdout, status) =
        tokio::join!(collect(Some(stdout.reader.into_receiver())), collect(Some(error.reader.into_receiver())));
    assert_eq!(stdout, "spdy\n");
    assert!(Outcome::parse(status.as_bytes()).is_success(), "{status}");
    let refused = node.spdy("/exec/default/web/nope?output=1&command=x", "v4.channel.k8s.io").await.err().unwrap();
    assert!(refused.ends_with("container not found (\"nope\")"), "{refused}");
}

async fn attach(node: &Node) {
    let connected = node.websocket("/attach/default/web/uid-1/reader?input=1&output=1", "v5.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[1]).await;
    let mut stdout = channels.take(1).unwrap();
    channels.writer(0).write(b"to cat\n").await.unwrap();
    let mut seen = Vec::new();
    while seen != b"to cat\n" {
        seen.extend_from_slice(&stdout.recv().await.unwrap_or_else(|| panic!("the stream ended after {seen:?}")));
    }
}

async fn ports(node: &Node) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut text = [0; 5];
            tcp.read_exact(&mut text).await.unwrap();
            tcp.write_all(&text).await.unwrap();
        }
    });
    let connected = node.websocket(&format!("/portForward/default/web?port={port}"), "v4.channel.k8s.io").await;
    let mut channels = Channels::client(connected.io, Encoding::Binary, &[0, 1]).await;
    let mut data = channels.take(0).unwrap();
    assert_eq!(data.recv().await.as_deref(), Some(&port.to_le_bytes()[..]));
    channels.writer(0).write(b"hello").await.unwrap();
    assert_eq!(data.recv().await.as_deref(), Some(&b"hello"[..]));

    let connection = node.spdy("/portForward/default/web", "portforward.k8s.io").await.unwrap();
    let number = port.to_string();
    let named = |kind| headers(&[("streamtype", kind), ("port", &number), ("requestid", "0")]);
    let mut error = connection.open(named("error")).await.unwrap();
    error.writer.finish().await.unwrap();
    let mut data = connection.open(named("data")).await.unwrap();
    data.writer.write(Bytes::from_static(b"again")).await.unwrap();
    assert_eq!(data.reader.read().await.as_deref(), Some(&b"again"[..]));
    echo.await.unwrap();

    let tunnel = node.websocket("/portForward/default/web", PORT_FORWARD_PROTOCOL).await;
    assert_eq!(tunnel.response.headers()[header::SEC_WEBSOCKET_PROTOCOL], PORT_FORWARD_PROTOCOL);
}
