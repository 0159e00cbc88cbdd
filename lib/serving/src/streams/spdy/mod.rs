//! SPDY/3.1: frames, header compression and a multiplexed connection.
//!
//! Flow-control windows are not enforced: the peers of this protocol in Kubernetes (client-go, containerd, CRI-O) all use one Go
//! library that neither sends nor honours WINDOW_UPDATE, so a side that waited for credit would hang. Memory stays
//! bounded by bounded queues per stream and TCP back-pressure.

mod connection;
mod frame;
mod headers;

pub use connection::{Connection, Headers, Incoming, Reader, Role, Stream, Writer};
