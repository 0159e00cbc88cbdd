//! Node agent: pods over CRI.

mod admission;
pub mod cgroups;
pub mod config;
pub mod container;
pub mod dns;
mod gc;
mod host;
pub mod images;
pub mod node;
mod objects;
pub mod pods;
mod probes;
pub mod quantity;
pub mod server;
mod run;
mod shared;
mod volumes;

pub use config::{CgroupDriver, Config, EvictionThresholds, ImageGc, Reserved, ServerTls};
pub use run::run;

/// The Kubernetes version that the node reports.
pub const KUBERNETES_VERSION: &str = "1.37.2";
