//! The proxy against an API server: ours in this process, or any that `PINTLE_TEST_KUBECONFIG` names.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use pintle_proxy::netns;
use pintle_testapi::Server;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid object")
}

/// A client of the server that `PINTLE_TEST_KUBECONFIG` names, else of one in this process, which lives as long as the
/// second value.
async fn client() -> (Client, Option<Server>) {
    let Some(path) = std::env::var_os("PINTLE_TEST_KUBECONFIG") else {
        let server = Server::start(pintle_testapi::config().expect("a configuration")).await.expect("an API server");
        return (server.client(), Some(server));
    };
    (pintle_client::connect::from_kubeconfig(path.as_ref()).await.expect("a client"), None)
}

struct Netns(String);

impl Netns {
    fn new() -> Netns {
        let name = format!("pxa{}", std::process::id());
        let made =
            Command::new("sh").args(["-ec", &format!("ip netns add {name} && ip -n {name} link set lo up")]).status();
        assert!(made.expect("ip").success());
        Netns(name)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

async fn tables(space: &netns::Namespace) -> String {
    space.run("nft", &["list", "ruleset"], "").await.expect("nft")
}

async fn until(space: &netns::Namespace, what: &str, done: impl Fn(&str) -> bool) {
    let mut last = String::new();
    for _ in 0..100 {
        last = tables(space).await;
        if done(&last) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about:\n{last}");
}

/// The status line that a port of the namespace answers with.
fn health(path: PathBuf, port: u16) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    };
    pintle_host::netns::within(&path, ask).flatten().unwrap_or_else(|e| e.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_become_rules() {
    let (client, _server) = client().await;
    let (lab, namespace) = (Netns::new(), format!("proxy-test-{}", std::process::id()));
    let space = netns::Namespace { path: Some(lab.path()) };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &object(json!({"metadata": {"name": namespace}})))
        .await
        .expect("namespace");
    let shutdown = CancellationToken::new();
    let config = pintle_proxy::Config { netns: Some(lab.path()), ..pintle_proxy::Config::new("n1") };
    let proxy = tokio::spawn(pintle_proxy::run(config.clone(), client.clone(), shutdown.clone()));

    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    let service =
        services.create(&PostParams::default(), &object(json!({"metadata": {"name": "web"}, "spec": spec}))).await;
    let spec = service.expect("service").spec.expect("spec");
    let (vip, port) = (spec.cluster_ip.expect("ip"), spec.health_check_node_port.expect("port"));
    let port = u16::try_from(port).expect("port");
    until(&space, "refusal", |t| t.contains(&format!("{vip} . tcp . 80 : goto refuse"))).await;
    assert!(health(lab.path(), port).contains("503"));

    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}], "endpoints": [{"addresses": ["10.244.1.2"], "nodeName": "n1"}]});
    slices.create(&PostParams::default(), &object(slice)).await.expect("slice");
    until(&space, "a way", |t| t.contains("dnat to 10.244.1.2:8080") && !t.contains("goto refuse\n")).await;
    assert!(health(lab.path(), port).contains("200"));

    let moved = json!({"endpoints": [{"addresses": ["10.244.2.2"], "nodeName": "n2"}]});
    slices.patch("web-1", &PatchParams::default(), &Patch::Merge(moved)).await.expect("patch");
    until(&space, "the new way", |t| t.contains("dnat to 10.244.2.2:8080") && !t.contains("10.244.1.2")).await;

    services.delete("web", &DeleteParams::default()).await.expect("delete");
    until(&space, "no way", |t| !t.contains(&vip) && !t.contains(&namespace)).await;
    let ready = config.telemetry.checks.respond("/readyz", None).await.expect("an answer").into_body();
    let metrics = config.telemetry.metrics.render();
    assert_eq!(ready, "ok");
    assert!(metrics.contains("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} "), "{metrics}");
    assert!(!metrics.contains("sync_failures_total{"), "{metrics}");
    shutdown.cancel();
    proxy.await.expect("no panic").expect("no error");
    pintle_proxy::cleanup_in(&config.table, &space).await.expect("cleanup");
    assert!(!tables(&space).await.contains("pintle"));
    namespaces.delete(&namespace, &DeleteParams::default()).await.expect("delete");
}
