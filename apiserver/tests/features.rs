//! What is served beyond, or short of, the defaults: by `--runtime-config` and `--feature-gates`.

mod common;

use std::sync::Arc;

use common::{Server, config};
use pintle_apiserver::Features;
use pintle_machinery::codec::cbor;
use pintle_store::memory::Memory;
use serde_json::{Value, json};

async fn server(gates: &str, runtime: &str) -> Server {
    let list = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let mut config = config(Arc::new(Memory::new(Default::default())));
    config.features = Features::parse(&list(gates), &list(runtime)).expect("features");
    let server = Server::with(config).await;
    server.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    server
}

#[tokio::test]
async fn versions_come_and_go_everywhere() {
    let server = server("", "api/beta=true,apps/v1=false,batch/v1/jobs=false").await;
    let group = server.ok("GET", "/apis/resource.k8s.io", Value::Null).await;
    let versions: Vec<_> = group["versions"].as_array().unwrap().iter().map(|v| v["version"].clone()).collect();
    assert_eq!(versions, ["v1", "v1beta2", "v1beta1"]);
    let index = server.ok("GET", "/openapi/v3", Value::Null).await;
    assert!(
        index["paths"].get("apis/resource.k8s.io/v1beta1").is_some() && index["paths"].get("apis/apps/v1").is_none()
    );
    for (path, code) in [
        ("/apis/apps/v1/deployments", 404),
        ("/apis/apps", 404),
        ("/apis/batch/v1/jobs", 404),
        ("/apis/batch/v1/cronjobs", 200),
        ("/apis/scheduling.k8s.io/v1beta1/podgroups", 404),
        ("/apis/coordination.k8s.io/v1beta1/leasecandidates", 200),
    ] {
        assert_eq!(server.json("GET", path, Value::Null).await.code, code, "{path}");
    }
}

#[tokio::test]
async fn versions_of_one_resource_are_one() {
    let server = server("", "api/all=true").await;
    let claim = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                       "spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "d"}]}}});
    let answer = server.json("POST", "/apis/resource.k8s.io/v1beta1/namespaces/n/resourceclaims", claim).await;
    let flat = json!([{"name": "a", "deviceClassName": "d", "allocationMode": "ExactCount", "count": 1}]);
    assert_eq!((answer.code, &answer.json()["spec"]["devices"]["requests"]), (201, &flat));
    let warning = "299 - \"resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+\"";
    assert_eq!(answer.headers["warning"], warning);
    let path = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c";
    let v1 = server.ok("GET", path, Value::Null).await;
    let exactly = json!({"deviceClassName": "d", "allocationMode": "ExactCount", "count": 1});
    assert_eq!(v1["spec"]["devices"]["requests"], json!([{"name": "a", "exactly": exactly}]));
    let path = "/apis/resource.k8s.io/v1beta1/namespaces/n/resourceclaims/c";
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = server.patch(path, "application/merge-patch+json", patch).await.json();
    assert_eq!(
        (&patched["spec"]["devices"]["requests"], &patched["apiVersion"]),
        (&flat, &json!("resource.k8s.io/v1beta1"))
    );
}

#[tokio::test]
async fn kinds_behind_gates_are_served_with_them() {
    let server = server("GenericWorkload=true,EvictionRequestAPI=true", "api/all=true").await;
    let group = json!({"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}});
    let made = server.ok("POST", "/apis/scheduling.k8s.io/v1alpha3/namespaces/n/podgroups", group).await;
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"single": {}}, "priority": 0,
                      "preemptionPolicy": "PreemptLowerPriority"});
    assert_eq!(made["spec"], spec);
    assert_eq!(made["metadata"]["finalizers"], json!(["scheduling.k8s.io/podgroup-protection"]));
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let list = server.send("GET", "/apis/scheduling.k8s.io/v1beta1/namespaces/n/podgroups", "", &table).await.json();
    assert_eq!(list["rows"][0]["cells"][1], "Gang");
    let path = "/apis/scheduling.k8s.io/v1alpha3/namespaces/n/compositepodgroups";
    assert_eq!(server.json("GET", path, Value::Null).await.code, 404, "its gate is off");
}

#[tokio::test]
async fn fields_behind_gates_stay_with_them() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"evictionResponders": [{"name": "a.io/b", "priority": 1000}],
                     "containers": [{"name": "c", "image": "i"}]}});
    for (gates, stays) in [("", false), ("EvictionRequestAPI=true", true)] {
        let server = server(gates, "").await;
        server.ok("POST", "/api/v1/namespaces/n/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
        let made = server.ok("POST", "/api/v1/namespaces/n/pods", pod.clone()).await;
        assert_eq!(made["spec"].get("evictionResponders").is_some(), stays, "{gates}");
    }
}

