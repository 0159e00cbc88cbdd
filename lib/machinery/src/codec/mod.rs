//! Bytes to values and back, by schema: JSON, YAML, protobuf and CBOR.

pub mod cbor;
pub mod json;
pub mod protobuf;
pub mod scalar;
pub mod tree;
pub mod yaml;

use crate::schema::Value;

/// A decoded object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object; fields that the schema does not know are gone.
    pub value: Value,
    /// What strict field validation complains about, in upstream's words: `unknown field "spec.foo"`.
    pub strict_errors: Vec<String>,
}

/// Why bytes are no object of the wanted type. The text is upstream's.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Not the format at all; upstream then does not know the kind either.
    #[error("{0}")]
    Syntax(String),
    /// Well-formed, but a value is not of its field's type.
    #[error("{0}")]
    Type(String),
}

/// Why a value can't be encoded.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum EncodeError {
    /// The schema does not have the kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// `apiVersion` of the value.
        api_version: String,
        /// `kind` of the value.
        kind: String,
    },
    /// The text is no JSON.
    #[error("{0}")]
    Syntax(String),
    /// A field's value is not of the field's type.
    #[error("{field}: not a {wanted}")]
    Type {
        /// JSON name of the field.
        field: String,
        /// The type that it should have.
        wanted: &'static str,
    },
}

/// `apiVersion` and `kind` of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
}

impl TypeMeta {
    /// Of a value.
    pub fn of(value: &Value) -> TypeMeta {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        TypeMeta { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// Group and version; the core group is empty.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}
