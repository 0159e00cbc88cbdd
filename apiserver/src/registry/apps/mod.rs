//! Rules of the workload kinds.

pub mod defaults;
