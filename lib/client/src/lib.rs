//! Client side of the Kubernetes API, shared by every component.
//!
//! The connection itself is `kube::Client`: over TLS to a URL ([`connect::from_kubeconfig`]) or, in the all-in-one
//! process, straight into the API server's service without a socket ([`connect::from_service`]). A component cannot
//! tell which it got. On top of it:
//! - [`cache::Cache`]: one list+watch per resource, shared, immutable `Arc` objects, ordered change feed;
//! - [`queue::Queue`] and [`reconcile::run`]: level-triggered work by key, one worker a key, exponential back-off;
//! - [`events::Recorder`]: events with counting of repeats;
//! - [`leader`]: Lease-based leader election.
//!
//! Invariants: cached objects are never mutated; no event data reaches a reconciler, only keys; nothing here is global.

pub mod cache;
pub mod connect;
pub mod events;
pub mod leader;
pub mod queue;
pub mod reconcile;
