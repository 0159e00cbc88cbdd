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
    for field in &ty.fields {
        let there = object.get(&field.json).is_some_and(|value| is_set(field, value));
        if !there {
            if let Some(default) = &field.default {
                object.insert(field.json.clone(), default.clone());
            } else if let (Type::Struct(id), false) = (&field.ty, field.pointer) {
                let mut inner = Object::new();
                fields(schema, schema.get(*id), &mut inner);
                if !inner.is_empty() {
                    object.insert(field.json.clone(), Value::Object(inner));
                }
                continue;
            }
        }
        if let Some(value) = object.get_mut(&field.json) {
            inside(schema, &field.ty, value);
        }
    }
}

/// Whether Go would see a value: a field that is no pointer holds its zero value when it is not set.
fn is_set(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => field.pointer || !text.is_empty(),
        Value::Number(number) => field.pointer || number.as_f64() != Some(0.0),
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
