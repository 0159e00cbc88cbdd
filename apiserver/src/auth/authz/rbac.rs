//! RBAC: which rules apply to a user, through which binding.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::rules::Rule;
use crate::auth::{Attributes, Objects, RBAC_GROUP, UserInfo, text};

/// The resources that RBAC is made of.
const RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// Somebody that a binding is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Subject {
    /// `namespace` is the binding's, for service accounts without one.
    fn from_value(value: &Value, namespace: &str) -> Option<Self> {
        let name = text(value, &["name"]).to_owned();
        match text(value, &["kind"]) {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => {
                let own = text(value, &["namespace"]);
                let namespace = if own.is_empty() { namespace } else { own }.to_owned();
                (!namespace.is_empty()).then_some(Self::ServiceAccount { namespace, name })
            }
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => *name == user.name,
            Self::Group(name) => user.in_group(name),
            Self::ServiceAccount { namespace, name } => {
                user.service_account() == Some((namespace.as_str(), name.as_str()))
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::User(name) => format!("User {name:?}"),
            Self::Group(name) => format!("Group {name:?}"),
            Self::ServiceAccount { namespace, name } => {
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}

/// A role binding, its role resolved.
#[derive(Debug)]
struct Binding {
    namespace: String,
    name: String,
    subjects: Vec<Subject>,
    role_kind: String,
    role_name: String,
    /// `None`: there is no such role.
    rules: Option<Arc<Vec<Rule>>>,
}

/// A rule that applies to a user, and why.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl Grant<'_> {
    /// `RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`.
    fn reason(&self) -> String {
        let Binding { namespace, name, role_kind, role_name, .. } = self.binding;
        let binding = match namespace.as_str() {
            "" => format!("ClusterRoleBinding {name:?}"),
            namespace => format!("RoleBinding {:?}", format!("{name}/{namespace}")),
        };
        format!("RBAC: allowed by {binding} of {role_kind} {role_name:?} to {}", self.subject.describe())
    }
}

/// All roles and bindings, ready to be asked.
#[derive(Debug, Default)]
pub struct Policy {
    cluster_roles: HashMap<String, Arc<Vec<Rule>>>,
    roles: HashMap<(String, String), Arc<Vec<Rule>>>,
    /// Cluster role bindings first.
    bindings: Vec<Binding>,
}

impl Policy {
    /// From the objects as they are.
    pub fn new(objects: &dyn Objects) -> Self {
        let roles = objects.list(RBAC_GROUP, "clusterroles", None);
        let key = |role: &Value| text(role, &["metadata", "name"]).to_owned();
        let cluster_roles = roles.iter().map(|role| (key(role), Arc::new(role_rules(role, &roles)))).collect();
        let roles = objects.list(RBAC_GROUP, "roles", None).iter().map(own_key_and_rules).collect();
        let mut policy = Self { cluster_roles, roles, bindings: Vec::new() };
        for resource in ["clusterrolebindings", "rolebindings"] {
            let bindings = objects.list(RBAC_GROUP, resource, None);
            let bindings: Vec<Binding> = bindings.iter().map(|binding| policy.binding(binding)).collect();
            policy.bindings.extend(bindings);
        }
        policy
    }

    fn binding(&self, value: &Value) -> Binding {
        let namespace = text(value, &["metadata", "namespace"]).to_owned();
        let role = &value["roleRef"];
        let (role_kind, role_name) = (text(role, &["kind"]).to_owned(), text(role, &["name"]).to_owned());
        let subjects = value["subjects"].as_array().into_iter().flatten();
        Binding {
            name: text(value, &["metadata", "name"]).into(),
            subjects: subjects.filter_map(|subject| Subject::from_value(subject, &namespace)).collect(),
            rules: self.role(&role_kind, &namespace, &role_name),
            role_kind,
            role_name,
            namespace,
        }
    }

    /// Rules of a role that a binding refers to.
    pub fn role(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Vec<Rule>>> {
        match kind {
            "ClusterRole" => self.cluster_roles.get(name).cloned(),
            _ => self.roles.get(&(namespace.to_owned(), name.to_owned())).cloned(),
        }
    }

    /// What applies to a user in a namespace, or at cluster scope if it is empty.
    fn grants<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> impl Iterator<Item = Grant<'a>> {
        let bindings = self.bindings.iter().filter(move |b| b.namespace.is_empty() || b.namespace == namespace);
        bindings.filter_map(|binding| {
            let subject = binding.subjects.iter().find(|subject| subject.is(user))?;
            Some(Grant { binding, subject })
        })
    }

    /// All rules that apply to a user in a namespace.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        self.grants(user, namespace).filter_map(|grant| grant.binding.rules.as_deref()).flatten().cloned().collect()
    }

    /// Roles that bindings of a user refer to and that do not exist.
    pub fn broken_for(&self, user: &UserInfo, namespace: &str) -> Vec<String> {
        let broken = self.grants(user, namespace).filter(|grant| grant.binding.rules.is_none());
        broken.map(|grant| no_such_role(grant.binding)).collect()
    }

    /// `Ok` with the reason if a rule allows the request, `Err` with what went wrong on the way if none does.
    pub fn judge(&self, user: &UserInfo, request: &Attributes) -> Result<String, String> {
        let allows = |grant: &Grant<'_>| {
            grant.binding.rules.as_ref().is_some_and(|rules| rules.iter().any(|rule| rule.allows(request)))
        };
        match self.grants(user, &request.namespace).find(allows) {
            Some(grant) => Ok(grant.reason()),
            None => match describe(&self.broken_for(user, &request.namespace)) {
                Some(broken) => Err(format!("RBAC: {broken}")),
                None => Err(String::new()),
            },
        }
    }
}

