//! Volumes of pods: each plugin brings a volume to a path of the node; containers get mounts of those paths.

pub mod atomic;
pub mod host;
pub mod mounts;
pub mod payload;
pub mod setup;
pub mod trust;

pub use setup::{Disk, Failure, Paths, remove, setup, teardown};
pub use trust::{TrustBundles, pem};
