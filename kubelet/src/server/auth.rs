//! Which permission a request needs: verbs and subresources of `nodes`.

use http::Method;
use pintle_serving::delegated::{Attributes, Delegated, Error, User};

/// Paths with subresources of their own, tried before the catch-all `proxy`.
const FINE: &[(&str, &str)] = &[
    ("pods", "pods"),
    ("runningpods", "pods"),
    ("healthz", "healthz"),
    ("livez", "healthz"),
    ("readyz", "healthz"),
    ("configz", "configz"),
];
/// Paths that need their own subresource and nothing else.
const STRICT: &[(&str, &str)] =
    &[("stats", "stats"), ("metrics", "metrics"), ("logs", "log"), ("checkpoint", "checkpoint")];

/// What a request needs: the verb, and subresources of which one suffices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Needed {
    verb: &'static str,
    subresources: Vec<&'static str>,
}

impl Needed {
    /// The permission for a method on a path.
    pub(super) fn of(method: &Method, path: &str) -> Self {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        };
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let find = |table: &[(&str, &'static str)]| table.iter().find(|(name, _)| *name == first).map(|(_, sub)| *sub);
        let subresources = match (find(STRICT), find(FINE)) {
            (Some(strict), _) => vec![strict],
            (None, Some(fine)) => vec![fine, "proxy"],
            (None, None) => vec!["proxy"],
        };
        Self { verb, subresources }
    }

    /// Asks whether `user` has it on this node.
    pub(super) async fn check(&self, auth: &Delegated, user: &User, node: &str) -> Result<bool, Error> {
        for subresource in &self.subresources {
            let attributes = Attributes::Resource {
                verb: self.verb.into(),
                version: "v1".into(),
                resource: "nodes".into(),
                subresource: (*subresource).into(),
                name: node.into(),
            };
            if auth.authorize(user, &attributes).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What a refused client reads.
    pub(super) fn refusal(&self, user: &User) -> String {
        let (verb, subresources) = (self.verb, self.subresources.join(" "));
        format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n", user.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_upstreams_subresources() {
        let cases = [
            (Method::GET, "/stats/summary", "get", vec!["stats"]),
            (Method::GET, "/metrics/cadvisor", "get", vec!["metrics"]),
            (Method::GET, "/logs/x", "get", vec!["log"]),
            (Method::GET, "/pods", "get", vec!["pods", "proxy"]),
            (Method::GET, "/runningpods/", "get", vec!["pods", "proxy"]),
            (Method::GET, "/healthz/ping", "get", vec!["healthz", "proxy"]),
            (Method::GET, "/configz", "get", vec!["configz", "proxy"]),
            (Method::POST, "/exec/ns/pod/c", "create", vec!["proxy"]),
            (Method::GET, "/containerLogs/ns/pod/c", "get", vec!["proxy"]),
            (Method::DELETE, "/podsx", "delete", vec!["proxy"]),
        ];
        for (method, path, verb, subresources) in cases {
            assert_eq!(Needed::of(&method, path), Needed { verb, subresources }, "{method} {path}");
        }
    }

    #[test]
    fn refusals_are_worded_as_upstreams() {
        let user = User { name: "system:anonymous".into(), ..User::default() };
        let text = Needed::of(&Method::GET, "/healthz").refusal(&user);
        assert_eq!(
            text,
            "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n"
        );
    }
}
