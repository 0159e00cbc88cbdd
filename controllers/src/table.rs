//! The controllers by name, and the loop that runs those that are turned on.

use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::context::Context;
use crate::{
    clusterrole, cronjob, csr, daemonset, deployment, disruption, endpoints, endpointslice, endpointslicemirroring,
    garbagecollector, job, namespace, nodeipam, nodelifecycle, persistentvolume, podgc, replicaset, resourcequota,
    root_ca, serviceaccount, servicecidr, statefulset, tainteviction, tokencleaner, ttl, volumeprotection,
};

/// One row of the table.
pub struct Controller {
    /// Upstream's name.
    pub name: &'static str,
    /// False if it runs only when it is named.
    pub on_by_default: bool,
    start: fn(Context) -> BoxFuture<'static, anyhow::Result<()>>,
}

macro_rules! controllers {
    ($($name:literal => $start:path),* $(,)?) => {
        &[$(Controller { name: $name, on_by_default: true, start: |ctx| Box::pin($start(ctx)) }),*]
    };
}

/// All controllers, in the order in which they start.
pub const CONTROLLERS: &[Controller] = controllers! {
    "serviceaccount-controller" => serviceaccount::run,
    "root-ca-certificate-publisher-controller" => root_ca::run,
    "namespace-controller" => namespace::run,
    "deployment-controller" => deployment::run,
    "replicaset-controller" => replicaset::replicasets,
    "replicationcontroller-controller" => replicaset::replication_controllers,
    "daemonset-controller" => daemonset::run,
    "statefulset-controller" => statefulset::run,
    "endpoints-controller" => endpoints::run,
    "endpointslice-controller" => endpointslice::run,
    "endpointslice-mirroring-controller" => endpointslicemirroring::run,
    "garbage-collector-controller" => garbagecollector::run,
    "job-controller" => job::run,
    "cronjob-controller" => cronjob::run,
    "ttl-after-finished-controller" => ttl::run,
    "node-lifecycle-controller" => nodelifecycle::run,
    "taint-eviction-controller" => tainteviction::run,
    "node-ipam-controller" => nodeipam::run,
    "pod-garbage-collector-controller" => podgc::run,
    "persistentvolumeclaim-protection-controller" => volumeprotection::claims,
    "persistentvolume-protection-controller" => volumeprotection::volumes,
    "volumeattributesclass-protection-controller" => volumeprotection::classes,
    "persistentvolume-binder-controller" => persistentvolume::run,
    "service-cidr-controller" => servicecidr::run,
    "token-cleaner-controller" => tokencleaner::run,
    "disruption-controller" => disruption::run,
    "certificatesigningrequest-approving-controller" => csr::approving,
    "certificatesigningrequest-signing-controller" => csr::signing,
    "certificatesigningrequest-cleaner-controller" => csr::cleaner,
    "resourcequota-controller" => resourcequota::run,
    "clusterrole-aggregation-controller" => clusterrole::run,
};

/// True if the list of names (`*`, `foo`, `-foo`) turns the controller on. A name weighs more than the star.
pub fn is_enabled(list: &[String], name: &str, on_by_default: bool) -> bool {
    let off = |entry: &String| entry.strip_prefix('-') == Some(name);
    if list.iter().any(off) {
        return false;
    }
    list.iter().any(|entry| entry == name) || (on_by_default && list.iter().any(|entry| entry == "*"))
}

/// The entries of an enable list that name no controller.
pub fn unknown(list: &[String]) -> Vec<&str> {
    let names = list.iter().map(|entry| entry.strip_prefix('-').unwrap_or(entry));
    names.filter(|name| *name != "*" && !CONTROLLERS.iter().any(|c| c.name == *name)).collect()
}

/// Runs the enabled controllers until `shutdown`; one that fails ends all of them.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let unknown = unknown(&config.controllers);
    if !unknown.is_empty() {
        anyhow::bail!("no such controller: {}", unknown.join(", "));
    }
    let stop = shutdown.child_token();
    let _stop_all = stop.clone().drop_guard();
    let ctx = Context::new(client, config, stop.clone());
    let mut running = tokio::task::JoinSet::new();
    for controller in CONTROLLERS {
        if !is_enabled(&ctx.config.controllers, controller.name, controller.on_by_default) {
            continue;
        }
        tracing::info!(controller = controller.name, "starting");
        let work = (controller.start)(ctx.clone());
        let stop = stop.clone();
        running.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                outcome = work => outcome.map_err(|e| e.context(controller.name)),
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    stop.cancelled().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enable_list() {
        let list = |s: &str| s.split(',').map(str::to_owned).collect::<Vec<_>>();
        for (names, default, expected) in [
            ("*", true, true),
            ("*", false, false),
            ("*,foo", false, true),
            ("*,-foo", true, false),
            ("-foo,foo", true, false),
            ("bar", true, false),
            ("foo", true, true),
        ] {
            assert_eq!(is_enabled(&list(names), "foo", default), expected, "{names}");
        }
    }

    #[test]
    fn names_are_checked_and_unique() {
        assert_eq!(unknown(&["*".into(), "-deployment-controller".into(), "nonsense".into()]), ["nonsense"]);
        let mut names: Vec<_> = CONTROLLERS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTROLLERS.len());
    }
}
