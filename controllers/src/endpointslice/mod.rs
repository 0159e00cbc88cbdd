//! endpointslice-controller: the slices of every Service with a selector.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use pintle_client::cache::Cache;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::slices::{Common, Slices};
use crate::{meta, services};

const MANAGER: &str = "endpointslice-controller.k8s.io";

struct Controller {
    services: Cache<Service>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    slices: Slices,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let queue = ctx.queue("endpoint_slice");
    let controller = Arc::new(Controller {
        services: ctx.cache(),
        pods: ctx.cache(),
        nodes: ctx.cache(),
        slices: Slices::new(&ctx, MANAGER, &queue).await,
    });
    controller.services.synced().await;
    controller.pods.synced().await;
    controller.nodes.synced().await;
    services::follow(&ctx, &controller.services, &queue);
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(service) = self.services.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        let external = service.spec.as_ref().is_some_and(|s| s.type_.as_deref() == Some("ExternalName"));
        if services::selector(&service).is_none() || external || meta::is_deleting(&service.metadata) {
            return Ok(Action::Done);
        }
        let pods = self.pods.list_in(&key.ns).into_iter();
        let pods: Vec<_> = pods.filter(|p| services::selects(&service, meta::labels(&p.metadata))).collect();
        let groups = plan::groups(&service, &pods, &|name| self.nodes.get(None, name));
        let common = Common {
            namespace: key.ns.clone(),
            name: key.name.clone(),
            owner: meta::controller_ref(&*service),
            labels: plan::labels(&service),
            annotations: BTreeMap::new(),
        };
        self.slices.apply(key, common, groups).await?;
        Ok(Action::Done)
    }
}
