//! What each HTTPS port needs: TLS, HTTP/1.1 and 2, health, metrics, drain, delegated auth, stream upgrades.

pub mod component;
pub mod delegated;
pub mod health;
pub mod http;
pub mod metrics;
mod process;
pub mod streams;
pub mod tls;
