//! Label and node selectors, compiled once per object and matched many times.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
    /// A requirement that can't be understood matches nothing.
    Never,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    key: String,
    test: Test,
}

impl Requirement {
    fn new(key: &str, operator: &str, values: Option<&Vec<String>>) -> Requirement {
        let values = values.cloned().unwrap_or_default();
        let number = || values.first().and_then(|v| v.parse::<i64>().ok());
        let test = match operator {
            "In" => Test::In(values),
            "NotIn" => Test::NotIn(values),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::Absent,
            "Gt" => number().map_or(Test::Never, Test::Greater),
            "Lt" => number().map_or(Test::Never, Test::Less),
            _ => Test::Never,
        };
        Requirement { key: key.to_owned(), test }
    }

    /// The requirement that a label has this value.
    pub fn equals(key: &str, value: &str) -> Requirement {
        Requirement { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }
    }

    fn matches_value(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|n| n > *bound),
            Test::Less(bound) => number().is_some_and(|n| n < *bound),
            Test::Never => false,
        }
    }
}

/// A conjunction of requirements; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    /// All must hold.
    pub requirements: Vec<Requirement>,
}

impl Selector {
    /// Compiles a label selector.
    pub fn new(selector: &LabelSelector) -> Selector {
        let mut out = Selector::equals(selector.match_labels.as_ref());
        for e in selector.match_expressions.iter().flatten() {
            out.requirements.push(Requirement::new(&e.key, &e.operator, e.values.as_ref()));
        }
        out
    }

    /// A selector by exact labels.
    pub fn equals(labels: Option<&Labels>) -> Selector {
        Selector { requirements: labels.into_iter().flatten().map(|(k, v)| Requirement::equals(k, v)).collect() }
    }

    /// Whether these labels satisfy every requirement.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        let value = |key: &str| labels.and_then(|l| l.get(key)).map(String::as_str);
        self.requirements.iter().all(|r| r.matches_value(value(&r.key)))
    }
}

/// One term of a node selector: conditions on labels and on the node's name.
#[derive(Clone, Debug)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Compiles a term; an empty one matches no node, and so gives none.
    pub fn new(term: &NodeSelectorTerm) -> Option<NodeTerm> {
        let compile = |list: &Option<Vec<NodeSelectorRequirement>>| -> Vec<Requirement> {
            list.iter().flatten().map(|r| Requirement::new(&r.key, &r.operator, r.values.as_ref())).collect()
        };
        let out = NodeTerm { labels: compile(&term.match_expressions), fields: compile(&term.match_fields) };
        (!out.labels.is_empty() || !out.fields.is_empty()).then_some(out)
    }

    /// Whether a node satisfies the term.
    pub fn matches(&self, name: &str, labels: Option<&Labels>) -> bool {
        let value = |key: &str| labels.and_then(|l| l.get(key)).map(String::as_str);
        self.labels.iter().all(|r| r.matches_value(value(&r.key)))
            && self.fields.iter().all(|r| r.key == "metadata.name" && r.matches_value(Some(name)))
    }

    /// The names of the only nodes that can match, where the term says so.
    pub fn names(&self) -> Option<Vec<String>> {
        self.fields.iter().find_map(|r| match &r.test {
            Test::In(values) if r.key == "metadata.name" => Some(values.clone()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators() {
        let labels: Labels = [("a".to_owned(), "5".to_owned())].into();
        for (key, op, values, want) in [
            ("a", "In", vec!["5", "6"], true),
            ("a", "In", vec!["6"], false),
            ("b", "NotIn", vec!["6"], true),
            ("a", "NotIn", vec!["5"], false),
            ("a", "Exists", vec![], true),
            ("b", "Exists", vec![], false),
            ("b", "DoesNotExist", vec![], true),
            ("a", "Gt", vec!["4"], true),
            ("a", "Gt", vec!["5"], false),
            ("a", "Lt", vec!["6"], true),
            ("b", "Lt", vec!["6"], false),
            ("a", "Gt", vec!["x"], false),
            ("a", "Odd", vec![], false),
        ] {
            let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
            let selector = Selector { requirements: vec![Requirement::new(key, op, Some(&values))] };
            assert_eq!(selector.matches(Some(&labels)), want, "{key} {op} {values:?}");
        }
    }

    #[test]
    fn empty_node_term_matches_nothing() {
        assert!(NodeTerm::new(&NodeSelectorTerm::default()).is_none());
    }
}
