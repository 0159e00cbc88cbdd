//! Reads: lists with paging and selectors, watches, forms and encodings, discovery.

mod common;

use common::Server;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

async fn make(server: &Server, name: &str, label: &str) -> Value {
    server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": name, "labels": {"l": label}}})).await
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

fn types(events: &[Value]) -> Vec<String> {
    let describe = |event: &Value| {
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
        format!("{} {name}", event["type"].as_str().unwrap_or_default())
    };
    events.iter().map(describe).collect()
}

#[tokio::test]
async fn lists_are_paged_filtered_and_consistent() {
    let server = Server::with_namespace().await;
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "1")] {
        make(&server, name, label).await;
    }
    let ones = server.ok("GET", &format!("{CONFIG_MAPS}?labelSelector=l%3D1"), json!(null)).await;
    assert_eq!(names(&ones), ["a", "c", "d"]);
    let named = server.ok("GET", &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Db"), json!(null)).await;
    assert_eq!(names(&named), ["b"]);

    let page = server.ok("GET", &format!("{CONFIG_MAPS}?limit=3"), json!(null)).await;
    assert_eq!(names(&page), ["a", "b", "c"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    let token = page["metadata"]["continue"].as_str().expect("token").to_owned();
    // What happens meanwhile does not show in later pages.
    make(&server, "ca", "1").await;
    let rest = server.ok("GET", &format!("{CONFIG_MAPS}?limit=3&continue={token}"), json!(null)).await;
    assert_eq!(names(&rest), ["d"]);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    assert_eq!(rest["metadata"].get("continue"), None);
}

#[tokio::test]
async fn whether_what_is_left_is_selected_is_for_the_next_page_to_tell() {
    let server = Server::with_namespace().await;
    for (name, label) in [("a", "1"), ("b", "2")] {
        make(&server, name, label).await;
    }
    let first = format!("{CONFIG_MAPS}?limit=1&labelSelector=l%3D1");
    let page = server.ok("GET", &first, json!(null)).await;
    let token = page["metadata"]["continue"].as_str().expect("token");
    let rest = server.ok("GET", &format!("{first}&continue={token}"), json!(null)).await;
    assert_eq!((names(&rest).len(), rest["metadata"].get("continue")), (0, None));
    let named = server.ok("GET", &format!("{CONFIG_MAPS}?limit=1&fieldSelector=metadata.name%3Da"), json!(null)).await;
    assert_eq!(named["metadata"].get("continue"), None);
}

#[tokio::test]
async fn a_watch_starts_with_what_is_there_and_says_when_that_ends() {
    let server = Server::with_namespace().await;
    make(&server, "a", "1").await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2"
    );
    let events = server.events(&path, 2).await;
    assert_eq!(types(&events), ["ADDED a", "BOOKMARK -"]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_watch_follows_objects_into_and_out_of_its_selection() {
    let server = Server::with_namespace().await;
    let start = make(&server, "a", "1").await["metadata"]["resourceVersion"].as_str().expect("version").to_owned();
    let label = |label: &str| json!({"metadata": {"labels": {"l": label}}});
    let path = format!("{CONFIG_MAPS}/a");
    let merge = "application/merge-patch+json";
    server.patch(&path, merge, label("2")).await;
    server.patch(&path, merge, label("1")).await;
    server.patch(&path, merge, json!({"data": {"x": "y"}})).await;
    let last = server.ok("DELETE", &path, json!(null)).await;
    assert_eq!(last["status"], "Success");
    let watch = format!("{CONFIG_MAPS}?watch=1&labelSelector=l%3D1&resourceVersion={start}&timeoutSeconds=2");
    let events = server.events(&watch, 4).await;
    assert_eq!(types(&events), ["DELETED a", "ADDED a", "MODIFIED a", "DELETED a"]);
    let versions: Vec<i64> = events
        .iter()
        .filter_map(|event| event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok())
        .collect();
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
    assert_eq!(events[0]["object"]["metadata"]["labels"]["l"], "1", "the last state inside the selection");
}

#[tokio::test]
async fn too_old_a_revision_is_an_error_event() {
    let first = Server::with_namespace().await;
    make(&first, "a", "1").await;
    // A new server knows nothing of what happened before it.
    let second = Server::on(first.store.clone()).await;
    let events = second.events(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=2&timeoutSeconds=2"), 1).await;
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!((&events[0]["object"]["code"], &events[0]["object"]["reason"]), (&json!(410), &json!("Expired")));
}

#[tokio::test]
async fn forms_and_encodings() {
    let server = Server::with_namespace().await;
    let made = make(&server, "a", "1").await;
    let path = format!("{CONFIG_MAPS}/a");
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let answer = server.send("GET", CONFIG_MAPS, "", &table).await.json();
    assert_eq!((&answer["kind"], &answer["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    let partial = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let answer = server.send("GET", &path, "", &partial).await.json();
    assert_eq!(answer["kind"], "PartialObjectMetadata");
    assert_eq!(answer["metadata"], made["metadata"]);
    let yaml = server.send("GET", &path, "", &[("accept", "application/yaml")]).await;
    assert!(String::from_utf8_lossy(&yaml.bytes).starts_with("apiVersion: v1\n"));
    assert_eq!(server.send("GET", &path, "", &[("accept", "text/html")]).await.code, 406);
}

#[tokio::test]
async fn protobuf_goes_in_and_out() {
    let server = Server::with_namespace().await;
    let made = make(&server, "a", "1").await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    let path = format!("{CONFIG_MAPS}/a");
    let answer = server.send("GET", &path, "", &[("accept", protobuf)]).await;
    assert_eq!(answer.headers["content-type"], protobuf);
    assert!(answer.bytes.starts_with(b"k8s\0"));
    let put = server.send("PUT", &path, answer.bytes, &[("content-type", protobuf)]).await;
    assert_eq!((put.code, put.json()), (200, made));
    let list = server.send("GET", CONFIG_MAPS, "", &[("accept", protobuf)]).await;
    let schema = pintle_api::schema();
    let decoded = pintle_machinery::codec::protobuf::decode(schema, &list.bytes).expect("list").value;
    assert_eq!(names(&decoded), ["a"]);
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    let stream = server.send("GET", &watch, "", &[("accept", &format!("{protobuf};stream=watch"))]).await;
    let length = u32::from_be_bytes(stream.bytes[..4].try_into().expect("length")) as usize;
    assert_eq!(stream.bytes.len(), length + 4, "one frame for the one object");
}

#[tokio::test]
async fn discovery_has_both_forms() {
    let server = Server::start().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = server.send("GET", "/apis", "", &[("accept", aggregated)]).await;
    assert_eq!(groups.headers["content-type"], aggregated);
    let etag = groups.headers["etag"].to_str().expect("etag").to_owned();
    assert_eq!(groups.json()["kind"], "APIGroupDiscoveryList");
    let again = server.send("GET", "/apis", "", &[("accept", aggregated), ("if-none-match", &etag)]).await;
    assert_eq!(again.code, 304);
    assert_eq!(server.ok("GET", "/apis", json!(null)).await["kind"], "APIGroupList");
    let apps = server.ok("GET", "/apis/apps/v1", json!(null)).await;
    let all: Vec<&str> =
        apps["resources"].as_array().into_iter().flatten().filter_map(|r| r["name"].as_str()).collect();
    assert!(all.contains(&"deployments") && all.contains(&"deployments/scale"), "{all:?}");
    for (path, kind) in [
        ("/api", "APIVersions"),
        ("/api/v1", "APIResourceList"),
        ("/apis", "APIGroupList"),
        ("/apis/apps/v1", "APIResourceList"),
    ] {
        let answer = server.send("GET", path, "", &[("accept", "application/vnd.kubernetes.protobuf")]).await;
        let envelope = pintle_machinery::codec::protobuf::envelope(&answer.bytes).expect(path);
        assert_eq!(envelope.type_meta.kind, kind, "{path}");
        assert_eq!(envelope.type_meta.api_version.is_empty(), path.starts_with("/api/") || path == "/api", "{path}");
        let ty = pintle_api::schema().kind("", "v1", kind).expect(kind);
        pintle_machinery::codec::protobuf::decode_as(pintle_api::schema(), ty, &envelope).expect(path);
    }
    let pod = server.ok("GET", "/openapi/v3/api/v1", json!(null)).await;
    let pod = &pod["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
    assert_eq!(server.send("GET", "/readyz", "", &[]).await.bytes, "ok");
}

#[tokio::test]
async fn one_object_in_two_groups_and_versions() {
    let server = Server::with_namespace().await;
    let event = json!({"metadata": {"name": "e"}, "message": "m", "reason": "R", "type": "Normal",
                       "involvedObject": {"kind": "Pod", "name": "p", "namespace": "n"}});
    server.ok("POST", "/api/v1/namespaces/n/events", event).await;
    let other = server.ok("GET", "/apis/events.k8s.io/v1/namespaces/n/events/e", json!(null)).await;
    assert_eq!((&other["note"], &other["regarding"]["name"]), (&json!("m"), &json!("p")));
    assert_eq!(other["apiVersion"], "events.k8s.io/v1");
}

/// A list in protobuf as its JSON would show it.
fn list_of(bytes: &[u8]) -> Value {
    use pintle_machinery::codec::{json, protobuf};
    let mut list = protobuf::decode(pintle_api::schema(), bytes).expect("list").value;
    for item in list["items"].as_array_mut().expect("items") {
        *item = json::with_fields_as_json(item).into_owned();
    }
    list
}

#[tokio::test]
async fn large_lists_say_the_same_in_every_form() {
    let server = Server::with_namespace().await;
    let text = "0123456789abcdef".repeat(512);
    for index in 0..40 {
        let object = json!({"metadata": {"name": format!("m{index:02}"), "labels": {"env": "prod"}, "annotations": {"odd": "}{\""}},
                            "data": {"env": "1", "lifecycle": text}});
        server.ok("POST", CONFIG_MAPS, object).await;
    }
    let list = server.ok("GET", CONFIG_MAPS, json!(null)).await;
    assert_eq!(names(&list).len(), 40);
    let protobuf = "application/vnd.kubernetes.protobuf";
    let answer = server.send("GET", CONFIG_MAPS, "", &[("accept", protobuf)]).await;
    assert!(answer.bytes.len() > 256 * 1024, "{} bytes", answer.bytes.len());
    let decoded = list_of(&answer.bytes);
    assert_eq!(decoded["items"], list["items"]);
    assert_eq!(decoded["metadata"], list["metadata"]);

    let metadata = |item: &Value| item["metadata"].clone();
    let wanted: Vec<Value> = list["items"].as_array().expect("items").iter().map(metadata).collect();
    for accept in ["application/json", protobuf] {
        let accept = format!("{accept};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
        let answer = server.send("GET", CONFIG_MAPS, "", &[("accept", &accept)]).await;
        let value = match answer.bytes.first() {
            Some(b'{') => answer.json(),
            _ => list_of(&answer.bytes),
        };
        let got: Vec<Value> = value["items"].as_array().expect("items").iter().map(metadata).collect();
        assert_eq!(got, wanted, "{accept}");
    }
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let rows = server.send("GET", CONFIG_MAPS, "", &table).await.json();
    let one = server.send("GET", &format!("{CONFIG_MAPS}/m00"), "", &table).await.json();
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(40));
    assert_eq!(rows["rows"][0], one["rows"][0], "a list shows what a single object shows");
    assert_eq!(rows["rows"][0]["cells"][1], 2, "keys of data count, whatever they are called");
}

#[tokio::test]
async fn lists_and_watches_begin_where_they_are_told() {
    let server = Server::with_namespace().await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let made = |name: &'static str| server.ok("POST", maps, json!({"metadata": {"name": name, "labels": {"l": "x"}}}));
    let first = made("a").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    made("b").await;
    server.ok("PUT", &format!("{maps}/a"), json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    server.ok("DELETE", &format!("{maps}/b"), Value::Null).await;
    let exact = server
        .ok("GET", &format!("{maps}?resourceVersion={first}&resourceVersionMatch=Exact&limit=5"), json!(null))
        .await;
    let items = exact["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["metadata"]["labels"]["l"]), (1, &json!("x")), "as it was then: {exact}");
    assert_eq!(exact["metadata"]["resourceVersion"], json!(first));
    made("c").await;
    // The cache has seen all of it.
    server.ok("GET", maps, json!(null)).await;
    let any = server.ok("GET", &format!("{maps}?resourceVersion=0&limit=1"), json!(null)).await;
    assert_eq!((any["items"].as_array().unwrap().len(), any["metadata"].get("continue")), (2, None));
    let none = "watch=1&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert!(server.events(&format!("{maps}?{none}"), 1).await.is_empty());
    for (path, accept, code, message) in [
        ("configmaps?watch=1", "application/yaml", 406, "application/json;stream=watch, application/vnd.kubernetes"),
        ("configmaps", "application/*", 406, "406: Not Acceptable"),
        (
            "configmaps",
            "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
            406,
            "only the following media types are accepted",
        ),
    ] {
        let answer = server.send("GET", &format!("/api/v1/namespaces/n/{path}"), "", &[("accept", accept)]).await;
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(answer.code == code && text.contains(message), "{path} {accept}: {} {text}", answer.code);
    }
    let watch = server.json("GET", "/api/v1/componentstatuses?watch=1", json!(null)).await;
    assert_eq!(watch.message(), "watch is not supported on resources of kind \"componentstatuses\"");
}
