//! What each HTTPS port needs: TLS, HTTP/1.1 and 2, health, metrics, drain, delegated auth, stream upgrades.
//!
//! - [`http`], [`tls`]: the accept loop, certificates that can be exchanged while running;
//! - `cork`: what a connection writes goes out when it has been worked on, not frame by frame;
//! - [`component`]: the small server of a component: health endpoints and metrics;
//! - [`health`], [`metrics`]: named checks; counters, gauges and histograms in Prometheus' text format;
//! - [`telemetry`]: what a component tells about itself, both of them;
//! - [`delegated`]: who asks and whether they may, by asking the API server;
//! - [`streams`]: SPDY/3.1 and WebSocket for exec, attach, port-forward and logs.
//!
//! Invariants: no kind's rules, no storage; nothing a client sends makes memory grow without bound; tokens are kept as hashes only.

pub mod component;
mod cork;
pub mod delegated;
pub mod dial;
pub mod health;
pub mod http;
pub mod metrics;
mod process;
pub mod streams;
pub mod telemetry;
pub mod tls;
