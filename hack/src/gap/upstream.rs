//! What upstream's published OpenAPI document says there is, and what of it our tables have.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::{Display, Formatter};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::evidence::Request;

/// Paths of upstream's that are no resources and that our server has.
const OTHERS: [&str; 3] = ["/.well-known/openid-configuration/", "/openid/v1/jwks/", "/version/"];

/// Where definitions are.
const DEFINITIONS: &str = "#/definitions/";

/// A verb of an endpoint.
#[derive(Debug, PartialEq)]
pub struct Operation {
    /// `GET`.
    pub method: String,
    /// `/api/v1/namespaces/{namespace}/pods`.
    pub path: String,
    /// It is a list that can be watched, and this is the watch.
    pub watch: bool,
    /// The definition of the list that it answers with.
    pub lists: Option<String>,
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}{}", self.method, self.path, if self.watch { "?watch" } else { "" })
    }
}

impl Operation {
    /// Whether our server answers it: the path names a resource of its tables that has the verb, or one of few others.
    pub fn is_served(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", rest @ ..] => ("", rest),
            ["apis", group, rest @ ..] => (*group, rest),
            ["apis"] => return true,
            _ => return OTHERS.contains(&self.path.as_str()),
        };
        let [version, rest @ ..] = rest else { return self.method == "GET" };
        let rest = rest.strip_prefix(&["watch"]).unwrap_or(rest);
        let rest = match rest {
            ["namespaces", "{namespace}", rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let [plural, rest @ ..] = rest else { return self.method == "GET" };
        let Some(resource) = pintle_api::resource(group, version, plural) else { return false };
        let sub = rest.get(1).and_then(|name| resource.subresource(name));
        let verbs = match (rest.get(1), sub) {
            (None, _) => &resource.verbs,
            (Some(_), Some(sub)) => &sub.verbs,
            (Some(_), None) => return false,
        };
        let wanted: &[&str] = match (self.method.as_str(), rest.is_empty(), sub.is_some()) {
            _ if self.watch || self.path.contains("/watch/") => &["watch"],
            ("GET", true, _) => &["list"],
            ("DELETE", true, _) => &["deletecollection"],
            ("POST", ..) => &["create"],
            ("PUT", ..) => &["update"],
            ("PATCH", ..) => &["patch"],
            ("DELETE", ..) => &["delete"],
            // HEAD and OPTIONS are for what is passed on.
            _ => &["get"],
        };
        wanted.iter().any(|verb| verbs.contains(verb))
    }

    /// Whether a request goes there.
    fn takes(&self, request: &Request) -> bool {
        if self.method != request.method || self.watch != (request.watch && !self.path.contains("/watch/")) {
            return false;
        }
        let mut asked = request.path.split('/').filter(|part| !part.is_empty());
        for part in self.path.split('/').filter(|part| !part.is_empty()) {
            match (part, asked.next()) {
                ("{path}", Some(_)) => return true,
                (part, Some(_)) if part.starts_with('{') => {}
                (part, Some(own)) if part == own => {}
                _ => return false,
            }
        }
        asked.next().is_none()
    }
}

/// The document.
pub struct Document {
    /// All verbs of all endpoints.
    pub operations: Vec<Operation>,
    definitions: BTreeMap<String, Value>,
    /// Definitions by apiVersion and kind.
    kinds: BTreeMap<(String, String), String>,
}

impl Document {
    /// Of a release's sources.
    pub fn read(kubernetes: &Path) -> Result<Self> {
        let text = std::fs::read(kubernetes.join("api/openapi-spec/swagger.json")).context("reading swagger.json")?;
        let document: Value = serde_json::from_slice(&text).context("swagger.json")?;
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten().filter(|(name, _)| *name != "parameters")
            {
                let method = method.to_uppercase();
                let listed = operation["x-kubernetes-action"] == "list";
                let answer = operation["responses"]["200"]["schema"]["$ref"].as_str();
                let lists =
                    answer.filter(|_| listed).and_then(|answer| answer.strip_prefix(DEFINITIONS)).map(str::to_owned);
                operations.push(Operation { method: method.clone(), path: path.clone(), watch: false, lists });
                if listed {
                    operations.push(Operation { method, path: path.clone(), watch: true, lists: None });
                }
            }
        }
        operations.retain(|operation| !operation.watch || operation.is_served());
        let definitions = document["definitions"].as_object().into_iter().flatten();
        let definitions: BTreeMap<String, Value> = definitions.map(|(name, one)| (name.clone(), one.clone())).collect();
        let mut kinds = BTreeMap::new();
        for (name, definition) in &definitions {
            let listed =
                definition["x-kubernetes-group-version-kind"].as_array().map(Vec::as_slice).unwrap_or_default();
            for kind in listed {
                let part = |name: &str| kind[name].as_str().unwrap_or_default();
                let version = match part("group") {
                    "" => part("version").to_owned(),
                    group => format!("{group}/{}", part("version")),
                };
                kinds.insert((version, part("kind").to_owned()), name.clone());
            }
        }
        Ok(Self { operations, definitions, kinds })
    }

