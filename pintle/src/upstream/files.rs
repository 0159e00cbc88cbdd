//! Upstream's configuration files as values of upstream's flags.

use serde_json::Value;

use super::Values;
use super::table::Component;

/// What a field that nobody set is written as by programs that write whole files, kubeadm for one.
const UNSET: &[&str] = &["", "0", "0s", "[]"];
/// Fields in which nothing is something: pods get no resolver configuration.
const EMPTY: &[&str] = &["resolvConf"];

/// The values of a file's fields, as far as they are set; fields without effect are added to `accepted`.
pub fn values(component: &Component, text: &str, accepted: &mut Vec<String>) -> Result<Values, String> {
    let file: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let word = |name: &str| file[name].as_str().unwrap_or_default();
    if word("kind") != component.file.kind || word("apiVersion") != component.file.version {
        let (kind, version) = (word("kind"), word("apiVersion"));
        return Err(format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let mut leaves = Vec::new();
    flatten("", &file, &mut leaves);
    let mut values = Values::new();
    for (path, value) in leaves {
        if path == "kind" || path == "apiVersion" {
            continue;
        }
        let unset = UNSET.contains(&value.as_str()) && !EMPTY.contains(&path.as_str());
        let within = |prefix: &&&str| path == **prefix || path.starts_with(&format!("{prefix}."));
        match component.file.fields.iter().find(|(field, _)| *field == path) {
            Some(_) if unset => {}
            Some((_, flag)) => _ = values.insert((*flag).to_owned(), value),
            None if component.file.accepted.iter().find(within).is_none() => {
                return Err(format!("strict decoding error: unknown field {path:?}"));
            }
            None if unset => {}
            None => accepted.push(format!("{path}: {value}")),
        }
    }
    Ok(values)
}

/// As the flag writes it.
fn taint(taint: &Value) -> String {
    let word = |name: &str| taint[name].as_str().unwrap_or_default();
    format!("{}={}:{}", word("key"), word("value"), word("effect"))
}

/// Every value that is no object, by its path; a list of words, or of taints, is one value.
fn flatten(path: &str, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, field, leaves);
            }
        }
        Value::Array(items) if items.iter().all(|item| item.is_string()) => {
            let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            leaves.push((path.to_owned(), words.join(",")));
        }
        Value::Array(items) if items.iter().all(|item| item["effect"].is_string()) => {
            let taints: Vec<String> = items.iter().map(taint).collect();
            leaves.push((path.to_owned(), taints.join(",")));
        }
        Value::String(text) => leaves.push((path.to_owned(), text.clone())),
        Value::Null => {}
        other => leaves.push((path.to_owned(), other.to_string())),
    }
}
