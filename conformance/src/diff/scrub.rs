//! What differs between any two servers is taken out of answers before they are compared.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(resource ?[vV]ersion[^0-9"]{1,12}|"resourceVersion":"|resourceVersion: "|ResourceVersion: |in record \(|, current: )\d+"#,
    )
});
static PRECONDITION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(ResourceVersion in precondition: \d+, ResourceVersion in object meta: )\d+"));

/// Names that the server makes up without telling the prefix.
static VOLUME: LazyLock<Regex> = LazyLock::new(|| pattern("kube-api-access-[a-z0-9]{5}"));
/// A comparison of upstream's internal structs behind "may not be changed" messages: nobody else has these structs.
static STRUCTS_APART: LazyLock<Regex> = LazyLock::new(|| pattern(r"\n@@ -\d[^\n]*(\n[-+ @][^\n]*)*\n?"));
/// Where messages show an object, a list, or JSON as a text.
static SHOWN: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(Invalid value|Duplicate value): (?:[\[{]|"[{\[])"#));
/// How old something is that was just made.
pub const AGE: &str = r"(?:(?:1[01]\d|\d{1,2})s|\d{1,2}m(?:\d{1,2}s)?|<invalid>)";
static AGE_ALONE: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("^{AGE}$")));
/// Columns of tables that have ages.
const AGES: [&str; 5] = ["Age", "Duration", "First Seen", "Last Schedule", "Last Seen"];

/// The UIDs that samples contain: these are the client's, not the server's.
const GIVEN_UID: &str = "-0000-4000-8000-";

/// Where the servers' Service addresses come from: their own range, and that of the ServiceCIDR of the samples.
const RANGES: [&str; 2] = ["10.97.", "10.200."];
/// Lists whose order is by chance: upstream takes roles from a map.
const UNORDERED: [&str; 2] = ["resourceRules", "nonResourceRules"];

/// Fields that a server fills with whatever is free; they differ unless the client asked for a value.
const ALLOCATED: [&str; 4] = ["clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"];

/// A pattern that is part of the program.
pub fn pattern(text: &str) -> Regex {
    match Regex::new(text) {
        Ok(regex) => regex,
        // Cannot happen: the patterns are part of the program.
        Err(error) => panic!("{error}"),
    }
}

/// Makes a JSON answer comparable. `sent` is the request's body: what the client chose must come back as it is.
pub fn value(value: &mut Value, sent: &str) {
    match value {
        Value::Object(map) => object(map, sent),
        Value::Array(items) => items.iter_mut().for_each(|item| self::value(item, sent)),
        Value::String(text) => *text = self::text(text),
        _ => {}
    }
}

fn object(map: &mut Map<String, Value>, sent: &str) {
    if map.contains_key("rows") {
        ages(map);
    }
    if let Some(prefix) = map.get("generateName").and_then(Value::as_str).map(str::to_owned)
        && let Some(Value::String(name)) = map.get_mut("name")
        && name.starts_with(&prefix)
        && name.len() == prefix.len() + 5
    {
        let made = std::mem::replace(name, format!("{prefix}<generated>"));
        // A namespace has its name in a label too.
        let label = map.get_mut("labels").and_then(|labels| labels.get_mut("kubernetes.io/metadata.name"));
        if let Some(label) = label.filter(|label| **label == made) {
            *label = format!("{prefix}<generated>").into();
        }
    }
    for (key, item) in map.iter_mut() {
        match (key.as_str(), &mut *item) {
            ("resourceVersion", Value::String(text)) if text.parse::<u64>().is_ok_and(|number| number > 0) => {
                *text = "<version>".to_owned();
            }
            ("continue", Value::String(text)) if !text.is_empty() => *text = "<continue>".to_owned(),
            ("token", Value::String(text)) if text.matches('.').count() == 2 => *text = "<token>".to_owned(),
            (name, item) if ALLOCATED.contains(&name) && allocated(item, sent) => *item = "<allocated>".into(),
            (name, item) if UNORDERED.contains(&name) => {
                value(item, sent);
                if let Some(items) = item.as_array_mut() {
                    items.sort_by_cached_key(Value::to_string);
                }
            }
            ("managedFields", Value::Array(entries)) => {
                entries.iter_mut().for_each(|entry| value(entry, sent));
                entries.sort_by_cached_key(manager);
            }
            (_, item) => value(item, sent),
        }
    }
}

/// Names that the server made of the prefix that was sent, wherever a failure tells them.
pub fn generated(value: &mut Value, sent: &str) {
    let sent: Value = serde_json::from_str(sent).unwrap_or_default();
    let text = |field: &str| sent["metadata"][field].as_str().unwrap_or_default();
    let prefix = text("generateName");
    if value["kind"] == "Status" && !prefix.is_empty() && text("name").is_empty() {
        let name = pattern(&format!("{}[a-z0-9]{{5}}", regex::escape(prefix)));
        named(value, &name, &format!("{prefix}<generated>"));
    }
}

fn named(value: &mut Value, name: &Regex, instead: &str) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| named(value, name, instead)),
        Value::Array(items) => items.iter_mut().for_each(|value| named(value, name, instead)),
        Value::String(text) => *text = name.replace_all(text, regex::NoExpand(instead)).into_owned(),
        _ => {}
    }
}

