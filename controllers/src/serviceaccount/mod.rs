//! serviceaccount-controller: every namespace has its `default` service account.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::namespace::is_active;
use crate::retry::{is_already_exists, is_namespace_terminating, is_not_found};

const NAME: &str = "default";

struct Controller {
    ctx: Context,
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller { namespaces: ctx.cache(), accounts: ctx.cache(), ctx: ctx.clone() });
    controller.namespaces.synced().await;
    controller.accounts.synced().await;
    let queue: Queue<String> = ctx.queue("serviceaccount");
    let keys = queue.clone();
    controller.namespaces.on_change(ctx.shutdown.clone(), move |change| keys.add(change.object().name_any()));
    let keys = queue.clone();
    controller.accounts.on_change(ctx.shutdown.clone(), move |change| {
        let account = change.object();
        if account.name_any() == NAME {
            keys.add(account.namespace().unwrap_or_default());
        }
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |namespace| {
        let controller = controller.clone();
        async move { controller.reconcile(&namespace).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, namespace: &str) -> anyhow::Result<Action> {
        let live = self.namespaces.get(None, namespace).is_some_and(|n| is_active(&n));
        if !live || self.accounts.get(Some(namespace), NAME).is_some() {
            return Ok(Action::Done);
        }
        let metadata =
            ObjectMeta { name: Some(NAME.into()), namespace: Some(namespace.into()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match self.ctx.api::<ServiceAccount>(namespace).create(&PostParams::default(), &account).await {
            Err(e) if is_already_exists(&e) || is_namespace_terminating(&e) || is_not_found(&e) => Ok(Action::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Action::Done),
        }
    }
}