/// Several errors as one, as Go's aggregates show them.
pub fn describe(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn no_such_role(binding: &Binding) -> String {
    let resource = if binding.role_kind == "ClusterRole" { "clusterrole" } else { "role" };
    format!("{resource}.{RBAC_GROUP} {:?} not found", binding.role_name)
}

fn own_key_and_rules(role: &Value) -> ((String, String), Arc<Vec<Rule>>) {
    let metadata = |field| text(role, &["metadata", field]).to_owned();
    ((metadata("namespace"), metadata("name")), Arc::new(Rule::list(&role["rules"])))
}

/// Rules of a cluster role: its own, or those that it collects if it aggregates.
fn role_rules(role: &Value, all: &[Value]) -> Vec<Rule> {
    match role["aggregationRule"].is_object() {
        true => collected(role, all, &mut BTreeSet::new()),
        false => Rule::list(&role["rules"]),
    }
}

/// The rules that an aggregating role should have, given all cluster roles: what a controller writes into it.
pub fn aggregate(role: &Value, all: &[Value]) -> Vec<Rule> {
    collected(role, all, &mut BTreeSet::new())
}

fn collected(role: &Value, all: &[Value], seen: &mut BTreeSet<String>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    if !seen.insert(text(role, &["metadata", "name"]).into()) {
        return rules;
    }
    let mut add = |new: Vec<Rule>| {
        for rule in new {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    };
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        for other in all.iter().filter(|other| selects(selector, &other["metadata"]["labels"])) {
            add(match other["aggregationRule"].is_object() {
                true => collected(other, all, seen),
                false => Rule::list(&other["rules"]),
            });
        }
    }
    rules
}

/// A label selector matches labels; an empty selector matches everything.
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    pairs.clone().all(|(key, value)| labels[key] == *value)
        && expressions.all(|expression| {
            let label = labels.get(text(expression, &["key"]));
            let listed = label.is_some_and(|l| expression["values"].as_array().is_some_and(|v| v.contains(l)));
            match text(expression, &["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

/// The policy of a server: compiled again when an RBAC object has changed.
#[derive(Debug, Default)]
pub struct CachedPolicy(RwLock<Option<([i64; 4], Arc<Policy>)>>);

impl CachedPolicy {
    /// The policy as the objects are now.
    pub fn get(&self, objects: &dyn Objects) -> Arc<Policy> {
        let revisions = RESOURCES.map(|resource| objects.revision(RBAC_GROUP, resource));
        if let Some((at, policy)) = &*self.0.read()
            && *at == revisions
        {
            return policy.clone();
        }
        let policy = Arc::new(Policy::new(objects));
        *self.0.write() = Some((revisions, policy.clone()));
        policy
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::Fixed;

    fn objects() -> Fixed {
        let mut objects = Fixed::with_policy();
        let bind = |name: &str, role: Value, subject: Value| json!({"metadata": {"name": name, "namespace": "dev"}, "roleRef": role, "subjects": [subject]});
        objects
            .add(
                RBAC_GROUP,
                "roles",
                json!({"metadata": {"name": "reader", "namespace": "dev"},
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            )
            .add(
                RBAC_GROUP,
                "rolebindings",
                bind(
                    "one",
                    json!({"kind": "Role", "name": "reader"}),
                    json!({"kind": "ServiceAccount", "name": "bot"}),
                ),
            )
            .add(
                RBAC_GROUP,
                "rolebindings",
                bind("two", json!({"kind": "ClusterRole", "name": "edit"}), json!({"kind": "User", "name": "eve"})),
            )
            .add(
                RBAC_GROUP,
                "rolebindings",
                bind("three", json!({"kind": "Role", "name": "gone"}), json!({"kind": "User", "name": "joe"})),
            );
        objects
    }

    #[test]
    fn judges() {
        let policy = Policy::new(&objects());
        let pods = |verb: &str, namespace: &str| Attributes::resource(verb, "", "pods", namespace, "");
        let bot = UserInfo::new("system:serviceaccount:dev:bot", &[]);
        let reason = r#"RBAC: allowed by RoleBinding "one/dev" of Role "reader" to ServiceAccount "bot/dev""#;
        assert_eq!(policy.judge(&bot, &pods("get", "dev")).as_deref(), Ok(reason));
        for (verb, namespace) in [("get", "prod"), ("get", ""), ("list", "dev")] {
            assert_eq!(policy.judge(&bot, &pods(verb, namespace)), Err(String::new()));
        }
        let eve = UserInfo::new("eve", &[]);
        assert!(policy.judge(&eve, &pods("delete", "dev")).is_ok(), "edit aggregates aggregate-to-edit");
        assert!(policy.judge(&eve, &pods("watch", "dev")).is_ok(), "and view through it");
        assert!(policy.judge(&eve, &Attributes::resource("create", RBAC_GROUP, "roles", "dev", "")).is_err());
        let joe = UserInfo::new("joe", &[]);
        let broken = r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#;
        assert_eq!(policy.judge(&joe, &pods("get", "dev")), Err(broken.into()));
        let everybody = UserInfo::anonymous();
        assert!(policy.judge(&everybody, &Attributes::path("get", "/version")).is_ok());
        assert!(policy.judge(&everybody, &Attributes::path("get", "/api")).is_err());
    }

    #[test]
    fn the_policy_follows_changes() {
        let (cached, mut objects) = (CachedPolicy::default(), objects());
        let first = cached.get(&objects);
        assert!(Arc::ptr_eq(&first, &cached.get(&objects)));
        objects.add(RBAC_GROUP, "roles", json!({"metadata": {"name": "gone", "namespace": "dev"}, "rules": []}));
        assert!(!Arc::ptr_eq(&first, &cached.get(&objects)));
    }

    #[test]
    fn aggregation_ends_and_selects() {
        let role = |name: &str, label: &str, collects: Value, rules: Value| {
            json!({"metadata": {"name": name, "labels": {"k": label}},
                   "aggregationRule": {"clusterRoleSelectors": [collects]}, "rules": rules})
        };
        let all = [
            role("a", "x", json!({"matchLabels": {"k": "x"}}), json!([])),
            role("b", "x", json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["y"]}]}), json!([])),
            json!({"metadata": {"name": "c", "labels": {"k": "y"}}, "rules": [{"verbs": ["get"]}]}),
        ];
        assert_eq!(aggregate(&all[0], &all).len(), 1, "through b, and not for ever through itself");
    }
}
