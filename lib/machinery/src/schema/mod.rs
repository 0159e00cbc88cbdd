//! The schema: what the engine knows of a type. One [`Schema`] holds all the struct types of an API and its kinds.
//!
//! Built-in kinds come out of the facts table by [`text`]; a CRD's openAPIV3Schema compiles into the same types.
//! A struct type has two views of the same fields: the JSON one (flat, in the order in which Go writes them, embedded
//! structs already merged in) and the protobuf one ([`Wire`], ascending field numbers, embedded structs nested).

mod build;
pub mod text;

use std::{cmp::Ordering, collections::HashMap};

pub use build::Builder;

/// An API object or a part of one, as JSON.
pub type Value = serde_json::Value;
/// A JSON object.
pub type Object = serde_json::Map<String, Value>;

/// Points at a struct type of one [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StructId(pub u32);

/// What a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// 64-bit floating point.
    Double,
    /// Text.
    String,
    /// Base64 text in JSON.
    Bytes,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Go duration text such as `1h2m3s`.
    Duration,
    /// A resource quantity such as `500m`.
    Quantity,
    /// A number or text.
    IntOrString,
    /// Any JSON: an object of another kind, or free-form JSON.
    Any,
    /// JSON of no known shape in a custom resource: entries of objects are owned one by one, lists as a whole.
    Free,
    /// A field set of server-side apply. As a value it is the text of its JSON, not what that says.
    FieldsV1,
    /// Many values of one type.
    List(Box<Type>),
    /// In JSON a list; in protobuf a message that has the list as field 1.
    Wrapped(Box<Type>),
    /// Text keys with values of one type.
    Map(Box<Type>),
    /// A struct of the same schema.
    Struct(StructId),
    /// One of the struct's fields alone, told by the JSON value's form; a bool beside an object is true.
    Union(StructId),
}

/// How the items of a list belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// The list is one value.
    #[default]
    Atomic,
    /// Unique scalars.
    Set,
    /// Objects told apart by these fields.
    Map(Vec<String>),
}

/// How the entries of a map, or the fields of a struct, belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapKind {
    /// Every entry is owned on its own.
    #[default]
    Granular,
    /// The whole is one value.
    Atomic,
}

/// What a strategic merge patch does with a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Items are merged (by the merge key, or as a set of scalars) rather than replaced.
    pub merge: bool,
    /// Fields of the struct that the patch does not name are dropped.
    pub retain_keys: bool,
    /// It is replaced, and that is said.
    pub replace: bool,
}

/// What the type's author has said of a field, rather than left to be understood: OpenAPI tells no more than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The default.
    pub default: bool,
    /// How list items belong together.
    pub list: bool,
}

/// One field of a struct, as JSON sees it.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in JSON.
    pub json: String,
    /// Protobuf field number; 0 if it is not on the wire.
    pub number: u32,
    /// What it holds.
    pub ty: Type,
    /// Absent and zero are different things (a pointer in Go).
    pub pointer: bool,
    /// The empty value (`""`, 0, false, no items) is left out of JSON.
    pub omit_empty: bool,
    /// A struct whose fields are all zero is left out of JSON.
    pub omit_zero: bool,
    /// Clients must give it.
    pub required: bool,
    /// How list items belong together.
    pub list: ListKind,
    /// How map entries or struct fields belong together.
    pub map: MapKind,
    /// The struct's fields are owned one by one here, whatever its type says.
    pub granular: bool,
    /// Strategic merge patch.
    pub patch_strategy: PatchStrategy,
    /// The items' field by which a strategic merge patch finds them.
    pub patch_merge_key: Option<String>,
    /// What it is when absent, independent of other fields.
    pub default: Option<Value>,
    /// What of this the type's author has said.
    pub said: Said,
    /// The values that are allowed; empty: any.
    pub enum_values: Vec<String>,
    /// The Go names of the embedded structs that it comes from, parted by dots: error messages name them.
    pub embedded: Option<String>,
    /// The Go types of the value, of its items, of theirs, parted by `|`: error messages name them.
    pub go: String,
}

impl Field {
    /// A field of that type of which nothing else is known, not even its name.
    pub fn of(ty: Type) -> Self {
        Self {
            json: String::new(),
            number: 0,
            ty,
            pointer: false,
            omit_empty: false,
            omit_zero: false,
            required: false,
            list: ListKind::Atomic,
            map: MapKind::Granular,
            granular: false,
            patch_strategy: PatchStrategy::default(),
            patch_merge_key: None,
            default: None,
            said: Said::default(),
            enum_values: Vec::new(),
            embedded: None,
            go: String::new(),
        }
    }

