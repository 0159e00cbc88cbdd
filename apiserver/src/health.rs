//! `/healthz`, `/livez`, `/readyz`, whole and by check, and `/metrics`.

use http::{HeaderValue, Response, StatusCode};

use crate::engine::present;
use crate::http::body::Body;
use crate::http::query::Query;
use crate::state::State;

/// Checks by name, and in which of the three they are.
const CHECKS: [(&str, Kind); 9] = [
    ("ping", Kind::Always),
    ("log", Kind::Always),
    ("etcd", Kind::Store),
    ("etcd-readiness", Kind::Ready),
    ("informer-sync", Kind::Ready),
    ("poststarthook/rbac/bootstrap-roles", Kind::Bootstrap),
    ("poststarthook/scheduling/bootstrap-system-priority-classes", Kind::Bootstrap),
    ("poststarthook/bootstrap-controller", Kind::Bootstrap),
    ("shutdown", Kind::Shutdown),
];

/// Where they are asked for.
const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Always,
    Store,
    Ready,
    Bootstrap,
    Shutdown,
}

/// All paths of health.
pub fn paths() -> impl Iterator<Item = String> {
    ENDPOINTS.into_iter().flat_map(|endpoint| {
        let checks = CHECKS.iter().filter(move |(_, kind)| asked(endpoint, *kind));
        std::iter::once(format!("/{endpoint}")).chain(checks.map(move |(name, _)| format!("/{endpoint}/{name}")))
    })
}

/// The endpoint asks for that sort of check.
fn asked(endpoint: &str, kind: Kind) -> bool {
    endpoint == "readyz" || !matches!(kind, Kind::Ready | Kind::Shutdown)
}

/// The answer for a path, if it is one of these.
pub async fn answer(state: &State, path: &str, query: &Query) -> Option<Response<Body>> {
    let path = path.trim_end_matches('/');
    let (endpoint, check) = ENDPOINTS.into_iter().find_map(|endpoint| {
        let rest = path.strip_prefix('/')?.strip_prefix(endpoint)?;
        match rest.strip_prefix('/') {
            Some(check) => Some((endpoint, Some(check))),
            None => rest.is_empty().then_some((endpoint, None)),
        }
    })?;
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut failed = false;
    let mut found = false;
    for (name, kind) in CHECKS {
        if !asked(endpoint, kind) {
            continue;
        }
        if check.is_some_and(|check| check != name) {
            continue;
        }
        found = true;
        if excluded.contains(&name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match holds(state, kind).await {
            true => lines.push_str(&format!("[+]{name} ok\n")),
            false => {
                failed = true;
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    if !found {
        return None;
    }
    let text = match (failed, query.flag("verbose") && check.is_none()) {
        (true, _) => format!("{lines}{endpoint} check failed\n"),
        (false, true) => format!("{lines}{endpoint} check passed\n"),
        (false, false) => "ok".to_owned(),
    };
    let status = if failed { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    let mut response = present::bytes(status, "text/plain; charset=utf-8", text);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Some(response)
}

async fn holds(state: &State, kind: Kind) -> bool {
    match kind {
        Kind::Always => true,
        Kind::Store => {
            let separate = state.store.separate();
            let stores = std::iter::once(&state.store).chain(separate.iter().map(|(_, store)| store));
            futures::future::join_all(stores.map(|store| store.current_revision())).await.iter().all(Result::is_ok)
        }
        Kind::Ready => state.all_caches().all(|caches| caches.revision() > 0),
        Kind::Bootstrap => state.bootstrapped(),
        Kind::Shutdown => !state.shutdown.is_cancelled(),
    }
}
