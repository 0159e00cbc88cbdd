//! Writes: create, update, patch, delete, and what admission and allocation make of them.

mod common;

use common::Server;
use serde_json::json;

const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn an_object_lives_and_dies() {
    let server = Server::with_namespace().await;
    let made = server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert!(made["metadata"]["uid"].is_string() && made["metadata"]["creationTimestamp"].is_string());
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(server.ok("GET", &path, json!(null)).await, made);

    let mut changed = made.clone();
    changed["data"]["k"] = json!("w");
    let updated = server.ok("PUT", &path, changed.clone()).await;
    assert_ne!(updated["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let stale = server.json("PUT", &path, changed).await;
    assert_eq!(stale.code, 409);
    assert!(stale.message().contains("the object has been modified"));

    let unchanged = server.ok("PUT", &path, updated.clone()).await;
    assert_eq!(unchanged["metadata"]["resourceVersion"], updated["metadata"]["resourceVersion"], "nothing was written");

    let gone = server.ok("DELETE", &path, json!(null)).await;
    assert_eq!(gone["status"], "Success");
    assert_eq!(gone["details"]["uid"], made["metadata"]["uid"]);
    assert_eq!(server.json("GET", &path, json!(null)).await.code, 404);
}

#[tokio::test]
async fn generated_names_and_dry_runs() {
    let server = Server::with_namespace().await;
    let made = server.ok("POST", CONFIG_MAPS, json!({"metadata": {"generateName": "g-"}})).await;
    assert!(made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("g-") && name.len() == 7));
    server.ok("POST", &format!("{CONFIG_MAPS}?dryRun=All"), json!({"metadata": {"name": "dry"}})).await;
    assert_eq!(server.json("GET", &format!("{CONFIG_MAPS}/dry"), json!(null)).await.code, 404);
}

#[tokio::test]
async fn four_kinds_of_patches() {
    let server = Server::with_namespace().await;
    server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let merged = server.patch(&path, MERGE, json!({"data": {"k": null, "m": "1"}})).await;
    assert_eq!(merged.json()["data"], json!({"m": "1"}));
    let json_patch = json!([{"op": "add", "path": "/data/j", "value": "2"}]);
    let patched = server.patch(&path, "application/json-patch+json", json_patch).await;
    assert_eq!(patched.json()["data"], json!({"m": "1", "j": "2"}));
    let strategic = json!({"data": {"$patch": "replace", "s": "3"}});
    let patched = server.patch(&path, "application/strategic-merge-patch+json", strategic).await;
    assert_eq!(patched.json()["data"], json!({"s": "3"}));

    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"s": "4"}});
    let apply = "application/apply-patch+yaml";
    let conflict = server.patch(&format!("{path}?fieldManager=m"), apply, applied.clone()).await;
    assert_eq!(conflict.code, 409);
    let forced = server.patch(&format!("{path}?fieldManager=m&force=true"), apply, applied.clone()).await;
    assert_eq!(forced.json()["data"]["s"], "4");
    let fresh = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"x": "y"}});
    let created = server.patch(&format!("{CONFIG_MAPS}/b?fieldManager=m"), apply, fresh).await;
    assert_eq!(created.code, 201);
    assert_eq!(created.json()["metadata"]["managedFields"][0]["operation"], "Apply");
}

#[tokio::test]
async fn a_test_of_a_patch_sees_fields_of_the_version_it_is_about() {
    let server = Server::with_namespace().await;
    let path = "/apis/autoscaling/v1/namespaces/n/horizontalpodautoscalers";
    let spec =
        json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}});
    server.ok("POST", path, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let test = json!([{"op": "test", "path": "/status", "value": {"currentReplicas": 0, "desiredReplicas": 0}}]);
    let tested = server.patch(&format!("{path}/a"), "application/json-patch+json", test).await;
    assert_eq!(tested.code, 200, "{}", tested.message());
}

#[tokio::test]
async fn a_change_of_a_field_that_goes_counts() {
    let server = Server::with_namespace().await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices";
    let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["1.2.3.4"]}]});
    server.ok("POST", path, slice).await;
    let topology = json!({"endpoints": [{"addresses": ["1.2.3.4"], "deprecatedTopology": {"a": "b"}}]});
    let patched = server.patch(&format!("{path}/a"), MERGE, topology).await.json();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(patched["endpoints"], json!([{"addresses": ["1.2.3.4"], "conditions": {}}]));
}

