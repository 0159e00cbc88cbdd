//! Resources in stores of their own, as `--etcd-servers-overrides` has it: revisions, lists and watches are each store's.

mod common;

use std::sync::Arc;

use common::Server;
use http_body_util::BodyExt;
use pintle_store::memory::Memory;
use pintle_store::routed::Routed;
use pintle_store::{ListOptions, Store};
use serde_json::{Value, json};

const EVENTS: &str = "/api/v1/namespaces/n/events";
const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

fn event(name: &str) -> Value {
    json!({"metadata": {"name": name}, "message": "m", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "n"}})
}

fn version(object: &Value) -> i64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

#[tokio::test]
async fn a_resource_with_a_store_of_its_own_has_revisions_of_its_own() {
    let (main, events): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let separate = vec![("/registry/events/".to_owned(), events.clone())];
    let server = Server::on(Arc::new(Routed::new(main.clone(), separate))).await;
    server.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    for at in 0..20 {
        server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": format!("c{at}")}})).await;
    }
    let made = server.ok("POST", EVENTS, event("a")).await;
    assert_eq!(version(&made), 2, "the first write of its store");
    let list = server.ok("GET", EVENTS, Value::Null).await;
    assert_eq!((list["items"].as_array().map(Vec::len), version(&list)), (Some(1), 2));
    let maps = server.ok("GET", CONFIG_MAPS, Value::Null).await;
    assert!(version(&maps) > 20 && maps["items"].as_array().map(Vec::len) == Some(20));
    let path = format!("{EVENTS}?watch=1&resourceVersion=2");
    let mut watch = server.open("GET", &path, "", &[]).await.into_body();
    server.ok("POST", EVENTS, event("b")).await;
    let frame = watch.frame().await.expect("open").expect("ok").into_data().expect("data");
    let seen: Value = serde_json::from_slice(&frame).expect("an event");
    assert_eq!((&seen["type"], &seen["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("b")));
    let of = |store: Arc<dyn Store>| async move { store.list(ListOptions::prefix("/registry/events/")).await.unwrap() };
    assert_eq!((of(main).await.items.len(), of(events).await.items.len()), (0, 2));
    server.ok("DELETE", &format!("{EVENTS}/a"), Value::Null).await;
    let late = server
        .json("GET", &format!("{EVENTS}?resourceVersion=30&resourceVersionMatch=NotOlderThan"), Value::Null)
        .await;
    assert_eq!(late.code, 504, "{}", late.message());
}
