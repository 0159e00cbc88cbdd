//! What an object has, what changed between two, merging one into another, taking fields out.

use super::{
    set::{FieldSet, Node, field_element},
    typed::{Parts, Shape},
};
use crate::{Value, schema::Object};
use std::collections::BTreeMap;

/// The fields that an object gives.
pub(super) fn field_set(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    fill(shape, value, &mut set);
    set.tidy()
}

fn fill(shape: Shape<'_>, value: &Value, set: &mut FieldSet) {
    let named = matches!(shape.parts(), Parts::Struct(_));
    for (element, value, shape) in shape.children(value) {
        let divides = shape.divides(value);
        // A list of items that are owned one by one is owned by nobody while it has none.
        if named && !divides && shape.lists(value) {
            continue;
        }
        let node = set.node(element);
        node.member |= !named || !divides;
        if divides {
            fill(shape, value, &mut node.children);
        }
    }
}

/// What became of the fields of an object.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn tidy(self) -> Self {
        Self { added: self.added.tidy(), modified: self.modified.tidy(), removed: self.removed.tidy() }
    }

    /// Leaves out fields and all below them.
    pub fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.without(ignored),
            modified: self.modified.without(ignored),
            removed: self.removed.without(ignored),
        }
    }
}

/// Compares two objects of one shape.
pub(super) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::default();
    walk(shape, old, new, &mut changes);
    changes.tidy()
}

fn walk(shape: Shape<'_>, old: &Value, new: &Value, changes: &mut Changes) {
    let parts = shape.parts();
    match (&parts, old, new) {
        // Most of an object stays as it is: names become path elements only where something differs.
        (Parts::Struct(_) | Parts::Map(_), Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                let before = old.get(name);
                if before == Some(value) {
                    continue;
                }
                let Some(shape) = shape.named(&parts, name) else { continue };
                differs(shape, field_element(name), before, Some(value), changes);
            }
            for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                let Some(shape) = shape.named(&parts, name) else { continue };
                differs(shape, field_element(name), Some(value), None, changes);
            }
        }
        _ => {
            let (before, after) = (by_element(shape, old), by_element(shape, new));
            for (element, (values, shape)) in &after {
                let old = before.get(element).map_or(&[][..], |(old, _)| old);
                item_differs(*shape, element, old, values, changes);
            }
            for (element, (values, shape)) in before.iter().filter(|(element, _)| !after.contains_key(*element)) {
                item_differs(*shape, element, values, &[], changes);
            }
        }
    }
}

/// The items of a list by their path element, which several may have.
fn by_element<'a, 'v>(shape: Shape<'a>, list: &'v Value) -> BTreeMap<String, (Vec<&'v Value>, Shape<'a>)> {
    let mut items: BTreeMap<String, (Vec<&Value>, Shape<'_>)> = BTreeMap::new();
    for (element, value, shape) in shape.children(list) {
        items.entry(element).or_insert_with(|| (Vec::new(), shape)).0.push(value);
    }
    items
}

/// Notes what became of the items that share a path element.
fn item_differs(shape: Shape<'_>, element: &str, old: &[&Value], new: &[&Value], changes: &mut Changes) {
    match (old, new) {
        (old, new) if old == new => {}
        ([] | [_], [] | [_]) => {
            differs(shape, element.to_owned(), old.first().copied(), new.first().copied(), changes);
        }
        _ => {
            whole(shape, old, changes.removed.node(element.to_owned()));
            whole(shape, new, changes.added.node(element.to_owned()));
        }
    }
}

/// Every path of an item; several that share a path element are one.
fn whole(shape: Shape<'_>, items: &[&Value], node: &mut Node) {
    node.member |= !items.is_empty();
    if let [item] = items {
        all_below(shape, item, &mut node.children);
    }
}

/// Notes a part that only one of the objects has, or that differs.
fn differs(shape: Shape<'_>, element: String, old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) {
    match (old, new) {
        (Some(old), Some(new)) if shape.divides(old) || shape.divides(new) => {
            let mut below = Changes::default();
            walk(shape, old, new, &mut below);
            changes.added.put(&element, below.added);
            changes.modified.put(&element, below.modified);
            changes.removed.put(&element, below.removed);
        }
        (Some(_), Some(_)) => changes.modified.node(element).member = true,
        (None, Some(new)) => whole(shape, &[new], changes.added.node(element)),
        (Some(old), None) => whole(shape, &[old], changes.removed.node(element)),
        (None, None) => {}
    }
}

/// Every path below a value, those of structs and lists too.
fn all_below(shape: Shape<'_>, value: &Value, set: &mut FieldSet) {
    let children = shape.children(value);
    let mut elements: Vec<&str> = children.iter().map(|(element, ..)| element.as_str()).collect();
    elements.sort_unstable();
    if elements.is_sorted_by(|one, other| one < other) {
        for (element, value, shape) in children {
            whole(shape, &[value], set.node(element));
        }
        return;
    }
    for (element, (values, shape)) in by_element(shape, value) {
        whole(shape, &values, set.node(element));
    }
}

/// The live object with an applied configuration merged in.
pub(super) fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    match (shape.parts(), live, config) {
        (Parts::Struct(_) | Parts::Map(_), Value::Object(live), Value::Object(config)) => {
            let parts = shape.parts();
            let of_both = |key: &String, live: &Value| match (config.get(key), shape.named(&parts, key)) {
                (None, _) => live.clone(),
                (Some(value), Some(shape)) => merge(shape, live, value),
                (Some(value), None) => value.clone(),
            };
            let mut out: Object = live.iter().map(|(key, value)| (key.clone(), of_both(key, value))).collect();
            for (key, value) in config.iter().filter(|(key, _)| !live.contains_key(*key)) {
                out.insert(key.clone(), value.clone());
            }
            Value::Object(out)
        }
        (Parts::Set | Parts::List(..), Value::Array(_), Value::Array(_)) => merge_lists(shape, live, config),
        _ => config.clone(),
    }
}