#[tokio::test]
async fn the_status_of_device_kinds_leaves_metadata() {
    let server = Server::with_namespace().await;
    let path = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    server.ok("POST", path, json!({"metadata": {"name": "a"}, "spec": {"devices": {}}})).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = server.patch(&format!("{path}/a/status"), MERGE, labels).await.json();
    assert_eq!(patched["metadata"]["labels"], json!(null));
    assert!(!patched["metadata"]["managedFields"].to_string().contains("labels"));
}

#[tokio::test]
async fn finalizers_keep_and_foreground_deletion_adds_one() {
    let server = Server::with_namespace().await;
    server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "a", "finalizers": ["x.io/y"]}})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let going = server.ok("DELETE", &path, json!({"propagationPolicy": "Foreground"})).await;
    assert_eq!(going["metadata"]["finalizers"], json!(["x.io/y", "foregroundDeletion"]));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    server.patch(&path, MERGE, json!({"metadata": {"finalizers": ["foregroundDeletion"]}})).await;
    assert_eq!(server.json("GET", &path, json!(null)).await.code, 200);
    server.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.json("GET", &path, json!(null)).await.code, 404);
}

#[tokio::test]
async fn a_pod_is_bound_and_leaves_with_grace() {
    let server = Server::with_namespace().await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = server.ok("POST", pods, pod).await;
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["status"]["phase"], "Pending");
    assert!(made["spec"]["containers"][0]["volumeMounts"][0]["mountPath"].is_string(), "the token is mounted");
    assert_eq!(made["spec"]["tolerations"].as_array().map(Vec::len), Some(2));

    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node"}});
    server.ok("POST", &format!("{pods}/p/binding"), binding.clone()).await;
    assert_eq!(server.json("POST", &format!("{pods}/p/binding"), binding).await.code, 409);
    let path = format!("{pods}/p");
    assert_eq!(server.ok("GET", &path, json!(null)).await["spec"]["nodeName"], "node");

    let status = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "other"}});
    let patched =
        server.patch(&format!("{path}/status"), "application/strategic-merge-patch+json", status).await.json();
    assert_eq!((&patched["status"]["phase"], &patched["spec"]["nodeName"]), (&json!("Running"), &json!("node")));

    let going = server.ok("DELETE", &path, json!({"gracePeriodSeconds": 7})).await;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 7);
    server.ok("DELETE", &path, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(server.json("GET", &path, json!(null)).await.code, 404);
}

#[tokio::test]
async fn a_namespace_ends_when_it_is_finalized() {
    let server = Server::with_namespace().await;
    let path = "/api/v1/namespaces/n";
    let mut going = server.ok("DELETE", path, json!(null)).await;
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = server.json("POST", CONFIG_MAPS, json!({"metadata": {"name": "late"}})).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().ends_with("because it is being terminated"), "{}", refused.message());
    going["spec"]["finalizers"] = json!([]);
    server.ok("PUT", &format!("{path}/finalize"), going).await;
    assert_eq!(server.json("GET", path, json!(null)).await.code, 404);
    assert_eq!(server.json("DELETE", "/api/v1/namespaces/default", json!(null)).await.code, 403);
}

#[tokio::test]
async fn service_addresses_and_ports_are_taken_and_given_back() {
    let server = Server::with_namespace().await;
    let services = "/api/v1/namespaces/n/services";
    let service = |name: &str, spec: serde_json::Value| json!({"metadata": {"name": name}, "spec": spec});
    let ports = json!([{"port": 80}]);
    let made = server.ok("POST", services, service("a", json!({"type": "NodePort", "ports": ports}))).await;
    let address = made["spec"]["clusterIP"].as_str().expect("address").to_owned();
    let port = made["spec"]["ports"][0]["nodePort"].as_u64().expect("port");
    assert!(address.starts_with("10.96.0.") && (30000..=30010).contains(&port));
    let claims = server.ok("GET", &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), json!(null)).await;
    assert_eq!(claims["spec"]["parentRef"]["name"], "a");

    let same_port = json!([{"port": 80, "nodePort": port}]);
    let refused = server.json("POST", services, service("b", json!({"type": "NodePort", "ports": same_port}))).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("provided port is already allocated"), "{}", refused.message());
    let refused = server.json("POST", services, service("b", json!({"clusterIP": address, "ports": ports}))).await;
    assert_eq!(refused.code, 422);
    for port in [-5, 65536, 95616] {
        let ports = json!([{"port": 80, "nodePort": port}]);
        let refused = server.json("POST", services, service("b", json!({"type": "NodePort", "ports": ports}))).await;
        let told = format!("Invalid value: {port}: provided port is not in the valid range");
        assert!(refused.code == 422 && refused.message().contains(&told), "{}", refused.message());
    }

    let path = format!("{services}/a");
    let plain = server.patch(&path, MERGE, json!({"spec": {"type": "ClusterIP"}})).await.json();
    assert_eq!(plain["spec"]["clusterIP"], json!(address));
    assert_eq!(plain["spec"]["ports"][0].get("nodePort"), None);
    server.ok("POST", services, service("b", json!({"type": "NodePort", "ports": same_port}))).await;
    server.ok("DELETE", &path, json!(null)).await;
    server.ok("POST", services, service("c", json!({"clusterIP": address, "ports": ports}))).await;
    let headless = server.ok("POST", services, service("d", json!({"clusterIP": "None", "ports": ports}))).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test]
