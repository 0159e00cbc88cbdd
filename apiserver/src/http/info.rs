//! What a request is about: verb, group, version, namespace, resource, subresource, name.

use http::Method;

use super::query::{Query, decode};

/// A request's attributes, as authorization and dispatch need them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path as sent (decoded), without the query.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; lower-case method for other paths.
    pub verb: String,
    /// The path names an API resource.
    pub is_resource: bool,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace in the path; empty if none.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource; empty if none.
    pub subresource: String,
    /// Object name; empty if none.
    pub name: String,
    /// What follows the subresource, with its leading slash (proxies).
    pub rest: String,
}

impl RequestInfo {
    /// Reads method, path and query.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info =
            Self { path: decode(path, false), verb: method.as_str().to_ascii_lowercase(), ..Self::default() };
        let raw: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let parts: Vec<&str> = match raw.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = (*version).to_owned();
                rest.to_vec()
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                info.group = (*group).to_owned();
                info.version = (*version).to_owned();
                rest.to_vec()
            }
            _ => return info,
        };
        info.is_resource = true;
        let (watch_prefix, parts) = match parts.as_slice() {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest.to_vec()),
            _ => (false, parts),
        };
        info.fill_parts(&parts, path.ends_with('/'));
        info.verb = verb(method, &info, watch_prefix, query).to_owned();
        if info.name.is_empty() && matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            info.name = selected_name(query).unwrap_or_default();
        }
        info
    }

    /// The request is for one object by name (not by a field selector).
    pub fn addresses_object(&self) -> bool {
        !self.name.is_empty() && !matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
    }

    fn fill_parts(&mut self, parts: &[&str], trailing_slash: bool) {
        let decoded = |part: &str| decode(part, false);
        let own: &[&str] = match parts {
            // /namespaces/NAME, /namespaces/NAME/status and /namespaces/NAME/finalize are about the namespace itself.
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && !matches!(rest, ["status" | "finalize", ..]) =>
            {
                self.namespace = decoded(namespace);
                rest
            }
            ["namespaces", namespace, ..] => {
                self.namespace = decoded(namespace);
                parts
            }
            other => other,
        };
        let mut own = own.iter();
        self.resource = own.next().map(|part| decoded(part)).unwrap_or_default();
        self.name = own.next().map(|part| decoded(part)).unwrap_or_default();
        self.subresource = own.next().map(|part| decoded(part)).unwrap_or_default();
        let rest: Vec<&str> = own.copied().collect();
        if !rest.is_empty() {
            self.rest = format!("/{}", rest.join("/"));
        }
        if trailing_slash && !self.subresource.is_empty() {
            self.rest.push('/');
        }
    }
}

fn verb(method: &Method, info: &RequestInfo, watch_prefix: bool, query: &Query) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" if watch_prefix => "watch",
        "GET" | "HEAD" if !info.name.is_empty() => "get",
        "GET" | "HEAD" if query.flag("watch") => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if info.name.is_empty() => "deletecollection",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The name in a field selector `metadata.name=NAME`: authorization may be by that name.
fn selected_name(query: &Query) -> Option<String> {
    let selector = query.text("fieldSelector")?;
    let name = selector.split(',').find_map(|term| term.strip_prefix("metadata.name="))?;
    Some(name.trim_start_matches('=').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        RequestInfo::parse(&Method::from_bytes(method.as_bytes()).unwrap(), path, &Query::parse(query))
    }

    #[test]
    fn resources() {
        let cases = [
            ("GET", "/api/v1/pods", "list||v1||pods||"),
            ("GET", "/api/v1/pods?watch=1", "watch||v1||pods||"),
            ("GET", "/api/v1/namespaces", "list||v1||namespaces||"),
            ("GET", "/api/v1/namespaces/a", "get||v1|a|namespaces|a|"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update||v1|a|namespaces|a|finalize"),
            ("GET", "/api/v1/namespaces/a/pods", "list||v1|a|pods||"),
            ("GET", "/api/v1/watch/namespaces/a/pods", "watch||v1|a|pods||"),
            ("POST", "/apis/apps/v1/namespaces/a/deployments", "create|apps|v1|a|deployments||"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch|apps|v1|a|deployments|d|scale"),
            ("DELETE", "/api/v1/nodes", "deletecollection||v1||nodes||"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list||v1||pods|x|"),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get|rbac.authorization.k8s.io|v1||clusterroles|system:node|",
            ),
        ];
        for (method, uri, want) in cases {
            let i = info(method, uri);
            assert!(i.is_resource, "{uri}");
            let got = [i.verb, i.group, i.version, i.namespace, i.resource, i.name, i.subresource].join("|");
            assert_eq!(got, want, "{method} {uri}");
        }
    }

    #[test]
    fn other_paths() {
        for uri in ["/", "/healthz", "/api", "/api/v1", "/apis/apps/v1", "/openapi/v2"] {
            let i = info("GET", uri);
            assert!(!i.is_resource && i.verb == "get", "{uri}");
        }
    }

    #[test]
    fn proxy_keeps_the_rest() {
        let i = info("GET", "/api/v1/namespaces/a/pods/p:80/proxy/x/y/");
        assert_eq!((i.name.as_str(), i.subresource.as_str(), i.rest.as_str()), ("p:80", "proxy", "/x/y/"));
    }
}
