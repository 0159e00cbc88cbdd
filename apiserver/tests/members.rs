//! Several API servers on one store: all are endpoints of the `kubernetes` Service, as long as they run.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Server;
use pintle_store::Store;
use pintle_store::memory::Memory;
use serde_json::{Value, json};

async fn member(store: &Arc<dyn Store>, address: [u8; 4]) -> Server {
    let mut config = common::config(store.clone());
    config.advertise_address = address.into();
    Server::with(config).await
}

async fn endpoints(server: &Server) -> (Value, Value) {
    let endpoints = server.ok("GET", "/api/v1/namespaces/default/endpoints/kubernetes", Value::Null).await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = server.ok("GET", path, Value::Null).await;
    let addresses: Vec<_> =
        slice["endpoints"].as_array().into_iter().flatten().map(|e| e["addresses"][0].clone()).collect();
    (endpoints["subsets"][0]["addresses"].clone(), addresses.into())
}

async fn become_endpoints(server: &Server, wanted: &[&str]) {
    let ips: Vec<_> = wanted.iter().map(|ip| json!({"ip": ip})).collect();
    let begin = Instant::now();
    loop {
        let found = endpoints(server).await;
        if found == (json!(ips), json!(wanted)) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{found:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_running_servers_are_endpoints() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = member(&store, [10, 1, 0, 2]).await;
    become_endpoints(&first, &["10.1.0.2"]).await;
    let second = member(&store, [10, 1, 0, 1]).await;
    become_endpoints(&second, &["10.1.0.1", "10.1.0.2"]).await;
    // They agree: a round of the first one changes nothing.
    let before = endpoints(&first).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(endpoints(&first).await, before);
    drop(second);
    become_endpoints(&first, &["10.1.0.2"]).await;
}
