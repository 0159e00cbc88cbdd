//! Who owns which field: `metadata.managedFields`, its upkeep on writes, and server-side apply.
//!
//! Invariants: an entry never names a system field; an entry without fields is dropped; a write that changes nothing
//! leaves the entries as they were, times included.

mod compare;
mod entries;
mod last_applied;
mod set;
mod text;
mod typed;

pub use entries::{Entry, Operation};
pub use set::{FieldSet, Node};

use crate::{
    Value,
    schema::{Schema, StructType, Type},
    status::{ApiError, Cause, Status, quoted},
};
use compare::Changes;
use jiff::Timestamp;
use std::sync::LazyLock;
use typed::{Shape, Side};

/// Fields that the server keeps itself: nobody owns them.
const SYSTEM_FIELDS: [&str; 11] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

static SYSTEM: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&SYSTEM_FIELDS));
/// Where the entries themselves are.
static ENTRIES: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&["metadata.managedFields"]));

/// Everything but the objects that a write's field ownership depends on.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The schema of the object's type.
    pub schema: &'a Schema,
    /// The object's type.
    pub ty: &'a StructType,
    /// Who writes (`fieldManager`, or the first part of the user agent).
    pub manager: &'a str,
    /// The apiVersion of the request.
    pub api_version: &'a str,
    /// The subresource written; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint doesn't write, such as `status`; dotted paths.
    pub reset_fields: &'a [&'a str],
    /// Time of the write; `None` where none is kept.
    pub now: Option<Timestamp>,
}

impl Write<'_> {
    fn ignored(&self) -> FieldSet {
        FieldSet::of_fields(self.reset_fields)
    }
}

/// Sets `metadata.managedFields` of `new`, which a create, update or patch is about to store in place of `old`.
/// On creation `old` is [`zero`].
pub fn update(write: &Write<'_>, old: &Value, new: &mut Value) {
    let ty = Type::Struct(write.ty.id);
    let shape = Shape::new(write.schema, &ty);
    let mut entries = match entries::of_request(new) {
        Some(entries) => entries,
        None => entries::of(old),
    };
    entries::strip(new);
    if typed::omits_key(shape, new) || typed::omits_key(shape, old) {
        // Upstream can't tell such items apart: what was noted stays as it is.
        return entries::carry_over(old, new);
    }
    if entries.is_empty() && old.pointer("/metadata/uid").is_some() {
        // Nobody kept track, or the entries were reset: that stays so until the first apply.
        return;
    }
    // The old entries count as removed, and nobody owns those.
    let changes = compare::compare(shape, old, new).without(&write.ignored());
    let mine = record(&mut entries, changes, None).without(&SYSTEM);
    if !mine.is_empty() {
        own(write, &mut entries, mine);
    }
    entries::cap(&mut entries);
    entries::put(new, entries);
}

/// Takes from everybody else what was changed, and returns it.
fn record(entries: &mut [Entry], changes: Changes, except: Option<usize>) -> FieldSet {
    let taken = changes.added.union(changes.modified);
    for (index, entry) in entries.iter_mut().enumerate() {
        if Some(index) != except {
            entry.fields.subtract(&taken);
        }
        entry.fields.subtract(&changes.removed);
    }
    taken
}

fn own(write: &Write<'_>, entries: &mut Vec<Entry>, fields: FieldSet) {
    let same = |entry: &&mut Entry| {
        entry.operation == Operation::Update
            && entry.manager == write.manager
            && entry.api_version == write.api_version
            && entry.subresource == write.subresource
    };
    match entries.iter_mut().find(same) {
        Some(entry) => {
            entry.fields = std::mem::take(&mut entry.fields).union(fields);
            entry.time = write.now;
        }
        None => entries.push(Entry {
            manager: write.manager.into(),
            operation: Operation::Update,
            api_version: write.api_version.into(),
            subresource: write.subresource.into(),
            time: write.now,
            fields,
        }),
    }
}

/// What an object of this type is before anything is set: what a creation is compared with.
pub fn zero(schema: &Schema, ty: &StructType) -> Value {
    let mut zero = Value::Object(serde_json::Map::new());
    crate::normalize::normalize(schema, ty, &mut zero);
    zero
}

/// Server-side apply of a configuration to the live object ([`zero`] with its metadata's name when there is none).
/// The result has its managedFields set; it equals the live object if nothing changes.
pub fn apply(write: &Write<'_>, live: &Value, config: &Value, force: bool) -> Result<Value, ApiError> {
    let mut result = applied(write, live, config, force)?;
    if write.manager == last_applied::MANAGER {
        last_applied::renew(&mut result, config);
    }
    Ok(result)
}

