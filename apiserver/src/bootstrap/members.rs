//! The API servers of the cluster: each keeps a key that ends when it does, as upstream's do, so that all agree on the
//! endpoints of the `kubernetes` Service whoever writes them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pintle_machinery::status::ApiError;
use pintle_store::{Error, ListOptions};
use serde_json::json;

use crate::engine::storage_error;
use crate::state::State;

const PREFIX: &str = "/registry/masterleases/";
/// A server that has not renewed its key for this long is gone.
const LIFE: Duration = Duration::from_secs(15);
/// Tries to renew a key that somebody else writes meanwhile: a former self at the same address.
const TRIES: usize = 3;

/// Renews this server's key; the addresses of all servers, in order.
pub async fn renew(state: &Arc<State>) -> Result<Vec<IpAddr>, ApiError> {
    let own = state.config.advertise_address;
    let key = format!("{PREFIX}{own}");
    let value = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {},
                       "subsets": [{"addresses": [{"ip": own.to_string()}]}]});
    let value = bytes::Bytes::from(crate::codec::serialize(state.schema, &value));
    for _ in 0..TRIES {
        let written = match state.store.get(&key).await.map_err(storage_error)? {
            Some(kv) => state.store.update(&key, value.clone(), kv.mod_revision, Some(LIFE)).await,
            None => state.store.create(&key, value.clone(), Some(LIFE)).await,
        };
        match written {
            Ok(_) => break,
            Err(Error::Conflict { .. } | Error::Exists { .. }) => {}
            Err(error) => return Err(storage_error(error)),
        }
    }
    let listing = state.store.list(ListOptions::prefix(PREFIX)).await.map_err(storage_error)?;
    let mut all: Vec<IpAddr> =
        listing.items.iter().filter_map(|kv| kv.key.strip_prefix(PREFIX)?.parse().ok()).collect();
    all.retain(|address| address.is_ipv4() == own.is_ipv4());
    all.sort();
    Ok(all)
}

/// Gives this server's key up, so that nobody is sent to it any more.
pub async fn leave(state: &State) {
    let key = format!("{PREFIX}{}", state.config.advertise_address);
    if let Ok(Some(kv)) = state.store.get(&key).await {
        let _ = state.store.delete(&key, kv.mod_revision).await;
    }
}
