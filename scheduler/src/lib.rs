//! Scheduler: queue, snapshot, filter, score, preempt, bind.
//!
//! Entry points: [`Config`] and [`run`]. The decisions are pure: [`core`] takes in changes and time and gives out effects;
//! [`cycle`] finds a node for one pod in one snapshot; [`preemption`] finds pods that would have to go; [`queue`] says which pod
//! is next; [`plugins`] know one rule each. [`run`] is the shell around them.
//!
//! Invariants: one task owns all state, so there are no locks; a snapshot never changes; a pod counts on its node from the
//! decision on; nothing but `run` and its effects talks to the API or reads a clock.

mod binding;
pub mod cache;
pub mod core;
pub mod cycle;
mod effects;
pub mod framework;
pub mod plugins;
pub mod pod;
pub mod preemption;
pub mod queue;
pub mod resources;
mod run;
pub mod selector;
mod telemetry;
#[cfg(test)]
mod testing;
pub mod volumes;

pub use cycle::Profile;
pub use queue::Pauses;
pub use run::{Config, run};
pub use telemetry::Sizes;
