//! Custom resources: a definition is established, its objects are served by its schema, and it goes with them.

mod common;

use std::time::Duration;

use common::Server;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/n/widgets";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1}, "replicas": {"type": "integer", "default": 1},
                "color": {"type": "string", "default": "red"},
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                          "items": {"type": "object", "required": ["port"], "properties": {
                              "port": {"type": "integer"}, "name": {"type": "string"}}}},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
        }}},
    })
}

fn definition(versions: Vec<Value>) -> Value {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "widgets.example.com"},
           "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Waits until a path is answered with that code.
async fn until(server: &Server, path: &str, code: u16) {
    for _ in 0..500 {
        if server.json("GET", path, json!(null)).await.code == code {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} is not answered with {code}");
}

async fn with_widgets() -> Server {
    let server = Server::with_namespace().await;
    server.ok("POST", DEFINITIONS, definition(vec![version("v1", true)])).await;
    until(&server, WIDGETS, 200).await;
    server
}

#[tokio::test]
async fn objects_live_by_the_schema() {
    let server = with_widgets().await;
    let made = server.json("POST", WIDGETS, widget("a", json!({"size": 3, "extra": 1}))).await;
    assert_eq!(made.headers["warning"], "299 - \"unknown field \\\"spec.extra\\\"\"");
    let made = made.json();
    assert_eq!(made["spec"], json!({"size": 3, "replicas": 1, "color": "red"}));
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{WIDGETS}/a");
    assert_eq!(server.ok("GET", &path, json!(null)).await, made);

    let refused = server.json("POST", WIDGETS, widget("b", json!({"size": 0}))).await;
    assert_eq!(refused.code, 422);
    let wanted = "Widget.example.com \"b\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1";
    assert_eq!(refused.message(), wanted);
    let refused = server
        .json("POST", &format!("{WIDGETS}?fieldValidation=Strict"), widget("b", json!({"size": 1, "x": 1})))
        .await;
    assert!(refused.message().ends_with("strict decoding error: unknown field \"spec.x\""), "{}", refused.message());

    let patched = server.patch(&path, MERGE, json!({"spec": {"size": 4}, "status": {"phase": "x"}})).await.json();
    assert_eq!((&patched["spec"]["size"], &patched["metadata"]["generation"]), (&json!(4), &json!(2)));
    assert!(patched.get("status").is_none(), "that is another endpoint's");
    let status =
        server.patch(&format!("{path}/status"), MERGE, json!({"spec": {"size": 9}, "status": {"phase": "x"}})).await;
    let status = status.json();
    assert_eq!((&status["spec"]["size"], &status["status"]["phase"]), (&json!(4), &json!("x")));
    assert_eq!(status["metadata"]["generation"], 2);
    let strategic = server.patch(&path, "application/strategic-merge-patch+json", json!({})).await;
    assert_eq!(strategic.code, 415);

    let scale = server.patch(&format!("{path}/scale"), MERGE, json!({"spec": {"replicas": 7}})).await.json();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(7)));
    assert_eq!(server.ok("GET", &path, json!(null)).await["spec"]["replicas"], 7);

    let red = server.ok("GET", &format!("{WIDGETS}?fieldSelector=spec.color%3Dred"), json!(null)).await;
    assert_eq!((&red["kind"], red["items"].as_array().map(Vec::len)), (&json!("WidgetList"), Some(1)));
    let blue = server.ok("GET", &format!("{WIDGETS}?fieldSelector=spec.color%3Dblue"), json!(null)).await;
    assert_eq!(blue["items"], json!([]));
}