/// A server that speaks CBOR.
async fn with_cbor() -> Server {
    server("CBORServingAndStorage=true", "").await
}

fn map(bytes: &[u8]) -> Value {
    assert_eq!(bytes[..3], [0xd9, 0xd9, 0xf7]);
    cbor::parse(bytes).expect("CBOR")
}

#[tokio::test]
async fn objects_are_cbor_for_those_who_want_it() {
    let server = with_cbor().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aP8="}});
    let ty = pintle_api::schema().kind("", "v1", "Secret").unwrap();
    let body = cbor::encode(pintle_api::schema(), Some(ty), &secret);
    let both = [("content-type", "application/cbor"), ("accept", "application/cbor")];
    let made = server.send("POST", "/api/v1/namespaces/n/secrets", body.clone(), &both).await;
    assert_eq!((made.code, &made.headers["content-type"]), (201, &"application/cbor".parse().unwrap()));
    assert!(made.bytes.windows(4).any(|part| part == [0xd6, 0x42, 0x68, 0xff]), "bytes are not base64");
    assert_eq!(map(&made.bytes)["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:k"], json!({}));
    for (path, field, value) in [
        ("/api/v1/namespaces/n/secrets/s", "/data/k", "aP8="),
        ("/api/v1/namespaces/n/secrets", "/items/0/data/k", "aP8="),
        ("/api/v1/namespaces/n/secrets/nope", "/reason", "NotFound"),
        ("/apis", "/kind", "APIGroupList"),
    ] {
        let answer = server.send("GET", path, "", &both).await;
        let found = map(&answer.bytes);
        assert_eq!(found.pointer(field), Some(&json!(value)), "{path}: {found}");
    }
    let path = "/api/v1/namespaces/n/secrets?watch=1&timeoutSeconds=1";
    let events = server.send("GET", path, "", &[("accept", "application/cbor-seq")]).await;
    assert_eq!(events.headers["content-type"], "application/cbor-seq");
    let event = map(&events.bytes);
    assert_eq!((&event["type"], &event["object"]["data"]["k"]), (&json!("ADDED"), &json!("aP8=")));
    let apply = [("content-type", "application/apply-patch+cbor")];
    let path = "/api/v1/namespaces/n/secrets/s?fieldManager=m&force=true";
    let applied = server.send("PATCH", path, body, &apply).await;
    assert_eq!((applied.code, &applied.json()["data"]["k"]), (200, &json!("aP8=")));
}

#[tokio::test]
async fn what_is_no_cbor_is_told_as_upstream_tells_it() {
    let server = with_cbor().await;
    let path = "/api/v1/namespaces/n/configmaps";
    let asked =
        |method: &'static str, path: &'static str, body: &'static [u8], header: (&'static str, &'static str)| {
            let server = &server;
            async move {
                let answer = server.send(method, path, body, &[header]).await;
                (answer.code, answer.message())
            }
        };
    let body = ("content-type", "application/cbor");
    let told = "the object provided is unrecognized (must be of type ConfigMap): unable to determine group/version/kind: \
                unexpected EOF (d9d9f7)";
    assert_eq!(asked("POST", path, b"\xd9\xd9\xf7", body).await, (400, told.to_owned()));
    let told = "the body of the request was in an unknown format - accepted media types include: application/json, \
                application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
    assert_eq!(asked("POST", path, b"x", ("content-type", "a/b")).await, (415, told.to_owned()));
    let told = "error decoding patch: cbor: unexpected \"break\" code";
    let patch = ("content-type", "application/apply-patch+cbor");
    let path = "/api/v1/namespaces/n/configmaps/x?fieldManager=m";
    assert_eq!(asked("PATCH", path, b"\xff", patch).await, (400, told.to_owned()));
    let told = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf, application/cbor, application/json;stream=watch, \
                application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq";
    let path = "/api/v1/namespaces/n/configmaps";
    assert_eq!(asked("GET", path, b"", ("accept", "a/b")).await, (406, told.to_owned()));
}

#[tokio::test]
async fn without_its_gate_there_is_no_cbor() {
    let server = server("", "").await;
    let path = "/api/v1/namespaces/n/configmaps";
    assert_eq!(server.send("GET", path, "", &[("accept", "application/cbor")]).await.code, 406);
    assert_eq!(server.send("POST", path, "", &[("content-type", "application/cbor")]).await.code, 415);
    let patch = [("content-type", "application/apply-patch+cbor")];
    assert_eq!(server.send("PATCH", &format!("{path}/x?fieldManager=m"), "", &patch).await.code, 415);
}
