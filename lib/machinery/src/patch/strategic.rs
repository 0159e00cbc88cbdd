//! Strategic merge patch: a merge patch that knows which lists are merged, by which key, and obeys directives.

use super::{form, go_string, go_text, go_type, parse, unclassified};
use crate::{
    Value,
    schema::{Field, Object, Schema, StructType, Type},
    status::{ApiError, quoted},
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
    merge_map(Shape { schema, known: Known::Struct(ty) }, original, patch).map(Value::Object)
}

/// What is known of the object at hand.
#[derive(Clone, Copy)]
enum Known<'a> {
    Struct(&'a StructType),
    /// Entries; upstream can't merge into one.
    Map,
    /// It is free-form.
    Nothing,
}

#[derive(Clone, Copy)]
struct Shape<'a> {
    schema: &'a Schema,
    known: Known<'a>,
}

impl<'a> Shape<'a> {
    /// The field that something is merged into.
    fn field(self, key: &str) -> Result<Option<&'a Field>, ApiError> {
        match self.known {
            Known::Struct(ty) => ty.field(key).map(Some).ok_or_else(|| {
                let name = ty.short_name();
                unclassified(format!("unable to find api field in struct {name} for the json field {}", quoted(key)))
            }),
            Known::Map => {
                Err(unclassified("merging an object in json but data type is not struct, instead is: map".into()))
            }
            Known::Nothing => Ok(None),
        }
    }

    /// The shape of a field's value or of a list's items.
    fn inside(self, field: Option<&'a Field>) -> Self {
        let ty = field.map(|field| match &field.ty {
            Type::List(item) | Type::Wrapped(item) => item,
            ty => ty,
        });
        let known = match ty {
            Some(Type::Map(_)) => Known::Map,
            Some(ty) => self.schema.resolve(ty).map_or(Known::Nothing, Known::Struct),
            None => Known::Nothing,
        };
        Self { schema: self.schema, known }
    }
}

fn merge_map(shape: Shape<'_>, mut original: Object, mut patch: Object) -> Result<Object, ApiError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered(shape, &mut original, &mut patch)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut original, list, &value)?;
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (_, Value::Null) => continue,
            (None, value) => undirected(value),
            (Some(old), value) => merge_value(shape, &key, old, value)?,
        };
        original.insert(key, merged);
    }
    Ok(original)
}

fn merge_value(shape: Shape<'_>, key: &str, old: Value, patch: Value) -> Result<Value, ApiError> {
    Ok(match (old, patch) {
        (Value::Object(old), Value::Object(patch)) => match shape.field(key)? {
            Some(field) if field.patch_strategy.replace => Value::Object(patch),
            field => Value::Object(merge_map(shape.inside(field), old, patch)?),
        },
        (Value::Array(old), Value::Array(patch)) => match shape.field(key)? {
            Some(field) if field.patch_strategy.merge => {
                Value::Array(merge_list(shape.inside(Some(field)), field, old, patch, None)?)
            }
            _ => Value::Array(patch),
        },
        (_, patch) => undirected(patch),
    })
}

/// The lists for which the patch gives an order.
fn merge_ordered(shape: Shape<'_>, original: &mut Object, patch: &mut Object) -> Result<(), ApiError> {
    let keys: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for key in keys {
        let list = &key[ELEMENT_ORDER.len()..];
        let field = shape.field(list)?;
        let merge_key = field.and_then(|field| field.patch_merge_key.as_deref());
        let order = take_list(patch, &key)?.unwrap_or_default();
        with_keys(&order, merge_key)?;
        let given = take_list(patch, list)?;
        if let Some(given) = &given {
            check_order(given, &order, merge_key)?;
        }
        let merged = match (take_list(original, list)?, given, field) {
            (None, None, _) => continue,
            (None, Some(given), _) => undirected(Value::Array(given)),
            (Some(old), None, _) => Value::Array(in_order(old.clone(), &order, &old, merge_key)),
            (Some(old), Some(given), Some(field)) if field.patch_strategy.merge => {
                Value::Array(merge_list(shape.inside(Some(field)), field, old, given, Some(&order))?)
            }
            (Some(_), Some(given), _) => Value::Array(given),
        };
        original.insert(list.to_owned(), merged);
    }
    Ok(())
}

