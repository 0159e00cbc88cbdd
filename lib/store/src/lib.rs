//! The Store contract and its engines: bytes in, bytes out; knows no kinds.
//!
//! A store is an ordered map from keys to values in which every write has a revision of its own. The API server keeps its
//! objects in it and follows it with watches. [`Store`] is the contract; [`memory::Memory`] is the model that says in few
//! lines what the contract means; [`embedded::Embedded`] keeps the same state on disk, [`etcd::Etcd`] in etcd.
//! [`mapped::Mapped`] is a store on top of another one: [`encryption::Encrypted`], [`renamed::Renamed`]. [`routed::Routed`] is several
//! side by side.
//!
//! Invariants, checked by the same tests on every engine (`tests/contract.rs`):
//! - revisions are strictly increasing, one a write (a deletion and an expiry are writes), and survive a restart;
//! - a write is acknowledged, readable and watchable only after it is durable, in the order of revisions;
//! - a watch delivers every later change under its prefix once, in order, or ends with an error: never a gap;
//! - nothing here knows what a value means.

mod contract;
pub mod copy;
pub mod duration;
pub mod embedded;
pub mod encryption;
mod error;
pub mod etcd;
mod grpc;
mod history;
pub mod mapped;
pub mod memory;
mod messages;
pub mod renamed;
pub mod routed;
pub mod snapshot;
mod state;
mod watch;

pub use contract::{KeyValue, ListOptions, Listing, Revision, Store, WatchEvent};
pub use error::{Error, Result};
pub use grpc::TlsFiles;
pub use history::Window;
pub use watch::Watch;
