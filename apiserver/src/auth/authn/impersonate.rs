//! Impersonation: a user who may, acts as another, named in `Impersonate-*` headers.
//!
//! There are two ways to be allowed. Constrained: the verb `impersonate-on:MODE:VERB` on what is asked for and `impersonate:MODE`
//! on each part of the other identity, where the mode tells what the other is. Legacy: the verb `impersonate` on each part.

use std::collections::BTreeMap;

use http::HeaderMap;
use pintle_machinery::status::ApiError;

use crate::auth::authz::{Authorizer, forbidden};
use crate::auth::{ANONYMOUS, AUTHENTICATED, Attributes, UNAUTHENTICATED, UserInfo};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user that a request acts as: `user` itself if the request impersonates nobody, an error if it may not.
pub fn impersonate(
    authorizer: &Authorizer,
    user: UserInfo,
    headers: &HeaderMap,
    request: impl FnOnce() -> Attributes,
) -> Result<UserInfo, ApiError> {
    let Some(mut other) = wanted(headers)? else { return Ok(user) };
    let constrained = match constrained(authorizer, &user, &other, &request()) {
        Ok(()) => return Ok(finish(&mut other)),
        Err(error) => error,
    };
    let mut parts = parts(&other, "impersonate", "").into_iter();
    let name = parts.next().unwrap_or_default();
    // Somebody who may not even take the name is told what the constrained way lacks.
    authorizer.check(&user, &name).map_err(|_| constrained)?;
    parts.try_for_each(|part| authorizer.check(&user, &part))?;
    Ok(finish(&mut other))
}

/// Whom the headers name.
fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    let one = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let groups = headers.get_all(GROUP).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned);
    let other = UserInfo { name: one(USER), uid: one(UID), groups: groups.collect(), extra: extras(headers, EXTRA) };
    if !other.name.is_empty() {
        return Ok(Some(other));
    }
    match other == UserInfo::default() {
        true => Ok(None),
        false => Err(ApiError::BadRequest(format!("requested {} without impersonating a user name", go(&other)))),
    }
}

/// A user as the message shows it.
fn go(user: &UserInfo) -> String {
    let list = |items: &[String]| match items {
        [] => "[]string(nil)".to_owned(),
        items => {
            let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[]string{{{}}}", items.join(", "))
        }
    };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let entries: Vec<String> =
                user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        }
    };
    format!("&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:{extra}}}", user.uid, list(&user.groups))
}

/// Headers with a prefix, by what follows it: lower case, percent-decoded.
pub(super) fn extras(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let prefix = prefix.to_ascii_lowercase();
    let mut extras: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(&prefix), value.to_str()) {
            extras.entry(unescape(key)).or_default().push(value.to_owned());
        }
    }
    extras
}

/// Decodes `%2f` and the like; what is no escape stays.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// What has to be allowed for an identity: its name first.
fn parts(other: &UserInfo, verb: &str, user_group: &str) -> Vec<Attributes> {
    let mut parts = vec![match other.service_account() {
        Some((namespace, name)) => Attributes::resource(verb, user_group, "serviceaccounts", namespace, name),
        None => Attributes::resource(verb, user_group, "users", "", &other.name),
    }];
    parts.extend(other.groups.iter().map(|group| Attributes::resource(verb, user_group, "groups", "", group)));
    for (key, values) in &other.extra {
        parts.extend(values.iter().map(|value| Attributes {
            subresource: key.clone(),
            ..Attributes::resource(verb, AUTHENTICATION, "userextras", "", value)
        }));
    }
    if !other.uid.is_empty() {
        parts.push(Attributes::resource(verb, AUTHENTICATION, "uids", "", &other.uid));
    }
    for part in &mut parts {
        part.version = "v1".into();
    }
    parts
}

/// What kind of user the other is, for the constrained way.
fn mode(other: &UserInfo) -> &'static str {
    match other.service_account() {
        Some(_) => "serviceaccount",
        None if other.name.starts_with("system:node:") => "arbitrary-node",
        None => "user-info",
    }
}

fn constrained(
    authorizer: &Authorizer,
    user: &UserInfo,
    other: &UserInfo,
    request: &Attributes,
) -> Result<(), ApiError> {
    let mode = mode(other);
    let on = Attributes { verb: format!("impersonate-on:{mode}:{}", request.verb), ..request.clone() };
    if user.in_group(crate::auth::MASTERS) {
        return Ok(());
    }
    let decision = authorizer.decide(user, &on);
    if !decision.allowed {
        return Err(forbidden(user, &on, &decision.reason));
    }
    if mode == "arbitrary-node" {
        let name = other.name.trim_start_matches("system:node:");
        let node = Attributes::resource("impersonate:arbitrary-node", AUTHENTICATION, "nodes", "", name);
        return authorizer.check(user, &node);
    }
    let verb = format!("impersonate:{mode}");
    parts(other, &verb, AUTHENTICATION).iter().try_for_each(|part| authorizer.check(user, part))
}

