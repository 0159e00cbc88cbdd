//! The paths beside those of resources: discovery's, and those that are documents of their own.

use pintle_machinery::schema::text::META;

use super::endpoints::{Endpoint, Operation, capital, group_name, tag};
use super::operations::{OBJECTS, OK};

/// A path that is no resource and no group: its tag, id, description, answer, and the media types in and out.
struct Root {
    key: &'static str,
    tag: &'static str,
    id: &'static str,
    description: &'static str,
    answer: Option<&'static str>,
    consumes: &'static [&'static str],
    produces: &'static [&'static str],
}

const ROOTS: [Root; 5] = [
    Root {
        key: ".well-known/openid-configuration",
        tag: "WellKnown",
        id: "getServiceAccountIssuerOpenIDConfiguration",
        description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        answer: None,
        consumes: &[],
        produces: &["application/json"],
    },
    Root {
        key: "openid/v1/jwks",
        tag: "openid",
        id: "getServiceAccountIssuerOpenIDKeyset",
        description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        answer: None,
        consumes: &[],
        produces: &["application/jwk-set+json"],
    },
    Root {
        key: "version",
        tag: "version",
        id: "getCodeVersion",
        description: "get the version information for this server",
        answer: Some("io.k8s.apimachinery.pkg.version.Info"),
        consumes: &["application/json"],
        produces: &["application/json"],
    },
    Root {
        key: "api",
        tag: "core",
        id: "getCoreAPIVersions",
        description: "get available API versions",
        answer: Some("io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions"),
        consumes: OBJECTS,
        produces: OBJECTS,
    },
    Root {
        key: "apis",
        tag: "apis",
        id: "getAPIVersions",
        description: "get available API versions",
        answer: Some("io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList"),
        consumes: OBJECTS,
        produces: OBJECTS,
    },
];

/// Documents of paths that are no resource's.
pub fn keys() -> impl Iterator<Item = &'static str> {
    ROOTS.iter().map(|root| root.key)
}

/// The endpoint that a document has beside those of resources: `apis/apps/v1` → `/apis/apps/v1/`.
pub fn endpoint(key: &str) -> Endpoint {
    let mut operation = Operation {
        method: "get",
        tag: String::new(),
        id: String::new(),
        description: String::new(),
        action: None,
        parameters: Vec::new(),
        body: None,
        consumes: OBJECTS,
        produces: OBJECTS,
        codes: OK,
        answer: None,
    };
    let parts: Vec<&str> = key.split('/').collect();
    if let Some(root) = ROOTS.iter().find(|root| root.key == key) {
        (operation.tag, operation.id) = (root.tag.to_owned(), root.id.to_owned());
        operation.description = root.description.to_owned();
        operation.answer = root.answer.map(str::to_owned);
        (operation.consumes, operation.produces) = (root.consumes, root.produces);
    } else if let ["apis", group] = parts[..] {
        operation.tag = group_name(group);
        operation.id = format!("get{}APIGroup", capital(&operation.tag));
        operation.description = "get information of a group".to_owned();
        operation.answer = Some(format!("{META}.APIGroup"));
    } else {
        let (group, version) = match parts[..] {
            [_, group, version] => (group, version),
            [_, version] => ("", version),
            _ => ("", ""),
        };
        operation.tag = tag(group, version);
        operation.id = format!("get{}{}APIResources", capital(&group_name(group)), capital(version));
        operation.description = "get available resources".to_owned();
        operation.answer = Some(format!("{META}.APIResourceList"));
    }
    Endpoint { path: format!("/{key}/"), operations: vec![operation] }
}
