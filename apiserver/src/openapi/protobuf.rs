//! The paths of a document in protobuf (`openapi.v3.Document`): what kubectl reads to learn query parameters.

use serde_json::json;

use super::{Endpoint, Operation};
use crate::codec::delimited;

/// A document with just paths.
pub fn document(endpoints: &[Endpoint]) -> Vec<u8> {
    let mut info = Vec::new();
    delimited(1, b"Kubernetes", &mut info);
    delimited(6, b"v1.37.2", &mut info);
    let mut paths = Vec::new();
    for endpoint in endpoints {
        delimited(1, &named_path(endpoint), &mut paths);
    }
    let mut out = Vec::new();
    delimited(1, b"3.0.0", &mut out);
    delimited(2, &info, &mut out);
    delimited(4, &paths, &mut out);
    out
}

fn named_path(endpoint: &Endpoint) -> Vec<u8> {
    let mut item = Vec::new();
    for operation in &endpoint.operations {
        let number = match operation.method {
            "get" => 4,
            "put" => 5,
            "post" => 6,
            "delete" => 7,
            _ => 10,
        };
        delimited(number, &encode(operation, endpoint), &mut item);
    }
    let mut out = Vec::new();
    delimited(1, endpoint.path.as_bytes(), &mut out);
    delimited(2, &item, &mut out);
    out
}

fn encode(operation: &Operation, endpoint: &Endpoint) -> Vec<u8> {
    let mut out = Vec::new();
    for name in operation.parameters {
        let mut parameter = Vec::new();
        delimited(1, name.as_bytes(), &mut parameter);
        delimited(2, b"query", &mut parameter);
        let mut choice = Vec::new();
        delimited(1, &parameter, &mut choice);
        delimited(6, &choice, &mut out);
    }
    let (group, version, kind) = &endpoint.gvk;
    let gvk = json!({"group": group, "version": version, "kind": kind});
    for (name, value) in [("x-kubernetes-action", json!(operation.action)), ("x-kubernetes-group-version-kind", gvk)] {
        let mut any = Vec::new();
        // JSON is YAML.
        delimited(2, value.to_string().as_bytes(), &mut any);
        let mut named = Vec::new();
        delimited(1, name.as_bytes(), &mut named);
        delimited(2, &any, &mut named);
        delimited(13, &named, &mut out);
    }
    out
}
