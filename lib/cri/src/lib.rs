//! CRI v1 client: the wire between the node agent and containerd or CRI-O, over the runtime's unix socket.
//!
//! - [`messages`]: the protocol's messages and enumerations, as a table;
//! - [`Client`]: every call of RuntimeService and ImageService that the kubelet makes, one method a call, each with a
//!   time limit. The connection is made on first use and again after the runtime was restarted;
//! - [`archive`]: image layouts and archives;
//! - [`rootfs`]: what small images are made of;
//! - [`containerd`]: containerd's configuration, images loaded into it;
//! - [`Error`]: what went wrong, with the gRPC code.
//!
//! Invariants: no policy here (who calls, decides); no retry of a call; clones share one connection.

pub mod archive;
mod client;
pub mod containerd;
mod error;
pub mod messages;
pub mod rootfs;

pub use client::{Client, EventStream};
pub use error::{Code, Error, Result};