async fn scale_is_a_view_of_replicas() {
    let server = Server::with_namespace().await;
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let made = server.ok("POST", deployments, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{deployments}/d/scale");
    let scale = server.ok("GET", &path, json!(null)).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("a=b")));
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.send("GET", &path, "", &table).await.json();
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| &cells[..3]),
        Some(&[json!("d"), json!(2), json!(0)][..])
    );
    let scaled = server.patch(&path, MERGE, json!({"spec": {"replicas": 5}})).await;
    assert_eq!(scaled.json()["spec"]["replicas"], 5);
    let now = server.ok("GET", &format!("{deployments}/d"), json!(null)).await;
    assert_eq!((&now["spec"]["replicas"], &now["metadata"]["generation"]), (&json!(5), &json!(2)));
    let status = json!({"metadata": {"annotations": {"a": "b"}}, "status": {"replicas": 1}});
    let shown = server.patch(&format!("{deployments}/d/status"), MERGE, status).await.json();
    assert_eq!((&shown["metadata"]["annotations"]["a"], &shown["metadata"]["generation"]), (&json!("b"), &json!(2)));
    let scaler = &now["metadata"]["managedFields"][0];
    assert_eq!((&scaler["subresource"], scaler.get("time")), (&json!("scale"), None));
}

#[tokio::test]
async fn a_pod_that_goes_is_shown_on_its_way() {
    let server = Server::with_namespace().await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.ok("POST", pods, pod).await;
    let shown = server.ok("DELETE", &format!("{pods}/a?dryRun=All"), json!(null)).await;
    assert_eq!(shown["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(shown["metadata"]["generation"], 2);
    let kept = server.ok("GET", &format!("{pods}/a"), json!(null)).await;
    assert_eq!(kept["metadata"].get("deletionTimestamp"), None);
    let gone = server.ok("DELETE", &format!("{pods}/a"), json!(null)).await;
    assert_eq!(
        (&gone["metadata"]["generation"], &gone["metadata"]["deletionGracePeriodSeconds"]),
        (&json!(2), &json!(0))
    );
}

#[tokio::test]
async fn a_dry_run_gives_nothing_back() {
    let server = Server::with_namespace().await;
    let services = "/api/v1/namespaces/n/services";
    let service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    let made = server.ok("POST", services, service).await;
    server.ok("DELETE", &format!("{services}/a?dryRun=All"), json!(null)).await;
    let address = made["spec"]["clusterIP"].as_str().expect("address");
    server.ok("GET", &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), json!(null)).await;
}

#[tokio::test]
async fn who_asked_for_a_token_owns_the_request() {
    let server = Server::with_namespace().await;
    let path = "/api/v1/namespaces/n/serviceaccounts/default/token?fieldManager=m";
    let answer = server.ok("POST", path, json!({"spec": {"audiences": ["a"], "expirationSeconds": 600}})).await;
    let entry = &answer["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["subresource"]), (&json!("m"), &json!("token")));
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}));
}

#[tokio::test]
async fn what_was_patched_empty_is_shown_empty() {
    let server = Server::start().await;
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    server.ok("POST", "/api/v1/persistentvolumes", json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let patch = json!({"spec": {"capacity": {"storage": null}}});
    let refused = server.patch("/api/v1/persistentvolumes/a", MERGE, patch).await;
    assert!(refused.message().contains("spec.capacity: Unsupported value: {}"), "{}", refused.message());
}

#[tokio::test]
async fn nothing_is_lost_when_another_server_takes_over() {
    let first = Server::with_namespace().await;
    let made = first.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let second = Server::on(first.store.clone()).await;
    assert_eq!(second.ok("GET", &format!("{CONFIG_MAPS}/a"), json!(null)).await, made);
    let list = second.ok("GET", CONFIG_MAPS, json!(null)).await;
    assert_eq!(list["items"][0]["metadata"], made["metadata"]);
}
