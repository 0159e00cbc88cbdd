//! The review APIs: pure functions from a request object to the same with its status.

mod check;
mod selectors;

use check::Rules;
use jiff::Timestamp;
use pintle_machinery::status::ApiError;
use pintle_machinery::time;
use serde_json::{Value, json};

use super::authn::Authenticator;
use super::authz::node::node_name;
use super::authz::rules::Rule;
use super::authz::{Authorizer, rbac};
use super::{Attributes, UserInfo, text, texts};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// `SubjectAccessReview`.
pub fn subject_access(authorizer: &Authorizer, review: &Value) -> Result<Value, ApiError> {
    check::review(review, Rules { names_user: true, namespace: None })?;
    Ok(decided(authorizer, &named_user(&review["spec"]), review))
}

fn named_user(spec: &Value) -> UserInfo {
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text(spec, &["user"]).into(),
        uid: text(spec, &["uid"]).into(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

/// `LocalSubjectAccessReview` in a namespace.
pub fn local_subject_access(authorizer: &Authorizer, review: &Value, namespace: &str) -> Result<Value, ApiError> {
    check::review(review, Rules { names_user: true, namespace: Some(namespace) })?;
    Ok(decided(authorizer, &named_user(&review["spec"]), review))
}

/// `SelfSubjectAccessReview`.
pub fn self_subject_access(authorizer: &Authorizer, user: &UserInfo, review: &Value) -> Result<Value, ApiError> {
    check::review(review, Rules { names_user: false, namespace: None })?;
    Ok(decided(authorizer, user, review))
}

/// What a review asks for.
fn attributes(spec: &Value) -> Attributes {
    let resource = &spec["resourceAttributes"];
    if !resource.is_object() {
        let other = |field| text(&spec["nonResourceAttributes"], &[field]);
        return Attributes::path(other("verb"), other("path"));
    }
    let of = |field| text(resource, &[field]).to_owned();
    Attributes {
        verb: of("verb"),
        group: of("group"),
        version: of("version"),
        // An empty resource is one that no rule names, not a path.
        resource: if of("resource").is_empty() { " ".into() } else { of("resource") },
        subresource: of("subresource"),
        namespace: of("namespace"),
        name: of("name"),
        path: String::new(),
        field_selector: selectors::read(resource).field,
    }
}

fn decided(authorizer: &Authorizer, user: &UserInfo, review: &Value) -> Value {
    let decision = authorizer.decide(user, &attributes(&review["spec"]));
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    if let Some(error) = selectors::read(&review["spec"]["resourceAttributes"]).error {
        status["evaluationError"] = json!(error);
    }
    with_status(review, status)
}

fn with_status(review: &Value, status: Value) -> Value {
    let mut answer = review.clone();
    answer["status"] = status;
    answer
}

/// `SelfSubjectRulesReview`.
pub fn self_subject_rules(authorizer: &Authorizer, user: &UserInfo, review: &Value) -> Result<Value, ApiError> {
    let namespace = text(review, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(ApiError::BadRequest("no namespace on request".into()));
    }
    let policy = authorizer.policy();
    let rules = policy.rules_for(user, namespace);
    let errors = rbac::describe(&policy.broken_for(user, namespace));
    let mut status = json!({
        "resourceRules": rules.iter().filter(|rule| !rule.resources.is_empty()).map(Rule::to_value).collect::<Vec<_>>(),
        "nonResourceRules": rules.iter().filter(|rule| !rule.paths.is_empty()).map(Rule::to_value).collect::<Vec<_>>(),
        "incomplete": node_name(user).is_some(),
    });
    let errors: Vec<String> = node_name(user)
        .map(|_| "node authorizer does not support user rule resolution".to_owned())
        .into_iter()
        .chain(errors)
        .collect();
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join(", "));
    }
    Ok(json!({
        "kind": review["kind"], "apiVersion": review["apiVersion"], "metadata": {}, "spec": {}, "status": status,
    }))
}

