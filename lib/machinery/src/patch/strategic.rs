//! Strategic merge patch: a merge patch that knows which lists are merged, by which key, and obeys directives.

use super::{form, go_text, parse, unclassified};
use crate::{
    Value,
    schema::{Field, Object, Schema, StructType, Type},
    status::ApiError,
};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies a patch's body to an object of a type.
pub fn apply(schema: &Schema, ty: &StructType, document: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let Value::Object(patch) = parse(patch)? else {
        return Err(ApiError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            form(&parse(patch)?)
        )));
    };
    let original = document.as_object().cloned().unwrap_or_default();
    merge_map(Shape { schema, ty: Some(ty) }, original, patch).map(Value::Object)
}

/// What is known of the struct at hand; nothing below free-form fields and in maps of scalars.
#[derive(Clone, Copy)]
struct Shape<'a> {
    schema: &'a Schema,
    ty: Option<&'a StructType>,
}

impl<'a> Shape<'a> {
    fn field(self, key: &str) -> Option<&'a Field> {
        self.ty?.field(key)
    }

    /// The shape of a field's value, of a list's items or of a map's entries.
    fn inside(self, field: Option<&'a Field>) -> Self {
        let ty = field.and_then(|field| match &field.ty {
            Type::List(item) | Type::Map(item) | Type::Wrapped(item) => self.schema.resolve(item),
            ty => self.schema.resolve(ty),
        });
        Self { schema: self.schema, ty }
    }
}

fn merge_map(shape: Shape<'_>, mut original: Object, mut patch: Object) -> Result<Object, ApiError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Object::new()),
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    let orders = take_orders(&mut patch);
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut original, list, &value);
            continue;
        }
        let field = shape.field(&key);
        let order = orders.iter().find(|(list, _)| *list == key).map(|(_, order)| order.as_slice());
        match value {
            Value::Null => drop(original.remove(&key)),
            Value::Object(patch) if field.is_some_and(|field| field.patch_strategy.replace) => {
                original.insert(key, Value::Object(patch));
            }
            Value::Object(patch) => {
                let old = match original.remove(&key) {
                    Some(Value::Object(old)) => old,
                    _ => Object::new(),
                };
                let deleted = patch.get(PATCH).and_then(Value::as_str) == Some("delete");
                let map_entries = matches!(field.map(|field| &field.ty), Some(Type::Map(_)));
                let merged = if map_entries {
                    merge_entries(shape.inside(field), old, patch)?
                } else {
                    merge_map(shape.inside(field), old, patch)?
                };
                if !deleted {
                    original.insert(key, Value::Object(merged));
                }
            }
            Value::Array(patch) if field.is_some_and(|field| field.patch_strategy.merge) => {
                let old = take_list(&mut original, &key);
                let merged = merge_list(shape.inside(field), field, old, patch, order)?;
                original.insert(key, Value::Array(merged));
            }
            value => drop(original.insert(key, value)),
        }
    }
    for (list, order) in &orders {
        let Some(field) = shape.field(list) else { continue };
        // A list that the patch names as well has been ordered above; doing so again changes nothing.
        if let Some(Value::Array(items)) = original.get_mut(list.as_str()) {
            let merge_key = field.patch_merge_key.as_deref();
            let before = items.clone();
            *items = in_order(std::mem::take(items), order, &before, merge_key);
        }
    }
    Ok(original)
}

/// Maps of structs: the entries are of one shape, whatever their key.
fn merge_entries(shape: Shape<'_>, mut original: Object, mut patch: Object) -> Result<Object, ApiError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Object::new()),
        Some(Value::String(directive)) if directive == "merge" => {}
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    for (key, value) in patch {
        match (value, original.get_mut(&key)) {
            (Value::Null, _) => drop(original.remove(&key)),
            (Value::Object(patch), Some(Value::Object(old))) => *old = merge_map(shape, std::mem::take(old), patch)?,
            (Value::Object(patch), _) => {
                let merged = merge_map(shape, Object::new(), patch)?;
                original.insert(key, Value::Object(merged));
            }
            (value, _) => drop(original.insert(key, value)),
        }
    }
    Ok(original)
}

fn unknown_directive(directive: Value, mut patch: Object) -> ApiError {
    let name = go_text(&directive);
    patch.insert(PATCH.into(), directive);
    unclassified(format!("unknown patch type: {name} in map: {}", go_text(&Value::Object(patch))))
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), ApiError> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || ApiError::BadRequest("invalid patch format of retainKeys".into());
    let keep: Vec<String> = serde_json::from_value(keep).map_err(|_| malformed())?;
    let special = |key: &str| key.starts_with(DELETE_PRIMITIVES) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !special(key) && !value.is_null() && !keep.contains(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| keep.contains(key));
    Ok(())
}

