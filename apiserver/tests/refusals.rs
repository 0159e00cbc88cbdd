//! Bad input and people who may not: the codes and texts that upstream gives.

mod common;

use common::Server;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";

#[tokio::test]
async fn bad_bodies() {
    let server = Server::with_namespace().await;
    let cases = [
        (
            "{",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({)",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            400,
            "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            r#"{"metadata":{"name":5}}"#,
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            r#"{"metadata":{}}"#,
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            r#"{"metadata":{"name":"a","namespace":"other"}}"#,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            r#"{"metadata":{"name":"a"},"foo":1}"#,
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\"",
        ),
    ];
    for (body, code, message) in cases {
        let answer = server.send("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), body, &[]).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message), "{body}");
    }
    let warned = server.send("POST", CONFIG_MAPS, r#"{"metadata":{"name":"w"},"foo":1}"#, &[]).await;
    assert_eq!(
        (warned.code, &warned.headers["warning"]),
        (201, &"299 - \"unknown field \\\"foo\\\"\"".parse().unwrap())
    );
}

#[tokio::test]
async fn bad_requests() {
    let server = Server::with_namespace().await;
    let text = [("content-type", "text/plain")];
    assert_eq!(server.send("POST", CONFIG_MAPS, "{}", &text).await.code, 415);
    let large = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3_200_000));
    let answer = server.send("POST", CONFIG_MAPS, large, &[]).await;
    assert_eq!((answer.code, answer.message().as_str()), (413, "Request entity too large: limit is 3145728"));
    let cases = [
        ("GET", "/api/v1/namespaces/n/foos", 404, "the server could not find the requested resource"),
        ("PUT", CONFIG_MAPS, 405, "the server does not allow this method on the requested resource"),
        ("GET", "/api/v1/configmaps?limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "GET",
            "/api/v1/configmaps?fieldSelector=foo%3Dbar",
            400,
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("POST", "/api/v1/namespaces/absent/configmaps", 404, "namespaces \"absent\" not found"),
        (
            "POST",
            "/api/v1/namespaces/n/pods",
            403,
            "pods \"a\" is forbidden: error looking up service account n/gone: serviceaccount \"gone\" not found",
        ),
    ];
    for (method, path, code, message) in cases {
        let body = if path.ends_with("pods") {
            json!({"metadata": {"name": "a"}, "spec": {"serviceAccountName": "gone",
            "containers": [{"name": "c", "image": "i"}]}})
        } else {
            json!({"metadata": {"name": "a"}})
        };
        let answer = server.json(method, path, body).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message), "{method} {path}");
    }
    assert_eq!(server.send("GET", "/foo", "", &[]).await.bytes, "404 page not found\n");
}

#[tokio::test]
async fn tokens_and_roles() {
    let server = Server::with_namespace().await;
    let with = |token: &str| vec![("authorization".to_owned(), token.to_owned())];
    let get = async |path: &str, token: &str| {
        let headers = with(token);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        server.send("GET", path, "", &headers).await
    };
    assert_eq!(get(CONFIG_MAPS, "Bearer wrong").await.code, 401);
    let anonymous = get(CONFIG_MAPS, "").await;
    assert_eq!(anonymous.code, 403);
    assert_eq!(
        anonymous.message(),
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"n\""
    );
    assert_eq!(get("/healthz", "").await.code, 200);

    let request = json!({"spec": {"expirationSeconds": 3600}});
    let issued = server.ok("POST", "/api/v1/namespaces/n/serviceaccounts/default/token", request).await;
    let token = format!("Bearer {}", issued["status"]["token"].as_str().expect("token"));
    assert_eq!(get(CONFIG_MAPS, &token).await.code, 403);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/n";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    server.ok("POST", &format!("{rbac}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "n"}]);
    let binding = json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects});
    server.ok("POST", &format!("{rbac}/rolebindings"), binding).await;
    // A list that is consistent shows that the cache, which RBAC reads, has the binding.
    server.ok("GET", &format!("{rbac}/rolebindings"), json!(null)).await;
    assert_eq!(get(CONFIG_MAPS, &token).await.code, 200);
    assert_eq!(get(&format!("{CONFIG_MAPS}/x"), &token).await.code, 403);
}

#[tokio::test]
async fn a_budget_stops_evictions() {
    let server = Server::with_namespace().await;
    let pods = "/api/v1/namespaces/n/pods";
    let pod =
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.ok("POST", pods, pod).await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.patch(&format!("{pods}/p/status"), "application/merge-patch+json", running).await;
    let budgets = "/apis/policy/v1/namespaces/n/poddisruptionbudgets";
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}});
    server.ok("POST", budgets, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1,
        "currentHealthy": 1, "expectedPods": 1}});
    server.patch(&format!("{budgets}/b/status"), "application/merge-patch+json", status).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let refused = server.json("POST", &format!("{pods}/p/eviction"), eviction.clone()).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    let status = json!({"status": {"disruptionsAllowed": 1}});
    server.patch(&format!("{budgets}/b/status"), "application/merge-patch+json", status).await;
    server.ok("POST", &format!("{pods}/p/eviction"), eviction).await;
    assert_eq!(server.json("GET", &format!("{pods}/p"), json!(null)).await.code, 404);
    let spent = server.ok("GET", &format!("{budgets}/b"), json!(null)).await;
    assert!(spent["status"]["disruptedPods"]["p"].is_string());
}

#[tokio::test]
async fn numbers_and_deadlines_that_are_none() {
    let server = Server::with_namespace().await;
    for (query, code, message) in [
        ("pods?timeoutSeconds=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        ("pods?watch=1&timeoutSeconds=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        ("pods?timeout=x", 400, "invalid timeout specified in the request URL - time: invalid duration \"x\""),
        (
            "nonsense?timeout=5",
            400,
            "invalid timeout specified in the request URL - time: missing unit in duration \"5\"",
        ),
        ("pods?timeout=5s", 200, ""),
        ("pods?timeout=-5s", 200, ""),
        ("pods?timeout=", 200, ""),
    ] {
        let answer = server.json("GET", &format!("/api/v1/namespaces/n/{query}"), Value::Null).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message), "{query}");
    }
    let watch = "/api/v1/namespaces/n/pods?watch=1&timeout=x&timeoutSeconds=1";
    assert_eq!(server.json("GET", watch, Value::Null).await.code, 200, "a watch has no deadline");
}
