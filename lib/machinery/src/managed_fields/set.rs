//! Sets of fields: the FieldsV1 form and its algebra.
//!
//! A set that was read stays the text that it is, level by level, until something below is asked for or changes: most writes
//! touch a few fields of an object that has hundreds.

use std::borrow::Cow;

use super::text;
use crate::{Value, codec::json, schema::Object};

/// A set of field paths as a tree. Path elements are in their encoded form: `f:name`, `k:{…}`, `v:…`, `i:…`.
#[derive(Debug, Clone)]
pub struct FieldSet(Form);

#[derive(Debug, Clone)]
enum Form {
    /// The inside of a FieldsV1 object that is not empty, without its `.`.
    Text(Box<str>),
    /// Ordered by path element.
    Nodes(Vec<Entry>),
}

/// A path element and what is at it.
type Entry = (Box<str>, Node);

/// One path element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The path up to here is in the set.
    pub member: bool,
    /// Paths below.
    pub children: FieldSet,
}

impl Default for FieldSet {
    fn default() -> Self {
        Self(Form::Nodes(Vec::new()))
    }
}

impl PartialEq for FieldSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Text(mine), Form::Text(theirs)) if mine == theirs => true,
            _ => self.nodes() == other.nodes(),
        }
    }
}

impl Eq for FieldSet {}

