//! The kinds as data: facts table, resource table and typed rules that several components share.
//!
//! [`schema()`] tells what a kind's fields are, [`resources()`] what is served under which name. Both are text in
//! `schema/v1.37`, made by `hack schema` out of the published API descriptions; nothing here is written by hand that
//! can be read from there. What depends on several fields of an object at once is code, one module a group.

pub mod defaults;
pub mod gates;
pub mod nodes;
pub mod quota;
mod resources;
mod schema;
pub mod volumes;

pub use resources::{Resource, Subresource, groups, resource, resource_of_kind, resources, versions};
pub use schema::schema;
