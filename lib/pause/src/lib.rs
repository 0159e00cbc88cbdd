//! The program that holds a pod's namespaces, as bytes: a static executable that waits, reaps what ends in its process
//! namespace, and ends when it is told to.

/// The executable, to be run as `/pause`.
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));
