//! Node agent: pods over CRI.

pub mod cgroups;
pub mod config;
pub mod container;
pub mod dns;
mod gc;
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

pub use config::{CgroupDriver, Config, EvictionThresholds, ImageGc, Reserved};
pub use run::run;

/// The Kubernetes version that the node reports.
pub const KUBERNETES_VERSION: &str = "1.37.2";