#[tokio::test]
async fn fields_have_owners() {
    let server = with_widgets().await;
    let path = format!("{WIDGETS}/a");
    let apply = |manager: &'static str, spec: Value| {
        let (server, url) = (&server, format!("{path}?fieldManager={manager}"));
        async move { server.patch(&url, APPLY, widget("a", spec)).await }
    };
    assert_eq!(apply("one", json!({"size": 1, "ports": [{"port": 1}, {"port": 2}]})).await.code, 201);
    let conflict = apply("two", json!({"size": 2})).await;
    assert_eq!(
        (conflict.code, conflict.message()),
        (409, "Apply failed with 1 conflict: conflict with \"one\": .spec.size".into())
    );
    let merged = apply("two", json!({"size": 1, "ports": [{"port": 3}]})).await.json();
    assert_eq!(merged["spec"]["ports"], json!([{"port": 1}, {"port": 2}, {"port": 3}]));
    let unknown = apply("two", json!({"size": 1, "bad": 1})).await;
    assert_eq!(unknown.code, 500);
    assert!(unknown.message().ends_with(".spec.bad: field not declared in schema"), "{}", unknown.message());
    let left = server.patch(&path, MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await.json();
    let mut managers: Vec<&str> = left["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    managers.sort_unstable();
    assert_eq!(managers, ["one", "test", "two"]);
}

#[tokio::test]
async fn they_are_discovered_in_all_served_versions() {
    let server = Server::with_namespace().await;
    server.ok("POST", DEFINITIONS, definition(vec![version("v1beta1", true), version("v1", false)])).await;
    until(&server, WIDGETS, 200).await;
    let group = server.ok("GET", "/apis/example.com", json!(null)).await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let resources = server.ok("GET", "/apis/example.com/v1", json!(null)).await;
    let names: Vec<&Value> = resources["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, [&json!("widgets"), &json!("widgets/scale"), &json!("widgets/status")]);
    let openapi = server.ok("GET", "/openapi/v3/apis/example.com/v1", json!(null)).await;
    assert!(openapi["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"].is_object());

    server.ok("POST", WIDGETS, widget("a", json!({"size": 1}))).await;
    let other = server.ok("GET", "/apis/example.com/v1beta1/namespaces/n/widgets/a", json!(null)).await;
    assert_eq!(other["apiVersion"], "example.com/v1beta1");
    let raw = server.store.get("/registry/example.com/widgets/n/a").await.unwrap().unwrap();
    let raw: Value = serde_json::from_slice(&raw.value).unwrap();
    assert_eq!(raw["apiVersion"], "example.com/v1beta1", "the version that is stored");

    // What the schema comes to know is there for objects of before.
    let mut later = server.ok("GET", &format!("{DEFINITIONS}/widgets.example.com"), json!(null)).await;
    later["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] =
        json!({"type": "string", "default": "here"});
    server.ok("PUT", &format!("{DEFINITIONS}/widgets.example.com"), later).await;
    for _ in 0..500 {
        let object = server.ok("GET", &format!("{WIDGETS}/a"), json!(null)).await;
        if object["spec"]["new"] == "here" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the new default does not come");
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let server = with_widgets().await;
    server.ok("POST", WIDGETS, widget("a", json!({"size": 1}))).await;
    let going = server.ok("DELETE", &format!("{DEFINITIONS}/widgets.example.com"), json!(null)).await;
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    until(&server, &format!("{DEFINITIONS}/widgets.example.com"), 404).await;
    until(&server, WIDGETS, 404).await;
    assert!(server.store.get("/registry/example.com/widgets/n/a").await.unwrap().is_none());

    // The next one begins with nothing.
    server.ok("POST", DEFINITIONS, definition(vec![version("v1", true)])).await;
    until(&server, WIDGETS, 200).await;
    assert_eq!(server.ok("GET", WIDGETS, json!(null)).await["items"], json!([]));
}

#[tokio::test]
async fn names_are_given_once() {
    let server = with_widgets().await;
    let mut second = definition(vec![version("v1", true)]);
    second["metadata"]["name"] = json!("others.example.com");
    second["spec"]["names"] = json!({"plural": "others", "kind": "Widget"});
    server.ok("POST", DEFINITIONS, second).await;
    for _ in 0..500 {
        let status = &server.ok("GET", &format!("{DEFINITIONS}/others.example.com"), json!(null)).await["status"];
        if status["conditions"][0]["reason"] == "ListKindConflict" {
            assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
            assert_eq!(server.json("GET", "/apis/example.com/v1/others", json!(null)).await.code, 404);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no verdict on the names");
}
