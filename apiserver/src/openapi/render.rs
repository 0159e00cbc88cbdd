//! An endpoint in the notation of version 2 or 3.

use serde_json::{Map, Value, json};

use super::endpoints::{Endpoint, Operation};
use super::parameters::Parameter;
use super::schemas::Notation;

/// Shared parameters of version 2 for bodies: the type's short name, and the name there.
const BODIES: [(&str, &str); 2] = [("DeleteOptions", "body-2Y1dVQaQ"), ("Patch", "body-78PwaGsr")];

/// A path's item.
pub fn item(endpoint: &Endpoint, notation: Notation) -> Value {
    let common = common(endpoint);
    let mut item = Map::new();
    for operation in &endpoint.operations {
        let own: Vec<&Parameter> = operation.parameters.iter().filter(|one| !common.contains(one)).collect();
        let value = match notation {
            Notation::V2 => operation_v2(operation, &own),
            Notation::V3 => operation_v3(operation, &own),
        };
        item.insert(operation.method.to_owned(), value);
    }
    if !common.is_empty() {
        let parameters = common.into_iter().map(|one| parameter(one, notation)).collect();
        item.insert("parameters".to_owned(), Value::Array(parameters));
    }
    Value::Object(item)
}

/// Parameters that all operations of the path take are told once.
fn common(endpoint: &Endpoint) -> Vec<&Parameter> {
    let Some((first, others)) = endpoint.operations.split_first() else { return Vec::new() };
    let everywhere = |one: &&Parameter| others.iter().all(|operation| operation.parameters.contains(one));
    first.parameters.iter().filter(everywhere).collect()
}

fn common_part(operation: &Operation) -> Value {
    let mut value = json!({"tags": [operation.tag], "description": operation.description, "operationId": operation.id});
    if let Some((action, gvk)) = &operation.action {
        value["x-kubernetes-action"] = json!(action);
        value["x-kubernetes-group-version-kind"] =
            json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    }
    value
}

fn operation_v2(operation: &Operation, own: &[&Parameter]) -> Value {
    let mut value = common_part(operation);
    value["schemes"] = json!(["https"]);
    value["produces"] = json!(operation.produces);
    if !operation.consumes.is_empty() {
        value["consumes"] = json!(operation.consumes);
    }
    let mut parameters: Vec<Value> = own.iter().map(|one| parameter(one, Notation::V2)).collect();
    if let Some((name, required)) = &operation.body {
        let at = own.partition_point(|one| one.name.as_str() < "body");
        parameters.insert(at, body_v2(name, *required));
    }
    if !parameters.is_empty() {
        value["parameters"] = Value::Array(parameters);
    }
    let schema = schema(operation, Notation::V2);
    for (code, said) in operation.codes {
        value["responses"][code] = json!({"description": said, "schema": schema});
    }
    value["responses"]["401"] = json!({"description": "Unauthorized"});
    value
}

fn body_v2(name: &str, required: bool) -> Value {
    match BODIES.iter().find(|(short, _)| name.rsplit('.').next() == Some(short)) {
        Some((_, key)) => json!({"$ref": format!("#/parameters/{key}")}),
        None => whole_body_v2(name, required),
    }
}

fn whole_body_v2(name: &str, required: bool) -> Value {
    let mut value = json!({"name": "body", "in": "body", "schema": {"$ref": Notation::V2.reference(name)}});
    if required {
        value["required"] = json!(true);
    }
    value
}

fn operation_v3(operation: &Operation, own: &[&Parameter]) -> Value {
    let mut value = common_part(operation);
    if !own.is_empty() {
        value["parameters"] = own.iter().map(|one| parameter(one, Notation::V3)).collect();
    }
    if let Some((name, required)) = &operation.body {
        let schema = json!({"schema": {"$ref": Notation::V3.reference(name)}});
        value["requestBody"] = json!({"content": content(operation.consumes, &schema)});
        if *required {
            value["requestBody"]["required"] = json!(true);
        }
    }
    let schema = json!({"schema": schema(operation, Notation::V3)});
    for (code, said) in operation.codes {
        value["responses"][code] = json!({"description": said, "content": content(operation.produces, &schema)});
    }
    value["responses"]["401"] = json!({"description": "Unauthorized"});
    value
}

fn content(types: &[&str], schema: &Value) -> Value {
    Value::Object(types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone())).collect())
}

fn schema(operation: &Operation, notation: Notation) -> Value {
    match &operation.answer {
        Some(name) => json!({"$ref": notation.reference(name)}),
        None => json!({"type": "string"}),
    }
}

fn parameter(one: &Parameter, notation: Notation) -> Value {
    match (notation, one.key) {
        (Notation::V2, Some(key)) => json!({"$ref": format!("#/parameters/{key}")}),
        (Notation::V2, None) => whole_parameter_v2(one),
        (Notation::V3, _) => {
            let mut value = described(one);
            value["schema"] = json!({"type": one.ty, "uniqueItems": true});
            value
        }
    }
}

fn whole_parameter_v2(one: &Parameter) -> Value {
    let mut value = described(one);
    value["type"] = json!(one.ty);
    value["uniqueItems"] = json!(true);
    value
}

fn described(one: &Parameter) -> Value {
    let mut value = json!({"name": one.name, "in": one.place});
    if one.place == "path" {
        value["required"] = json!(true);
    }
    if let Some(text) = &one.description {
        value["description"] = json!(text);
    }
    value
}

/// What version 2 tells of parameters in one place.
pub fn shared_parameters(endpoints: &[Endpoint]) -> Map<String, Value> {
    let mut shared = Map::new();
    for operation in endpoints.iter().flat_map(|endpoint| &endpoint.operations) {
        for one in &operation.parameters {
            if let Some(key) = one.key {
                shared.entry(key).or_insert_with(|| whole_parameter_v2(one));
            }
        }
        if let Some((name, required)) = &operation.body
            && let Some((_, key)) = BODIES.iter().find(|(short, _)| name.rsplit('.').next() == Some(short))
        {
            shared.entry(*key).or_insert_with(|| whole_body_v2(name, *required));
        }
    }
    shared
}
