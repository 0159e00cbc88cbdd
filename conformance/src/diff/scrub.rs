//! What differs between any two servers is taken out of answers before they are compared.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(resource ?[vV]ersion[^0-9"]{1,12}|"resourceVersion":"|ResourceVersion: |in record \(|, current: )\d+"#)
});
static PRECONDITION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(ResourceVersion in precondition: \d+, ResourceVersion in object meta: )\d+"));

/// Names that the server makes up without telling the prefix.
static VOLUME: LazyLock<Regex> = LazyLock::new(|| pattern("kube-api-access-[a-z0-9]{5}"));
/// A comparison of upstream's internal structs behind "may not be changed" messages: nobody else has these structs.
static STRUCTS_APART: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)\n@@ -\d.*$"));
/// Objects and lists as messages show them: upstream prints its internal structs with their Go names.
static SHOWN: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)(Invalid value|Duplicate value): [\[{].*[\]}](: |$)"));

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
    if let Some(prefix) = map.get("generateName").and_then(Value::as_str).map(str::to_owned)
        && let Some(Value::String(name)) = map.get_mut("name")
        && name.starts_with(&prefix)
        && name.len() == prefix.len() + 5
    {
        *name = format!("{prefix}<generated>");
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
                    items.sort_by_key(Value::to_string);
                }
            }
            (_, item) => value(item, sent),
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
        text = SHOWN.replace_all(&text, "${1}: <object>${2}").into_owned();
    }
    text
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
    fn texts_lose_uids_and_versions() {
        let given = format!("UID in object meta: {}, ResourceVersion: 77", uuid());
        assert_eq!(text(&given), "UID in object meta: <uid>, ResourceVersion: <version>");
    }
}
