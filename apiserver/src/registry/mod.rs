//! What a kind does differently from all others: a table row of pure functions for each resource that deviates.
//!
//! The verb engine asks [`rules`] and falls back to [`Rules::NONE`]. Order of the calls for a write:
//! defaults (all of them in `pintle_api::defaults`), managed fields, mutating admission, `prepare_create` or `prepare_update`, `validate_create` or
//! `validate_update`, allocation, compare-and-swap. `prepare_update` and `validate_update` see the subresource in [`Context`]:
//! for `status` the engine has already put everything but the status (and mutable metadata) back to the old object's.

mod cells;
mod columns;
mod core;
mod fields;
mod names;
mod table;
#[cfg(test)]
mod tests;
mod validate;
mod value;

use pintle_machinery::field_path::ErrorList;
use serde_json::Value;

/// What a hook may know about the request besides the object.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// API group of the resource, empty for core.
    pub group: &'a str,
    /// Version of the object that the hook gets (the storage version).
    pub version: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource that is written, if any (`status`, `scale`, `ephemeralcontainers`, `resize`, …).
    pub subresource: Option<&'a str>,
    /// Namespace of the object; empty for cluster scope.
    pub namespace: &'a str,
    /// A new object came with labels of its own.
    pub labelled: bool,
    /// Time of the request.
    pub now: jiff::Timestamp,
}

/// A column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// OpenAPI type: string, integer, number, boolean, date.
    pub ty: &'static str,
    /// OpenAPI format: `name` for the first column, else mostly empty.
    pub format: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// Help text.
    pub description: &'static str,
}

/// Warnings about a write: (context, new, old).
pub type Warnings = fn(&Context<'_>, &Value, Option<&Value>) -> Vec<String>;

/// The deviations of one resource. All of it is optional.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Clears or sets what a client may not choose on creation (status, generation is the engine's).
    pub prepare_create: Option<fn(&Context<'_>, &mut Value)>,
    /// The same for an update: (context, new, old). Must also decide nothing about `metadata.generation`: the engine
    /// raises it when anything outside metadata and status changed.
    pub prepare_update: Option<fn(&Context<'_>, &mut Value, &Value)>,
    /// Errors of a new object (besides those of its metadata, which the engine checks).
    pub validate_create: Option<fn(&Context<'_>, &Value) -> ErrorList>,
    /// Errors of an update: (context, new, old).
    pub validate_update: Option<fn(&Context<'_>, &Value, &Value) -> ErrorList>,
    /// Warnings for the client about a created or updated object: (context, new, old).
    pub warnings: Option<Warnings>,
    /// How the object's name is checked; `None`: DNS-1123 subdomain.
    pub validate_name: Option<fn(&str, bool) -> Vec<String>>,
    /// Columns of the Table form; empty: Name and Created At.
    pub columns: &'static [Column],
    /// Cells of one object, as many as `columns`.
    pub cells: Option<fn(&Value, jiff::Timestamp) -> Vec<Value>>,
    /// Selectable fields besides metadata.name and metadata.namespace; a field that is absent counts as its zero value.
    pub fields: &'static [&'static str],
    /// Value of a selectable field when it isn't just the string at that path.
    pub field_value: Option<fn(&Value, &str) -> Option<String>>,
    /// Selectable fields of a served form whose stored form names them otherwise: (served, stored).
    pub field_aliases: &'static [(&'static str, &'static str)],
    /// The engine keeps `metadata.generation` (1 on creation, raised on spec changes).
    pub generation: bool,
    /// A PUT must name the resource version that it starts from.
    pub versioned_update: bool,
}

impl Rules {
    /// No deviation.
    pub const NONE: Rules = Rules {
        prepare_create: None,
        prepare_update: None,
        validate_create: None,
        validate_update: None,
        warnings: None,
        validate_name: None,
        columns: &[],
        cells: None,
        fields: &[],
        field_value: None,
        field_aliases: &[],
        generation: false,
        versioned_update: false,
    };
}

/// The rules of a resource by group and plural name. They see objects in the storage version.
pub fn rules(group: &str, resource: &str) -> &'static Rules {
    table::TABLE.iter().find(|(g, r, _)| *g == group && *r == resource).map_or(&Rules::NONE, |(_, _, rules)| rules)
}
