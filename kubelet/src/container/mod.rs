//! From a container's specification to the runtime's configuration. All pure: what must be read from elsewhere comes in
//! as values.

pub mod config;
pub mod env;
pub mod expand;
pub mod field;
pub mod resources;
pub mod security;
