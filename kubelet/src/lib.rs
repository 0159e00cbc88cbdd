//! Node agent: runs the pods that are bound to its node, over a CRI runtime, and reports how they are.
//!
//! Entry point: [`run`] with a [`Config`]. Inside:
//! - [`pods`]: one task a pod (`worker`), observe → plan → execute. [`pods::plan`] is the pure state machine,
//!   [`pods::status`] the pure view of it in the API; `steps`, `kill` and `observe` talk to the runtime; `writer` patches
//!   the API; `manager` feeds the workers from the API's pods, the runtime's list and events, and the clock;
//! - [`pods::resize`]: what a pod asks for and what it was granted; workers see the latter alone;
//! - [`container`], [`dns`]: pure translation of specifications into the runtime's configuration;
//! - `volumes`: plugins that bring volumes to paths of the node; `objects`: ConfigMaps, Secrets, tokens; `certificates`:
//!   key pairs and certificates of pods;
//! - `probes`, [`images`], [`cgroups`], `gc`, `admission`: as their names say;
//! - [`node`]: the Node object, its status and its Lease; [`server`]: HTTPS on port 10250.
//!
//! Invariants:
//! - nothing is started for a pod unless the runtime was looked at since it last changed, so a restarted kubelet adopts
//!   what runs and starts nothing twice; the runtime's names (pod uid, container, attempt) are the second guard;
//! - the API object of a deleted pod goes last, when nothing of the pod runs or is mounted any more;
//! - there is no pause in the way of a pod: every result of an own action is acted on and reported at once, the periodic
//!   list is for what happens by itself;
//! - no state but what the runtime and the API hold, and back-off counters; nothing global.
//!
//! Not here yet: eviction, node shutdown, device plugins, CSI, user namespaces.

mod admission;
mod certificates;
pub mod cgroups;
pub mod config;
pub mod container;
pub mod dns;
mod gc;
mod host;
pub mod images;
mod log_rotation;
pub mod node;
mod objects;
pub mod pods;
mod probes;
pub mod quantity;
mod run;
pub mod server;
mod shared;
mod telemetry;
mod volumes;

pub use config::{CgroupDriver, Config, EvictionThresholds, ImageGc, Reserved, ServerTls};
pub use run::run;

/// The Kubernetes version that the node reports.
pub const KUBERNETES_VERSION: &str = "1.37.2";
