//! Writes of RBAC objects may not give away more than the writer has.

use pintle_machinery::status::{ApiError, GroupResource};
use serde_json::Value;

use super::authz::Authorizer;
use super::authz::rules::{Rule, compact, missing};
use super::{Attributes, MASTERS, RBAC_GROUP, UserInfo, text};

/// Checks a create or update of a Role or ClusterRole (`resource` is `roles` or `clusterroles`). `old` is the object before an
/// update: one that does not change the rules is never an escalation.
pub fn check_role(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let unchanged = |old: &Value| old["rules"] == new["rules"] && old["aggregationRule"] == new["aggregationRule"];
    if old.is_some_and(unchanged) || may(authorizer, user, "escalate", resource, new) {
        return Ok(());
    }
    if new["aggregationRule"].is_object() && old.is_none_or(|old| old["aggregationRule"] != new["aggregationRule"]) {
        // What will be collected is not known: the writer needs everything.
        let all = || vec!["*".to_owned()];
        let wanted = [
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), paths: all(), ..Rule::default() },
        ];
        if !missing(&authorizer.policy().rules_for(user, ""), &wanted).is_empty() {
            let message = "must have cluster-admin privileges to use the aggregationRule";
            let name = text(new, &["metadata", "name"]);
            return Err(ApiError::forbidden(&GroupResource::new(RBAC_GROUP, resource), name, message));
        }
    }
    confirm(authorizer, user, resource, new, &Rule::list(&new["rules"]))
}

/// Checks a create or update of a RoleBinding or ClusterRoleBinding (`resource` is `rolebindings` or `clusterrolebindings`).
pub fn check_binding(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let unchanged = |old: &Value| old["roleRef"] == new["roleRef"] && old["subjects"] == new["subjects"];
    if old.is_some_and(unchanged) {
        return Ok(());
    }
    let role = &new["roleRef"];
    let (kind, role_name) = (text(role, &["kind"]), text(role, &["name"]));
    let namespace = text(new, &["metadata", "namespace"]);
    let roles = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
    let mut bind = Attributes::resource("bind", RBAC_GROUP, roles, namespace, role_name);
    bind.version = "v1".into();
    if user.in_group(MASTERS) || authorizer.decide(user, &bind).allowed {
        return Ok(());
    }
    match authorizer.policy().role(kind, namespace, role_name) {
        Some(rules) => confirm(authorizer, user, resource, new, &rules),
        None => Err(ApiError::not_found(&GroupResource::new(RBAC_GROUP, resource), role_name)),
    }
}

fn may(authorizer: &Authorizer, user: &UserInfo, verb: &str, resource: &str, object: &Value) -> bool {
    let metadata = |field| text(object, &["metadata", field]);
    let request = Attributes::resource(verb, RBAC_GROUP, resource, metadata("namespace"), metadata("name"));
    user.in_group(MASTERS) || authorizer.decide(user, &request).allowed
}

fn confirm(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &str,
    object: &Value,
    wanted: &[Rule],
) -> Result<(), ApiError> {
    let owned = authorizer.policy().rules_for(user, text(object, &["metadata", "namespace"]));
    let lacking = compact(&missing(&owned, wanted));
    if lacking.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = lacking.iter().map(Rule::describe).collect();
    lines.sort();
    lines.dedup();
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let message = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        lines.join("\n")
    );
    Err(ApiError::forbidden(&GroupResource::new(RBAC_GROUP, resource), text(object, &["metadata", "name"]), message))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;

    fn authorizer(extra: &[Value]) -> Authorizer {
        let mut objects = Fixed::with_policy();
        objects.add(
            RBAC_GROUP,
            "rolebindings",
            json!({
                "metadata": {"name": "b", "namespace": "dev"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User", "name": "bob"}],
            }),
        );
        objects.add(RBAC_GROUP, "clusterroles", json!({"metadata": {"name": "extra"}, "rules": extra}));
        objects.add(
            RBAC_GROUP,
            "clusterrolebindings",
            json!({
                "metadata": {"name": "c"}, "roleRef": {"kind": "ClusterRole", "name": "extra"},
                "subjects": [{"kind": "User", "name": "bob"}],
            }),
        );
        Authorizer::new(Arc::new(objects))
    }

    fn role(verbs: &[&str], resource: &str) -> Value {
        json!({"metadata": {"name": "r", "namespace": "dev"},
               "rules": [{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]})
    }

    fn bob() -> UserInfo {
        UserInfo::new("bob", &["system:authenticated"])
    }

    #[test]
    fn roles() {
        let plain = authorizer(&[]);
        let check = |authorizer: &Authorizer, new: &Value, old| check_role(authorizer, &bob(), "roles", new, old);
        assert!(check(&plain, &role(&["get", "list"], "pods"), None).is_ok(), "bob may view");
        let error = check(&plain, &role(&["get", "delete", "patch"], "pods"), None).expect_err("escalates");
        assert_eq!(
            error.status().message,
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) is \
             attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"patch\"]}"
        );
        let powerful = role(&["*"], "*");
        assert!(check(&plain, &powerful, Some(&powerful)).is_ok(), "nothing changes");
        let escalate = json!({"verbs": ["escalate"], "apiGroups": [RBAC_GROUP], "resources": ["roles"]});
        assert!(check(&authorizer(&[escalate]), &powerful, None).is_ok());
        let aggregating = json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": []}});
        assert!(check(&plain, &aggregating, None).is_err());
    }

    #[test]
    fn bindings() {
        let binding = |kind: &str, name: &str| json!({"metadata": {"name": "x", "namespace": "dev"}, "roleRef": {"kind": kind, "name": name}, "subjects": []});
        let plain = authorizer(&[]);
        let check = |authorizer: &Authorizer, new: &Value| check_binding(authorizer, &bob(), "rolebindings", new, None);
        assert!(check(&plain, &binding("ClusterRole", "view")).is_ok());
        assert_eq!(check(&plain, &binding("ClusterRole", "edit")).expect_err("escalates").code(), 403);
        assert_eq!(check(&plain, &binding("Role", "gone")).expect_err("unknown role").code(), 404);
        let bind = json!({"verbs": ["bind"], "apiGroups": [RBAC_GROUP], "resources": ["clusterroles"],
                          "resourceNames": ["edit"]});
        assert!(check(&authorizer(&[bind]), &binding("ClusterRole", "edit")).is_ok());
    }
}