/// What a manager's entry is sorted by. Servers sort by time before: within a second or not is chance.
fn manager(entry: &Value) -> String {
    ["operation", "manager", "subresource", "apiVersion"].map(|field| entry[field].to_string()).join(" ")
}

/// The ages in a table. Only the first table of a watch tells its columns.
fn ages(table: &mut Map<String, Value>) {
    let names = |columns: &Vec<Value>| columns.iter().map(|column| column["name"].clone()).collect::<Vec<_>>();
    let columns = table.get("columnDefinitions").and_then(Value::as_array).map(names);
    let has_ages = |at: usize| {
        columns
            .as_ref()
            .is_none_or(|names| names.get(at).and_then(Value::as_str).is_some_and(|name| AGES.contains(&name)))
    };
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        for (at, cell) in row["cells"].as_array_mut().into_iter().flatten().enumerate() {
            if has_ages(at) && cell.as_str().is_some_and(|text| AGE_ALONE.is_match(text)) {
                *cell = "<age>".into();
            }
        }
    }
}

fn allocated(item: &Value, sent: &str) -> bool {
    match item {
        Value::Array(items) => items.iter().any(|item| allocated(item, sent)),
        Value::String(text) => RANGES.iter().any(|range| text.starts_with(range)) && !sent.contains(text.as_str()),
        Value::Number(number) => {
            number.as_i64().is_some_and(|port| port > 29_999) && !sent.contains(&number.to_string())
        }
        _ => false,
    }
}

/// Makes a text comparable.
pub fn text(text: &str) -> String {
    let mut text = text.to_owned();
    if text.len() >= 20 {
        text = UID.replace_all(&text, replace_uid).into_owned();
        text = TIME.replace_all(&text, replace_time).into_owned();
        text = VERSION.replace_all(&text, "${1}<version>").into_owned();
        text = PRECONDITION.replace_all(&text, "${1}<version>").into_owned();
        text = VOLUME.replace_all(&text, "kube-api-access-<generated>").into_owned();
        text = STRUCTS_APART.replace_all(&text, "").into_owned();
        text = shown(&text);
    }
    text
}

/// Upstream prints its internal structs: with Go's names and with all that is empty. Both are put in one form here, and so is JSON
/// as a text, whose fields upstream has in the order of its structs.
fn shown(text: &str) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(found) = SHOWN.find(rest) {
        let start = found.start() + rest[found.start()..].find(": ").map_or(0, |at| at + 2);
        let mut values = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<Value>();
        let read = values.next().and_then(Result::ok);
        let end = if read.is_some() { start + values.byte_offset() } else { found.end() };
        done.push_str(&rest[..start]);
        match read {
            Some(Value::String(text)) => done.push_str(&inner(text)),
            Some(value) => done.push_str(&plain(value).to_string()),
            None => done.push_str(&rest[start..end]),
        }
        rest = &rest[end..];
    }
    done + rest
}

fn inner(text: String) -> String {
    match serde_json::from_str::<Value>(&text) {
        Ok(mut read) => {
            value(&mut read, "");
            Value::String(read.to_string()).to_string()
        }
        Err(_) => Value::String(text).to_string(),
    }
}

/// Fields by lower-case names, without those that are empty.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().map(|(name, value)| (name.to_lowercase(), plain(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn replace_uid(found: &regex::Captures<'_>) -> String {
    if found[0].contains(GIVEN_UID) { found[0].to_owned() } else { "<uid>".to_owned() }
}

