//! pod-garbage-collector-controller: removes pods that nobody else will ever remove.

mod plan;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use pintle_client::cache::Cache;
use serde_json::json;

use crate::context::Context;
use crate::retry::gone_is_fine;
use crate::{meta, pods};
use plan::Why;

/// How often the caches are looked through.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing before its pods count as orphaned.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let (nodes, all): (Cache<Node>, Cache<Pod>) = (ctx.cache(), ctx.cache());
    nodes.synced().await;
    all.synced().await;
    let mut missing: HashMap<String, Instant> = HashMap::new();
    loop {
        tokio::select! {
            () = ctx.shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(PERIOD) => {}
        }
        let doomed = plan::plan(&all.list(), &|name| nodes.get(None, name), ctx.config.terminated_pod_threshold);
        missing.retain(|name, _| nodes.get(None, name).is_none());
        for (pod, why) in doomed {
            if why == Why::Orphaned {
                let node = pods::node_name(&pod).to_owned();
                let since = *missing.entry(node.clone()).or_insert_with(Instant::now);
                if since.elapsed() < QUARANTINE || !is_gone(&ctx, &node).await {
                    continue;
                }
            }
            if let Err(error) = remove(&ctx, &pod, why).await {
                tracing::debug!(%error, pod = meta::name(&pod.metadata), "pod not removed, will retry");
            }
        }
    }
}

async fn is_gone(ctx: &Context, node: &str) -> bool {
    matches!(ctx.api_all::<Node>().get_metadata_opt(node).await, Ok(None))
}

async fn remove(ctx: &Context, pod: &Pod, why: Why) -> kube::Result<()> {
    let api = ctx.api::<Pod>(meta::namespace(&pod.metadata));
    let name = meta::name(&pod.metadata);
    if !pods::is_finished(pod) && matches!(why, Why::Orphaned | Why::OutOfService) {
        let mut status = json!({"phase": "Failed"});
        if why == Why::Orphaned {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": Timestamp::now(),
            }]);
        }
        let patch = json!({"metadata": {"uid": meta::uid(&pod.metadata)}, "status": status});
        gone_is_fine(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await)?;
    }
    tracing::info!(pod = name, namespace = meta::namespace(&pod.metadata), ?why, "removing pod");
    let same = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().grace_period(0).preconditions(same);
    gone_is_fine(api.delete(name, &params).await.map(|_| ()))?;
    Ok(())
}
