//! Fills in defaults.

use serde_json::Value;

use super::Node;

/// Gives absent fields their defaults, and those that are null and may not be. Nothing is made for a default to be in.
pub fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, field) in &node.properties {
                let Some(default) = &field.default else { continue };
                if map.get(name).is_none_or(|value| value.is_null() && !field.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                let Some(field) = node.field(name) else { continue };
                if let (Value::Null, Some(default), false) = (&*value, &field.default, field.nullable) {
                    *value = default.clone();
                }
                fill(field, value);
            }
        }
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for value in items {
                if let (Value::Null, Some(default), false) = (&*value, &item.default, item.nullable) {
                    *value = default.clone();
                }
                fill(item, value);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_come_where_their_place_is() {
        let node = Node::read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "integer", "default": 1}, "b": {"type": "string", "nullable": true, "default": "x"},
                "c": {"type": "object", "default": {}, "properties": {"d": {"type": "boolean", "default": true}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "integer", "default": 5}}}},
            }},
        }}));
        let filled = |value: Value| {
            let mut value = value;
            fill(&node, &mut value);
            value
        };
        assert_eq!(filled(json!({})), json!({}));
        assert_eq!(filled(json!({"spec": {}}))["spec"], json!({"a": 1, "b": "x", "c": {"d": true}}));
        let given = json!({"spec": {"a": null, "b": null, "c": {"d": false}, "list": [{}, {"e": 1}]}});
        assert_eq!(filled(given)["spec"], json!({"a": 1, "b": null, "c": {"d": false}, "list": [{"e": 5}, {"e": 1}]}));
    }
}
