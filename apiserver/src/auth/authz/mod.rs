//! May they: the chain of authorizers, in upstream's order: system:masters, Node, RBAC.

pub mod node;
pub mod rbac;
pub mod rules;

use std::sync::Arc;

use pintle_machinery::status::{ApiError, GroupResource};

use super::{Attributes, MASTERS, Objects, UserInfo};
use node::Verdict;

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Yes.
    pub allowed: bool,
    /// Why, as access reviews show it and refusals add it; may be empty.
    pub reason: String,
}

/// Decides about requests.
pub struct Authorizer {
    objects: Arc<dyn Objects>,
    policy: rbac::CachedPolicy,
}

impl Authorizer {
    /// Over the cluster's objects.
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        Self { objects, policy: rbac::CachedPolicy::default() }
    }

    /// The RBAC policy as it is now.
    pub fn policy(&self) -> Arc<rbac::Policy> {
        self.policy.get(&*self.objects)
    }

    /// Decides.
    pub fn decide(&self, user: &UserInfo, request: &Attributes) -> Decision {
        if user.in_group(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons = Vec::new();
        match node::judge(user, request, &*self.objects) {
            Verdict::Allowed => return Decision { allowed: true, reason: String::new() },
            Verdict::NoOpinion(reason) if !reason.is_empty() => reasons.push(format!("node: {reason}")),
            _ => {}
        }
        match self.policy().judge(user, request) {
            Ok(reason) => return Decision { allowed: true, reason },
            Err(reason) if !reason.is_empty() => reasons.push(format!("rbac: {reason}")),
            Err(_) => {}
        }
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// `Ok`, or the 403 that the client gets.
    pub fn check(&self, user: &UserInfo, request: &Attributes) -> Result<(), ApiError> {
        let decision = self.decide(user, request);
        match decision.allowed {
            true => Ok(()),
            false => Err(forbidden(user, request, &decision.reason)),
        }
    }
}

/// The refusal of a request.
pub fn forbidden(user: &UserInfo, request: &Attributes, reason: &str) -> ApiError {
    let mut message = refusal(user, request);
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    ApiError::forbidden(&GroupResource::new(&request.group, &request.resource), &request.name, message)
}

/// `User "u" cannot get resource "pods/log" in API group "" in the namespace "n"`.
pub fn refusal(user: &UserInfo, request: &Attributes) -> String {
    let (name, verb) = (&user.name, &request.verb);
    if !request.is_resource() {
        return format!("User {name:?} cannot {verb} path {:?}", request.path);
    }
    let scope = match request.namespace.as_str() {
        "" => "at the cluster scope".into(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!(
        "User {name:?} cannot {verb} resource {:?} in API group {:?} {scope}",
        request.full_resource(),
        request.group
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::Fixed;

    fn authorizer() -> Authorizer {
        Authorizer::new(Arc::new(Fixed::with_policy()))
    }

    fn message(user: &UserInfo, request: &Attributes) -> String {
        authorizer().check(user, request).expect_err("refused").status().message
    }

    #[test]
    fn masters_may_everything() {
        let request = Attributes::resource("frob", "x.example", "things", "", "");
        assert_eq!(
            authorizer().decide(&UserInfo::new("root", &[MASTERS]), &request),
            Decision { allowed: true, reason: String::new() }
        );
    }

    #[test]
    fn refusals_in_upstreams_words() {
        let bob = UserInfo::new("bob", &[]);
        let mut log = Attributes::resource("get", "", "pods", "default", "x");
        log.subresource = "log".into();
        let cases = [
            (
                Attributes::resource("list", "", "pods", "", ""),
                r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope"#,
            ),
            (
                Attributes::resource("list", "apps", "deployments", "default", ""),
                r#"deployments.apps is forbidden: User "bob" cannot list resource "deployments" in API group "apps" in the namespace "default""#,
            ),
            (
                log,
                r#"pods "x" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "default""#,
            ),
            (Attributes::path("post", "/metrics"), r#"forbidden: User "bob" cannot post path "/metrics""#),
        ];
        for (request, wanted) in cases {
            assert_eq!(message(&bob, &request), wanted);
        }
    }

    #[test]
    fn nodes_fall_back_to_rbac() {
        let node = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
        let secret = Attributes::resource("get", "", "secrets", "d", "x");
        assert!(message(&node, &secret).ends_with("node: no relationship found between node 'n1' and this object"));
        assert!(authorizer().check(&node, &Attributes::path("get", "/api")).is_ok(), "system:discovery");
    }
}
