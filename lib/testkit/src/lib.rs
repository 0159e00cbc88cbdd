//! For tests: a cluster of several machines on this one, and waits.
//!
//! - [`lab`]: a control plane and nodes, each on a machine of its own, ours or upstream's; up and down;
//! - [`machine`]: a machine: namespaces for network, processes, mounts and host name;
//! - [`network`]: the link between the machines, without a way out;
//! - [`wait`]: waits that look at the state again and again instead of counting on events.
//!
//! Invariants: everything that a lab makes can be found from its folder alone, so that it is removed exactly, also after
//! a crash; two labs do not see each other; nothing here depends on a component, a lab starts programs as an operator
//! would.

mod control_plane;
pub mod lab;
pub mod machine;
pub mod network;
mod node;
mod objects;
pub mod wait;

pub use lab::{Kind, Lab, Spec};
