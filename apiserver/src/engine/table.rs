//! The Table form of objects, for `kubectl get`.

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};

use super::Call;
use super::present::partial_metadata;
use crate::codec;
use crate::custom::columns;
use crate::http::query::Query;
use crate::registry::{Column, Rules};

/// What a row carries of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// The parameter `includeObject`.
    pub fn parse(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::BadRequest(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Columns of kinds that have none of their own.
pub const DEFAULT_COLUMNS: [Column; 2] = [
    Column {
        name: "Name",
        ty: "string",
        format: "name",
        priority: 0,
        description: "Name must be unique within a namespace. Is required when creating resources, although some \
                      resources may allow a client to request the generation of an appropriate name automatically. \
                      Name is primarily intended for creation idempotence and configuration definition. Cannot be \
                      updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    },
    Column {
        name: "Created At",
        ty: "date",
        format: "",
        priority: 0,
        description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
                      guaranteed to be set in happens-before order across separate operations. Clients may not set \
                      this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. \
                      Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
    },
];

/// A Table of objects (stored form); later events of a watch have no column definitions.
pub fn render(call: &Call, objects: &[Value], meta: Value, include: Include, v1: bool, headings: bool) -> Value {
    let shown = |object: &Value| {
        let mut served = object.clone();
        codec::to_served(call, &mut served);
        served
    };
    if let Some(custom) = &call.resource.custom {
        let objects: Vec<Value> = objects.iter().map(shown).collect();
        let row =
            |object: &Value| row(columns::cells(&custom.columns, object, call.now), object, include, v1, &Value::clone);
        return table(
            objects.iter().map(row).collect(),
            headings.then(|| columns::definitions(&custom.columns)),
            meta,
            v1,
        );
    }
    render_by(call.resource.rules, call, objects, meta, (include, v1, headings), &shown)
}

/// A Table of one object of a subresource, shown by rules of its own.
pub fn render_sub(rules: &Rules, call: &Call, object: &Value, include: Include, v1: bool) -> Value {
    let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    render_by(rules, call, std::slice::from_ref(object), meta, (include, v1, true), &Value::clone)
}

fn render_by(
    rules: &Rules,
    call: &Call,
    objects: &[Value],
    meta: Value,
    (include, v1, headings): (Include, bool, bool),
    shown: &dyn Fn(&Value) -> Value,
) -> Value {
    let rows = objects.iter().map(|object| row(cells(object, rules, call.now), object, include, v1, shown)).collect();
    let columns = if rules.columns.is_empty() { &DEFAULT_COLUMNS[..] } else { rules.columns };
    table(rows, headings.then(|| columns.iter().map(Column::definition).collect()), meta, v1)
}

/// One row.
fn row(cells: Vec<Value>, object: &Value, include: Include, v1: bool, shown: &dyn Fn(&Value) -> Value) -> Value {
    let carried = match include {
        Include::None => Value::Null,
        Include::Metadata => partial_metadata(object, v1),
        Include::Object => shown(object),
    };
    json!({"cells": cells, "object": carried})
}

fn table(rows: Vec<Value>, definitions: Option<Vec<Value>>, meta: Value, v1: bool) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": if v1 { "meta.k8s.io/v1" } else { "meta.k8s.io/v1beta1" },
        "metadata": meta,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

impl Column {
    /// As a Table tells it.
    pub fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.ty, "format": self.format,
               "description": self.description, "priority": self.priority})
    }
}

/// The cells of an object's row.
pub fn cells(object: &Value, rules: &Rules, now: jiff::Timestamp) -> Vec<Value> {
    match rules.cells {
        Some(cells) if !rules.columns.is_empty() => cells(object, now),
        _ => vec![object["metadata"]["name"].clone(), object["metadata"]["creationTimestamp"].clone()],
    }
}
