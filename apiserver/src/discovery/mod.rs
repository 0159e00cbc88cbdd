//! Discovery: which groups, versions and resources there are, in both forms.

pub mod aggregated;
pub mod legacy;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::config::Config;
use crate::engine::present;
use crate::http::body::{self, Body};
use crate::http::negotiate::{clauses, pretty};
use crate::resource::Resource;

/// Prepared answers.
pub struct Discovery {
    legacy: legacy::Legacy,
    core: Aggregated,
    groups: Aggregated,
}

/// One aggregated document.
struct Aggregated {
    value: Value,
    bytes: Bytes,
    etag: HeaderValue,
}

impl Aggregated {
    fn new(value: Value) -> Self {
        let bytes: Bytes = value.to_string().into();
        let digest = ring::digest::digest(&ring::digest::SHA512, &bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { value, bytes, etag }
    }
}

impl Discovery {
    /// Of these resources.
    pub fn new(resources: &[Arc<Resource>], config: &Config) -> Self {
        Self {
            legacy: legacy::Legacy::new(resources, config),
            core: Aggregated::new(aggregated::document(resources, true)),
            groups: Aggregated::new(aggregated::document(resources, false)),
        }
    }

    /// All paths of discovery.
    pub fn paths(&self) -> Vec<String> {
        self.legacy.paths().map(str::to_owned).collect()
    }

    /// The answer for a path, if it is one of discovery's.
    pub fn answer(&self, path: &str, headers: &HeaderMap, pretty_parameter: Option<&str>) -> Option<Response<Body>> {
        let path = path.trim_end_matches('/');
        let pretty = pretty(headers, pretty_parameter);
        let document = match path {
            "/api" => Some(&self.core),
            "/apis" => Some(&self.groups),
            _ => None,
        };
        if let Some(document) = document
            && let Some(version) = wants_aggregated(headers)
        {
            return Some(aggregated_answer(document, version, headers, pretty));
        }
        let value = self.legacy.document(path)?;
        Some(json_answer(value, pretty))
    }
}

/// An answer in JSON, indented for people.
pub fn json_answer(value: &Value, pretty: bool) -> Response<Body> {
    let ordered = crate::cache::entry::Ordered(value);
    let bytes = if pretty { serde_json::to_vec_pretty(&ordered) } else { serde_json::to_vec(&ordered) };
    present::bytes(StatusCode::OK, "application/json", bytes.unwrap_or_default())
}

/// The version of the aggregated form that the client puts first, if it wants that form.
fn wants_aggregated(headers: &HeaderMap) -> Option<&'static str> {
    for clause in clauses(headers) {
        let aggregated = clause.parameter("as") == Some("APIGroupDiscoveryList")
            && clause.parameter("g") == Some("apidiscovery.k8s.io");
        match (clause.media_type, aggregated, clause.parameter("v")) {
            ("application/json", true, Some("v2")) => return Some("v2"),
            ("application/json" | "*/*", false, _) => return None,
            _ => {}
        }
    }
    None
}

fn aggregated_answer(document: &Aggregated, version: &str, headers: &HeaderMap, pretty: bool) -> Response<Body> {
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let unchanged = headers.get(IF_NONE_MATCH).is_some_and(|etag| etag == document.etag);
    let mut response = if unchanged {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if pretty {
        let mut response = json_answer(&document.value, true);
        if let Ok(value) = content_type.parse() {
            response.headers_mut().insert(http::header::CONTENT_TYPE, value);
        }
        response
    } else {
        present::bytes(StatusCode::OK, &content_type, document.bytes.clone())
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(ETAG, document.etag.clone());
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// `/version`
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": concat!("v1.37.2+pintle.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-11-01T00:00:00Z",
        "goVersion": "rust",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}