impl FieldSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// From the FieldsV1 form: its JSON, or its JSON's text.
    pub fn decode(fields: &Value) -> Self {
        match fields {
            Value::String(text) => Self::read(text).1,
            fields => Self::read(&fields.to_string()).1,
        }
    }

    /// From the text of a FieldsV1 object; whether that has a `.`, or else nothing.
    fn read(text: &str) -> (bool, Self) {
        let Some(inside) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
            return (true, Self::new());
        };
        match text::dot(inside) {
            text::Dot::Absent if inside.is_empty() => (true, Self::new()),
            text::Dot::Absent => (false, Self(Form::Text(inside.into()))),
            text::Dot::First("") => (true, Self::new()),
            text::Dot::First(rest) => (true, Self(Form::Text(rest.into()))),
            text::Dot::Perhaps => {
                let mut entries = Self::parse(inside);
                let all = entries.len();
                entries.retain(|(element, _)| **element != *".");
                (entries.is_empty() || entries.len() < all, Self(Form::Nodes(entries)))
            }
        }
    }

    /// The entries of one level.
    fn parse(inside: &str) -> Vec<Entry> {
        let node = |text: &str| {
            let (member, children) = Self::read(text);
            Node { member: member || children.is_empty(), children }
        };
        let mut entries: Vec<Entry> =
            text::entries(inside).map(|(element, below)| (element.into_owned().into(), node(below))).collect();
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            // Of an element that is there twice the last one counts.
            entries.reverse();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            entries.dedup_by(|(one, _), (other, _)| one == other);
        }
        entries
    }

    /// The FieldsV1 form: the text of its JSON.
    pub fn encode(&self) -> Value {
        let mut out = Vec::with_capacity(256);
        self.write(false, &mut out);
        Value::String(String::from_utf8(out).unwrap_or_default())
    }

    fn write(&self, member: bool, out: &mut Vec<u8>) {
        let nothing = self.is_empty();
        out.extend_from_slice(if member && !nothing { b"{\".\":{}," } else { b"{" });
        match &self.0 {
            Form::Text(inside) => out.extend_from_slice(inside.as_bytes()),
            Form::Nodes(nodes) => {
                for (at, (element, node)) in nodes.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    json::write_string(element, out);
                    out.push(b':');
                    node.children.write(node.member, out);
                }
            }
        }
        out.push(b'}');
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
        matches!(&self.0, Form::Nodes(nodes) if nodes.is_empty())
    }

    fn nodes(&self) -> Cow<'_, [Entry]> {
        match &self.0 {
            Form::Text(inside) => Cow::Owned(Self::parse(inside)),
            Form::Nodes(nodes) => Cow::Borrowed(nodes),
        }
    }

    fn nodes_mut(&mut self) -> &mut Vec<Entry> {
        if let Form::Text(inside) = &self.0 {
            self.0 = Form::Nodes(Self::parse(inside));
        }
        match &mut self.0 {
            Form::Nodes(nodes) => nodes,
            Form::Text(_) => unreachable!("it was parsed just now"),
        }
    }

    fn into_nodes(mut self) -> Vec<Entry> {
        std::mem::take(self.nodes_mut())
    }

    /// A copy with this level and all below read, for those that look at much of it.
    pub(super) fn whole(&self) -> Self {
        let nodes = self.nodes();
        let nodes = nodes.iter().map(|(element, node)| {
            let children = node.children.whole();
            (element.clone(), Node { member: node.member, children })
        });
        Self(Form::Nodes(nodes.collect()))
    }

    /// What is below a path element, in a set that was made or read [`whole`](Self::whole).
    pub fn get(&self, element: &str) -> Option<&Node> {
        let Form::Nodes(nodes) = &self.0 else { return None };
        place(nodes, element).ok().map(|at| &nodes[at].1)
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[String]) {
        if let Some((first, rest)) = path.split_first() {
            let node = self.node(first.clone());
            match rest {
                [] => node.member = true,
                rest => node.children.insert(rest),
            }
        }
    }

    /// A node of the tree, made if it isn't there; [`FieldSet::tidy`] drops it again if it stays empty.
    pub(super) fn node(&mut self, element: impl Into<Box<str>>) -> &mut Node {
        let (nodes, element) = (self.nodes_mut(), element.into());
        // What is added is mostly in order.
        let at = match nodes.last() {
            Some((last, _)) if **last < *element => Err(nodes.len()),
            _ => place(nodes, &element),
        };
        let at = at.unwrap_or_else(|at| {
            nodes.insert(at, (element, Node::default()));
            at
        });
        &mut nodes[at].1
    }

    /// Puts paths below an element, if there are any.
    pub(super) fn put(&mut self, element: &str, children: Self) {
        if !children.is_empty() {
            self.node(element).children = children;
        }
    }

    /// Drops nodes that hold nothing.
    pub(super) fn tidy(mut self) -> Self {
        self.tidied();
        self
    }

    fn tidied(&mut self) {
        // Text has no such nodes.
        if let Form::Nodes(nodes) = &mut self.0 {
            nodes.retain_mut(|(_, node)| {
                node.children.tidied();
                node.member || !node.children.is_empty()
            });
        }
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
        for (element, node) in other.into_nodes() {
            let mine = self.node(element);
            mine.member |= node.member;
            mine.children.absorb(node.children);
        }
    }

    /// Takes out the paths of the other.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.reduce(other, |mine, theirs| {
            mine.member &= !theirs.member;
            mine.children.subtract(&theirs.children);
            mine.member || !mine.children.is_empty()
        });
    }

    /// Changes each node that both have; false: it goes.
    fn reduce(&mut self, other: &Self, change: impl Fn(&mut Node, &Node) -> bool) {
        if self.is_empty() {
            return;
        }
        for (element, theirs) in &*other.nodes() {
            let nodes = self.nodes_mut();
            if let Ok(at) = place(nodes, element)
                && !change(&mut nodes[at].1, theirs)
            {
                nodes.remove(at);
            }
        }
    }

    /// Paths of this that the other hasn't.
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Paths that both have.
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return Self::new();
        }
        let (nodes, theirs) = (self.nodes(), other.nodes());
        let shared = nodes.iter().filter_map(|(element, node)| {
            let (_, theirs) = &theirs[place(&theirs, element).ok()?];
            let node =
                Node { member: node.member && theirs.member, children: node.children.intersection(&theirs.children) };
            (node.member || !node.children.is_empty()).then(|| (element.clone(), node))
        });
        Self(Form::Nodes(shared.collect()))
    }

    /// Without the paths of the other and all below them.
    pub fn without(mut self, other: &Self) -> Self {
        self.discard(other);
        self
    }

    fn discard(&mut self, other: &Self) {
        self.reduce(other, |mine, theirs| {
            mine.children.discard(&theirs.children);
            !theirs.member && (mine.member || !mine.children.is_empty())
        });
    }

    /// With every field of a struct that has paths below as a path itself.
    pub(super) fn with_named_parents(&self) -> Self {
        let nodes = self.nodes();
        let nodes = nodes.iter().map(|(element, node)| {
            let member = node.member || element.starts_with("f:");
            (element.clone(), Node { member, children: node.children.with_named_parents() })
        });
        Self(Form::Nodes(nodes.collect()))
    }

    /// All paths, as messages show them: `.spec.containers[name="a"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        let nodes = self.nodes();
        // Members of one level come before what is below any of them.
        let path = |element: &str| format!("{prefix}{}", shown(element));
        out.extend(nodes.iter().filter(|(_, node)| node.member).map(|(element, _)| path(element)));
        for (element, node) in &*nodes {
            node.children.collect(&path(element), out);
        }
    }
}