/// What of a patch becomes the value of a field that was not there: no directive, nothing that stands beside one, and nothing
/// that is to go.
fn undirected(patch: Value) -> Value {
    match patch {
        Value::Object(map) if map.contains_key(PATCH) => Value::Object(Object::new()),
        Value::Object(map) => {
            let stays = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(stays.map(|(key, value)| (key, undirected(value))).collect())
        }
        Value::Array(items) => items.into_iter().filter(|item| item.get(PATCH).is_none()).map(undirected).collect(),
        other => other,
    }
}

fn unknown_directive(directive: Value, mut patch: Object) -> ApiError {
    let name = go_string(&directive);
    patch.insert(PATCH.into(), directive);
    unclassified(format!("unknown patch type: {name} in map: {}", go_text(&Value::Object(patch))))
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), ApiError> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || ApiError::BadRequest("invalid patch format of retainKeys".into());
    let Value::Array(keep) = keep else { return Err(malformed()) };
    let special = |key: &str| key.starts_with(DELETE_PRIMITIVES) || key.starts_with(ELEMENT_ORDER);
    let kept = |key: &String| keep.iter().any(|keep| keep.as_str() == Some(key));
    if patch.iter().any(|(key, value)| !special(key) && !value.is_null() && !kept(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

fn take_list(map: &mut Object, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    match map.remove(key) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(unclassified(format!("expected a []interface {{}}, but received a {}", go_type(&other)))),
    }
}

fn delete_primitives(original: &mut Object, list: &str, gone: &Value) -> Result<(), ApiError> {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (original.get_mut(list), gone) {
        of_one_form(items, gone)?;
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

fn of_one_form(original: &[Value], patch: &[Value]) -> Result<(), ApiError> {
    let mut forms = original.iter().chain(patch).map(form);
    let first = forms.next();
    if forms.all(|form| Some(form) == first) {
        return Ok(());
    }
    let shown = Value::from(vec![Value::from(original), Value::from(patch)]);
    Err(unclassified(format!("list element types are not identical: {}", go_text(&shown))))
}

fn merge_list(
    shape: Shape<'_>,
    field: &Field,
    original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<&[Value]>,
) -> Result<Vec<Value>, ApiError> {
    of_one_form(&original, &patch)?;
    let merge_key = field.patch_merge_key.as_deref();
    let before = original.clone();
    let (merged, named) = match merge_key {
        None => (union(original, &patch), patch),
        Some(merge_key) => {
            let (directives, items): (Vec<Value>, Vec<Value>) =
                patch.into_iter().partition(|item| item.get(PATCH).is_some());
            let Some(original) = obey(original, directives, merge_key)? else { return Ok(items) };
            with_keys(&original, Some(merge_key))?;
            let named = items.clone();
            (merge_items(shape, original, items, merge_key)?, named)
        }
    };
    Ok(in_order(merged, order.unwrap_or(&named), &before, merge_key))
}

/// What the items with directives leave of a list; `None` if it is to be replaced.
fn obey(mut original: Vec<Value>, directives: Vec<Value>, merge_key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let mut replaced = false;
    for item in directives {
        match item[PATCH].as_str() {
            Some("replace") => replaced = true,
            Some("delete") => {
                let Some(key) = item.get(merge_key) else { return Err(no_merge_key(&item, merge_key)) };
                original.retain(|old| old.get(merge_key) != Some(key));
            }
            Some("merge") => return Err(unclassified("merging lists cannot yet be specified in the patch".into())),
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

/// Objects of a list that is merged by a key must have it.
fn with_keys(items: &[Value], merge_key: Option<&str>) -> Result<(), ApiError> {
    let Some(merge_key) = merge_key else { return Ok(()) };
    match items.iter().find(|item| item.is_object() && item.get(merge_key).is_none()) {
        Some(item) => Err(no_merge_key(item, merge_key)),
        None => Ok(()),
    }
}

fn merge_items(
    shape: Shape<'_>,
    mut merged: Vec<Value>,
    items: Vec<Value>,
    merge_key: &str,
) -> Result<Vec<Value>, ApiError> {
    for item in items {
        let Some(key) = item.get(merge_key) else { return Err(no_merge_key(&item, merge_key)) };
        match (merged.iter_mut().find(|old| old.get(merge_key) == Some(key)), item) {
            (Some(Value::Object(old)), Value::Object(patch)) => *old = merge_map(shape, std::mem::take(old), patch)?,
            // A new item comes as it is, directives and all.
            (_, item) => merged.push(item),
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
    let plain: Vec<Value> = items.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect();
    with_keys(&plain, merge_key)?;
    let mut rest = order.iter();
    if plain.iter().all(|item| rest.any(|wanted| same(wanted, item, merge_key))) {
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
