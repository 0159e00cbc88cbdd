//! TokenRequest: a token for a service account, bound to an object if asked for.

use jiff::{SignedDuration, Timestamp};
use pintle_machinery::field_path::{ErrorList, Path};
use pintle_machinery::status::{ApiError, GroupResource};
use pintle_machinery::time;
use serde_json::{Value, json};

use super::{Issuer, jwt};
use crate::auth::{Objects, text, texts};

const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// What kubelets ask for by default: tokens of clients that may not reload them, which get a longer life and a warning.
const EXTENDABLE_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

impl Issuer {
    /// Answers a `TokenRequest` for a service account that was looked up: the request with its status.
    pub fn answer(
        &self,
        request: &Value,
        account: &Value,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Value, ApiError> {
        let seconds = seconds(&request["spec"])?;
        let mut audiences = texts(&request["spec"]["audiences"]);
        if audiences.is_empty() {
            audiences = self.audiences.clone();
        }
        let mut private = private_claims(&request["spec"]["boundObjectRef"], account, objects)?;
        let issued = now.as_second();
        let mut expires = issued + seconds;
        let extend = seconds == EXTENDABLE_SECONDS && private["pod"].is_object() && audiences == self.audiences;
        if extend {
            private["warnafter"] = json!(expires);
            expires = issued + EXTENDED_SECONDS;
        }
        let metadata = |field| text(account, &["metadata", field]);
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        let claims = json!({
            "aud": audiences,
            "exp": expires,
            "iat": issued,
            "iss": self.issuer,
            "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": private,
            "nbf": issued,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        });
        let token = jwt::sign(&self.signing, &claims).map_err(|e| ApiError::Internal(e.to_string()))?;
        let shown = now + SignedDuration::from_secs(seconds);
        let bound = &request["spec"]["boundObjectRef"];
        Ok(json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name, "namespace": namespace, "uid": metadata("uid"), "creationTimestamp": time::format(now),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": time::format(shown)},
        }))
    }
}

/// How long the token is wanted to live.
fn seconds(spec: &Value) -> Result<i64, ApiError> {
    let seconds = match &spec["expirationSeconds"] {
        Value::Null => DEFAULT_SECONDS,
        wanted => wanted.as_i64().unwrap_or_default(),
    };
    let fault = match seconds {
        MIN_SECONDS..=MAX_SECONDS => return Ok(seconds),
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let mut errors = ErrorList::new();
    errors.invalid(&Path::new("spec").child("expirationSeconds"), seconds, fault);
    Err(ApiError::invalid(&GroupResource::new("authentication.k8s.io", "TokenRequest"), "", errors))
}

/// The claim `kubernetes.io`.
fn private_claims(bound: &Value, account: &Value, objects: &dyn Objects) -> Result<Value, ApiError> {
    let reference = |object: &Value| json!({"name": text(object, &["metadata", "name"]), "uid": text(object, &["metadata", "uid"])});
    let namespace = text(account, &["metadata", "namespace"]);
    let mut claims = json!({"namespace": namespace, "serviceaccount": reference(account)});
    if bound.is_null() {
        return Ok(claims);
    }
    let (kind, version, name) = (text(bound, &["kind"]), text(bound, &["apiVersion"]), text(bound, &["name"]));
    let (resource, within, claim) = match (version, kind) {
        ("v1" | "", "Pod") => ("pods", namespace, "pod"),
        ("v1" | "", "Secret") => ("secrets", namespace, "secret"),
        ("v1" | "", "Node") => ("nodes", "", "node"),
        _ => {
            let group_version = if version.contains('/') { version.into() } else { format!("/{version}") };
            let message = format!("cannot bind token to object of type {group_version}, Kind={kind}");
            return Err(ApiError::BadRequest(message));
        }
    };
    let missing = || ApiError::not_found(&GroupResource::new("", resource), name);
    let object = objects.get("", resource, within, name).ok_or_else(missing)?;
    if claim == "pod" {
        check_account(&object, account)?;
        claims["node"] = node_claim(&object, objects);
    }
    let uid = text(bound, &["uid"]);
    if !uid.is_empty() && uid != text(&object, &["metadata", "uid"]) {
        let message = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict(&GroupResource::new("", kind), name, message));
    }
    claims[claim] = reference(&object);
    if claims["node"].is_null()
        && let Some(claims) = claims.as_object_mut()
    {
        claims.remove("node");
    }
    Ok(claims)
}

fn check_account(pod: &Value, account: &Value) -> Result<(), ApiError> {
    let name = text(account, &["metadata", "name"]);
    if text(pod, &["spec", "serviceAccountName"]) == name {
        return Ok(());
    }
    let message =
        format!("cannot bind token for serviceaccount {name:?} to pod running with different serviceaccount name.");
    Err(ApiError::BadRequest(message))
}

