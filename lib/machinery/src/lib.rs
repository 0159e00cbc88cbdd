//! What every kind shares, pure: values, codecs, patches, selectors, quantities, Status, Table, the schema engine.

pub mod schema;
