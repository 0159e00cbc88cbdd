//! Content negotiation: which encoding and which form of the object the client wants.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Encoding {
    /// The content type of a plain object.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The encoding that a media type, or a pattern of some, stands for.
    pub fn from_media_type(name: &str) -> Option<Self> {
        Some(match name {
            "application/json" | "*/*" | "application/*" | "" => Self::Json,
            "application/yaml" => Self::Yaml,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            _ => return None,
        })
    }
}

/// What is written: the object itself or a view of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The object.
    Object,
    /// `meta.k8s.io` Table, for `kubectl get`; true: v1, false: v1beta1.
    Table(bool),
    /// `meta.k8s.io` PartialObjectMetadata (or List); true: v1, false: v1beta1.
    Metadata(bool),
}

/// The outcome of the negotiation for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Encoding of the response.
    pub encoding: Encoding,
    /// Form of the response.
    pub form: Form,
    /// Indented JSON.
    pub pretty: bool,
}

impl Accepted {
    /// Plain JSON.
    pub const JSON: Accepted = Accepted { encoding: Encoding::Json, form: Form::Object, pretty: false };

    /// Content type of a response in this form.
    pub fn content_type(&self, watch: bool) -> String {
        let mut text = self.encoding.media_type().to_owned();
        if watch && self.encoding == Encoding::Protobuf {
            text.push_str(";stream=watch");
        }
        text
    }
}

/// One element of an Accept header.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause<'a> {
    /// `application/json`
    pub media_type: &'a str,
    /// Parameters besides `q`.
    pub parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    /// Value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

/// The Accept header's clauses, best first. No header: anything.
pub fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(parse_clause)
        .filter(|clause| !clause.media_type.is_empty())
        .collect();
    if clauses.is_empty() {
        clauses.push(parse_clause("*/*"));
    }
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn parse_clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let mut clause = Clause { media_type, parameters: Vec::new(), quality: 1.0 };
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        match name {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            _ => clause.parameters.push((name, value)),
        }
    }
    clause
}

/// The best clause that can be served; `forms`: the endpoint can give Table and PartialObjectMetadata. `None`: 406.
pub fn accept(headers: &HeaderMap, pretty_parameter: Option<&str>, forms: bool) -> Option<Accepted> {
    let found = clauses(headers).into_iter().find_map(|clause| {
        let encoding = Encoding::from_media_type(clause.media_type)?;
        let form = match clause.parameter("as") {
            None => Form::Object,
            Some(kind) if forms && clause.parameter("g").unwrap_or("meta.k8s.io") == "meta.k8s.io" => {
                let v1 = match clause.parameter("v") {
                    Some("v1") | None => true,
                    Some("v1beta1") => false,
                    Some(_) => return None,
                };
                match kind {
                    "Table" if encoding != Encoding::Protobuf => Form::Table(v1),
                    "PartialObjectMetadata" | "PartialObjectMetadataList" => Form::Metadata(v1),
                    _ => return None,
                }
            }
            Some(_) => return None,
        };
        Some((encoding, form))
    });
    let (encoding, form) = found?;
    Some(Accepted { encoding, form, pretty: encoding == Encoding::Json && pretty(headers, pretty_parameter) })
}

/// Indented JSON is for people: by parameter, or by the user agents that they use.
pub fn pretty(headers: &HeaderMap, parameter: Option<&str>) -> bool {
    match parameter {
        Some(value) => !matches!(value, "false" | "0"),
        None => headers
            .get(http::header::USER_AGENT)
            .and_then(|agent| agent.to_str().ok())
            .is_some_and(|agent| ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))),
    }
}

/// Media type of the request body without parameters, lower case; empty if there is none.
pub fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Encoding of a request body that is an object; no content type is JSON. `None`: 415.
pub fn body_encoding(headers: &HeaderMap) -> Option<Encoding> {
    match content_type(headers).as_str() {
        "*/*" | "application/*" => None,
        other => Encoding::from_media_type(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn kubectl_get_asks_for_a_table() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let accepted = accept(&headers(kubectl), None, true).unwrap();
        assert_eq!(accepted.form, Form::Table(true));
        assert_eq!(accepted.content_type(false), "application/json");
        assert_eq!(accept(&headers(kubectl), None, false).unwrap().form, Form::Object);
    }

    #[test]
    fn quality_orders_and_unknown_types_are_skipped() {
        let both = "application/json;q=0.8, application/foo, application/vnd.kubernetes.protobuf";
        assert_eq!(accept(&headers(both), None, true).unwrap().encoding, Encoding::Protobuf);
        assert_eq!(accept(&headers("application/foo"), None, true), None);
        assert_eq!(accept(&HeaderMap::new(), None, true).unwrap().encoding, Encoding::Json);
    }
}
