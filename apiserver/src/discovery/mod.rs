//! Discovery: which groups, versions and resources there are, in both forms.

pub mod aggregated;
pub mod legacy;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use pintle_machinery::codec::{TypeMeta, protobuf};
use pintle_machinery::schema::Schema;
use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use crate::codec;
use crate::config::Config;
use crate::engine::{Answer, present};
use crate::http::body::{self, Body};
use crate::http::negotiate::{Encoding, Encodings, clauses, pretty};
use crate::resource::Resource;

/// What the aggregated form's content type has behind the encoding.
const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Prepared answers.
pub struct Discovery {
    schema: &'static Schema,
    encodings: Encodings,
    legacy: legacy::Legacy,
    core: Aggregated,
    groups: Aggregated,
}

/// One aggregated document in JSON.
struct Aggregated {
    bytes: Bytes,
    etag: HeaderValue,
}

/// What the client wants of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    encoding: Encoding,
    aggregated: bool,
    pretty: bool,
}

impl Aggregated {
    fn new(value: &Value) -> Self {
        let bytes: Bytes = value.to_string().into();
        let digest = ring::digest::digest(&ring::digest::SHA512, &bytes);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { bytes, etag }
    }
}

impl Discovery {
    /// Of these resources.
    pub fn new(schema: &'static Schema, resources: &[Arc<Resource>], config: &Config) -> Self {
        Self {
            schema,
            encodings: Encodings::of(&config.features.gates),
            legacy: legacy::Legacy::new(resources, config),
            core: Aggregated::new(&aggregated::document(resources, true)),
            groups: Aggregated::new(&aggregated::document(resources, false)),
        }
    }

    /// All paths of discovery.
    pub fn paths(&self) -> Vec<String> {
        self.legacy.paths().map(str::to_owned).collect()
    }

    /// The answer for a path, if it is one of discovery's.
    pub fn answer(&self, path: &str, headers: &HeaderMap, pretty_parameter: Option<&str>) -> Option<Answer> {
        let path = path.trim_end_matches('/');
        let aggregated = match path {
            "/api" => Some(&self.core),
            "/apis" => Some(&self.groups),
            _ => None,
        };
        let Some(document) = self.legacy.document(path) else {
            // A version that a known group doesn't have.
            let (group, version) = path.rsplit_once('/')?;
            let known = group != "/apis" && !version.is_empty() && self.legacy.document(group).is_some();
            return known.then_some(Err(ApiError::NoSuchResource));
        };
        let Some(mut wanted) = wanted(headers, self.encodings, aggregated.is_some()) else {
            return Some(Ok(not_acceptable(self.encodings)));
        };
        wanted.pretty = wanted.encoding == Encoding::Json && pretty(headers, pretty_parameter);
        Some(match aggregated {
            Some(aggregated) if wanted.aggregated => self.aggregated(aggregated, wanted, headers),
            _ => self.encoded(document, wanted),
        })
    }

    fn aggregated(&self, document: &Aggregated, wanted: Wanted, headers: &HeaderMap) -> Answer {
        let unchanged = headers.get(IF_NONE_MATCH).is_some_and(|etag| etag == document.etag);
        let mut response = if unchanged {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            self.encoded(&document.bytes, wanted)?
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(ETAG, document.etag.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        Ok(response)
    }

    /// A document, which is kept in JSON, as the client wants it.
    fn encoded(&self, document: &Bytes, wanted: Wanted) -> Answer {
        let form = if wanted.aggregated { AGGREGATED } else { "" };
        let content_type = format!("{}{form}", wanted.encoding.media_type());
        if wanted.encoding == Encoding::Json && !wanted.pretty {
            return Ok(present::bytes(StatusCode::OK, &content_type, document.clone()));
        }
        let value: Value = serde_json::from_slice(document).map_err(|error| ApiError::Internal(error.to_string()))?;
        let meta = TypeMeta::of(&value);
        // Documents of the core group don't tell their version, which is that of the rest.
        let versionless = wanted.encoding == Encoding::Protobuf && meta.api_version.is_empty();
        let bytes = match self.schema.kind("", "v1", &meta.kind).filter(|_| versionless) {
            Some(ty) => protobuf::encode_as(self.schema, ty, &meta, &value)
                .map_err(|error| ApiError::Internal(error.to_string()))?
                .into(),
            None => codec::encode(self.schema, &value, wanted.encoding, wanted.pretty)?,
        };
        Ok(present::bytes(StatusCode::OK, &content_type, bytes))
    }
}

/// The best that the client accepts; `None`: nothing that there is.
fn wanted(headers: &HeaderMap, encodings: Encodings, with_aggregated: bool) -> Option<Wanted> {
    clauses(headers).iter().find_map(|clause| {
        let aggregated = match clause.parameter("as") {
            None => false,
            Some("APIGroupDiscoveryList") if with_aggregated => {
                clause.parameter("g").zip(clause.parameter("v")) == Some(("apidiscovery.k8s.io", "v2"))
                    && !clause.media_type.contains('*')
            }
            Some(_) => return None,
        };
        let encoding = encodings.named(clause.media_type)?;
        (aggregated || clause.parameter("as").is_none()).then_some(Wanted { encoding, aggregated, pretty: false })
    })
}

fn not_acceptable(encodings: Encodings) -> Response<Body> {
    let types = encodings.media_types().map(str::to_owned).collect();
    let status = ApiError::NotAcceptable(types).status();
    present::bytes(StatusCode::NOT_ACCEPTABLE, Encoding::Json.media_type(), status.to_json())
}

/// An answer in JSON, indented for people.
pub fn json_answer(value: &Value, pretty: bool) -> Response<Body> {
    let ordered = crate::cache::entry::Ordered(value);
    let bytes = if pretty { serde_json::to_vec_pretty(&ordered) } else { serde_json::to_vec(&ordered) };
    present::bytes(StatusCode::OK, "application/json", bytes.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(accept: &str, with_aggregated: bool) -> Option<(Encoding, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().unwrap());
        wanted(&headers, Encodings::of(&Default::default()), with_aggregated)
            .map(|wanted| (wanted.encoding, wanted.aggregated))
    }

    #[test]
    fn forms_are_negotiated() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(choice(v2, true), Some((Encoding::Json, true)));
        assert_eq!(choice(v2, false), None, "only the roots have it");
        assert_eq!(choice(&v2.replace("json", "vnd.kubernetes.protobuf"), true), Some((Encoding::Protobuf, true)));
        assert_eq!(choice(&v2.replace("v=v2", "v=v2beta1"), true), None);
        let kubectl = format!("{},application/json", v2.replace("v=v2", "v=v3"));
        assert_eq!(choice(&kubectl, true), Some((Encoding::Json, false)));
        assert_eq!(choice("application/yaml", true), Some((Encoding::Yaml, false)));
        assert_eq!(choice("text/html", true), None);
        assert_eq!(choice("*/*", true), Some((Encoding::Json, false)));
    }
}
