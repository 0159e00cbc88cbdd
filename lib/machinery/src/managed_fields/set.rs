//! Sets of fields: the FieldsV1 form and its algebra.

use crate::{Value, schema::Object};
use std::collections::BTreeMap;

/// A set of field paths as a tree. Keys are path elements in their encoded form: `f:name`, `k:{…}`, `v:…`, `i:…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<String, Node>,
}

/// One path element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The path up to here is in the set.
    pub member: bool,
    /// Paths below.
    pub children: FieldSet,
}

impl FieldSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// From the FieldsV1 form.
    pub fn decode(fields: &Value) -> Self {
        let mut set = Self::new();
        for (element, below) in fields.as_object().into_iter().flatten().filter(|(element, _)| *element != ".") {
            let children = Self::decode(below);
            let member = children.is_empty() || below.get(".").is_some();
            set.nodes.insert(element.clone(), Node { member, children });
        }
        set
    }

    /// The FieldsV1 form.
    pub fn encode(&self) -> Value {
        let encode = |node: &Node| {
            let mut below = node.children.encode();
            if let (true, false, Value::Object(map)) = (node.member, node.children.is_empty(), &mut below) {
                map.insert(".".into(), Value::Object(Object::new()));
            }
            below
        };
        Value::Object(self.nodes.iter().map(|(element, node)| (element.clone(), encode(node))).collect())
    }

    /// From paths of field names, such as `metadata.uid`.
    pub fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let elements: Vec<String> = path.split('.').map(field_element).collect();
            set.insert(&elements);
        }
        set
    }

    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What is below a path element.
    pub fn get(&self, element: &str) -> Option<&Node> {
        self.nodes.get(element)
    }

    /// The path elements at the top.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(element, node)| (element.as_str(), node))
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[String]) {
        if let Some((first, rest)) = path.split_first() {
            let node = self.nodes.entry(first.clone()).or_default();
            match rest {
                [] => node.member = true,
                rest => node.children.insert(rest),
            }
        }
    }

    /// A node of the tree, made if it isn't there; [`FieldSet::tidy`] drops it again if it stays empty.
    pub(super) fn node(&mut self, element: String) -> &mut Node {
        self.nodes.entry(element).or_default()
    }

    /// Puts paths below an element, if there are any.
    pub(super) fn put(&mut self, element: &str, children: Self) {
        if !children.is_empty() {
            self.node(element.to_owned()).children = children;
        }
    }

    /// Drops nodes that hold nothing.
    pub(super) fn tidy(mut self) -> Self {
        self.tidied();
        self
    }

    fn tidied(&mut self) {
        self.nodes.retain(|_, node| {
            node.children.tidied();
            node.member || !node.children.is_empty()
        });
    }

    /// Paths of both.
    pub fn union(mut self, other: Self) -> Self {
        self.absorb(other);
        self
    }

    fn absorb(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (element, node) in other.nodes {
            let mine = self.nodes.entry(element).or_default();
            mine.member |= node.member;
            mine.children.absorb(node.children);
        }
    }

    /// Takes out the paths of the other.
    pub(super) fn subtract(&mut self, other: &Self) {
        for (element, theirs) in &other.nodes {
            if let Some(mine) = self.nodes.get_mut(element) {
                mine.member &= !theirs.member;
                mine.children.subtract(&theirs.children);
                if !mine.member && mine.children.is_empty() {
                    self.nodes.remove(element);
                }
            }
        }
    }

    /// Paths of this that the other hasn't.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && !theirs)
    }

    /// Paths that both have.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs)
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let empty = Node::default();
        let combined = self.nodes.iter().filter_map(|(element, node)| {
            let theirs = other.nodes.get(element).unwrap_or(&empty);
            let node = Node {
                member: keep(node.member, theirs.member),
                children: node.children.combine(&theirs.children, keep),
            };
            (node.member || !node.children.is_empty()).then(|| (element.clone(), node))
        });
        Self { nodes: combined.collect() }
    }

    /// Without the paths of the other and all below them.
    pub fn without(mut self, other: &Self) -> Self {
        self.discard(other);
        self
    }

    fn discard(&mut self, other: &Self) {
        for (element, theirs) in &other.nodes {
            let Some(mine) = self.nodes.get_mut(element) else { continue };
            mine.children.discard(&theirs.children);
            if theirs.member || (!mine.member && mine.children.is_empty()) {
                self.nodes.remove(element);
            }
        }
    }

    /// With every field of a struct that has paths below as a path itself.
    pub(super) fn with_named_parents(&self) -> Self {
        let nodes = self.nodes.iter().map(|(element, node)| {
            let member = node.member || element.starts_with("f:");
            (element.clone(), Node { member, children: node.children.with_named_parents() })
        });
        Self { nodes: nodes.collect() }
    }

    /// All paths, as messages show them: `.spec.containers[name="a"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        // Members of one level come before what is below any of them.
        let path = |element: &String| format!("{prefix}{}", shown(element));
        out.extend(self.nodes.iter().filter(|(_, node)| node.member).map(|(element, _)| path(element)));
        for (element, node) in &self.nodes {
            node.children.collect(&path(element), out);
        }
    }
}

/// The path element of a field or of a map's key.
pub(super) fn field_element(name: &str) -> String {
    ["f:", name].concat()
}

/// A path element as messages show it.
fn shown(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        Some(("k:", key)) => {
            let fields: Option<Object> = serde_json::from_str(key).ok();
            let fields = fields.into_iter().flatten().map(|(name, value)| format!("{name}={value}"));
            format!("[{}]", fields.collect::<Vec<_>>().join(","))
        }
        _ => element.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn encoding_round_trips() {
        let fields =
            json!({"f:spec": {"f:a": {".": {}, "f:b": {}}, "f:l": {"k:{\"name\":\"x\"}": {".": {}, "f:i": {}}}}});
        let set = FieldSet::decode(&fields);
        assert_eq!(set.encode(), fields);
        assert_eq!(set.paths(), [".spec.a", ".spec.a.b", ".spec.l[name=\"x\"]", ".spec.l[name=\"x\"].i"]);
    }

    #[test]
    fn algebra() {
        let a = FieldSet::of_fields(&["a", "a.b", "c.d"]);
        let b = FieldSet::of_fields(&["a.b", "c.d", "e"]);
        assert_eq!(a.clone().union(b.clone()).paths(), [".a", ".e", ".a.b", ".c.d"]);
        assert_eq!(a.difference(&b).paths(), [".a"]);
        assert_eq!(a.intersection(&b).paths(), [".a.b", ".c.d"]);
        let mut less = a.clone();
        less.subtract(&b);
        assert_eq!(less, a.difference(&b));
        assert_eq!(b.without(&FieldSet::of_fields(&["a", "c"])).paths(), [".e"]);
    }
}