/// `SelfSubjectReview`: who am I.
pub fn self_subject(user: &UserInfo, now: Timestamp) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": time::format(now)},
        "status": {"userInfo": user.to_value()},
    })
}

/// `TokenReview`: whose token is this.
pub fn token(authenticator: &Authenticator, review: &Value, now: Timestamp) -> Result<Value, ApiError> {
    let token = text(review, &["spec", "token"]);
    if token.is_empty() {
        return Err(ApiError::BadRequest("token is required for TokenReview in authentication".into()));
    }
    let wanted = texts(&review["spec"]["audiences"]);
    let audiences = if wanted.is_empty() { authenticator.audiences().to_vec() } else { wanted };
    // What the client has put into the status stays beside it.
    let refused = |error: String| {
        let mut status = review["status"].as_object().cloned().unwrap_or_default();
        status.remove("authenticated");
        status.entry("user").or_insert_with(|| json!({}));
        status.insert("error".into(), error.into());
        Value::Object(status)
    };
    let status = match authenticator.token(token, &audiences, now) {
        Ok(Some(found)) => {
            // A credential without audiences is good for this server only.
            let good = match found.audiences.is_empty() {
                true => audiences.into_iter().filter(|a| authenticator.audiences().contains(a)).collect(),
                false => found.audiences,
            };
            match good.is_empty() {
                true => refused("invalid bearer token".into()),
                false => json!({"authenticated": true, "user": found.user.to_value(), "audiences": good}),
            }
        }
        Ok(None) => refused("invalid bearer token".into()),
        Err(error) => refused(format!("[invalid bearer token, {error}]")),
    };
    Ok(with_status(review, status))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::auth::authn::tests::authenticator;
    use crate::auth::testing::Fixed;

    fn authorizer() -> Authorizer {
        Authorizer::new(Arc::new(Fixed::with_policy()))
    }

    /// What the upstream server v1.37.2 answered to the same.
    #[test]
    fn access_reviews() {
        let pods = json!({"verb": "get", "resource": "pods"});
        let cases = [
            (
                json!({"user": "bob", "groups": ["system:masters"], "resourceAttributes": pods}),
                json!({"allowed": true}),
            ),
            (json!({"user": "bob", "resourceAttributes": pods}), json!({"allowed": false})),
            (
                json!({"user": "system:kube-scheduler", "resourceAttributes": pods}),
                json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:kube-scheduler\" of ClusterRole \"system:kube-scheduler\" to User \"system:kube-scheduler\""}),
            ),
            (
                json!({"user": "system:node:n1", "groups": ["system:nodes"],
                       "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default", "name": "x"}}),
                json!({"allowed": false, "reason": "node: no relationship found between node 'n1' and this object"}),
            ),
            (
                json!({"user": "system:node:n1", "groups": ["system:nodes"],
                       "resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": {
                           "requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}}}),
                json!({"allowed": true}),
            ),
            (
                json!({"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/healthz"}}),
                json!({"allowed": false}),
            ),
            (json!({"user": "x", "resourceAttributes": {}}), json!({"allowed": false})),
        ];
        for (spec, status) in cases {
            let answer =
                subject_access(&authorizer(), &json!({"kind": "SubjectAccessReview", "spec": spec})).expect("valid");
            assert_eq!((&answer["status"], &answer["spec"]), (&status, &spec));
        }
        let me = UserInfo::new("me", &["system:masters"]);
        let mine = self_subject_access(&authorizer(), &me, &json!({"spec": {"resourceAttributes": pods}}));
        assert_eq!(mine.expect("valid")["status"], json!({"allowed": true}));
    }

    /// Compares with a running upstream server: `PINTLE_UPSTREAM_SAR` is a file with a list of `{spec, status}` of
    /// SubjectAccessReviews that it answered without further RBAC objects.
    #[test]
    fn decides_as_upstream() {
        let Some(file) = std::env::var_os("PINTLE_UPSTREAM_SAR") else { return };
        let answers: Value = serde_json::from_slice(&std::fs::read(file).expect("file")).expect("JSON");
        let authorizer = authorizer();
        let wrong = answers.as_array().expect("list").iter().filter_map(|theirs| {
            let ours = subject_access(&authorizer, theirs).expect("valid");
            // Which of several bindings is named depends on upstream's order in memory.
            let allowed = ours["status"]["allowed"] == true && theirs["status"]["allowed"] == true;
            let differ = !allowed && ours["status"] != theirs["status"];
            differ.then(|| format!("{}: {} is not {}", theirs["spec"], ours["status"], theirs["status"]))
        });
        let wrong: Vec<String> = wrong.collect();
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn invalid_reviews() {
        let both =
            json!({"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/api"}, "resourceAttributes": {}});
        let cases = [
            (
                json!({"nonResourceAttributes": {"verb": "get"}}),
                "spec.user: Invalid value: \"\": at least one of user or group must be specified",
            ),
            (
                json!({"user": "x"}),
                "spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
            (
                both,
                "spec: Invalid value: {\"Path\":\"/api\",\"Verb\":\"get\"}: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
        ];
        for (spec, message) in cases {
            let status = subject_access(&authorizer(), &json!({"spec": spec})).expect_err("invalid").status();
            assert_eq!(
                (status.code, status.message),
                (422, format!(".authorization.k8s.io \"\" is invalid: {message}"))
            );
        }
        let spec = json!({"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let status =
            local_subject_access(&authorizer(), &json!({"spec": spec}), "default").expect_err("invalid").status();
        assert!(
            status
                .message
                .ends_with("spec.resourceAttributes.namespace: Invalid value: \"\": must match metadata.namespace")
        );
    }

    #[test]
    fn rules_reviews() {
        let review = json!({"kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
        let user = UserInfo::new("system:serviceaccount:default:x", &["system:authenticated"]);
        let answer = self_subject_rules(&authorizer(), &user, &review).expect("valid");
        assert_eq!(answer["spec"], json!({}));
        assert_eq!(
            answer["status"]["resourceRules"][0],
            json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                   "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]})
        );
        assert_eq!(answer["status"]["incomplete"], json!(false));
        assert_eq!(answer["status"]["nonResourceRules"].as_array().map(Vec::len), Some(2));
        let node = UserInfo::new("system:node:n", &["system:nodes"]);
        let answer = self_subject_rules(&authorizer(), &node, &review).expect("valid");
        assert_eq!(answer["status"]["evaluationError"], "node authorizer does not support user rule resolution");
        let error = self_subject_rules(&authorizer(), &node, &json!({"spec": {}})).expect_err("no namespace");
        assert_eq!(error, ApiError::BadRequest("no namespace on request".into()));
    }

    #[test]
    fn token_reviews() {
        let authenticator = authenticator(Fixed::default());
        let ask = |spec: Value| token(&authenticator, &json!({"spec": spec}), Timestamp::now());
        let good = ask(json!({"token": "admintoken"})).expect("valid");
        assert_eq!(
            good["status"],
            json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc"],
                   "user": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]}})
        );
        let bad = ask(json!({"token": "bad"})).expect("valid");
        assert_eq!(bad["status"], json!({"user": {}, "error": "invalid bearer token"}));
        let other = ask(json!({"token": "admintoken", "audiences": ["x"]})).expect("valid");
        assert_eq!(other["status"]["error"], "invalid bearer token");
        assert_eq!(ask(json!({"token": ""})).expect_err("empty").code(), 400);
    }

    #[test]
    fn who_am_i() {
        let answer = self_subject(&UserInfo::new("bob", &["g"]), Timestamp::UNIX_EPOCH);
        assert_eq!(answer["status"], json!({"userInfo": {"username": "bob", "groups": ["g"]}}));
        assert_eq!(answer["metadata"]["creationTimestamp"], "1970-01-01T00:00:00Z");
    }
}
