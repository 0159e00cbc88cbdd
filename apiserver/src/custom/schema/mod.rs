//! The schema of one version of a custom resource: `openAPIV3Schema`, read into a tree.
//!
//! Source of the rules: the structural schemas of the CustomResourceDefinition documentation. The tree is what pruning,
//! defaulting and validation walk over; [`types`] makes of it the types that field ownership needs.

mod defaults;
mod formats;
mod prune;
mod types;
mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

pub use defaults::fill;
pub use prune::{METADATA, prune};
pub use types::{OBJECT_META, compile};
pub use validate::validate;

/// What a value may be. Everything that is not said is allowed.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// `object`, `array`, `string`, `integer`, `number` or `boolean`; none: anything.
    pub ty: Option<String>,
    /// It may be null.
    pub nullable: bool,
    /// What it is when absent.
    pub default: Option<Value>,
    /// Unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve: bool,
    /// It is an object with kind and metadata of its own (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// A number or text (`x-kubernetes-int-or-string`).
    pub int_or_string: bool,
    /// Fields.
    pub properties: BTreeMap<String, Node>,
    /// Fields of any other name.
    pub additional: Option<Box<Node>>,
    /// Items of a list.
    pub items: Option<Box<Node>>,
    /// `x-kubernetes-list-type`.
    pub list: List,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// What a value has to fulfil.
    pub checks: Checks,
}

/// How the items of a list belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum List {
    /// As one.
    #[default]
    Atomic,
    /// Unique scalars.
    Set,
    /// Objects told apart by these fields.
    Map(Vec<String>),
}

/// Rules beside the type.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The values that are allowed; empty: any.
    pub values: Vec<Value>,
    /// `format`; empty: none.
    pub format: String,
    /// Least value, and whether it is excluded.
    pub minimum: Option<(f64, bool)>,
    /// Greatest value, and whether it is excluded.
    pub maximum: Option<(f64, bool)>,
    /// It is a multiple of this.
    pub multiple_of: Option<f64>,
    /// Fewest and most characters.
    pub length: Bounds,
    /// Fewest and most items.
    pub items: Bounds,
    /// Fewest and most fields.
    pub fields: Bounds,
    /// A regular expression and its text.
    pub pattern: Option<(Regex, String)>,
    /// All of these hold.
    pub all_of: Vec<Node>,
    /// At least one of these holds.
    pub any_of: Vec<Node>,
    /// Exactly one of these holds.
    pub one_of: Vec<Node>,
    /// This does not hold.
    pub not: Option<Box<Node>>,
}

/// At least and at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds(pub Option<usize>, pub Option<usize>);

impl Node {
    /// Reads a schema. What can't be read is not checked: a definition with such a schema is refused before it is stored.
    pub fn read(schema: &Value) -> Self {
        let flag = |name: &str| schema[name] == Value::Bool(true);
        let child = |name: &str| schema[name].is_object().then(|| Box::new(Node::read(&schema[name])));
        let properties = schema["properties"].as_object().into_iter().flatten();
        let keys = texts(&schema["x-kubernetes-list-map-keys"]);
        Self {
            ty: schema["type"].as_str().filter(|ty| !ty.is_empty()).map(str::to_owned),
            nullable: flag("nullable"),
            default: schema.get("default").cloned(),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            properties: properties.map(|(name, schema)| (name.clone(), Node::read(schema))).collect(),
            additional: child("additionalProperties")
                .or_else(|| flag("additionalProperties").then(|| Box::new(Node { preserve: true, ..Node::default() }))),
            items: child("items"),
            list: match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => List::Set,
                Some("map") => List::Map(keys),
                _ => List::Atomic,
            },
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            checks: Checks::read(schema),
        }
    }

    /// The type, if it is one: what a value has to be besides null.
    pub fn is(&self, ty: &str) -> bool {
        self.ty.as_deref() == Some(ty)
    }

    /// The schema of a field, of its name or of any other.
    pub fn field(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// A default stands somewhere in it.
    pub fn has_defaults(&self) -> bool {
        self.default.is_some()
            || self.properties.values().any(Node::has_defaults)
            || self.additional.as_deref().is_some_and(Node::has_defaults)
            || self.items.as_deref().is_some_and(Node::has_defaults)
    }
}

impl Checks {
    fn read(schema: &Value) -> Self {
        let number = |name: &str| schema[name].as_f64();
        let bound = |name: &str, excluded: &str| number(name).map(|n| (n, schema[excluded] == Value::Bool(true)));
        let count = |name: &str| schema[name].as_u64().and_then(|n| usize::try_from(n).ok());
        let nodes = |name: &str| schema[name].as_array().into_iter().flatten().map(Node::read).collect();
        let pattern = schema["pattern"].as_str();
        Self {
            required: texts(&schema["required"]),
            values: schema["enum"].as_array().cloned().unwrap_or_default(),
            format: schema["format"].as_str().unwrap_or_default().to_owned(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            length: Bounds(count("minLength"), count("maxLength")),
            items: Bounds(count("minItems"), count("maxItems")),
            fields: Bounds(count("minProperties"), count("maxProperties")),
            pattern: pattern.and_then(|text| Some((Regex::new(text).ok()?, text.to_owned()))),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema["not"].is_object().then(|| Box::new(Node::read(&schema["not"]))),
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
