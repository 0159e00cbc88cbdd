//! Two answers to one request: what is different, and of which class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scrub::{self, pattern};
use super::wire::{Answer, Request, Status};

/// Classes in the order of their weight: the first that applies is the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// The HTTP status.
    Status,
    /// The reason or the details of a failure.
    Reason,
    /// The fields that are at fault.
    Causes,
    /// The words of a failure.
    Message,
    /// The content type.
    ContentType,
    /// Warnings for the client.
    Warnings,
    /// Who owns which field.
    ManagedFields,
    /// Object metadata.
    Metadata,
    /// Anything else in the body: defaults, cells, documents.
    Body,
    /// Another header.
    Header,
    /// The same faults in another order.
    Order,
}

impl Class {
    /// As scores name it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Status => "status",
            Class::Reason => "reason",
            Class::Causes => "causes",
            Class::Message => "message",
            Class::ContentType => "contentType",
            Class::Warnings => "warnings",
            Class::ManagedFields => "managedFields",
            Class::Metadata => "metadata",
            Class::Body => "body",
            Class::Header => "header",
            Class::Order => "order",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its class.
    pub class: Class,
    /// Where in the answer.
    pub path: String,
    /// What upstream says there.
    pub upstream: Value,
    /// What ours says there.
    pub ours: Value,
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What was sent.
    pub request: Request,
    /// Upstream's answer.
    pub upstream: Answer,
    /// Our answer.
    pub ours: Answer,
    /// What was sent before, where that matters.
    pub before: Vec<Request>,
    /// The differences, the weightiest first.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// The weightiest difference, if any.
    pub fn difference(&self) -> Option<&Difference> {
        self.differences.first()
    }
}

/// Headers that are compared besides content type and warnings.
const HEADERS: [&str; 4] = ["retry-after", "location", "www-authenticate", "cache-control"];

/// Compares the answers to a request.
pub fn answers(request: &Request, upstream: Answer, ours: Answer) -> Comparison {
    let sent = String::from_utf8_lossy(&request.body).into_owned();
    // An upstream that breaks the connection says nothing of what is right.
    let differences = if upstream.status == Status::Broken { Vec::new() } else { all(&upstream, &ours, &sent) };
    Comparison { request: request.clone(), upstream, ours, before: Vec::new(), differences }
}

/// All differences, the weightiest first.
fn all(upstream: &Answer, ours: &Answer, sent: &str) -> Vec<Difference> {
    let (theirs, our_body) = (body(upstream, sent), body(ours, sent));
    let mut found = Vec::new();
    if upstream.status != ours.status {
        let why = |body: &Value| body.get("message").or(body.get("stderr")).cloned().unwrap_or_default();
        let shown = |answer: &Answer, body: &Value| Value::String(format!("{} {}", answer.status, why(body)));
        found.push(Difference {
            class: Class::Status,
            path: "status".into(),
            upstream: shown(upstream, &theirs),
            ours: shown(ours, &our_body),
        });
    } else {
        found.extend(bodies(&theirs, &our_body));
    }
    let header = |answer: &Answer, name: &str| Value::String(scrub::text(answer.header(name)));
    let (left, right) = (header(upstream, "content-type"), header(ours, "content-type"));
    if left != right {
        found.push(Difference { class: Class::ContentType, path: "content-type".into(), upstream: left, ours: right });
    }
    let warnings = |answer: &Answer| {
        let all = answer.headers.get("warning").cloned().unwrap_or_default();
        Value::from(all.iter().map(|text| scrub::text(text)).collect::<Vec<_>>())
    };
    let (left, right) = (warnings(upstream), warnings(ours));
    if left != right {
        found.push(Difference { class: Class::Warnings, path: "warning".into(), upstream: left, ours: right });
    }
    for name in HEADERS {
        let (left, right) = (header(upstream, name), header(ours, name));
        if left != right {
            found.push(Difference { class: Class::Header, path: name.into(), upstream: left, ours: right });
        }
    }
    found.sort_by_key(|difference| difference.class);
    found
}

/// The body as a comparable value: JSON, YAML or protobuf read, anything else as its lines.
fn body(answer: &Answer, sent: &str) -> Value {
    let content_type = answer.header("content-type");
    let mut value = if content_type.contains("stream=watch") || content_type.contains("json-seq") {
        events(&answer.body)
    } else if content_type.contains("protobuf") {
        protobuf(&answer.body)
    } else if content_type.contains("yaml") {
        serde_yaml_ng::from_slice(&answer.body).unwrap_or_else(|_| lines(&answer.body))
    } else {
        answer.json().unwrap_or_else(|| events(&answer.body))
    };
    scrub::value(&mut value, sent);
    scrub::generated(&mut value, sent);
    value
}

