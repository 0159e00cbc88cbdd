//! service-cidr-controller: a range of Service addresses is ready, and stays as long as addresses of it are in use.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::meta;
use crate::retry::gone_is_fine;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let (ranges, addresses): (Cache<ServiceCIDR>, Cache<IPAddress>) = (ctx.cache(), ctx.cache());
    ranges.synced().await;
    addresses.synced().await;
    let queue: Queue<String> = ctx.queue("ipaddresses");
    let keys = queue.clone();
    // Any range may be what another one waits for.
    let all = ranges.clone();
    ranges.on_change(ctx.shutdown.clone(), move |change| {
        keys.add(change.object().name_any());
        all.list().iter().filter(|r| meta::is_deleting(&r.metadata)).for_each(|r| keys.add(r.name_any()));
    });
    let (keys, all) = (queue.clone(), ranges.clone());
    addresses.on_change(ctx.shutdown.clone(), move |_| {
        all.list().iter().filter(|r| meta::is_deleting(&r.metadata)).for_each(|r| keys.add(r.name_any()));
    });
    let shared = Arc::new((ctx.clone(), ranges, addresses));
    reconcile::run(queue, 1, ctx.shutdown, |name| {
        let shared = shared.clone();
        async move {
            let (ctx, ranges, addresses) = &*shared;
            let Some(range) = ranges.get(None, &name) else { return Ok(Action::Done) };
            let others: Vec<IpNet> = ranges
                .list()
                .iter()
                .filter(|other| other.name_any() != name && is_ready(other))
                .flat_map(|o| nets(o))
                .collect();
            let used: Vec<IpAddr> = addresses.list().iter().filter_map(|a| a.name_any().parse().ok()).collect();
            execute(ctx, &range, plan(&range, &others, &used)).await
        }
    })
    .await;
    Ok(())
}

/// What a range needs.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Hold,
    Ready,
    NotReady,
    LetGo,
}

fn nets(range: &ServiceCIDR) -> Vec<IpNet> {
    let all = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    all.filter_map(|text| text.parse().ok()).collect()
}

fn is_ready(range: &ServiceCIDR) -> bool {
    let all = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn plan(range: &ServiceCIDR, others: &[IpNet], used: &[IpAddr]) -> Step {
    let held = meta::has_finalizer(&range.metadata, FINALIZER);
    if meta::is_deleting(&range.metadata) {
        let own = nets(range);
        let orphan =
            |ip: &&IpAddr| own.iter().any(|net| net.contains(*ip)) && !others.iter().any(|net| net.contains(*ip));
        return match (held, used.iter().any(|ip| orphan(&ip))) {
            (false, _) => Step::Nothing,
            (true, false) => Step::LetGo,
            (true, true) if is_ready(range) => Step::NotReady,
            (true, true) => Step::Nothing,
        };
    }
    match (held, is_ready(range)) {
        (false, _) => Step::Hold,
        (true, false) => Step::Ready,
        (true, true) => Step::Nothing,
    }
}

async fn execute(ctx: &Context, range: &ServiceCIDR, step: Step) -> anyhow::Result<Action> {
    let api = ctx.api_all::<ServiceCIDR>();
    let name = range.name_any();
    let params = PatchParams::default();
    let mut finalizers = range.metadata.finalizers.clone().unwrap_or_default();
    let condition = |status: &str, reason: &str, message: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": Timestamp::now()}]}})
    };
    let status = match step {
        Step::Nothing => return Ok(Action::Done),
        Step::Hold | Step::LetGo => {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if step == Step::Hold {
                finalizers.push(FINALIZER.to_owned());
            }
            let patch = json!({"metadata": {"uid": range.metadata.uid, "finalizers": finalizers,
                "resourceVersion": range.metadata.resource_version}});
            gone_is_fine(api.patch(&name, &params, &Patch::Merge(patch)).await)?;
            return Ok(Action::Done);
        }
        Step::Ready => condition("True", "", "Kubernetes Service CIDR is ready"),
        Step::NotReady => condition(
            "False",
            "Terminating",
            "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
        ),
    };
    gone_is_fine(api.patch_status(&name, &params, &Patch::Merge(status)).await)?;
    Ok(Action::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(held: bool, ready: bool, deleting: bool) -> ServiceCIDR {
        let mut range = json!({"metadata": {"name": "r"}, "spec": {"cidrs": ["10.0.0.0/24"]}});
        if held {
            range["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        if ready {
            let condition = json!({"type": "Ready", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            range["status"] = json!({"conditions": [condition]});
        }
        if deleting {
            range["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(range).expect("a range")
    }

    #[test]
    fn ranges_stay_while_they_are_used() {
        let inside: Vec<IpAddr> = vec!["10.0.0.9".parse().expect("valid")];
        let whole: Vec<IpNet> = vec!["10.0.0.0/8".parse().expect("valid")];
        for (held, ready, deleting, others, used, expected) in [
            (false, false, false, &[][..], &[][..], Step::Hold),
            (true, false, false, &[], &[], Step::Ready),
            (true, true, false, &[], &inside, Step::Nothing),
            (true, true, true, &[], &inside, Step::NotReady),
            (true, false, true, &[], &inside, Step::Nothing),
            (true, true, true, &whole, &inside, Step::LetGo),
            (true, true, true, &[], &[], Step::LetGo),
        ] {
            assert_eq!(plan(&range(held, ready, deleting), others, used), expected);
        }
    }
}