/// The node that a pod is on; without UID if the node is not known.
fn node_claim(pod: &Value, objects: &dyn Objects) -> Value {
    let name = text(pod, &["spec", "nodeName"]);
    if name.is_empty() {
        return Value::Null;
    }
    match objects.get("", "nodes", "", name) {
        Some(node) => json!({"name": name, "uid": text(&node, &["metadata", "uid"])}),
        None => json!({"name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::Fixed;
    use crate::auth::token::tests::issuer;

    fn objects() -> Fixed {
        let mut objects = Fixed::default();
        let meta = |name: &str, uid: &str| json!({"name": name, "namespace": "d", "uid": uid});
        objects.add("", "serviceaccounts", json!({"metadata": meta("sa", "u-sa")}));
        objects.add("", "secrets", json!({"metadata": meta("sec", "u-sec")}));
        objects.add(
            "",
            "pods",
            json!({"metadata": meta("p", "u-p"),
            "spec": {"serviceAccountName": "sa", "nodeName": "n1"}}),
        );
        objects.add("", "nodes", json!({"metadata": {"name": "n1", "uid": "u-n"}}));
        objects
    }

    fn ask(spec: Value) -> Result<(Value, Value), ApiError> {
        let (issuer, objects) = (issuer(), objects());
        let account = objects.get("", "serviceaccounts", "d", "sa").unwrap();
        let now = Timestamp::from_second(1_796_023_434).unwrap();
        let answer = issuer.answer(&json!({"spec": spec}), &account, &objects, now)?;
        let claims = jwt::verify(issuer.keys(), text(&answer, &["status", "token"])).expect("own signature");
        Ok((answer, Value::Object(claims)))
    }

    #[test]
    fn plain_tokens() {
        let (answer, mut claims) = ask(json!({})).unwrap();
        let id = claims.as_object_mut().unwrap().remove("jti");
        assert!(id.is_some_and(|id| id.as_str().is_some_and(|id| id.len() == 36)));
        assert_eq!(
            claims,
            json!({"aud": ["https://kubernetes.default.svc"], "exp": 1_796_027_034, "iat": 1_796_023_434,
                   "iss": "https://kubernetes.default.svc",
                   "kubernetes.io": {"namespace": "d", "serviceaccount": {"name": "sa", "uid": "u-sa"}},
                   "nbf": 1_796_023_434, "sub": "system:serviceaccount:d:sa"})
        );
        assert_eq!(answer["status"]["expirationTimestamp"], "2026-11-30T08:23:54Z");
        assert_eq!(
            answer["spec"],
            json!({"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600, "boundObjectRef": null})
        );
    }

    #[test]
    fn bound_tokens() {
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u-p"});
        let (answer, claims) = ask(json!({"expirationSeconds": 3607, "boundObjectRef": pod})).unwrap();
        assert_eq!(
            claims["kubernetes.io"],
            json!({"namespace": "d", "serviceaccount": {"name": "sa", "uid": "u-sa"}, "pod": {"name": "p", "uid": "u-p"},
                   "node": {"name": "n1", "uid": "u-n"}, "warnafter": 1_796_027_041})
        );
        assert_eq!(claims["exp"], 1_796_023_434 + EXTENDED_SECONDS);
        assert_eq!(answer["status"]["expirationTimestamp"], "2026-11-30T08:24:01Z");
        let other = ask(json!({"expirationSeconds": 3607, "boundObjectRef": pod, "audiences": ["x"]})).unwrap().1;
        assert_eq!(other["exp"], 1_796_027_041, "only tokens for this server live longer");
        let secret = ask(json!({"boundObjectRef": {"kind": "Secret", "name": "sec"}})).unwrap().1;
        assert_eq!(secret["kubernetes.io"]["secret"], json!({"name": "sec", "uid": "u-sec"}));
    }

    #[test]
    fn refusals_in_upstreams_words() {
        let bound = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
        let cases = [
            (
                json!({"expirationSeconds": 599}),
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            ),
            (
                json!({"expirationSeconds": 4294967297_i64}),
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            ),
            (bound("Pod", "gone", ""), 404, "pods \"gone\" not found"),
            (bound("Node", "gone", ""), 404, "nodes \"gone\" not found"),
            (bound("Foo", "x", ""), 400, "cannot bind token to object of type /v1, Kind=Foo"),
            (
                bound("Secret", "sec", "x"),
                409,
                "Operation cannot be fulfilled on Secret \"sec\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated",
            ),
        ];
        for (spec, code, message) in cases {
            let status = ask(spec).expect_err("refused").status();
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
        let (issuer, objects) = (issuer(), objects());
        let other = json!({"metadata": {"name": "other", "namespace": "d"}});
        let request = json!({"spec": bound("Pod", "p", "")});
        let error = issuer.answer(&request, &other, &objects, Timestamp::UNIX_EPOCH).expect_err("not its account");
        assert_eq!(
            error.status().message,
            "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
        );
    }
}
