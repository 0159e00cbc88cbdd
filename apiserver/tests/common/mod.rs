//! An API server in this process over the memory store, and requests to it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use pintle_apiserver::{ApiServer, Config, StaticToken};
use pintle_store::Store;
use pintle_store::memory::Memory;
use serde_json::{Value, json};
use tower::ServiceExt;

pub const ADMIN: &str = "admintoken";

pub fn config(store: Arc<dyn Store>) -> Config {
    Config {
        store,
        service_cidr: "10.96.0.0/24".parse().expect("cidr"),
        node_ports: 30000..=30010,
        advertise_address: [127, 0, 0, 1].into(),
        advertise_port: 6443,
        issuer: "https://kubernetes.default.svc.cluster.local".into(),
        service_account_key: rcgen::KeyPair::generate().expect("key").serialize_pem().into_bytes(),
        service_account_verify_keys: Vec::new(),
        client_ca: None,
        cluster_ca: Vec::new(),
        static_tokens: vec![StaticToken {
            token: ADMIN.into(),
            user: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into()],
        }],
        kubelet_client: None,
        features: Default::default(),
    }
}

pub struct Server {
    pub api: ApiServer,
    pub store: Arc<dyn Store>,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {:?}", self.bytes))
    }

    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::on(Arc::new(Memory::new(Default::default()))).await
    }

    /// With the namespace `n` and its default service account.
    pub async fn with_namespace() -> Self {
        let server = Self::start().await;
        server.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
        server.ok("POST", "/api/v1/namespaces/n/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
        server
    }

    pub async fn on(store: Arc<dyn Store>) -> Self {
        Self::with(config(store)).await
    }

    pub async fn with(config: Config) -> Self {
        let store = config.store.clone();
        let api = ApiServer::build(config).expect("server");
        api.ready().await;
        Self { api, store }
    }

    pub async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> Answer {
        let response = self.open(method, path, body, headers).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("body").to_bytes();
        Answer { code: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub async fn open(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> http::Response<pintle_apiserver::http::body::Body> {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "test/1");
        if headers.iter().all(|(name, _)| *name != "authorization") {
            request = request.header("authorization", format!("Bearer {ADMIN}"));
        }
        if headers.iter().all(|(name, _)| *name != "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("request");
        self.api.service().oneshot(request).await.expect("infallible")
    }

    pub async fn json(&self, method: &str, path: &str, body: Value) -> Answer {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, bytes, &[]).await
    }

    pub async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.json(method, path, body).await;
        assert!(answer.code < 300, "{method} {path}: {} {}", answer.code, answer.message());
        answer.json()
    }

    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        self.send("PATCH", path, body.to_string(), &[("content-type", kind)]).await
    }

    /// The events of a watch that ends by its timeout or after `count` of them.
    pub async fn events(&self, path: &str, count: usize) -> Vec<Value> {
        let mut body = self.open("GET", path, "", &[]).await.into_body();
        let mut events = Vec::new();
        while events.len() < count
            && let Ok(Some(Ok(frame))) = tokio::time::timeout(std::time::Duration::from_secs(5), body.frame()).await
        {
            let data = frame.into_data().expect("data");
            let lines = data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            events.extend(lines.map(|line| serde_json::from_slice::<Value>(line).expect("event")));
        }
        events
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.api.stop();
    }
}
