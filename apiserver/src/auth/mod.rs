//! Who asks, and may they: authentication, authorization, service account tokens, RBAC's own objects.
//!
//! Everything here is a function of a request and of objects that are looked up through [`Objects`]; nothing opens a
//! socket or writes an object. [`authn::Authenticator`] turns credentials into a [`UserInfo`], [`authz::Authorizer`] judges
//! [`Attributes`], [`token`] issues service account tokens, [`reviews`] answers the review APIs, [`escalation`] guards writes of
//! RBAC objects, and [`policy`] has the RBAC objects that every cluster starts with.
//!
//! Invariants: a request that carries credentials which nobody accepts is refused, never made anonymous; no secret is
//! logged or put into an error.

pub mod authn;
pub mod authz;
pub mod escalation;
pub mod policy;
pub mod reviews;
pub mod token;

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Group of everyone who has shown credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of those who have not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of those who have not.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";
/// Group of the RBAC API.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// Extra that identifies the credential itself.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// UID, empty if there is none.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user in these groups.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Somebody without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    /// Is in the group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Puts the user into a group.
    pub fn join(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.into());
        }
    }

    /// As `authentication.k8s.io/v1` UserInfo, without empty fields.
    pub fn to_value(&self) -> Value {
        let mut value = json!({});
        if !self.name.is_empty() {
            value["username"] = json!(self.name);
        }
        if !self.uid.is_empty() {
            value["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            value["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            value["extra"] = json!(self.extra);
        }
        value
    }

    /// The service account that the name stands for: namespace and name.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':').filter(|(_, name)| !name.contains(':'))
    }
}

/// What a request wants to do, as authorization sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Verb.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource; empty for a path that is no resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty at cluster scope.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// The path, for what is no resource.
    pub path: String,
    /// Field selector of a list, watch or deletecollection, as sent.
    pub field_selector: String,
}

impl Attributes {
    /// A verb on a resource.
    pub fn resource(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        let [verb, group, resource, namespace, name] = [verb, group, resource, namespace, name].map(str::to_owned);
        Self { verb, group, resource, namespace, name, ..Self::default() }
    }

    /// A verb on a path that is no resource.
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.into(), path: path.into(), ..Self::default() }
    }

    /// Names a resource, not a path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// `pods` or `pods/log`.
    pub fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

/// Objects of the cluster, as the server's caches have them.
pub trait Objects: Send + Sync {
    /// One object; `namespace` is empty for what is in none.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a resource, or those of one namespace.
    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Value>;

    /// The pods whose `spec.nodeName` is this.
    fn pods_on(&self, node: &str) -> Vec<Value>;

    /// A number that changes whenever an object of the resource changes.
    fn revision(&self, group: &str, resource: &str) -> i64;
}

/// Text at a path of field names, "" if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter().fold(value, |value, field| &value[*field]).as_str().unwrap_or_default()
}

/// Strings of a list; what is no string is left out.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
pub(crate) mod testing {
    //! Objects from a list of values, for tests.

    use super::*;

    /// Objects by group and resource.
    #[derive(Debug, Default, Clone)]
    pub struct Fixed(pub Vec<(&'static str, &'static str, Value)>);

    impl Fixed {
        /// With the objects that every cluster starts with.
        pub fn with_policy() -> Self {
            Self(policy::objects().iter().map(|object| (RBAC_GROUP, object.resource, object.value.clone())).collect())
        }

        pub fn add(&mut self, group: &'static str, resource: &'static str, value: Value) -> &mut Self {
            self.0.push((group, resource, value));
            self
        }
    }

    impl Objects for Fixed {
        fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
            let mut all = self.list(group, resource, Some(namespace)).into_iter();
            all.find(|value| text(value, &["metadata", "name"]) == name)
        }

        fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Value> {
            let of = |value: &&Value| namespace.is_none_or(|ns| text(value, &["metadata", "namespace"]) == ns);
            let all = self.0.iter().filter(|(g, r, _)| *g == group && *r == resource);
            all.map(|(_, _, value)| value).filter(of).cloned().collect()
        }

        fn pods_on(&self, node: &str) -> Vec<Value> {
            self.list("", "pods", None).into_iter().filter(|pod| text(pod, &["spec", "nodeName"]) == node).collect()
        }

        fn revision(&self, _: &str, _: &str) -> i64 {
            self.0.len() as i64
        }
    }
}
