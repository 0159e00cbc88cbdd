//! Keeps what is served in step with the definitions.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tracing::warn;

use super::definition;
use crate::cache::Cache;
use crate::internal;
use crate::registry;
use crate::resource::Resource;
use crate::state::State;

/// Group and plural name of definitions.
pub const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// What a definition gave when it was last looked at.
struct Known {
    /// The definition without its metadata: what resources are made of.
    of: (Value, Value),
    cache: Arc<Cache>,
    resources: Vec<Arc<Resource>>,
}

/// Serves what is established, until shutdown.
pub async fn run(state: Arc<State>) {
    state.cached().await;
    let Some(cache) = state.any_version(DEFINITIONS.0, DEFINITIONS.1).and_then(|resource| resource.cache.clone())
    else {
        return;
    };
    let mut known: HashMap<String, Known> = HashMap::new();
    loop {
        // The cursor first: what comes after it is seen by the next round.
        let (_, _, mut cursor) = cache.snapshot_and_cursor();
        round(&state, &mut known).await;
        tokio::select! {
            alive = cursor.wait() => if !alive { return },
            () = state.shutdown.cancelled() => return,
        }
    }
}

async fn round(state: &Arc<State>, known: &mut HashMap<String, Known>) {
    let definitions = internal::list(state, DEFINITIONS.0, DEFINITIONS.1, "");
    let served = |definition: &&Arc<Value>| definition::is(definition, "Established", "True");
    let mut next = HashMap::new();
    let mut changed = false;
    for definition in definitions.iter().filter(served) {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let of = (definition["spec"].clone(), definition["status"]["acceptedNames"].clone());
        let old = known.remove(&name);
        if let Some(old) = old {
            if old.of == of {
                next.insert(name, old);
                continue;
            }
            changed = true;
            next.insert(name, entry(definition, of, old.cache));
            continue;
        }
        let cache = Arc::new(Cache::new(definition::prefix(definition), &registry::CUSTOM));
        if let Err(error) = state.caches.add(cache.clone()).await {
            warn!(%error, name, "custom resources could not be read");
            continue;
        }
        changed = true;
        next.insert(name, entry(definition, of, cache));
    }
    for gone in known.values() {
        changed = true;
        state.caches.remove(&gone.cache.prefix);
    }
    *known = next;
    if changed {
        let mut all: Vec<&Known> = known.values().collect();
        all.sort_by(|left, right| left.cache.prefix.cmp(&right.cache.prefix));
        state.serve_custom(all.iter().flat_map(|known| known.resources.iter().cloned()).collect());
    }
}

fn entry(definition: &Value, of: (Value, Value), cache: Arc<Cache>) -> Known {
    let resources = definition::resources(definition, pintle_api::schema(), &cache);
    Known { of, resources: resources.into_iter().map(Arc::new).collect(), cache }
}