fn applied(write: &Write<'_>, live: &Value, config: &Value, force: bool) -> Result<Value, ApiError> {
    let ty = Type::Struct(write.ty.id);
    let shape = Shape::new(write.schema, &ty);
    check(write, shape, live, config)?;
    let mut entries = entries::of(live);
    if entries.is_empty() && live.pointer("/metadata/uid").is_some() {
        entries.extend(before_first_apply(write, shape, &without_entries(live)));
    }
    let mut fields = compare::field_set(shape, config).without(&write.ignored());
    // What this endpoint does not write is nobody's for it; what becomes of the values is the kind's own decision.
    let mut merged = compare::merge(shape, live, config);
    entries::strip(&mut merged);
    let found = entries.iter().position(|entry| {
        entry.operation == Operation::Apply && entry.manager == write.manager && entry.subresource == write.subresource
    });
    let last = found.map(|index| entries[index].fields.clone()).unwrap_or_default();
    let gone = last.with_named_parents().difference(&fields.with_named_parents());
    let mut result = match gone.is_empty() {
        true => merged,
        false => compare::prune(shape, &merged, &gone, &others(&entries, found)),
    };

    let changes = compare::compare(shape, live, &result).without(&ENTRIES).without(&write.ignored());
    let taken = changes.added.clone().union(changes.modified.clone());
    let before = match write.manager == last_applied::MANAGER {
        true => last_applied::fields(shape, live),
        false => FieldSet::new(),
    };
    let mut conflicts = Vec::new();
    for (index, entry) in entries.iter().enumerate().filter(|(index, _)| Some(*index) != found) {
        let conflict = entry.fields.intersection(&taken).difference(&before);
        if !conflict.is_empty() {
            conflicts.push((index, conflict));
        }
    }
    if !conflicts.is_empty() && !force {
        return Err(conflict_error(&entries, &conflicts));
    }
    fields = fields.without(&SYSTEM);
    if changes.is_empty() && found.is_some() && fields == last {
        return Ok(live.clone());
    }
    let idle = changes.is_empty();
    record(&mut entries, changes, found);
    // An apply that changes nothing but who owns what has no time of its own.
    let time = match idle {
        true => found.and_then(|index| entries[index].time),
        false => write.now,
    };
    let entry = Entry {
        manager: write.manager.into(),
        operation: Operation::Apply,
        api_version: write.api_version.into(),
        subresource: write.subresource.into(),
        time,
        fields,
    };
    match found {
        Some(index) => entries[index] = entry,
        None => entries.push(entry),
    }
    entries::put(&mut result, entries);
    Ok(result)
}

fn check(write: &Write<'_>, shape: Shape<'_>, live: &Value, config: &Value) -> Result<(), ApiError> {
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(ApiError::BadRequest("metadata.managedFields must be nil".into()));
    }
    typed(write, shape, Side::Applied, config)?;
    // What is stored is of its type, but for items that can't be told apart.
    if typed::omits_key(shape, live) { typed(write, shape, Side::Live, live) } else { Ok(()) }
}

/// Refuses an object whose fields can't be told apart or are of a wrong type.
fn typed(write: &Write<'_>, shape: Shape<'_>, side: Side, object: &Value) -> Result<(), ApiError> {
    let faults = typed::faults(side, shape, "", object);
    let faults = match faults.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = write.api_version.rsplit_once('/').unwrap_or(("", write.api_version));
    let message = format!(
        "failed to create typed {} object ({}/{}; {group}/{version}, Kind={}): {faults}",
        if side == Side::Live { "live" } else { "patch" },
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind"),
    );
    Err(ApiError::Other(Box::new(Status::failure(500, "", message))))
}

/// Who owns what an object had before the first apply, when nobody kept track.
fn before_first_apply(write: &Write<'_>, shape: Shape<'_>, live: &Value) -> Option<Entry> {
    let nothing = zero(write.schema, write.ty);
    let changes = compare::compare(shape, &nothing, live).without(&write.ignored());
    let fields = changes.added.union(changes.modified).without(&SYSTEM);
    (!fields.is_empty()).then(|| Entry {
        manager: "before-first-apply".into(),
        operation: Operation::Update,
        api_version: write.api_version.into(),
        subresource: write.subresource.into(),
        time: write.now,
        fields,
    })
}

fn others(entries: &[Entry], except: Option<usize>) -> FieldSet {
    let others = entries.iter().enumerate().filter(|(index, _)| Some(*index) != except);
    others.fold(FieldSet::new(), |set, (_, entry)| set.union(entry.fields.clone())).whole()
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    entries::strip(&mut object);
    object
}

fn conflict_error(entries: &[Entry], conflicts: &[(usize, FieldSet)]) -> ApiError {
    let mut parts: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|(index, fields)| (opponent(&entries[*index]), fields.paths())).collect();
    parts.sort();
    let cause = |who: &str, path: &str| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {who}"),
        field: path.into(),
    };
    let causes: Vec<Cause> =
        parts.iter().flat_map(|(who, paths)| paths.iter().map(move |path| cause(who, path))).collect();
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        several => {
            let part =
                |(who, paths): &(String, Vec<String>)| format!("conflicts with {who}:\n- {}", paths.join("\n- "));
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("Apply failed with {} conflicts: {}", several.len(), parts.join("\n"))
        }
    };
    ApiError::ApplyConflict { message, causes }
}

/// How a conflict names the other side.
fn opponent(entry: &Entry) -> String {
    let mut name = quoted(&entry.manager);
    if !entry.subresource.is_empty() {
        name.push_str(&format!(" with subresource {}", quoted(&entry.subresource)));
    }
    if entry.operation == Operation::Update {
        name.push_str(&format!(" using {}", entry.api_version));
    }
    name
}