    /// Places of the operations to which some request goes.
    pub fn reached(&self, requests: &[Request]) -> HashSet<usize> {
        let of = |request| (0..self.operations.len()).filter(move |at| self.operations[*at].takes(request));
        requests.iter().flat_map(of).collect()
    }

    /// The fields of lists that some operation of these answers with.
    pub fn listed(&self, reached: &HashSet<usize>) -> HashSet<(String, String)> {
        let lists = reached.iter().filter_map(|at| self.operations[*at].lists.as_ref());
        let of =
            |name: &String| ["apiVersion", "items", "kind", "metadata"].map(|field| (name.clone(), field.to_owned()));
        lists.flat_map(of).collect()
    }

    /// All fields of all definitions.
    pub fn fields(&self) -> BTreeSet<(String, String)> {
        let of = |(name, definition): (&String, &Value)| {
            let fields = definition["properties"].as_object().into_iter().flatten();
            fields.map(|(field, _)| (name.clone(), field.clone())).collect::<Vec<_>>()
        };
        self.definitions.iter().flat_map(of).collect()
    }

    /// The fields that are in objects.
    pub fn seen(&self, objects: &[Value]) -> HashSet<(String, String)> {
        let mut seen = HashSet::new();
        objects.iter().for_each(|object| self.object(object, &mut seen));
        seen
    }

    /// An object of a kind that it tells.
    fn object(&self, object: &Value, seen: &mut HashSet<(String, String)>) {
        let part = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        if let Some(name) = self.kinds.get(&(part("apiVersion"), part("kind"))) {
            self.of_definition(name, object, seen);
        }
    }

    fn of_definition(&self, name: &str, value: &Value, seen: &mut HashSet<(String, String)>) {
        let Some(definition) = self.definitions.get(name) else { return };
        let Some(fields) = definition["properties"].as_object() else { return self.object(value, seen) };
        for (field, value) in value.as_object().into_iter().flatten() {
            if let Some(schema) = fields.get(field) {
                seen.insert((name.to_owned(), field.clone()));
                self.of_schema(schema, value, seen);
            }
        }
    }

    fn of_schema(&self, schema: &Value, value: &Value, seen: &mut HashSet<(String, String)>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix(DEFINITIONS)) {
            self.of_definition(name, value, seen);
        }
        for item in value.as_array().into_iter().flatten() {
            self.of_schema(&schema["items"], item, seen);
        }
        if schema["additionalProperties"].is_object() {
            for (_, value) in value.as_object().into_iter().flatten() {
                self.of_schema(&schema["additionalProperties"], value, seen);
            }
        }
    }
}

/// Whether our tables have a field. What is no struct there is a whole of its own, fields and all.
pub fn is_known(definition: &str, field: &str) -> bool {
    pintle_api::schema().by_name(definition).is_none_or(|ty| ty.field(field).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: &str, path: &str) -> Operation {
        Operation { method: method.into(), path: path.into(), watch: false, lists: None }
    }

    #[test]
    fn what_is_served_is_in_the_tables() {
        for (method, path, served) in [
            ("GET", "/api/v1/namespaces/{namespace}/pods/{name}", true),
            ("GET", "/api/v1/watch/pods", true),
            ("DELETE", "/api/v1/namespaces", false),
            ("PUT", "/api/v1/namespaces/{name}/finalize", true),
            ("PUT", "/api/v1/namespaces/{namespace}/pods/{name}/log", false),
            ("HEAD", "/api/v1/nodes/{name}/proxy/{path}", true),
            ("GET", "/apis/apps/", true),
            ("GET", "/apis/apps/v1/", true),
            ("GET", "/apis/apps/v1/nonsense", false),
            ("GET", "/logs/", false),
            ("GET", "/version/", true),
        ] {
            assert_eq!(operation(method, path).is_served(), served, "{method} {path}");
        }
    }

    #[test]
    fn requests_reach_their_endpoint() {
        let request = |method: &str, path: &str, watch| Request { method: method.into(), path: path.into(), watch };
        let list = operation("GET", "/api/v1/namespaces/{namespace}/pods");
        let watch = Operation { watch: true, ..operation("GET", "/api/v1/namespaces/{namespace}/pods") };
        let asked = request("GET", "/api/v1/namespaces/n/pods", false);
        assert!(list.takes(&asked) && !watch.takes(&asked));
        let asked = request("GET", "/api/v1/namespaces/n/pods", true);
        assert!(!list.takes(&asked) && watch.takes(&asked));
        assert!(!list.takes(&request("GET", "/api/v1/namespaces/n/pods/p", false)));
        let proxy = operation("GET", "/api/v1/nodes/{name}/proxy/{path}");
        assert!(proxy.takes(&request("GET", "/api/v1/nodes/n/proxy/a/b/c", false)));
        assert!(operation("GET", "/api/v1/watch/pods").takes(&request("GET", "/api/v1/watch/pods", true)));
    }
}
