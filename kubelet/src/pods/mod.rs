//! Pods on this node: what the runtime has (`model`), what is to be done (`plan`, pure), how it is done (`steps`,
//! `kill`), what is said about it (`status`, pure) and the tasks that drive it (`worker`, `manager`, `roster`).

pub mod conditions;
mod hooks;
mod kill;
pub mod manager;
pub mod memory;
pub mod model;
pub mod observe;
pub mod plan;
pub mod resize;
mod roster;
pub mod spec;
pub mod statics;
pub mod status;
mod steps;
pub mod worker;
pub mod writer;