/// Times of today are the servers' own; samples are older.
fn replace_time(found: &regex::Captures<'_>) -> String {
    let Ok(time) = found[0].parse::<jiff::Timestamp>() else { return found[0].to_owned() };
    let away = jiff::Timestamp::now().duration_since(time).as_secs().unsigned_abs();
    let form = if found.get(1).is_some() { "<time.fraction>" } else { "<time>" };
    if away < 2 * 86_400 { form.to_owned() } else { found[0].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_own_values_go() {
        let mut answer = json!({
            "metadata": {"name": "a-x7k2p", "generateName": "a-", "uid": uuid(), "resourceVersion": "12",
                "creationTimestamp": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
            "spec": {"clusterIP": "10.97.3.4", "clusterIPs": ["10.97.3.4"], "ports": [{"nodePort": 31000, "port": 80}]},
            "old": "2020-01-02T03:04:05Z",
        });
        value(&mut answer, "{}");
        let expected = json!({
            "metadata": {"name": "a-<generated>", "generateName": "a-", "uid": "<uid>", "resourceVersion": "<version>",
                "creationTimestamp": "<time>"},
            "spec": {"clusterIP": "<allocated>", "clusterIPs": "<allocated>",
                "ports": [{"nodePort": "<allocated>", "port": 80}]},
            "old": "2020-01-02T03:04:05Z",
        });
        assert_eq!(answer, expected);
    }

    fn uuid() -> &'static str {
        "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
    }

    #[test]
    fn the_clients_values_stay() {
        let mut answer =
            json!({"clusterIP": "10.97.3.4", "nodePort": 31000, "uid": "6d4c8a1e-0000-4000-8000-000000000001"});
        let before = answer.clone();
        value(&mut answer, r#"{"clusterIP":"10.97.3.4","nodePort":31000}"#);
        assert_eq!(answer, before);
    }

    #[test]
    fn failures_lose_names_of_the_servers_making() {
        let mut answer =
            json!({"kind": "Status", "message": "Pod \"a-x7k2p\" is invalid", "details": {"name": "a-x7k2p"}});
        generated(&mut answer, r#"{"metadata":{"generateName":"a-"}}"#);
        let expected = json!({"kind": "Status", "message": "Pod \"a-<generated>\" is invalid", "details": {"name": "a-<generated>"}});
        assert_eq!(answer, expected);
    }

    #[test]
    fn texts_lose_uids_and_versions() {
        let given = format!("UID in object meta: {}, ResourceVersion: 77", uuid());
        assert_eq!(text(&given), "UID in object meta: <uid>, ResourceVersion: <version>");
    }

    #[test]
    fn shown_structs_are_put_in_one_form_and_plain_lists_stay() {
        let upstream =
            r#"a: Invalid value: {"Name":"c","Ports":null,"Env":[{"Name":"e","Value":""}]}: no, b: Required value"#;
        let ours = r#"a: Invalid value: {"env":[{"name":"e"}],"name":"c"}: no, b: Required value"#;
        assert_eq!(text(upstream), text(ours));
        assert_ne!(text(upstream), text(&ours.replace('e', "f")));
        for kept in [
            r#"scopes: Invalid value: ["A","B"]: unsupported, x: Invalid value: {"a":"b"}: must not"#,
            "a: Invalid value: [nonsense without an end",
        ] {
            assert_eq!(text(kept), kept);
        }
    }

    #[test]
    fn json_in_texts_is_compared_as_json() {
        let upstream = r#"patch: Invalid value: "{\"kind\":\"A\",\"apiVersion\":\"v1\"}": no"#;
        let ours = r#"patch: Invalid value: "{\"apiVersion\":\"v1\",\"kind\":\"A\"}": no"#;
        assert_eq!(text(upstream), text(ours));
        assert_ne!(text(upstream), text(&ours.replace("v1", "v2")));
        let plain = r#"x: Invalid value: "{a} is no JSON": no"#;
        assert_eq!(text(plain), plain);
    }

    #[test]
    fn managers_are_in_one_order() {
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation});
        let mut answer = json!({"managedFields": [entry("b", "Update"), entry("a", "Update"), entry("c", "Apply")]});
        value(&mut answer, "");
        assert_eq!(answer["managedFields"], json!([entry("c", "Apply"), entry("a", "Update"), entry("b", "Update")]));
    }

    #[test]
    fn ages_in_tables_go() {
        let table = |age: &str, requested: &str| {
            let mut table = json!({"columnDefinitions": [{"name": "Name"}, {"name": "Age"}, {"name": "RequestedDuration"}],
                "rows": [{"cells": ["5s", age, requested]}]});
            value(&mut table, "");
            table
        };
        assert_eq!(table("4s", "10m"), table("3s", "10m"));
        assert_ne!(table("4s", "10m"), table("4s", "20m"));
        assert_ne!(table("4s", "10m"), table("3d", "10m"));
    }

    #[test]
    fn comparisons_of_structs_go_and_what_follows_stays() {
        let given =
            "spec: Forbidden: may not change\n@@ -1,2 +1,2 @@\n {\n- \"A\": 1,\n+ \"A\": 2,\n }\n, b: Required value";
        assert_eq!(text(given), "spec: Forbidden: may not change, b: Required value");
    }
}
