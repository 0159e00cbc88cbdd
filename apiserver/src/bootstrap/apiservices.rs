//! An APIService for each group and version that this server serves itself: `kubectl get apiservices` lists them, and the
//! order of groups is by their priorities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pintle_machinery::status::ApiError;
use serde_json::{Value, json};
use tracing::warn;

use crate::internal::{self, Address};
use crate::state::State;

/// Says who keeps an object, and how long.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
/// What custom groups have, and versions that have nothing else.
const CUSTOM: (i64, i64) = (1000, 100);
const VERSION: i64 = 15;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Groups and their priorities.
const GROUPS: [(&str, i64); 22] = [
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("apiextensions.k8s.io", 16700),
    ("admissionregistration.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("resource.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("internal.apiserver.k8s.io", 16000),
    ("storagemigration.k8s.io", 15800),
];

/// Versions whose priority is another than most have.
const VERSIONS: [(&str, &str, i64); 4] = [
    ("", "v1", 1),
    ("autoscaling", "v2", 30),
    ("flowcontrol.apiserver.k8s.io", "v1", 21),
    ("resource.k8s.io", "v1", 21),
];

/// Keeps the objects in step with what is served, until shutdown.
pub async fn run(state: Arc<State>) {
    state.wait_bootstrapped().await;
    let mut changes = state.served_changes();
    loop {
        changes.mark_unchanged();
        let done = pass(&state).await;
        if let Err(error) = &done {
            warn!(?error, "keeping the APIServices failed, trying again");
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if done.is_err() => {}
            () = state.shutdown.cancelled() => return,
        }
    }
}

async fn pass(state: &Arc<State>) -> Result<(), ApiError> {
    let mut wanted = BTreeMap::new();
    for resource in &state.served().resources {
        let name = format!("{}.{}", resource.version, resource.group);
        wanted
            .entry(name)
            .or_insert_with_key(|name| object(name, (&resource.group, &resource.version), resource.custom.is_some()));
    }
    for old in internal::list(state, "apiregistration.k8s.io", "apiservices", "") {
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        if !wanted.contains_key(name) && old["metadata"]["labels"][LABEL] == "true" {
            internal::remove(state, address(name)).await?;
        }
    }
    for (name, object) in wanted {
        internal::ensure(state, address(&name), object).await?;
    }
    Ok(())
}

fn address(name: &str) -> Address<'_> {
    Address::new("apiregistration.k8s.io", "apiservices", "", name)
}

fn object(name: &str, (group, version): (&str, &str), custom: bool) -> Value {
    let (of_group, of_version) = match custom {
        true => CUSTOM,
        false => {
            let own = GROUPS.iter().find(|(name, _)| *name == group).map_or(CUSTOM.0, |(_, priority)| *priority);
            let of_version = VERSIONS.iter().find(|(name, of, _)| *name == group && *of == version);
            (own, of_version.map_or(VERSION, |(.., priority)| *priority))
        }
    };
    let mut spec = json!({"version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
    if !group.is_empty() {
        spec["group"] = json!(group);
    }
    json!({"metadata": {"name": name, "labels": {LABEL: if custom { "true" } else { "onstart" }}}, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities() {
        let spec = |group, version, custom| object("x", (group, version), custom)["spec"].clone();
        assert_eq!(
            spec("", "v1", false),
            json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1})
        );
        assert_eq!(spec("autoscaling", "v2", false)["versionPriority"], 30);
        assert_eq!(spec("apps", "v1", false)["versionPriority"], 15);
        assert_eq!(spec("example.com", "v1", true)["groupPriorityMinimum"], 1000);
        assert_eq!(object("x", ("example.com", "v1"), true)["metadata"]["labels"][LABEL], "true");
    }
}
