//! The selectors of an access review: what they come to, and what of them is not understood.

use pintle_machinery::selector::{field, label};
use serde_json::Value;

use crate::auth::{text, texts};

/// The selectors of a question about a resource.
#[derive(Debug, Default)]
pub struct Selectors {
    /// The field selector's terms that are equalities.
    pub field: String,
    /// What is ignored.
    pub error: Option<String>,
}

/// Reads both selectors of `resourceAttributes`.
pub fn read(resource: &Value) -> Selectors {
    let (fields, labels) = (&resource["fieldSelector"], &resource["labelSelector"]);
    let raw = text(fields, &["rawSelector"]);
    let field = if raw.is_empty() { equalities(&fields["requirements"]) } else { raw.to_owned() };
    let is_term =
        |item: &Value| matches!(text(item, &["operator"]), "In" | "NotIn") && texts(&item["values"]).len() == 1;
    let is_requirement = |item: &Value| matches!(text(item, &["operator"]), "In" | "NotIn" | "Exists" | "DoesNotExist");
    let errors: Vec<String> = [
        ("fieldSelector", ignored(fields, |raw| field::Selector::parse(raw).is_ok(), is_term)),
        ("labelSelector", ignored(labels, |raw| label::Selector::parse(raw).is_ok(), is_requirement)),
    ]
    .into_iter()
    .filter_map(|(name, how)| Some(format!("spec.resourceAttributes.{name} {} due to parse error", how?)))
    .collect();
    Selectors { field, error: Some(errors.join("; ")).filter(|text| !text.is_empty()) }
}

/// How much of a selector is ignored.
fn ignored(selector: &Value, parses: fn(&str) -> bool, is_known: fn(&Value) -> bool) -> Option<&'static str> {
    let raw = text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        return (!parses(raw)).then_some("ignored");
    }
    let requirements = selector["requirements"].as_array()?;
    match requirements.iter().filter(|item| is_known(item)).count() {
        known if known == requirements.len() => None,
        0 => Some("ignored"),
        _ => Some("partially ignored"),
    }
}

/// The field selector that requirements stand for, as far as they are equalities.
fn equalities(requirements: &Value) -> String {
    let items = requirements.as_array().into_iter().flatten();
    let terms = items.filter(|item| text(item, &["operator"]) == "In").filter_map(|item| {
        let values = texts(&item["values"]);
        let [value] = values.as_slice() else { return None };
        Some(format!("{}={value}", text(item, &["key"])))
    });
    terms.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_understood_is_told() {
        let term = |operator: &str, values: &[&str]| json!({"key": "k", "operator": operator, "values": values});
        let many = |selector: &str, list: &[Value]| json!({selector: {"requirements": list}});
        for (resource, field, error) in [
            (many("fieldSelector", &[term("In", &["a"])]), "k=a", None),
            (many("fieldSelector", &[term("In", &["a", "b"])]), "", Some("fieldSelector ignored")),
            (
                many("fieldSelector", &[term("Gt", &[]), term("In", &["a"])]),
                "k=a",
                Some("fieldSelector partially ignored"),
            ),
            (many("labelSelector", &[term("Exists", &[])]), "", None),
            (many("labelSelector", &[term("Gt", &["1"])]), "", Some("labelSelector ignored")),
            (json!({"labelSelector": {"rawSelector": "a b"}}), "", Some("labelSelector ignored")),
            (json!({"fieldSelector": {"rawSelector": "a=b"}}), "a=b", None),
        ] {
            let found = read(&resource);
            let error = error.map(|text| format!("spec.resourceAttributes.{text} due to parse error"));
            assert_eq!((found.field.as_str(), found.error), (field, error), "{resource}");
        }
    }
}
