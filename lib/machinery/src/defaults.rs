//! Constant defaults of fields, out of the schema. Defaults that depend on other fields are code beside the kinds.

use crate::schema::{Field, Object, Schema, StructType, Type, Value};

/// Sets every field that has a default and is absent, in all structs that are there.
///
/// A struct that Go always has (no pointer) is there even if the value lacks it, as its defaults are set upstream too.
pub fn apply(schema: &Schema, ty: &StructType, value: &mut Value) {
    if let Value::Object(object) = value {
        fields(schema, ty, object);
    }
}

fn fields(schema: &Schema, ty: &StructType, object: &mut Object) {
    if !ty.has_defaults {
        return;
    }
    for (name, value) in object.iter_mut() {
        let Some(field) = ty.field(name) else { continue };
        if is_set(field, value) {
            inside(schema, &field.ty, value);
        } else if let Some(seed) = seed(schema, field) {
            *value = seed;
        }
    }
    for index in &ty.seeded {
        let field = &ty.fields[usize::from(*index)];
        if !object.contains_key(&field.json)
            && let Some(seed) = seed(schema, field)
        {
            object.insert(field.json.clone(), seed);
        }
    }
}

/// What a field is that was not set, if that is something.
pub(crate) fn seed(schema: &Schema, field: &Field) -> Option<Value> {
    match (&field.default, &field.ty) {
        (Some(default), ty) => {
            let mut value = default.clone();
            inside(schema, ty, &mut value);
            Some(value)
        }
        (None, Type::Struct(id)) if !field.pointer => {
            let ty = schema.get(*id);
            let mut inner = Object::new();
            // The table of what comes to be may not have been made yet.
            if ty.has_defaults {
                let seeds = ty.fields.iter().filter_map(|field| Some((field.json.clone(), seed(schema, field)?)));
                inner.extend(seeds);
            }
            (!inner.is_empty()).then_some(Value::Object(inner))
        }
        _ => None,
    }
}

/// Whether Go would see a value: a field that is no pointer holds its zero value when it is not set.
fn is_set(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => field.pointer || !text.is_empty(),
        Value::Number(number) => field.pointer || number.as_f64() != Some(0.0),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

fn inside(schema: &Schema, ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(object)) => fields(schema, schema.get(*id), object),
        (Type::List(item), Value::Array(items)) if matches!(**item, Type::Struct(_)) => {
            items.iter_mut().for_each(|value| inside(schema, item, value));
        }
        (Type::Map(item), Value::Object(object)) if matches!(**item, Type::Struct(_)) => {
            object.values_mut().for_each(|value| inside(schema, item, value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::text;

    const TABLE: &str = "package a.v1 io.a go=v1 serves=a/v1\n\
        type A kind\n  replicas 1 *int32 default=1\n  inner 2 B\n  maybe 3 *B\n  list 4 []B\n\
        type B\n  mode 1 string default=\"x\"\n  count 2 *int32 default=2\n";

    #[test]
    fn sets_what_is_absent() {
        let schema = text::parse(&[("a", TABLE)]).unwrap();
        let ty = schema.kind("a", "v1", "A").unwrap();
        let mut value = json!({"list": [{}, {"mode": "y", "count": 0}, {"mode": ""}], "maybe": null});
        apply(&schema, ty, &mut value);
        let b = |mode: &str, count: i64| json!({"mode": mode, "count": count});
        let wanted =
            json!({"replicas": 1, "inner": b("x", 2), "maybe": null, "list": [b("x", 2), b("y", 0), b("x", 2)]});
        assert_eq!(value, wanted);
    }
}
