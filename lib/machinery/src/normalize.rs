//! What an object looks like after Go has read it into its structs and written it again.
//!
//! Nulls and empty values of `omitempty` fields go; zero values of fields that are always written come: `status: {}`,
//! `resources: {}`, an empty string, `null` for a list or pointer without `omitempty`.

use crate::schema::{Field, Object, Schema, StructType, Type, Value};

/// Brings an object of that type into the form in which upstream would answer it.
pub fn normalize(schema: &Schema, ty: &StructType, value: &mut Value) {
    if let Value::Object(object) = value {
        fields(schema, ty, object);
    }
}

/// What the store makes of an object: upstream's protobuf form does not tell an empty list or map from none.
pub fn stored(schema: &Schema, ty: &StructType, value: &mut Value) {
    let Value::Object(object) = value else { return };
    for (name, value) in object.iter_mut() {
        let Some(field) = ty.field(name) else { continue };
        let empty = match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => matches!(field.ty, Type::Map(_)) && entries.is_empty(),
            _ => false,
        };
        if empty && matches!(field.ty, Type::List(_) | Type::Map(_)) {
            *value = Value::Null;
        } else {
            stored_inside(schema, &field.ty, value);
        }
    }
}

fn stored_inside(schema: &Schema, ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Struct(id), value) => stored(schema, schema.get(*id), value),
        (Type::List(item), Value::Array(items)) if is_composite(item) => {
            items.iter_mut().for_each(|value| stored_inside(schema, item, value));
        }
        (Type::Map(item), Value::Object(entries)) if is_composite(item) => {
            entries.values_mut().for_each(|value| stored_inside(schema, item, value));
        }
        _ => {}
    }
}

fn fields(schema: &Schema, ty: &StructType, object: &mut Object) {
    let mut gone = Vec::new();
    for (name, value) in object.iter_mut() {
        let Some(index) = ty.field_index(name) else { continue };
        let field = &ty.fields[index];
        inside(schema, &field.ty, value);
        let goes = match value {
            Value::Null => !ty.standing.contains(&(index as u16)),
            value => is_omitted(field, value),
        };
        if goes {
            gone.push(index);
        }
    }
    for index in &ty.standing {
        let field = &ty.fields[usize::from(*index)];
        if object.get(&field.json).is_none_or(Value::is_null)
            && let Some(zero) = zero(schema, field)
        {
            object.insert(field.json.clone(), zero);
        }
    }
    for index in gone {
        object.remove(&ty.fields[index].json);
    }
}

fn inside(schema: &Schema, ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(object)) => fields(schema, schema.get(*id), object),
        (Type::List(item), Value::Array(items)) if is_composite(item) => {
            items.iter_mut().for_each(|value| inside(schema, item, value));
        }
        (Type::Map(item), Value::Object(object)) if is_composite(item) => {
            object.values_mut().for_each(|value| inside(schema, item, value));
        }
        (Type::Union(id), value) => {
            let inner = schema.get(*id).fields.iter().find(|field| {
                matches!((&field.ty, &*value), (Type::Struct(_), Value::Object(_)) | (Type::List(_), Value::Array(_)))
            });
            if let Some(field) = inner {
                inside(schema, &field.ty, value);
            }
        }
        _ => {}
    }
}

fn is_composite(ty: &Type) -> bool {
    matches!(ty, Type::Struct(_) | Type::Union(_) | Type::List(_) | Type::Map(_))
}

/// Whether Go leaves the value out.
fn is_omitted(field: &Field, value: &Value) -> bool {
    match value {
        Value::Object(object) if matches!(field.ty, Type::Struct(_)) => {
            field.omit_zero && !field.pointer && object.is_empty()
        }
        Value::Object(object) => field.omit_empty && object.is_empty() && matches!(field.ty, Type::Map(_)),
        Value::Array(items) => field.omit_empty && items.is_empty(),
        _ if field.pointer || !field.omit_empty => false,
        Value::String(text) => text.is_empty() && matches!(field.ty, Type::String | Type::Bytes),
        Value::Bool(value) => !value,
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && matches!(field.ty, Type::Int32 | Type::Int64 | Type::Double)
        }
        Value::Null => true,
    }
}

/// What Go writes for a field that was not set.
pub(crate) fn zero(schema: &Schema, field: &Field) -> Option<Value> {
    if field.pointer || matches!(field.ty, Type::List(_) | Type::Wrapped(_) | Type::Map(_) | Type::Bytes) {
        return (!field.omit_empty).then_some(Value::Null);
    }
    match &field.ty {
        Type::Struct(id) if !field.omit_zero => {
            let mut object = Object::new();
            fields(schema, schema.get(*id), &mut object);
            Some(Value::Object(object))
        }
        Type::Time | Type::MicroTime | Type::Any | Type::FieldsV1 if !field.omit_zero => Some(Value::Null),
        Type::Quantity if !field.omit_zero => Some(Value::from("0")),
        Type::IntOrString if !field.omit_zero => Some(Value::from(0)),
        Type::Duration if !field.omit_zero => Some(Value::from("0s")),
        _ if field.omit_empty => None,
        Type::String => Some(Value::from("")),
        Type::Bool => Some(Value::Bool(false)),
        Type::Int32 | Type::Int64 | Type::Double => Some(Value::from(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::text;

    const TABLE: &str = "package a.v1 io.a go=v1 serves=a/v1\n\
        type A kind\n  name 1 string omitempty\n  always 2 string\n  size 3 *int32 omitempty\n  made 4 time omitempty omitzero\n\
        \x20 seen 5 time omitempty\n  status 6 B omitempty\n  list 7 []B omitempty\n  must 8 []string\n  by 9 map[string]B omitempty\n\
        \x20 amount 10 quantity omitempty\n  pointer 11 *B\n\
        type B\n  count 1 int32 omitempty\n  inner 2 C omitempty omitzero\n\
        type C\n  x 1 string omitempty\n";

    #[test]
    fn as_go_writes_it() {
        let schema = text::parse(&[("a", TABLE)]).unwrap();
        let ty = schema.kind("a", "v1", "A").unwrap();
        for (before, after) in [
            (
                json!({}),
                json!({"always": "", "seen": null, "status": {}, "must": null, "amount": "0", "pointer": null}),
            ),
            (
                json!({"name": "", "always": "x", "size": 0, "made": null, "seen": "2020-01-01T00:00:00Z", "status": {"count": 0,
                    "inner": {"x": ""}}, "list": [{"count": 0}], "must": [], "by": {}, "amount": "1", "pointer": {}}),
                json!({"always": "x", "size": 0, "seen": "2020-01-01T00:00:00Z", "status": {}, "list": [{}], "must": [],
                    "amount": "1", "pointer": {}}),
            ),
        ] {
            let mut value = before;
            normalize(&schema, ty, &mut value);
            assert_eq!(value, after);
        }
    }
}