/// Shared items in the configuration's order; items that only one side has stay before those they stood before,
/// the live ones first.
fn merge_lists(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    let (live, config) = (shape.children(live), shape.children(config));
    let mut out = Vec::new();
    let mut at = 0;
    let shared = |element: &str| config.iter().any(|(other, ..)| other == element);
    for (element, value, shape) in &config {
        while let Some((_, own, _)) = live.get(at).filter(|(other, ..)| !shared(other)) {
            out.push((*own).clone());
            at += 1;
        }
        match live.iter().position(|(other, ..)| other == element) {
            None => out.push((*value).clone()),
            Some(place) => {
                out.push(merge(*shape, live[place].1, value));
                if place == at {
                    at += 1;
                }
            }
        }
    }
    let rest = live.iter().skip(at).filter(|(element, ..)| !shared(element));
    out.extend(rest.map(|(_, value, _)| (*value).clone()));
    Value::Array(out)
}

/// Takes fields out of an object, except what others own.
pub(super) fn prune(shape: Shape<'_>, value: &Value, gone: &FieldSet, others: &FieldSet) -> Value {
    let parts = shape.parts();
    rebuild(shape, value, |element, child, shape| {
        let Some(node) = gone.get(element) else { return Some(child.clone()) };
        let owned = others.get(element);
        let nothing = FieldSet::new();
        let below = owned.map_or(&nothing, |node| &node.children);
        match (node.member, owned) {
            (true, None) => None,
            (true, Some(node)) if partly(element, node) => None,
            (true, Some(_)) if shape.divides(child) => Some(keep(shape, child, below, &node.children, parts.keys())),
            (true, Some(_)) => Some(child.clone()),
            (false, _) => Some(prune(shape, child, &node.children, below)).filter(|left| !emptied(child, left)),
        }
    })
}

/// Whether it is an item of a list, and owned in parts only: that does not keep it.
fn partly(element: &str, node: &Node) -> bool {
    !node.member && !element.starts_with("f:")
}

/// Keeps of a value what is owned by others, what was not the applier's, and the keys of a list's item.
fn keep(shape: Shape<'_>, value: &Value, owned: &FieldSet, gone: &FieldSet, keys: &[String]) -> Value {
    let nothing = Node::default();
    let parts = shape.parts();
    rebuild(shape, value, |element, child, shape| {
        let lost = gone.get(element);
        let below = &lost.unwrap_or(&nothing).children;
        match owned.get(element) {
            Some(node) if partly(element, node) && lost.is_some_and(|lost| lost.member) => None,
            Some(node) if shape.divides(child) => Some(keep(shape, child, &node.children, below, parts.keys())),
            None if lost.is_some() && !keys.iter().any(|key| element[2..] == **key) => None,
            _ => Some(child.clone()),
        }
    })
}

fn emptied(before: &Value, after: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    empty(after) && !empty(before)
}

/// A value of the parts that are left.
fn rebuild<'a>(
    shape: Shape<'a>,
    value: &Value,
    mut part: impl FnMut(&str, &Value, Shape<'a>) -> Option<Value>,
) -> Value {
    let parts = shape.children(value);
    match value {
        Value::Object(map) => {
            let mut out = map.clone();
            for (element, value, shape) in parts {
                let key = &element[2..];
                match part(&element, value, shape) {
                    Some(left) => drop(out.insert(key.into(), left)),
                    None => drop(out.remove(key)),
                }
            }
            Value::Object(out)
        }
        Value::Array(_) => {
            Value::Array(parts.into_iter().filter_map(|(element, value, shape)| part(&element, value, shape)).collect())
        }
        other => other.clone(),
    }
}
