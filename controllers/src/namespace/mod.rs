//! namespace-controller: empties a namespace that is being deleted, pods first, then lets it go.

mod plan;

use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use pintle_client::cache::Cache;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};

use crate::context::Context;
use crate::discovery::{self, Resource};
use crate::meta;
use crate::retry::{gone_is_fine, is_conflict, is_not_found, message};
use plan::Remains;

const FINALIZER: &str = "kubernetes";
/// Resources that are looked at side by side.
const PARALLEL: usize = 8;

/// True if new things may be made in the namespace.
pub fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|s| s.phase.as_deref());
    !meta::is_deleting(&namespace.metadata) && phase != Some("Terminating")
}

struct Controller {
    ctx: Context,
    namespaces: Cache<Namespace>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller { namespaces: ctx.cache(), ctx: ctx.clone() });
    controller.namespaces.synced().await;
    let queue: Queue<String> = ctx.queue("namespace");
    let keys = queue.clone();
    controller.namespaces.on_change(ctx.shutdown.clone(), move |change| {
        if plan::waits_for_us(change.object()) {
            keys.add(change.object().name_any());
        }
    });
    reconcile::run(queue, ctx.config.workers, ctx.shutdown, |name| {
        let controller = controller.clone();
        async move { controller.reconcile(&name).await }
    })
    .await;
    Ok(())
}

impl Controller {
    async fn reconcile(&self, name: &str) -> anyhow::Result<Action> {
        if !self.namespaces.get(None, name).is_some_and(|n| plan::waits_for_us(&n)) {
            return Ok(Action::Done);
        }
        let api: Api<Namespace> = Api::all(self.ctx.client.clone());
        let Some(namespace) = gone_is_fine(api.get(name).await)? else { return Ok(Action::Done) };
        if !plan::waits_for_us(&namespace) {
            return Ok(Action::Done);
        }
        let remains = self.empty(name).await;
        let now = Timestamp::now();
        let status = plan::status(&namespace, &remains, now);
        let mut namespace = namespace;
        if namespace.status.as_ref() != Some(&status) {
            namespace.status = Some(status);
            match gone_is_fine(api.replace_status(name, &PostParams::default(), &namespace).await) {
                Ok(Some(written)) => namespace = written,
                Ok(None) => return Ok(Action::Done),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !remains.is_empty() {
            return Ok(Action::RequeueAfter(plan::wait(&namespace, now)));
        }
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
            finalizers.retain(|f| f != FINALIZER);
        }
        gone_is_fine(api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await)?;
        Ok(Action::Done)
    }

    /// Deletes everything in the namespace; other things only when no pod is left. Tells what remains.
    async fn empty(&self, namespace: &str) -> Remains {
        let mut remains = Remains::default();
        let resources = match discovery::resources(&self.ctx.client).await {
            Ok(all) => all.into_iter().filter(|r| r.namespaced && r.can("delete") && r.can("list")),
            Err(error) => {
                remains.discovery_failure = Some(message(&error));
                return remains;
            }
        };
        let (pods, others): (Vec<_>, Vec<_>) =
            resources.partition(|r| r.api.group.is_empty() && r.api.plural == "pods");
        for group in [pods, others] {
            let attempts: Vec<_> =
                group.iter().map(|r| self.delete_all(namespace, r).map(move |left| (r, left)).boxed()).collect();
            let results: Vec<_> = stream::iter(attempts).buffer_unordered(PARALLEL).collect().await;
            for (resource, left) in results {
                let label = format!("{}.{}", resource.api.plural, resource.api.group);
                match left {
                    Ok(left) => {
                        let finalizers = left.iter().flat_map(|o| o.metadata.finalizers.iter().flatten());
                        remains.add(label, left.len(), finalizers);
                    }
                    Err(error) => remains.failures.push(format!("{label}: {}", message(&error))),
                }
            }
            if !remains.is_empty() {
                break;
            }
        }
        remains
    }

    /// Deletes all objects of one resource; what is still there afterwards.
    async fn delete_all(
        &self,
        namespace: &str,
        resource: &Resource,
    ) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.ctx.client.clone(), namespace, &resource.api);
        let list = || async {
            match api.list_metadata(&ListParams::default()).await {
                Ok(list) => Ok(list.items),
                // The resource may have gone meanwhile.
                Err(error) if is_not_found(&error) => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        };
        let present = list().await?;
        if present.iter().all(|o| meta::is_deleting(&o.metadata)) {
            return Ok(present);
        }
        let params = DeleteParams::background();
        if resource.can("deletecollection") {
            gone_is_fine(api.delete_collection(&params, &ListParams::default()).await.map(|_| ()))?;
        } else {
            for object in &present {
                gone_is_fine(api.delete(meta::name(&object.metadata), &params).await.map(|_| ()))?;
            }
        }
        list().await
    }
}