fn take_orders(patch: &mut Object) -> Vec<(String, Vec<Value>)> {
    let keys: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    let take = |key: String| match patch.remove(&key) {
        Some(Value::Array(order)) => Some((key[ELEMENT_ORDER.len()..].to_owned(), order)),
        _ => None,
    };
    keys.into_iter().filter_map(take).collect()
}

fn take_list(map: &mut Object, key: &str) -> Vec<Value> {
    match map.remove(key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn delete_primitives(original: &mut Object, list: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Some(gone)) = (original.get_mut(list), gone.as_array()) {
        items.retain(|item| !gone.contains(item));
    }
}

fn merge_list(
    shape: Shape<'_>,
    field: Option<&Field>,
    original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<&[Value]>,
) -> Result<Vec<Value>, ApiError> {
    let merge_key = field.and_then(|field| field.patch_merge_key.as_deref());
    let before = original.clone();
    let (merged, named) = match merge_key {
        None => (union(original, &patch), patch),
        Some(merge_key) => {
            let (directives, items): (Vec<Value>, Vec<Value>) =
                patch.into_iter().partition(|item| directive(item).is_some());
            let Some(original) = obey(original, directives, merge_key)? else { return Ok(items) };
            let named = items.clone();
            (merge_items(shape, original, items, merge_key)?, named)
        }
    };
    if let Some(order) = order {
        check_order(&named, order, merge_key)?;
    }
    Ok(in_order(merged, order.unwrap_or(&named), &before, merge_key))
}

fn directive(item: &Value) -> Option<&Value> {
    item.get(PATCH).filter(|directive| directive.as_str() != Some("merge"))
}

/// What the items with directives leave of a list; `None` if it is to be replaced.
fn obey(mut original: Vec<Value>, directives: Vec<Value>, merge_key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let mut replaced = false;
    for item in directives {
        match directive(&item).and_then(Value::as_str) {
            Some("replace") => replaced = true,
            Some("delete") => {
                let Some(key) = item.get(merge_key) else { return Err(no_merge_key(&item, merge_key)) };
                original.retain(|old| old.get(merge_key) != Some(key));
            }
            _ => {
                let mut patch = item.as_object().cloned().unwrap_or_default();
                let name = patch.remove(PATCH).unwrap_or(Value::Null);
                return Err(unknown_directive(name, patch));
            }
        }
    }
    Ok((!replaced).then_some(original))
}

fn no_merge_key(item: &Value, merge_key: &str) -> ApiError {
    unclassified(format!("map: {} does not contain declared merge key: {merge_key}", go_text(item)))
}

fn merge_items(
    shape: Shape<'_>,
    mut merged: Vec<Value>,
    items: Vec<Value>,
    merge_key: &str,
) -> Result<Vec<Value>, ApiError> {
    for item in items {
        let Value::Object(patch) = item else {
            return Err(unclassified(format!("cannot merge {} by key {merge_key}", go_text(&item))));
        };
        let Some(key) = patch.get(merge_key).cloned() else {
            return Err(no_merge_key(&Value::Object(patch), merge_key));
        };
        let found = merged.iter_mut().find(|old| old.get(merge_key) == Some(&key));
        match found {
            Some(Value::Object(old)) => *old = merge_map(shape, std::mem::take(old), patch)?,
            _ => merged.push(Value::Object(merge_map(shape, Object::new(), patch)?)),
        }
    }
    Ok(merged)
}

fn union(mut original: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    for item in patch {
        if !original.contains(item) {
            original.push(item.clone());
        }
    }
    original
}

fn same(a: &Value, b: &Value, merge_key: Option<&str>) -> bool {
    match merge_key {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    }
}

fn place(list: &[Value], item: &Value, merge_key: Option<&str>) -> Option<usize> {
    list.iter().position(|other| same(other, item, merge_key))
}

/// The patch's items must stand in the order that the patch itself asks for.
fn check_order(items: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), ApiError> {
    let mut rest = order.iter();
    if items.iter().all(|item| rest.any(|wanted| same(wanted, item, merge_key))) {
        return Ok(());
    }
    Err(unclassified(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        go_text(&Value::from(items.to_vec())),
        go_text(&Value::from(order.to_vec()))
    )))
}

/// Items that `order` names come in its order; the others keep theirs, each before the first named item that it
/// stood before on the server.
fn in_order(merged: Vec<Value>, order: &[Value], server: &[Value], merge_key: Option<&str>) -> Vec<Value> {
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(order, item, merge_key).is_some());
    named.sort_by_key(|item| place(order, item, merge_key));
    let mut others = others.into_iter().peekable();
    let mut out = Vec::new();
    for item in named {
        let at = place(server, &item, merge_key);
        while let (Some(at), Some(other)) = (at, others.peek()) {
            if place(server, other, merge_key).is_none_or(|other| other >= at) {
                break;
            }
            out.extend(others.next());
        }
        out.push(item);
    }
    out.extend(others);
    out
}
