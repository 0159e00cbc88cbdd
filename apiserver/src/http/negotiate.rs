//! Content negotiation: which encoding and which form of the object the client wants.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::features::Gates;

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/cbor`
    Cbor,
}

impl Encoding {
    /// The content type of a plain object.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    /// The content type of a stream of objects, if there are any in this encoding.
    fn stream(self) -> Option<&'static str> {
        match self {
            Self::Json => Some("application/json;stream=watch"),
            Self::Yaml => None,
            Self::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            Self::Cbor => Some(CBOR_SEQUENCE),
        }
    }

    /// The encoding that a media type, or a pattern of some, stands for.
    pub fn from_media_type(name: &str) -> Option<Self> {
        Some(match name {
            "application/json" | "*/*" | "" => Self::Json,
            "application/yaml" => Self::Yaml,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            "application/cbor" => Self::Cbor,
            _ => return None,
        })
    }
}

/// Objects in CBOR one after the other.
const CBOR_SEQUENCE: &str = "application/cbor-seq";

/// All encodings; the last takes a feature gate.
const ALL: [Encoding; 4] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

/// The encodings that a server has.
#[derive(Debug, Clone, Copy)]
pub struct Encodings {
    all: &'static [Encoding],
    sequences: bool,
}

impl Encodings {
    /// With these gates.
    pub fn of(gates: &Gates) -> Self {
        let all = if gates.on("CBORServingAndStorage") { &ALL[..] } else { &ALL[..3] };
        Self { all, sequences: false }
    }

    /// Those of a stream, which has a name of its own for sequences.
    pub fn streamed(self) -> Self {
        Self { sequences: true, ..self }
    }

    /// Whether this is one of them.
    pub fn has(self, encoding: Encoding) -> bool {
        self.all.contains(&encoding)
    }

    /// The one that a media type, or a pattern of some, stands for.
    pub fn named(self, media_type: &str) -> Option<Encoding> {
        let found = match media_type {
            CBOR_SEQUENCE if self.sequences => Some(Encoding::Cbor),
            other => Encoding::from_media_type(other),
        };
        found.filter(|encoding| self.has(*encoding))
    }

    /// Their content types.
    pub fn media_types(self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|encoding| encoding.media_type())
    }

    /// And those of streams.
    pub fn streams(self) -> impl Iterator<Item = &'static str> {
        self.all.iter().filter_map(|encoding| encoding.stream())
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
        let stream =
            matches!(self.encoding, Encoding::Protobuf | Encoding::Cbor).then(|| self.encoding.stream()).flatten();
        stream.filter(|_| watch).unwrap_or(self.encoding.media_type()).to_owned()
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
pub fn accept(
    headers: &HeaderMap,
    pretty_parameter: Option<&str>,
    encodings: Encodings,
    forms: bool,
) -> Option<Accepted> {
    let found = clauses(headers).into_iter().find_map(|clause| {
        let encoding = encodings.named(clause.media_type)?;
        let form = match clause.parameter("as") {
            None => Form::Object,
            Some(kind) if forms && clause.parameter("g").unwrap_or("meta.k8s.io") == "meta.k8s.io" => {
                let v1 = match clause.parameter("v") {
                    Some("v1") | None => true,
                    Some("v1beta1") => false,
                    Some(_) => return None,
                };
                match kind {
                    "Table" if matches!(encoding, Encoding::Json | Encoding::Yaml) => Form::Table(v1),
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

/// Whether the client takes JSON.
pub fn takes_json(headers: &HeaderMap) -> bool {
    clauses(headers).iter().any(|clause| Encoding::from_media_type(clause.media_type) == Some(Encoding::Json))
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
pub fn body_encoding(headers: &HeaderMap, encodings: Encodings) -> Option<Encoding> {
    match content_type(headers).as_str() {
        "*/*" | "application/*" => None,
        other => encodings.named(other),
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

    fn plain() -> Encodings {
        Encodings::of(&Gates::default())
    }

    #[test]
    fn cbor_is_there_with_its_gate() {
        let cbor = Encodings::of(&Gates::parse(&["CBORServingAndStorage=true".into()]).unwrap());
        let asked = |accept: &str, encodings: Encodings| {
            super::accept(&headers(accept), None, encodings, true).map(|accepted| accepted.content_type(true))
        };
        assert_eq!(asked("application/cbor", plain()), None);
        assert_eq!(asked("application/cbor", cbor).as_deref(), Some("application/cbor-seq"));
        assert_eq!(asked("application/cbor-seq", cbor), None);
        assert_eq!(asked("application/cbor-seq", cbor.streamed()).as_deref(), Some("application/cbor-seq"));
        assert_eq!(asked("application/cbor;as=Table;v=v1;g=meta.k8s.io", cbor), None);
        assert_eq!(plain().media_types().count(), 3);
        assert_eq!(cbor.streams().last(), Some("application/cbor-seq"));
    }

    #[test]
    fn kubectl_get_asks_for_a_table() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let accepted = accept(&headers(kubectl), None, plain(), true).unwrap();
        assert_eq!(accepted.form, Form::Table(true));
        assert_eq!(accepted.content_type(false), "application/json");
        assert_eq!(accept(&headers(kubectl), None, plain(), false).unwrap().form, Form::Object);
    }

    #[test]
    fn quality_orders_and_unknown_types_are_skipped() {
        let both = "application/json;q=0.8, application/foo, application/vnd.kubernetes.protobuf";
        assert_eq!(accept(&headers(both), None, plain(), true).unwrap().encoding, Encoding::Protobuf);
        assert_eq!(accept(&headers("application/foo"), None, plain(), true), None);
        assert_eq!(accept(&HeaderMap::new(), None, plain(), true).unwrap().encoding, Encoding::Json);
    }
}
