//! The names of a definition: what it asks for, and whether they are free in its group.

use serde_json::{Map, Value, json};

/// The condition that tells whether the names were accepted: status, reason, message.
pub type Verdict = (bool, &'static str, String);

/// The names of a definition that nobody else in the group holds, and the verdict on all of them. What it can't have stays
/// as `held` has it.
pub fn accept(wanted: &Value, held: &Value, others: &[&Value]) -> (Value, Verdict) {
    let taken = |name: &str, fields: &[&str]| {
        others.iter().any(|other| {
            fields.iter().any(|field| match &other[*field] {
                Value::Array(list) => list.iter().any(|item| item == name),
                Value::String(text) => text == name,
                _ => false,
            })
        })
    };
    const RESOURCES: [&str; 3] = ["plural", "singular", "shortNames"];
    const KINDS: [&str; 2] = ["kind", "listKind"];
    let mut accepted = held.as_object().cloned().unwrap_or_default();
    let mut verdict = (true, "NoConflicts", "no conflicts found".to_owned());
    for (field, among, reason) in [
        ("plural", &RESOURCES[..], "PluralConflict"),
        ("singular", &RESOURCES[..], "SingularConflict"),
        ("shortNames", &RESOURCES[..], "ShortNamesConflict"),
        ("kind", &KINDS[..], "KindConflict"),
        ("listKind", &KINDS[..], "ListKindConflict"),
    ] {
        let names: Vec<&str> = match &wanted[field] {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            Value::String(text) => vec![text],
            _ => Vec::new(),
        };
        let conflicts: Vec<String> = names
            .into_iter()
            .filter(|name| !name.is_empty() && taken(name, among))
            .map(|name| format!("\"{name}\" is already in use"))
            .collect();
        match conflicts.as_slice() {
            [] => set(&mut accepted, field, &wanted[field]),
            [one] => verdict = (false, reason, one.clone()),
            several => verdict = (false, reason, format!("[{}]", several.join(", "))),
        }
    }
    set(&mut accepted, "categories", &wanted["categories"]);
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert(json!(""));
    }
    (Value::Object(accepted), verdict)
}

fn set(names: &mut Map<String, Value>, field: &str, value: &Value) {
    match value.is_null() {
        true => drop(names.remove(field)),
        false => drop(names.insert(field.to_owned(), value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_others_hold_are_refused() {
        let wanted = json!({"plural": "others", "singular": "test", "kind": "Test", "listKind": "TestList", "shortNames": ["o"]});
        let (accepted, verdict) = accept(&wanted, &json!({"plural": "", "kind": ""}), &[]);
        assert_eq!((accepted, verdict), (wanted.clone(), (true, "NoConflicts", "no conflicts found".into())));
        let other = json!({"plural": "tests", "singular": "test", "kind": "Test", "listKind": "TestList"});
        let (accepted, verdict) = accept(&wanted, &json!({"plural": "", "kind": ""}), &[&other]);
        assert_eq!(accepted, json!({"plural": "others", "kind": "", "shortNames": ["o"]}));
        assert_eq!(verdict, (false, "ListKindConflict", "\"TestList\" is already in use".into()));
        let same_as_plural = json!({"plural": "o", "kind": "O"});
        assert_eq!(accept(&wanted, &json!({}), &[&same_as_plural]).1.1, "ShortNamesConflict");
    }
}
