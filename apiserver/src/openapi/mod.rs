//! OpenAPI out of the schema: `/openapi/v3` with a document a group version, and `/openapi/v2`.
//!
//! Documents are made when they are first asked for. In JSON they have schemas and paths; in protobuf, which kubectl asks
//! for to learn which query parameters an endpoint takes, they have the paths.

mod protobuf;
mod schemas;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use pintle_machinery::schema::Schema;
use serde_json::{Map, Value, json};

use crate::engine::present;
use crate::http::body::Body;
use crate::http::negotiate::clauses;
use crate::resource::Resource;

/// Media types of the protobuf form.
const V3_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
];

/// The documents.
pub struct OpenApi {
    schema: &'static Schema,
    /// By path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    groups: BTreeMap<String, Group>,
    v2: OnceLock<Bytes>,
}

struct Group {
    resources: Vec<Arc<Resource>>,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

/// One operation of a path.
pub(crate) struct Operation {
    /// HTTP method, lower case.
    pub method: &'static str,
    /// Kubernetes' verb.
    pub action: &'static str,
    /// Query parameters.
    pub parameters: &'static [&'static str],
}

/// One path with its operations.
pub(crate) struct Endpoint {
    /// Path.
    pub path: String,
    /// Group, version and kind of the objects.
    pub gvk: (String, String, String),
    /// What can be done there.
    pub operations: Vec<Operation>,
}

const CREATE: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "pretty"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force", "pretty"];
const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
];
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// (verb, method, action, parameters, on the collection)
const OPERATIONS: [(&str, &str, &str, &[&str], bool); 7] = [
    ("list", "get", "list", LIST, true),
    ("create", "post", "post", CREATE, true),
    ("deletecollection", "delete", "deletecollection", LIST, true),
    ("get", "get", "get", &["pretty"], false),
    ("update", "put", "put", CREATE, false),
    ("patch", "patch", "patch", PATCH, false),
    ("delete", "delete", "delete", DELETE, false),
];

impl OpenApi {
    /// Of these resources.
    pub fn new(schema: &'static Schema, resources: &[Arc<Resource>]) -> Self {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for resource in resources {
            let path = root(resource).trim_start_matches('/').to_owned();
            let group = groups.entry(path).or_insert_with(|| Group {
                resources: Vec::new(),
                json: OnceLock::new(),
                protobuf: OnceLock::new(),
            });
            group.resources.push(resource.clone());
        }
        Self { schema, groups, v2: OnceLock::new() }
    }

    /// The answer for a path, if it is one of these.
    pub fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        let path = path.trim_end_matches('/');
        if path == "/openapi/v2" {
            return Some(self.v2(headers));
        }
        if path == "/openapi/v3" {
            let entry = |path: &String| {
                let hash = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
                (path.clone(), json!({"serverRelativeURL": hash}))
            };
            let paths: Map<String, Value> = self.groups.keys().map(entry).collect();
            return Some(present::bytes(StatusCode::OK, "application/json", json!({"paths": paths}).to_string()));
        }
        let group = self.groups.get(path.strip_prefix("/openapi/v3/")?)?;
        for clause in clauses(headers) {
            if V3_PROTOBUF.contains(&clause.media_type) {
                let bytes = group.protobuf.get_or_init(|| protobuf::document(&endpoints(&group.resources)).into());
                return Some(present::bytes(StatusCode::OK, V3_PROTOBUF[1], bytes.clone()));
            }
            if matches!(clause.media_type, "application/json" | "*/*") {
                break;
            }
        }
        let bytes = group.json.get_or_init(|| {
            let roots: Vec<Arc<Resource>> = group.resources.clone();
            let document = json!({
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": "v1.37.2"},
                "paths": json_paths(&endpoints(&group.resources), "v3"),
                "components": {"schemas": schemas::closure(self.schema, &roots, "#/components/schemas/")},
            });
            document.to_string().into()
        });
        Some(present::bytes(StatusCode::OK, "application/json", bytes.clone()))
    }

    fn v2(&self, headers: &HeaderMap) -> Response<Body> {
        let json = clauses(headers).iter().any(|clause| matches!(clause.media_type, "application/json" | "*/*"));
        if !json {
            return present::bytes(StatusCode::NOT_ACCEPTABLE, "text/plain; charset=utf-8", "406 not acceptable\n");
        }
        let bytes = self.v2.get_or_init(|| {
            let resources: Vec<Arc<Resource>> =
                self.groups.values().flat_map(|group| group.resources.iter().cloned()).collect();
            let document = json!({
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": "v1.37.2"},
                "paths": json_paths(&endpoints(&resources), "v2"),
                "definitions": schemas::closure(self.schema, &resources, "#/definitions/"),
            });
            document.to_string().into()
        });
        present::bytes(StatusCode::OK, "application/json", bytes.clone())
    }
}

fn root(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// Paths and operations of resources.
fn endpoints(resources: &[Arc<Resource>]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for resource in resources {
        let collection = match resource.namespaced {
            true => format!("{}/namespaces/{{namespace}}/{}", root(resource), resource.name),
            false => format!("{}/{}", root(resource), resource.name),
        };
        let gvk = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
        let of = |verbs: &[String], on_collection: bool| -> Vec<Operation> {
            OPERATIONS
                .iter()
                .filter(|(verb, .., collection)| *collection == on_collection && verbs.iter().any(|own| own == verb))
                .map(|(_, method, action, parameters, _)| Operation { method, action, parameters })
                .collect()
        };
        let item = format!("{collection}/{{name}}");
        endpoints.push(Endpoint { path: collection, gvk: gvk.clone(), operations: of(&resource.verbs, true) });
        endpoints.push(Endpoint { path: item.clone(), gvk, operations: of(&resource.verbs, false) });
        for sub in &resource.subresources {
            let gvk = (sub.group.clone(), sub.version.clone(), sub.kind.clone());
            endpoints.push(Endpoint { path: format!("{item}/{}", sub.name), gvk, operations: of(&sub.verbs, false) });
        }
    }
    endpoints.retain(|endpoint| !endpoint.operations.is_empty());
    endpoints
}

fn json_paths(endpoints: &[Endpoint], version: &str) -> Value {
    let mut paths = Map::new();
    for endpoint in endpoints {
        let (group, api_version, kind) = &endpoint.gvk;
        let mut item = Map::new();
        for operation in &endpoint.operations {
            let parameters: Vec<Value> = operation
                .parameters
                .iter()
                .map(|name| match version {
                    "v3" => json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}),
                    _ => json!({"name": name, "in": "query", "type": "string", "uniqueItems": true}),
                })
                .collect();
            item.insert(
                operation.method.to_owned(),
                json!({"parameters": parameters, "responses": {"200": {"description": "OK"}},
                       "x-kubernetes-action": operation.action,
                       "x-kubernetes-group-version-kind": {"group": group, "version": api_version, "kind": kind}}),
            );
        }
        paths.insert(endpoint.path.clone(), Value::Object(item));
    }
    Value::Object(paths)
}
