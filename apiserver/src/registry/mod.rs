//! What a kind does differently from all others: a table row of pure functions for each resource that deviates.
//!
//! The verb engine asks [`rules`] and falls back to [`Rules::NONE`]. Order of the calls for a write:
//! defaults (all of them in `pintle_api::defaults`), managed fields, mutating admission, `prepare_create` or `prepare_update`, `validate_create` or
//! `validate_update`, allocation, compare-and-swap. `prepare_update` and `validate_update` see the subresource in [`Context`]:
//! for `status` the engine has already put everything but the status (and mutable metadata) back to the old object's.

pub mod cells;
pub mod columns;
mod core;
pub mod disabled;
mod early;
mod fields;
mod names;
mod table;
#[cfg(test)]
mod tests;
mod validate;
pub mod value;

use std::time::Duration;

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

#[cfg(test)]
impl Context<'static> {
    /// A request about nothing in particular.
    pub(crate) const ANY: Self = Self {
        group: "",
        version: "v1",
        resource: "",
        subresource: None,
        namespace: "",
        labelled: false,
        now: jiff::Timestamp::UNIX_EPOCH,
    };
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

/// Faults of a name: (object, name, it is a prefix only).
pub type NameRule = fn(&Value, &str, bool) -> Vec<String>;

/// The deviations of one resource. All of it is optional.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Clears or sets what a client may not choose on creation (status, generation is the engine's).
    pub prepare_create: Option<fn(&Context<'_>, &mut Value)>,
    /// The same for an update: (context, new, old).
    pub prepare_update: Option<fn(&Context<'_>, &mut Value, &Value)>,
    /// Makes of a valid object, new or changed, what upstream's store makes of it when it reads it back.
    pub complete: Option<fn(&mut Value)>,
    /// Errors of a new object (besides those of its metadata, which the engine checks).
    pub validate_create: Option<fn(&Context<'_>, &Value) -> ErrorList>,
    /// Errors of an update: (context, new, old).
    pub validate_update: Option<fn(&Context<'_>, &Value, &Value) -> ErrorList>,
    /// Warnings for the client about a created or updated object: (context, new, old).
    pub warnings: Option<Warnings>,
    /// How an object's name or, if so, its prefix is checked; `None`: DNS-1123 subdomain.
    pub validate_name: Option<NameRule>,
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
    /// What the engine counts in `metadata.generation`.
    pub generation: Generation,
    /// An update must name the resource version that it starts from.
    pub versioned_update: bool,
    /// A PUT creates what is absent.
    pub created_by_update: bool,
    /// A new object keeps the status that it comes with.
    pub keeps_status: bool,
    /// Objects are held by `spec.finalizers` too.
    pub spec_finalizers: bool,
    /// A deletion waits for whoever takes this finalizer away.
    pub deletion_finalizer: Option<&'static str>,
    /// Objects go by themselves after that time without a write.
    pub ttl: Option<Duration>,
    /// Fields that a write to the resource itself doesn't own, besides the status where that is a subresource.
    pub reset_by_main: &'static [&'static str],
    /// Fields that a write to the status doesn't own.
    pub reset_by_status: &'static [&'static str],
    /// Where the spec of a pod is, by a dotted path: it has such fields as well.
    pub pod_spec: Option<&'static str>,
    /// Upstream warns of pods as they were before an update.
    pub warns_late: bool,
    /// Fields behind gates, by dotted paths (`a[].b` for all items): while the gate is off they go unless the old object has them.
    pub disabled: &'static [disabled::Gated<'static>],
    /// The kind's own rules check a new object's name; what it is made of is not checked.
    pub names_itself: bool,
    /// A generated name is the prefix as it is.
    pub generates_prefix: bool,
    /// Finalizers may have names without a domain.
    pub free_finalizers: bool,
    /// An update checks names as a creation does.
    pub renames: bool,
    /// Who checks a new object's metadata.
    pub metadata: Metadata,
    /// A fault that several rules of an update find is told by each.
    pub tells_again: bool,
}

/// How `metadata.generation` is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// It is not there.
    None,
    /// It is 1 for ever.
    First,
    /// It counts changes outside metadata and status, and of these fields of the metadata.
    Counted(&'static [&'static str]),
    /// The same, but the first is the client's.
    Later,
}

/// When faults of a new object's metadata are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// Before the kind's own.
    First,
    /// Only if there are no others.
    Alone,
    /// The kind's own rules tell them.
    Among,
}

impl Rules {
    /// No deviation.
    pub const NONE: Rules = Rules {
        prepare_create: None,
        prepare_update: None,
        complete: None,
        validate_create: None,
        validate_update: None,
        warnings: None,
        validate_name: None,
        columns: &[],
        cells: None,
        fields: &[],
        field_value: None,
        field_aliases: &[],
        generation: Generation::None,
        versioned_update: false,
        created_by_update: false,
        keeps_status: false,
        spec_finalizers: false,
        deletion_finalizer: None,
        ttl: None,
        reset_by_main: &[],
        reset_by_status: &["spec"],
        pod_spec: None,
        warns_late: false,
        disabled: &[],
        names_itself: false,
        generates_prefix: false,
        free_finalizers: false,
        renames: false,
        metadata: Metadata::First,
        tells_again: false,
    };
}

/// What is common to all custom resources.
pub static CUSTOM: Rules =
    Rules { generation: Generation::Counted(&[]), versioned_update: true, reset_by_status: &[], ..Rules::NONE };

/// Warnings about an object, new or changed.
pub fn warnings(rules: &Rules, context: &Context<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = |object: &Value| value::int(object, "metadata.generation");
    // About a pod that is still the same nothing new is to be said.
    let news = old.is_none_or(|old| generation(old) != generation(new));
    if context.subresource.is_some() {
        return Vec::new();
    }
    let place = rules.pod_spec.filter(|_| news);
    let subject = old.filter(|_| rules.warns_late).unwrap_or(new);
    let mut told = place.map(|place| validate::pod_warnings(subject, place)).unwrap_or_default();
    if let Some(own) = rules.warnings {
        told.splice(0..0, own(context, new, old));
    }
    told
}

/// What is wrong with the cluster addresses that a Service asks for, which is told alone.
pub fn cluster_addresses(service: &Value) -> ErrorList {
    validate::network::cluster_addresses(service)
}

/// The rules of a resource by group and plural name. They see objects in the storage version.
pub fn rules(group: &str, resource: &str) -> &'static Rules {
    let mut rows = table::TABLE.iter().chain(early::TABLE);
    rows.find(|(g, r, _)| *g == group && *r == resource).map_or(&Rules::NONE, |(_, _, rules)| rules)
}
