//! The controller manager: loops that move the cluster from what is to what is asked for.
//!
//! One folder a controller, each in three steps: *observe* (shared caches), *plan* (a pure function over what was
//! observed, tested by tables), *execute* (writes through the API). A controller takes keys, never event data; each
//! pass works out the whole desired state again, so that a lost signal costs time but never correctness.
//!
//! Main types: [`Config`] and [`run`]; [`table::CONTROLLERS`] is the list of controllers by upstream's names.
//!
//! Invariants: controllers never talk to the store; there is one cache a kind for the whole process
//! ([`context::Context::cache`]); where a stale cache could make a controller create twice, [`expectations`] stand
//! guard; of another controller's folder none uses more than pure questions about its kind (`job::finished_at`,
//! `namespace::is_active`, `deployment::resolve`).

pub mod config;
pub mod context;
pub mod expectations;
pub mod table;

mod claim;
mod clusterrole;
mod cronjob;
mod csr;
mod daemonset;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslicemirroring;
mod garbagecollector;
mod hash;
mod job;
mod key;
mod meta;
mod namespace;
mod node_match;
mod nodeipam;
mod nodelifecycle;
mod persistentvolume;
mod pod_control;
mod pod_feed;
mod podgc;
mod pods;
mod replicaset;
mod resourcequota;
mod retry;
mod revisions;
mod root_ca;
mod serviceaccount;
mod servicecidr;
mod services;
mod slices;
mod statefulset;
mod tainteviction;
mod telemetry;
mod template;
mod tokencleaner;
mod ttl;
mod volumeprotection;

pub use config::Config;
pub use table::run;
