//! REST and watch server of the Kubernetes API.
//!
//! A request goes through [`pipeline`]: request info, authentication, authorization, then the verb engine ([`engine`]), which
//! is the same for every resource of [`pintle_api::resources`]. What a kind does differently is a row of pure functions
//! ([`registry`]). Writes go to the store and are acknowledged when it has them; lists and watches come from the watch
//! cache ([`cache`]), which one task fills.
//!
//! Invariants: no verb is implemented twice; only [`cache::follower`] watches the store; nothing here opens a socket but
//! [`subresource::proxy`] (to kubelets, pods and services); no global state.

pub mod access;
pub mod admission;
pub mod auth;
pub mod backup;
pub mod bootstrap;
pub mod cache;
mod cel;
pub mod codec;
mod config;
pub mod conversion;
pub mod custom;
mod deprecated;
pub mod discovery;
pub mod engine;
pub mod features;
pub mod health;
pub mod http;
pub mod internal;
pub mod managed;
pub mod metrics;
pub mod openapi;
pub mod pipeline;
pub mod registry;
pub mod resource;
mod server;
pub mod services;
mod state;
pub mod storage;
pub mod subresource;
pub mod webhooks;

pub use access::UserInfo;
pub use config::{Config, KubeletClient, StaticToken};
pub use features::Features;
pub use server::{ApiServer, ApiService};
pub use state::State;
