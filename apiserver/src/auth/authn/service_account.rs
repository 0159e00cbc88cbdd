//! Service account tokens: signature, times, issuer, audience, and that what they are bound to is still there.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Authenticated;
use crate::auth::token::{Issuer, jwt};
use crate::auth::{CREDENTIAL_ID, Objects, UserInfo, text, texts};

/// Clocks may differ by so many seconds.
const LEEWAY: i64 = 60;
/// How long a token is still good after its pod is marked for deletion, beyond the grace period.
const AFTER_DELETION: i64 = 60;

/// The user of a token; `Ok(None)` if it is no service account token of this issuer, `Err` if it is, but not good.
pub fn authenticate(
    issuer: &Issuer,
    token: &str,
    audiences: &[String],
    objects: &dyn Objects,
    now: Timestamp,
) -> Result<Option<Authenticated>, String> {
    let ours = jwt::peek(token).is_some_and(|claims| claims.get("iss").and_then(Value::as_str) == Some(&issuer.issuer));
    if !ours {
        return Ok(None);
    }
    let claims: Map<String, Value> = jwt::verify(issuer.keys(), token).map_err(|e| e.to_string())?;
    let claims = Value::Object(claims);
    check_times(&claims, now)?;
    let own = match &claims["aud"] {
        Value::String(one) => vec![one.clone()],
        list => texts(list),
    };
    let common: Vec<String> = own.iter().filter(|audience| audiences.contains(audience)).cloned().collect();
    if common.is_empty() {
        return Err(format!("token audiences {own:?} is invalid for the target audiences {audiences:?}"));
    }
    let private = &claims["kubernetes.io"];
    let user = account(private, text(&claims, &["sub"]), objects)?;
    check_bound(private, objects, now)?;
    Ok(Some(Authenticated { user: with_extra(user, &claims), audiences: common }))
}

fn check_times(claims: &Value, now: Timestamp) -> Result<(), String> {
    let time = |field: &str| claims[field].as_f64().map(|seconds| seconds as i64);
    let now = now.as_second();
    if time("exp").is_none_or(|exp| now > exp + LEEWAY) {
        return Err("service account token has expired".into());
    }
    if time("nbf").is_some_and(|nbf| now < nbf - LEEWAY) {
        return Err("service account token is not valid yet".into());
    }
    Ok(())
}