/// Where an element is, or belongs.
fn place(nodes: &[Entry], element: &str) -> Result<usize, usize> {
    nodes.binary_search_by(|(other, _)| (**other).cmp(element))
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
        assert_eq!(set.encode(), json!(fields.to_string()));
        assert_eq!(set.whole().encode(), set.encode());
        assert_eq!(set.paths(), [".spec.a", ".spec.a.b", ".spec.l[name=\"x\"]", ".spec.l[name=\"x\"].i"]);
    }

    #[test]
    fn what_is_read_stays_text_where_nothing_changes() {
        let text = r#"{"f:a":{".":{},"f:b":{},"k:{\"x\":\"},{\"}":{"f:d":{}}},"f:c":{"f:d":{}}}"#;
        let mut set = FieldSet::decode(&json!(text));
        assert_eq!(set.encode(), json!(text));
        set.subtract(&FieldSet::of_fields(&["a.x", "c"]));
        assert_eq!(set.encode(), json!(text));
        assert!(matches!(&set.0, Form::Nodes(nodes) if matches!(nodes[1].1.children.0, Form::Text(_))));
        set.subtract(&FieldSet::of_fields(&["a", "c.d"]));
        let less = r#"{"f:a":{"f:b":{},"k:{\"x\":\"},{\"}":{"f:d":{}}}}"#;
        assert_eq!((set.encode(), set.whole()), (json!(less), set.clone()));
        let more = set.union(FieldSet::of_fields(&["a", "a.b.c"]));
        let text = r#"{"f:a":{".":{},"f:b":{".":{},"f:c":{}},"k:{\"x\":\"},{\"}":{"f:d":{}}}}"#;
        assert_eq!(more.encode(), json!(text));
    }

    #[test]
    fn odd_texts_are_read_as_json_is() {
        for (text, paths) in [
            (r#"{"f:b":{},"f:a":{"f:x":{},".":{}}}"#, vec![".a", ".b", ".a.x"]),
            (r#"{"f:a":{"f:x":{}},"f:a":{}}"#, vec![".a"]),
            (r#"{"f:a":3,"f:b":"x"}"#, vec![".a", ".b"]),
            (r#"{".":{}}"#, vec![]),
            ("{}", vec![]),
            ("7", vec![]),
            (r#"{"f:a":{".":{"f:z":{}},"f:b":{}}}"#, vec![".a", ".a.b"]),
        ] {
            assert_eq!(FieldSet::decode(&json!(text)).paths(), paths, "{text}");
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(FieldSet::decode(&value).paths(), paths, "{text}");
        }
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
