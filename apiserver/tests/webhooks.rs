//! Admission webhooks: a TLS server that judges and changes by what it is asked.

mod common;

use std::convert::Infallible;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::Server;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use pintle_serving::http::Listener;
use pintle_serving::tls::SelfSigned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const CONFIG_MAPS: &str = "/api/v1/namespaces/n/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// `/label` adds a label and warns, `/deny` refuses objects named `bad`, `/slow` never answers.
async fn judge(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("review");
    let asked = &review["request"];
    let mut response = json!({"uid": asked["uid"], "allowed": true});
    match path.as_str() {
        "/label" => {
            let patch =
                json!([{"op": "add", "path": "/metadata/labels", "value": {"by": asked["userInfo"]["username"]}}]);
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
            response["warnings"] = json!(["labelled"]);
        }
        "/deny" if asked["name"] == "bad" => {
            response["allowed"] = json!(false);
            response["status"] =
                json!({"message": format!("{} of bad", asked["operation"].as_str().unwrap_or_default()), "code": 403});
        }
        "/slow" => std::future::pending().await,
        _ => {}
    }
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Ok(Response::new(Full::new(review.to_string().into())))
}

struct Lab {
    server: Server,
    url: String,
    ca: String,
    shutdown: CancellationToken,
}

async fn lab() -> Lab {
    let own = SelfSigned::new(&["127.0.0.1"]).expect("certificate");
    let tls = own.tls(None).expect("TLS");
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.expect("listener");
    let url = format!("https://{}", listener.address().expect("address"));
    let shutdown = CancellationToken::new();
    tokio::spawn(pintle_serving::http::serve(listener, tls, tower::service_fn(judge), shutdown.clone()));
    Lab { server: Server::with_namespace().await, url, ca: STANDARD.encode(own.certificate), shutdown }
}

impl Lab {
    /// A configuration with one hook; what `more` has goes on top.
    async fn configure(&self, resource: &str, path: &str, more: Value) {
        let mut hook = json!({
            "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("{}{path}", self.url), "caBundle": self.ca},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        });
        let (Some(hook_fields), Some(more)) = (hook.as_object_mut(), more.as_object()) else { panic!("objects") };
        hook_fields.extend(more.clone());
        let configuration = json!({"metadata": {"name": path.trim_start_matches('/')}, "webhooks": [hook]});
        self.server.ok("POST", &format!("{HOOKS}/{resource}"), configuration).await;
        // Configurations are read from the cache.
        self.server.ok("GET", &format!("{HOOKS}/{resource}"), json!(null)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_changed_before_they_are_stored() {
    let lab = lab().await;
    let conditions = json!([{"name": "not-skipped", "expression": "object.metadata.name != 'skip-me'"}]);
    lab.configure("mutatingwebhookconfigurations", "/label", json!({"matchConditions": conditions})).await;
    let made = lab.server.json("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.headers["warning"], "299 - \"labelled\"");
    assert_eq!(made.json()["metadata"]["labels"], json!({"by": "admin"}));
    let stored = lab.server.ok("GET", &format!("{CONFIG_MAPS}/a"), json!(null)).await;
    assert_eq!(stored, made.json());
    let skipped = lab.server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "skip-me"}})).await;
    assert!(skipped["metadata"]["labels"].is_null());
    let dry = lab.server.ok("POST", &format!("{CONFIG_MAPS}?dryRun=All"), json!({"metadata": {"name": "dry"}})).await;
    assert_eq!(dry["metadata"]["labels"], json!({"by": "admin"}));
    lab.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_refused() {
    let lab = lab().await;
    lab.server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "good"}})).await;
    lab.configure("validatingwebhookconfigurations", "/deny", json!({})).await;
    let refused = lab.server.json("POST", CONFIG_MAPS, json!({"metadata": {"name": "bad"}})).await;
    let message = "admission webhook \"hook.example.com\" denied the request: CREATE of bad";
    assert_eq!((refused.code, refused.message().as_str()), (403, message));
    assert_eq!(lab.server.json("GET", &format!("{CONFIG_MAPS}/bad"), json!(null)).await.code, 404);
    lab.server.ok("DELETE", &format!("{CONFIG_MAPS}/good"), json!(null)).await;
    // Nobody else's business.
    lab.server.ok("POST", "/api/v1/namespaces/n/secrets", json!({"metadata": {"name": "bad"}})).await;
    // The configurations themselves are out of reach.
    lab.server.ok("DELETE", &format!("{HOOKS}/validatingwebhookconfigurations/deny"), json!(null)).await;
    lab.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_that_fail() {
    let lab = lab().await;
    lab.configure("validatingwebhookconfigurations", "/slow", json!({"timeoutSeconds": 1})).await;
    let failed = lab.server.json("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await;
    let message = format!(
        "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: Post \
         \"{}/slow?timeout=1s\": context deadline exceeded",
        lab.url
    );
    assert_eq!((failed.code, failed.message()), (500, message));
    lab.server.ok("DELETE", &format!("{HOOKS}/validatingwebhookconfigurations/slow"), json!(null)).await;
    lab.server.ok("GET", &format!("{HOOKS}/validatingwebhookconfigurations"), json!(null)).await;

    // Without its authority the server is a stranger; who may fail, lets the request pass.
    let nobody = json!({"url": format!("{}/label", lab.url)});
    lab.configure(
        "mutatingwebhookconfigurations",
        "/label",
        json!({"clientConfig": nobody, "failurePolicy": "Ignore"}),
    )
    .await;
    let made = lab.server.ok("POST", CONFIG_MAPS, json!({"metadata": {"name": "b"}})).await;
    assert!(made["metadata"]["labels"].is_null());
    lab.shutdown.cancel();
}
