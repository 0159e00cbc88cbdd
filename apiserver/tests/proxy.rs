//! Relaying: a kubelet made of a TLS server that tells what it was asked, and upgrades to an echo.

mod common;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use pintle_apiserver::{ApiServer, KubeletClient};
use pintle_serving::dial::{Dialer, Target};
use pintle_serving::http::Listener;
use pintle_serving::tls::{PeerCertificates, SelfSigned};
use pintle_store::memory::Memory;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// What the kubelet does: echo after an upgrade, else method, path and whether a client certificate came along.
async fn kubelet(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key("upgrade") {
        let path = request.uri().to_string();
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.expect("upgrade"));
            stream.write_all(path.as_bytes()).await.expect("path");
            let mut buffer = [0; 5];
            stream.read_exact(&mut buffer).await.expect("input");
            stream.write_all(&buffer).await.expect("echo");
            stream.shutdown().await.expect("end");
        });
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        return Ok(response.body(Full::default()).expect("response"));
    }
    let known = request.extensions().get::<PeerCertificates>().is_some();
    let authorized = request.headers().contains_key("authorization");
    let text = format!("{} {} certificate={known} token={authorized}", request.method(), request.uri());
    Ok(Response::new(Full::new(text.into())))
}

struct Lab {
    server: common::Server,
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
}

async fn lab() -> Lab {
    let own = SelfSigned::new(&["127.0.0.1"]).expect("certificate");
    let tls = own.tls(None).expect("TLS");
    let shutdown = CancellationToken::new();
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.expect("listener");
    let kubelet_port = listener.address().expect("address").port();
    let service = tower::service_fn(kubelet);
    tokio::spawn(pintle_serving::http::serve(listener, tls.clone(), service, shutdown.clone()));

    let store = Arc::new(Memory::new(Default::default()));
    let mut config = common::config(store.clone());
    config.kubelet_client =
        Some(KubeletClient { certificate: own.certificate.into_bytes(), key: own.key.into_bytes(), ca: None });
    let api = ApiServer::build(config).expect("server");
    api.ready().await;
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.expect("listener");
    let address = listener.address().expect("address");
    tokio::spawn({
        let (api, shutdown) = (api.clone(), shutdown.clone());
        async move { api.serve(vec![listener], tls, shutdown).await }
    });
    let server = common::Server { api, store };
    server.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    server.ok("POST", "/api/v1/namespaces/n/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let status = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}});
    server.ok("POST", "/api/v1/nodes", json!({"metadata": {"name": "node"}, "status": status})).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]}});
    server.ok("POST", "/api/v1/namespaces/n/pods", pod).await;
    Lab { server, address, shutdown }
}

#[tokio::test]
async fn logs_come_from_the_kubelet_with_our_certificate() {
    let lab = lab().await;
    let log = lab.server.send("GET", "/api/v1/namespaces/n/pods/p/log?tailLines=5&follow=true", "", &[]).await;
    let text = String::from_utf8_lossy(&log.bytes).into_owned();
    assert_eq!(text, "GET /containerLogs/n/p/c?follow=true&tailLines=5 certificate=true token=false");
    let node = lab.server.send("GET", "/api/v1/nodes/node/proxy/healthz?a=b", "", &[]).await;
    assert_eq!(String::from_utf8_lossy(&node.bytes), "GET /healthz?a=b certificate=true token=false");
    let wrong = lab.server.send("GET", "/api/v1/namespaces/n/pods/p/log?container=x", "", &[]).await;
    assert_eq!((wrong.code, wrong.message().as_str()), (400, "container x is not valid for pod p"));
    lab.shutdown.cancel();
}

#[tokio::test]
async fn an_upgrade_passes_bytes_both_ways() {
    let lab = lab().await;
    let dialer = Dialer::new(None, None).expect("dialer");
    let target = Target { host: "127.0.0.1".into(), port: lab.address.port(), tls: true };
    let request = Request::post("/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true&stdout=true")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", common::ADMIN))
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Full::<Bytes>::default())
        .expect("request");
    let mut response = dialer.send(&target, request).await.expect("response");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.expect("upgrade"));
    stream.write_all(b"hello").await.expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    assert_eq!(text, "/exec/n/p/c?input=1&output=1&command=shhello");
    lab.shutdown.cancel();
}

#[tokio::test]
async fn slow_and_broken_connections_do_no_harm() {
    let lab = lab().await;
    // Half-open: connected, silent. Broken: no TLS at all.
    let _silent = tokio::net::TcpStream::connect(lab.address).await.expect("connect");
    let mut broken = tokio::net::TcpStream::connect(lab.address).await.expect("connect");
    broken.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("write");
    let dialer = Dialer::new(None, None).expect("dialer");
    let target = Target { host: "127.0.0.1".into(), port: lab.address.port(), tls: true };
    let request = Request::get("/readyz").header("host", "x").body(Full::<Bytes>::default()).expect("request");
    let response = dialer.send(&target, request).await.expect("response");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await.expect("body").to_bytes(), "ok");
    lab.shutdown.cancel();
}