fn protobuf(bytes: &[u8]) -> Value {
    match pintle_machinery::codec::protobuf::decode(pintle_api::schema(), bytes) {
        Ok(decoded) => decoded.value,
        Err(error) => Value::String(format!("{} bytes that cannot be read: {error}", bytes.len())),
    }
}

/// The lines of a watch, or of a text.
fn events(bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| Value::from(line));
    Value::Array(text.lines().map(read).collect())
}

fn lines(bytes: &[u8]) -> Value {
    Value::Array(String::from_utf8_lossy(bytes).lines().map(Value::from).collect())
}

/// The differences of two bodies.
pub fn bodies(upstream: &Value, ours: &Value) -> Vec<Difference> {
    if upstream == ours {
        return Vec::new();
    }
    if upstream["kind"] == "Status" && ours["kind"] == "Status" && upstream["status"] == "Failure" {
        return failures(upstream, ours);
    }
    let mut found = Vec::new();
    walk("", upstream, ours, &mut found);
    found
}

fn failures(upstream: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |class: Class, path: &str, left: &Value, right: &Value| {
        if left != right {
            found.push(Difference { class, path: path.to_owned(), upstream: left.clone(), ours: right.clone() });
        }
    };
    add(Class::Reason, "reason", &upstream["reason"], &ours["reason"]);
    let (left, right) = (causes(upstream), causes(ours));
    for field in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
        let of = |causes: &Causes| causes.get(field).map_or(Value::Null, |list| Value::Array(list.clone()));
        add(Class::Causes, &format!("details.causes[{field}]"), &of(&left), &of(&right));
    }
    for field in ["name", "group", "kind", "uid", "retryAfterSeconds"] {
        add(Class::Reason, &format!("details.{field}"), &upstream["details"][field], &ours["details"][field]);
    }
    // The message of an invalid object is made of its causes: what comes before them is left to compare.
    let said = |status: &Value| match status["message"].as_str().and_then(|text| text.split_once(" is invalid: ")) {
        Some((subject, _)) if !left.is_empty() && !right.is_empty() => Value::from(subject),
        _ => status["message"].clone(),
    };
    add(Class::Message, "message", &said(upstream), &said(ours));
    add(Class::Body, "", &upstream["metadata"], &ours["metadata"]);
    if left == right {
        add(Class::Order, "details.causes", &in_order(upstream), &in_order(ours));
    }
    found
}

/// Fields whose faults upstream takes from a map: told the same twice it answers in one order and in another. What they
/// have in common is the group.
static BY_CHANCE: LazyLock<Regex> = LazyLock::new(|| {
    let (amounts, limits) = (r"(?:spec|status)\.(?:hard|used)", r"spec\.limits\[\d+\]");
    let (devices, metrics) = (r"spec\.devices\[\d+\]\.(?:attributes|capacity)", r"spec\.metrics\[\d+\]");
    let types = "resource|pods|object|external|containerResource";
    pattern(&format!(r"^(?:({amounts}|{devices})\[|({limits})\.\w+\[|({metrics})\.(?:{types})$)"))
});

/// Faults as they come; conflicts with other managers upstream takes from a map, and so the faults of some fields.
fn in_order(status: &Value) -> Value {
    let mut causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    if causes.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
        causes.sort_by_key(Value::to_string);
    }
    let field = |cause: &Value| cause["field"].as_str().unwrap_or_default().to_owned();
    let group = |cause: &Value| {
        let field = field(cause);
        let found = BY_CHANCE.captures(&field)?;
        found.iter().skip(1).flatten().next().map(|group| group.as_str().to_owned())
    };
    for run in causes.chunk_by_mut(|a, b| group(a).is_some() && group(a) == group(b)) {
        run.sort_by_key(field);
    }
    Value::Array(causes)
}

/// Faults by field.
type Causes = BTreeMap<String, Vec<Value>>;

fn causes(status: &Value) -> Causes {
    let mut causes = Causes::new();
    for cause in status["details"]["causes"].as_array().into_iter().flatten() {
        causes.entry(cause["field"].as_str().unwrap_or_default().to_owned()).or_default().push(cause.clone());
    }
    causes.values_mut().for_each(|list| list.sort_by_key(Value::to_string));
    causes
}

