//! Takes away what the schema does not know.

use serde_json::{Map, Value};

use super::Node;

/// What every object has, whatever its schema says.
pub const METADATA: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes fields that the schema does not know, and nulls where there may be none and no default follows. The paths of
/// the unknown fields, sorted. `value` is a whole object: kind, apiVersion and metadata stay.
pub fn prune(node: &Node, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Object(map) = value {
        object(node, true, "", map, &mut unknown);
    }
    unknown.sort();
    unknown
}

fn any(node: &Node, path: &str, value: &mut Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => object(node, node.embedded, path, map, unknown),
        Value::Array(items) => {
            let Some(item) = &node.items else { return };
            for (index, value) in items.iter_mut().enumerate() {
                any(item, &format!("{path}[{index}]"), value, unknown);
            }
        }
        _ => {}
    }
}

fn object(node: &Node, embeds: bool, path: &str, map: &mut Map<String, Value>, unknown: &mut Vec<String>) {
    map.retain(|name, value| {
        if embeds && METADATA.contains(&name.as_str()) {
            return true;
        }
        let below = || if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match node.field(name) {
            Some(field) if value.is_null() => field.nullable || field.default.is_some() || field.ty.is_none(),
            Some(field) => {
                any(field, &below(), value, unknown);
                true
            }
            None if node.preserve => true,
            None => {
                unknown.push(below());
                false
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go_and_are_told() {
        let node = Node::read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "some": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"a": {"type": "object", "properties": {}}}},
                "items": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
                "null": {"type": "string", "nullable": true}, "red": {"type": "string", "default": "red"},
                "none": {"type": "string"},
            }},
        }}));
        let mut value = json!({
            "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "status": {},
            "spec": {"size": 1, "extra": 1, "any": {"x": {"y": 1}}, "some": {"a": {"b": 1}, "c": {"d": 1}},
                     "items": [{"x": 1}, {"x": 1, "y": 2}], "map": {"k": {"x": "1", "z": 1}},
                     "pod": {"kind": "Pod", "metadata": {}, "spec": {}, "status": {}}, "null": null, "red": null, "none": null},
        });
        let unknown = prune(&node, &mut value);
        assert_eq!(
            unknown,
            ["spec.extra", "spec.items[1].y", "spec.map.k.z", "spec.pod.status", "spec.some.a.b", "status"]
        );
        let spec = json!({"size": 1, "any": {"x": {"y": 1}}, "some": {"a": {}, "c": {"d": 1}}, "items": [{"x": 1}, {"x": 1}],
            "map": {"k": {"x": "1"}}, "pod": {"kind": "Pod", "metadata": {}, "spec": {}}, "null": null, "red": null});
        assert_eq!(value, json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "spec": spec}));
    }
}
