//! Service proxy: makes the addresses of Services lead to their endpoints on one node, by nftables.
//!
//! Entry points: [`Config`], [`run`], [`cleanup`]. What the rules are is pure: [`model`] reads Services and EndpointSlices,
//! [`ruleset`] turns them into the contents of a table, [`script`] into one nft transaction, the first time for everything and
//! then for the difference. [`conntrack`] says which tracked UDP flows to forget.
//!
//! Invariants: only tables of the configured name are touched; each change is one transaction; rules depend on nothing but the
//! objects and the configuration, so that a lost table comes back the same.

pub mod conntrack;
pub mod health;
pub mod model;
pub mod netns;
pub mod ruleset;
mod run;
pub mod script;
mod sync;
mod telemetry;

pub use run::{Config, cleanup, cleanup_in, run};
pub use sync::Syncer;
