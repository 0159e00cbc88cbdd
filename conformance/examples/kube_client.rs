//! A program as users of kube-rs write it, against the cluster of KUBECONFIG: typed objects, apply, a watcher, a removal.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await.context("KUBECONFIG")?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted: Namespace = serde_json::from_value(json!({"metadata": {"generateName": "kube-rs-"}}))?;
    let name = namespaces.create(&PostParams::default(), &wanted).await?.name_any();
    let outcome = tokio::time::timeout(Duration::from_secs(60), session(client, &name)).await;
    namespaces.delete(&name, &DeleteParams::default()).await?;
    outcome.context("not within 60 s")?
}

async fn session(client: Client, namespace: &str) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let events = watcher(maps.clone(), watcher::Config::default().labels("app=web")).applied_objects();
    let mut events = std::pin::pin!(events);
    let apply = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"app": "web"}},
               "data": {"value": value}})
    };
    let own = PatchParams::apply("one");
    let made = maps.patch("one", &own, &Patch::Apply(apply("1"))).await?;
    ensure!(made.data.is_some_and(|data| data["value"] == "1"), "apply does not create");
    let seen = events.try_next().await?.context("the watch ends")?;
    ensure!(seen.name_any() == "one", "the watch shows {}", seen.name_any());
    let refused = maps.patch("one", &PatchParams::apply("two"), &Patch::Apply(apply("2"))).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409), "no conflict: {refused:?}");
    maps.patch("one", &PatchParams::apply("two").force(), &Patch::Apply(apply("2"))).await?;
    let seen = events.try_next().await?.context("the watch ends")?;
    ensure!(seen.data.is_some_and(|data| data["value"] == "2"), "the watch does not show the change");
    let removed = maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=web")).await?;
    ensure!(removed.left().is_some(), "deletecollection answers with a status");
    ensure!(maps.get_opt("one").await?.is_none(), "the object stays");
    Ok(())
}
