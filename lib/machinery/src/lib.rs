//! What every kind shares, pure: values, codecs, patches, selectors, quantities, Status, Table, the schema engine.

pub mod codec;
pub mod defaults;
pub mod field_path;
pub mod managed_fields;
pub mod names;
pub mod normalize;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod time;

pub use schema::Value;
