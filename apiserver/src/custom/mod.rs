//! Custom resources: what a CustomResourceDefinition defines becomes resources like the built-in ones.
//!
//! [`definition`] reads a definition into [`Resource`](crate::resource::Resource)s that carry a [`Custom`]: the schema and
//! what else the verbs ask for where built-in kinds have tables. [`registry`] keeps the set that is served in step with
//! the definitions; [`controller`] writes their status and empties those that are being deleted; [`object`] has what is
//! special about the objects; [`columns`] are those of `kubectl get`.
//!
//! Not here: conversion by webhook, and `x-kubernetes-validations`.

pub mod columns;
pub mod controller;
pub mod definition;
pub mod jsonpath;
pub mod names;
pub mod object;
pub mod registry;
pub mod schema;

use pintle_machinery::field_path::ErrorList;
use pintle_machinery::schema::{Gvk, Schema, StructType};
use pintle_machinery::status::ApiError;
use serde_json::Value;

use self::jsonpath::JsonPath;
use self::schema::Node;

/// What is special about a resource that a definition defines, in one of its versions.
#[derive(Debug)]
pub struct Custom {
    /// The kind.
    pub kind: Gvk,
    /// Kind of its lists.
    pub list_kind: String,
    /// The schema.
    pub node: Node,
    /// The schema as it was given.
    pub given: Value,
    /// The schema's types, as field ownership needs them.
    pub types: Schema,
    /// Columns of tables.
    pub columns: Vec<columns::Column>,
    /// Selectable fields, such as `spec.color`.
    pub fields: Vec<String>,
    /// Where the replicas are.
    pub scale: Option<Scale>,
    /// The status is a subresource.
    pub has_status: bool,
    /// What clients are warned of, if the version is deprecated.
    pub deprecation: Option<String>,
}

/// Where `/scale` finds what it shows.
#[derive(Debug)]
pub struct Scale {
    /// Wanted replicas.
    pub wanted: JsonPath,
    /// Replicas that there are.
    pub actual: JsonPath,
    /// Text of the selector.
    pub selector: Option<JsonPath>,
}

impl Custom {
    /// The type in [`types`](Self::types).
    pub fn ty(&self) -> Result<&StructType, ApiError> {
        let Gvk { group, version, kind } = &self.kind;
        self.types.kind(group, version, kind).ok_or_else(|| ApiError::Internal(format!("no types of {kind}")))
    }

    /// What is wrong with an object; `old` is what an update starts from.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = schema::validate(&self.node, new, old);
        if let Some(scale) = &self.scale {
            scale.validate(new, &mut errors);
        }
        errors
    }

    /// The text of a selectable field in an object of this version.
    pub fn field(&self, object: &Value, name: &str) -> Option<String> {
        if !self.fields.iter().any(|field| field == name) {
            return None;
        }
        Some(match name.split('.').fold(object, |value, part| &value[part]) {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        })
    }

    /// Fields at the top that a write to the status leaves alone.
    pub fn beside_status(&self) -> Vec<&str> {
        let own = self.node.properties.keys().map(String::as_str);
        own.filter(|name| *name != "status").chain(["metadata"]).collect()
    }
}