    /// The Go type that error messages name: of the field (depth 0), of its items (1), …
    pub fn go_type(&self, depth: usize) -> &str {
        self.go.split('|').nth(depth).unwrap_or_default()
    }
}

/// One field as protobuf sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Protobuf field number.
    pub number: u32,
    /// Where the value is in JSON.
    pub source: Source,
}

/// Where in the JSON object a protobuf field's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The field at this index of [`StructType::fields`].
    Field(usize),
    /// An embedded struct: its fields lie in the same JSON object.
    Embedded(StructId),
}

/// Group, version, kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// API group, empty for the core one.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

impl Gvk {
    /// From its three parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Gvk {
        Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// A struct type.
#[derive(Clone, Debug)]
pub struct StructType {
    /// Where it is in its schema.
    pub id: StructId,
    /// Its name in OpenAPI: `io.k8s.api.apps.v1.Deployment`.
    pub name: String,
    /// The Go name that error messages use: `v1.Deployment`.
    pub go: String,
    /// What it is served as, if it is a kind.
    pub kind: Option<Gvk>,
    /// Its fields as JSON has them, embedded ones merged in, in Go's order.
    pub fields: Vec<Field>,
    /// Its fields as protobuf has them, ascending.
    pub wire: Vec<Wire>,
    /// Owned as one value wherever it is used.
    pub map: MapKind,
    /// Unknown fields are kept (a CRD's `x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// At most one of its fields is set: the one that this field tells; empty: no field tells it.
    pub one_of: Option<String>,
    by_json: Vec<u16>,
    by_number: Vec<u16>,
    /// Fields that Go writes when they are not set.
    pub(crate) standing: Vec<u16>,
    /// Fields that come to be by defaults, their own or those of what is in them.
    pub(crate) seeded: Vec<u16>,
    /// Something in it, or in what is in it, has a default.
    pub(crate) has_defaults: bool,
}

impl StructType {
    /// The field of that JSON name.
    pub fn field(&self, json: &str) -> Option<&Field> {
        self.field_index(json).map(|index| &self.fields[index])
    }

    /// Where the field of that JSON name is in `fields`.
    pub fn field_index(&self, json: &str) -> Option<usize> {
        let at = self.by_json.binary_search_by(|&index| order(&self.fields[usize::from(index)].json, json)).ok()?;
        Some(usize::from(self.by_json[at]))
    }

    /// The protobuf field of that number.
    pub fn wire_field(&self, number: u32) -> Option<&Wire> {
        // Numbers are nearly always dense: a table of positions, 0 for none.
        let at = *self.by_number.get(number as usize)?;
        self.wire.get(usize::from(at).checked_sub(1)?)
    }

    /// The kind's name without its package: `Deployment`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }
}

/// Length first: most comparisons end there.
fn order(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.as_bytes().cmp(right.as_bytes()))
}

/// All struct types of an API and which of them are kinds.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    structs: Vec<StructType>,
    names: HashMap<String, StructId>,
    kinds: Vec<(Gvk, StructId)>,
}

/// Kinds that are of every group and version.
const META_KINDS: [&str; 8] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
    "Status",
];

impl Schema {
    /// The struct of a kind. The options kinds and WatchEvent are of every group.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&StructType> {
        let wanted = (group, version, kind);
        let found = self.kinds.binary_search_by(|(gvk, _)| (&*gvk.group, &*gvk.version, &*gvk.kind).cmp(&wanted));
        match found {
            Ok(at) => Some(self.get(self.kinds[at].1)),
            Err(_) if META_KINDS.contains(&kind) => self.by_name(&format!("{}.{kind}", text::META)),
            Err(_) => None,
        }
    }

    /// The struct of that OpenAPI name.
    pub fn by_name(&self, name: &str) -> Option<&StructType> {
        self.names.get(name).map(|&id| self.get(id))
    }

    /// The struct behind a type, if it is one.
    pub fn resolve(&self, ty: &Type) -> Option<&StructType> {
        match ty {
            Type::Struct(id) | Type::Union(id) => Some(self.get(*id)),
            _ => None,
        }
    }

    /// The struct of an id of this schema.
    pub fn get(&self, id: StructId) -> &StructType {
        &self.structs[id.0 as usize]
    }

    /// All structs.
    pub fn structs(&self) -> &[StructType] {
        &self.structs
    }

    /// All kinds, ordered by group, version and kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&Gvk, &StructType)> {
        self.kinds.iter().map(|(gvk, id)| (gvk, self.get(*id)))
    }
}