/// Adds the groups that go without saying.
fn finish(other: &mut UserInfo) -> UserInfo {
    if other.groups.is_empty()
        && let Some((namespace, _)) = other.service_account()
    {
        other.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    if other.name == ANONYMOUS {
        other.join(UNAUTHENTICATED);
    } else if !other.in_group(UNAUTHENTICATED) {
        other.join(AUTHENTICATED);
    }
    std::mem::take(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::auth::testing::Fixed;
    use crate::auth::{MASTERS, RBAC_GROUP};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("value"));
        }
        headers
    }

    /// Acts for somebody who has the rules.
    fn act(rules: Value, pairs: &[(&'static str, &str)]) -> Result<UserInfo, String> {
        let mut objects = Fixed::default();
        objects.add(RBAC_GROUP, "clusterroles", json!({"metadata": {"name": "r"}, "rules": rules}));
        objects.add(
            RBAC_GROUP,
            "clusterrolebindings",
            json!({"metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "me"}]}),
        );
        let authorizer = Authorizer::new(Arc::new(objects));
        let request = Attributes::resource("create", AUTHENTICATION, "selfsubjectreviews", "", "");
        let result = impersonate(&authorizer, UserInfo::new("me", &[]), &headers(pairs), || request.clone());
        result.map_err(|error| error.status().message)
    }

    fn root(pairs: &[(&'static str, &str)]) -> UserInfo {
        let authorizer = Authorizer::new(Arc::new(Fixed::default()));
        impersonate(&authorizer, UserInfo::new("root", &[MASTERS]), &headers(pairs), || Attributes::path("get", "/"))
            .expect("may")
    }

    #[test]
    fn groups_of_the_other() {
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: [(Pairs, &[&str]); 5] = [
            (&[(USER, "joe")], &["system:authenticated"]),
            (&[(USER, "joe"), (GROUP, "g"), (GROUP, "system:authenticated")], &["g", "system:authenticated"]),
            (
                &[(USER, "system:serviceaccount:a:b")],
                &["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
            ),
            (&[(USER, "system:serviceaccount:a:b"), (GROUP, "x")], &["x", "system:authenticated"]),
            (&[(USER, "system:anonymous")], &["system:unauthenticated"]),
        ];
        for (pairs, groups) in cases {
            assert_eq!(root(pairs).groups, groups, "{pairs:?}");
        }
        assert_eq!(root(&[]).name, "root");
        assert_eq!(root(&[(USER, "joe"), ("impersonate-extra-foo%2fbar", "x")]).extra["foo/bar"], ["x"]);
    }

    #[test]
    fn the_legacy_way_needs_every_part() {
        let joe =
            json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["joe"]}]);
        assert_eq!(act(joe.clone(), &[(USER, "joe")]).expect("may").name, "joe");
        let refused = |pairs: &[(&'static str, &str)]| act(joe.clone(), pairs).expect_err("may not");
        assert_eq!(
            refused(&[(USER, "joe"), (GROUP, "g")]),
            r#"groups "g" is forbidden: User "me" cannot impersonate resource "groups" in API group "" at the cluster scope"#
        );
        assert_eq!(
            refused(&[(USER, "joe"), ("impersonate-extra-foo", "g")]),
            r#"userextras.authentication.k8s.io "g" is forbidden: User "me" cannot impersonate resource "userextras/foo" in API group "authentication.k8s.io" at the cluster scope"#
        );
        assert_eq!(
            refused(&[(USER, "joe"), (UID, "g")]),
            r#"uids.authentication.k8s.io "g" is forbidden: User "me" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#
        );
        assert_eq!(
            refused(&[(USER, "eve")]),
            r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "me" cannot impersonate-on:user-info:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope"#
        );
        assert!(refused(&[(USER, "system:serviceaccount:a:b")]).contains("impersonate-on:serviceaccount:create"));
        assert!(refused(&[(USER, "system:node:n")]).contains("impersonate-on:arbitrary-node:create"));
    }

    #[test]
    fn the_constrained_way_needs_the_action_too() {
        let name = json!({"verbs": ["impersonate:user-info"], "apiGroups": [AUTHENTICATION], "resources": ["users"]});
        let on = json!({"verbs": ["impersonate-on:user-info:create"], "apiGroups": ["*"], "resources": ["*"]});
        assert_eq!(act(json!([name, on]), &[(USER, "joe")]).expect("may").name, "joe");
        assert!(act(json!([name]), &[(USER, "joe")]).is_err());
        assert!(act(json!([on]), &[(USER, "joe")]).is_err());
        assert!(act(json!([name, on]), &[(USER, "joe"), (GROUP, "g")]).is_err());
    }

    #[test]
    fn parts_without_a_name_make_no_sense() {
        assert_eq!(
            act(json!([]), &[(GROUP, "bob")]).expect_err("refused"),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"bob"}, Extra:map[string][]string(nil)} without impersonating a user name"#
        );
        assert_eq!(
            act(json!([]), &[("impersonate-extra-foo", "g")]).expect_err("refused"),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"foo":[]string{"g"}}} without impersonating a user name"#
        );
    }
}