/// The account is there and is the one that the token was made for.
fn account(private: &Value, subject: &str, objects: &dyn Objects) -> Result<UserInfo, String> {
    let namespace = text(private, &["namespace"]);
    let (name, uid) = (text(private, &["serviceaccount", "name"]), text(private, &["serviceaccount", "uid"]));
    if subject != format!("system:serviceaccount:{namespace}:{name}") {
        return Err("sub claim does not match the service account".into());
    }
    let found = objects.get("", "serviceaccounts", namespace, name);
    let found = found.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
    let current = text(&found, &["metadata", "uid"]);
    if current != uid {
        return Err(format!("service account UID ({current}) does not match claim ({uid})"));
    }
    let mut user = UserInfo::new(subject, &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")]);
    user.uid = uid.to_owned();
    Ok(user)
}

/// The objects that the token is bound to are there, the same ones, and not long gone.
fn check_bound(private: &Value, objects: &dyn Objects, now: Timestamp) -> Result<(), String> {
    let namespace = text(private, &["namespace"]);
    let kinds = [("secret", "secrets", namespace), ("pod", "pods", namespace), ("node", "nodes", "")];
    for (claim, resource, namespace) in kinds {
        let bound = &private[claim];
        // A pod's token names its node too, but lives with the pod.
        if !bound.is_object() || (claim == "node" && private["pod"].is_object()) {
            continue;
        }
        let found = objects.get("", resource, namespace, text(bound, &["name"]));
        let found = found.ok_or_else(|| format!("service account token has been invalidated: {claim} is gone"))?;
        if text(&found, &["metadata", "uid"]) != text(bound, &["uid"]) {
            return Err(format!("{claim} UID does not match claim"));
        }
        let deleted: Option<Timestamp> = text(&found, &["metadata", "deletionTimestamp"]).parse().ok();
        if deleted.is_some_and(|at| now.as_second() > at.as_second() + AFTER_DELETION) {
            return Err(format!("service account token has been invalidated: {claim} is being deleted"));
        }
    }
    Ok(())
}

fn with_extra(mut user: UserInfo, claims: &Value) -> UserInfo {
    let private = &claims["kubernetes.io"];
    let jti = text(claims, &["jti"]);
    let id = if jti.is_empty() { String::new() } else { format!("JTI={jti}") };
    let entries = [
        (CREDENTIAL_ID, id.as_str()),
        ("authentication.kubernetes.io/pod-name", text(private, &["pod", "name"])),
        ("authentication.kubernetes.io/pod-uid", text(private, &["pod", "uid"])),
        ("authentication.kubernetes.io/node-name", text(private, &["node", "name"])),
        ("authentication.kubernetes.io/node-uid", text(private, &["node", "uid"])),
    ];
    for (key, value) in entries.into_iter().filter(|(_, value)| !value.is_empty()) {
        user.extra.insert(key.into(), vec![value.into()]);
    }
    user
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;
    use crate::auth::token::tests::issuer;

    const NOW: i64 = 1_796_023_434;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn objects() -> Fixed {
        let mut objects = Fixed::default();
        objects.add("", "serviceaccounts", json!({"metadata": {"name": "sa", "namespace": "d", "uid": "u-sa"}}));
        objects.add(
            "",
            "pods",
            json!({"metadata": {"name": "p", "namespace": "d", "uid": "u-p"},
            "spec": {"serviceAccountName": "sa", "nodeName": "n1"}}),
        );
        objects.add("", "nodes", json!({"metadata": {"name": "n1", "uid": "u-n"}}));
        objects
    }

    fn token(issuer: &Issuer, spec: Value) -> String {
        let objects = objects();
        let account = objects.get("", "serviceaccounts", "d", "sa").unwrap();
        let answer = issuer.answer(&json!({"spec": spec}), &account, &objects, at(NOW)).expect("token");
        text(&answer, &["status", "token"]).to_owned()
    }

    fn bound() -> Value {
        json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})
    }

    #[test]
    fn a_good_token_names_its_user() {
        let issuer = issuer();
        let token = token(&issuer, bound());
        let found = authenticate(&issuer, &token, &issuer.audiences, &objects(), at(NOW + 10)).unwrap().expect("ours");
        assert_eq!(found.user.name, "system:serviceaccount:d:sa");
        assert_eq!((found.user.uid.as_str(), &found.audiences), ("u-sa", &issuer.audiences));
        assert_eq!(found.user.groups, ["system:serviceaccounts", "system:serviceaccounts:d"]);
        let extra = |key: &str| found.user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
        assert_eq!([extra("pod-name"), extra("pod-uid")], ["p", "u-p"]);
        assert_eq!([extra("node-name"), extra("node-uid")], ["n1", "u-n"]);
        assert!(extra("credential-id").starts_with("JTI="));
    }

    #[test]
    fn bad_tokens_are_refused() {
        let issuer = issuer();
        let token = token(&issuer, bound());
        let ask = |objects: &Fixed, audiences: &[String], now| {
            authenticate(&issuer, &token, audiences, objects, at(now)).expect_err("refused")
        };
        let own = issuer.audiences.clone();
        assert!(ask(&objects(), &own, NOW + 3661).contains("expired"));
        assert!(ask(&objects(), &own, NOW - 61).contains("not valid yet"));
        assert_eq!(
            ask(&objects(), &["x".into()], NOW),
            r#"token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["x"]"#
        );
        let mut without = objects();
        without.0.remove(0);
        assert_eq!(ask(&without, &own, NOW), r#"serviceaccounts "sa" not found"#);
        let mut recreated = objects();
        recreated.0[0].2["metadata"]["uid"] = json!("other");
        assert!(ask(&recreated, &own, NOW).contains("does not match claim"));
        let mut gone = objects();
        gone.0.remove(1);
        assert!(ask(&gone, &own, NOW).contains("pod is gone"));
        let mut deleted = objects();
        deleted.0[1].2["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        assert!(ask(&deleted, &own, NOW).contains("being deleted"));
    }

    #[test]
    fn tokens_of_others_are_not_ours() {
        let (ours, theirs) =
            (issuer(), Issuer::new("https://else", &[], &crate::auth::token::keys::tests::p256_pem(), &[]).unwrap());
        let foreign = token(&theirs, json!({}));
        assert_eq!(authenticate(&ours, &foreign, &ours.audiences, &objects(), at(NOW)), Ok(None));
        assert_eq!(authenticate(&ours, "opaque", &ours.audiences, &objects(), at(NOW)), Ok(None));
        let forged = token(&issuer(), json!({}));
        assert!(authenticate(&ours, &forged, &ours.audiences, &objects(), at(NOW)).is_err(), "same issuer, other key");
    }
}
