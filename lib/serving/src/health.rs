//! `/livez`, `/readyz` and `/healthz`: named checks, in upstream's text format.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
    sync::Arc,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use parking_lot::RwLock;

/// When a check counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Failing means that a restart may help: part of all endpoints.
    Live,
    /// Failing means that no work should come for now: part of `/readyz` only.
    Ready,
}

type Run = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    scope: Scope,
    run: Run,
}

/// The checks of one server, in order. Clones share them.
#[derive(Clone)]
pub struct Checks(Arc<RwLock<Vec<Check>>>);

impl Default for Checks {
    /// Just `ping`, which always succeeds.
    fn default() -> Self {
        Self(Arc::default()).with("ping", Scope::Live, || async { Ok(()) })
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.read().iter().map(|check| &check.name)).finish()
    }
}

impl Checks {
    /// Adds a check. Its error text is logged, not shown to clients of the summary.
    pub fn with<F, R>(self, name: &str, scope: Scope, run: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.add(name, scope, run);
        self
    }

    /// Adds a check, in the place of one of the same name: that of a component that was started again.
    pub fn add<F, R>(&self, name: &str, scope: Scope, run: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), String>> + Send + 'static,
    {
        let check = Check { name: name.into(), scope, run: Arc::new(move || Box::pin(run())) };
        let mut checks = self.0.write();
        match checks.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = check,
            None => checks.push(check),
        }
    }

    /// Answers a health request; `None` if the path is no health endpoint.
    pub async fn respond(&self, path: &str, query: Option<&str>) -> Option<Response<String>> {
        let (endpoint, name) = split(path)?;
        let counts = |check: &&Check| endpoint == "readyz" || check.scope == Scope::Live;
        let checks: Vec<Check> = self.0.read().iter().filter(counts).cloned().collect();
        if name.is_empty() {
            let results = futures::future::join_all(checks.iter().map(|check| (check.run)())).await;
            let names = checks.iter().map(|check| check.name.as_str());
            return Some(summary(endpoint, &names.zip(results).collect::<Vec<_>>(), &Query::parse(query)));
        }
        let Some(check) = checks.iter().find(|check| check.name == name) else {
            return Some(plain(StatusCode::NOT_FOUND, "404 page not found\n".into()));
        };
        Some(match (check.run)().await {
            Ok(()) => plain(StatusCode::OK, "ok".into()),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {error}\n")),
        })
    }
}

/// `/livez/etcd` → (`livez`, `etcd`).
fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let (endpoint, name) = path.split_once('/').unwrap_or((path, ""));
    matches!(endpoint, "livez" | "readyz" | "healthz").then_some((endpoint, name))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    verbose: bool,
    exclude: BTreeSet<String>,
}

impl Query {
    fn parse(query: Option<&str>) -> Self {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "verbose" => parsed.verbose = true,
                "exclude" => {
                    let value = value.replace("%2F", "/").replace("%2f", "/");
                    parsed.exclude.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
                }
                _ => {}
            }
        }
        parsed
    }
}

fn summary(endpoint: &str, results: &[(&str, Result<(), String>)], query: &Query) -> Response<String> {
    let mut unknown = query.exclude.clone();
    let mut text = String::new();
    let mut failed = false;
    for (name, result) in results {
        let _ = match result {
            _ if unknown.remove(*name) => writeln!(text, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(error) => {
                failed = true;
                tracing::info!(endpoint, check = name, error, "health check failed");
                writeln!(text, "[-]{name} failed: reason withheld")
            }
        };
    }
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", names.join(","));
    }
    if failed {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{endpoint} check failed\n"));
    }
    let body = if query.verbose { format!("{text}{endpoint} check passed\n") } else { "ok".into() };
    plain(StatusCode::OK, body)
}

fn plain(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(path: &str, query: Option<&str>) -> (u16, String) {
        let checks = Checks::default().with("log", Scope::Live, || async { Ok(()) }).with(
            "informer-sync",
            Scope::Ready,
            || async { Err("not yet".into()) },
        );
        let response = checks.respond(path, query).await.unwrap();
        (response.status().as_u16(), response.into_body())
    }

    #[tokio::test]
    async fn summaries_read_as_upstreams() {
        let cases = [
            ("/livez", None, 200, "ok"),
            ("/livez", Some("verbose"), 200, "[+]ping ok\n[+]log ok\nlivez check passed\n"),
            (
                "/healthz",
                Some("exclude=ping&verbose=1"),
                200,
                "[+]ping excluded: ok\n[+]log ok\nhealthz check passed\n",
            ),
            (
                "/livez",
                Some("exclude=foo&verbose&exclude=bar"),
                200,
                "[+]ping ok\n[+]log ok\nwarn: some health checks cannot be excluded: no matches for \"bar\",\"foo\"\n\
                 livez check passed\n",
            ),
            (
                "/readyz",
                None,
                500,
                "[+]ping ok\n[+]log ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n",
            ),
            ("/readyz", Some("exclude=informer-sync"), 200, "ok"),
            ("/readyz/ping", Some("verbose"), 200, "ok"),
            ("/readyz/informer-sync", None, 500, "internal server error: not yet\n"),
            ("/livez/informer-sync", None, 404, "404 page not found\n"),
        ];
        for (path, query, status, body) in cases {
            assert_eq!(ask(path, query).await, (status, body.to_owned()), "{path} {query:?}");
        }
        assert!(Checks::default().respond("/metrics", None).await.is_none());
    }
}
