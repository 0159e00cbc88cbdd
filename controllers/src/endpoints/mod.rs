//! endpoints-controller: the old Endpoints object of every Service with a selector.

mod plan;

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::{DeleteParams, PostParams};
use parking_lot::Mutex;
use pintle_client::cache::{Cache, Change};
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::key::Key;
use crate::retry::{gone_is_fine, is_already_exists, is_namespace_terminating};
use crate::{meta, services};

struct Controller {
    ctx: Context,
    services: Cache<Service>,
    pods: Cache<Pod>,
    endpoints: Cache<Endpoints>,
    /// Services that were seen to go: their Endpoints go too, whoever made them.
    gone: Mutex<HashSet<Key>>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let queue = ctx.queue("endpoint");
    let controller = Arc::new(Controller {
        services: ctx.cache(),
        pods: ctx.cache(),
        endpoints: ctx.cache(),
        gone: Mutex::default(),
        ctx: ctx.clone(),
    });
    controller.services.synced().await;
    controller.pods.synced().await;
    controller.endpoints.synced().await;
    let this = controller.clone();
    controller.services.on_change(ctx.shutdown.clone(), move |change| {
        if let Change::Deleted(service) = &change {
            this.gone.lock().insert(Key::of(&**service));
        }
    });
    services::follow(&ctx, &controller.services, &queue);
    let keys = queue.clone();
    controller.endpoints.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> anyhow::Result<Action> {
        let present = self.endpoints.get(key.ns(), &key.name);
        let api = self.ctx.api::<Endpoints>(&key.ns);
        let Some(service) = self.services.get(key.ns(), &key.name) else {
            let gone = self.gone.lock().contains(key);
            let ours = |e: &Endpoints| {
                meta::labels(&e.metadata).get(plan::MANAGED_BY.0).map(String::as_str) == Some(plan::MANAGED_BY.1)
            };
            if present.is_some_and(|e| gone || ours(&e)) {
                gone_is_fine(api.delete(&key.name, &DeleteParams::default()).await.map(|_| ()))?;
            }
            self.gone.lock().remove(key);
            return Ok(Action::Done);
        };
        self.gone.lock().remove(key);
        if services::selector(&service).is_none() || meta::is_deleting(&service.metadata) {
            return Ok(Action::Done);
        }
        let pods = self.pods.list_in(&key.ns).into_iter();
        let pods: Vec<_> = pods.filter(|p| services::selects(&service, meta::labels(&p.metadata))).collect();
        let wanted = plan::desired(&service, &pods, present.as_deref());
        if present.as_deref() == Some(&wanted) {
            return Ok(Action::Done);
        }
        let written = match present {
            None => api.create(&PostParams::default(), &wanted).await,
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
        };
        match written {
            Err(error) if is_namespace_terminating(&error) || is_already_exists(&error) => Ok(Action::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Action::Done),
        }
    }
}