fn walk(path: &str, upstream: &Value, ours: &Value, found: &mut Vec<Difference>) {
    match (upstream, ours) {
        (left, right) if left == right => {}
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let child = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(&child, field(left, name), field(right, name), found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                walk(&format!("{path}[{index}]"), left, right, found);
            }
        }
        (left, right) => {
            let class = class_of(path);
            found.push(Difference { class, path: path.to_owned(), upstream: left.clone(), ours: right.clone() });
        }
    }
}

fn field<'a>(map: &'a serde_json::Map<String, Value>, name: &str) -> &'a Value {
    static ABSENT: Value = Value::Null;
    map.get(name).unwrap_or(&ABSENT)
}

fn class_of(path: &str) -> Class {
    let path = path.trim_start_matches("stdout.");
    if path.contains("metadata.managedFields") {
        Class::ManagedFields
    } else if path.starts_with("metadata") {
        Class::Metadata
    } else {
        Class::Body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: &Value) -> Answer {
        let headers = [("content-type".to_owned(), vec!["application/json".to_owned()])];
        Answer { status: Status::Http(status), headers: headers.into(), body: body.to_string().into_bytes() }
    }

    fn class(upstream: (u16, Value), ours: (u16, Value)) -> Option<Class> {
        let found = all(&answer(upstream.0, &upstream.1), &answer(ours.0, &ours.1), "");
        found.first().map(|difference| difference.class)
    }

    #[test]
    fn the_weightiest_class_counts() {
        let object =
            |replicas: i64, label: &str| json!({"metadata": {"labels": {"a": label}}, "spec": {"replicas": replicas}});
        assert_eq!(class((200, object(1, "b")), (200, object(1, "b"))), None);
        assert_eq!(class((200, object(1, "b")), (404, object(1, "b"))), Some(Class::Status));
        assert_eq!(class((200, object(1, "b")), (200, object(2, "b"))), Some(Class::Body));
        assert_eq!(class((200, object(1, "b")), (200, object(2, "c"))), Some(Class::Metadata));
    }

    #[test]
    fn answers_of_kubectl_are_compared_and_broken_connections_of_upstream_are_not() {
        let said = |status: Status, line: &str| Answer {
            status,
            body: json!({"stdout": [line], "stderr": []}).to_string().into_bytes(),
            ..Answer::default()
        };
        let class = |upstream: Answer, ours: Answer| {
            answers(&Request::new("kubectl", "get"), upstream, ours).difference().map(|difference| difference.class)
        };
        let done = Status::Exit(Some(0));
        assert_eq!(class(said(done, "a 1"), said(done, "a 1")), None);
        assert_eq!(class(said(done, "a 1"), said(done, "a 2")), Some(Class::Body));
        assert_eq!(class(said(done, "a 1"), said(Status::Exit(Some(1)), "a 1")), Some(Class::Status));
        assert_eq!(class(Answer::default(), said(done, "a 1")), None);
        assert_eq!(class(said(done, "a 1"), Answer::default()), Some(Class::Status));
    }

    #[test]
    fn failures_are_told_apart() {
        let failure = |message: &str, fields: &[&str]| {
            let causes: Vec<Value> = fields.iter().map(|field| json!({"field": field})).collect();
            json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "message": message,
                "details": {"causes": causes}})
        };
        let of = |left: Value, right: Value| class((422, left), (422, right));
        assert_eq!(of(failure("x", &["a"]), failure("y", &["a"])), Some(Class::Message));
        assert_eq!(of(failure("x", &["a"]), failure("y", &["b"])), Some(Class::Causes));
        let listed = |fields: &[&str]| failure(&format!("Kind \"x\" is invalid: {fields:?}"), fields);
        assert_eq!(of(listed(&["a", "b"]), listed(&["b", "a"])), Some(Class::Order));
        // What upstream takes from a map has no order; what is beside it has.
        let (a, b) = ("spec.hard[a]", "spec.hard[b]");
        assert_eq!(of(listed(&[a, a, b, "c"]), listed(&[b, a, a, "c"])), None);
        assert_eq!(of(listed(&[a, "c", b]), listed(&[b, "c", a])), Some(Class::Order));
        assert_eq!(
            of(
                listed(&["spec.containers[0].a", "spec.containers[0].b"]),
                listed(&["spec.containers[0].b", "spec.containers[0].a"])
            ),
            Some(Class::Order)
        );
        let body = |fields: &[&str]| answer(422, &listed(fields));
        let paths: Vec<String> =
            all(&body(&["a", "b"]), &body(&["b", "c"]), "").into_iter().map(|difference| difference.path).collect();
        assert_eq!(paths, ["details.causes[a]", "details.causes[c]"]);
    }
}
