//! Keeps the EndpointSlices of an owner; shared by the controllers that make them.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use pintle_client::cache::{Cache, Change};
use pintle_client::queue::Queue;

pub use plan::{Common, Group, sort_ports};

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::meta;
use crate::retry::{gone_is_fine, is_namespace_terminating};

/// Label with the Service's name.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label with the controller that a slice belongs to.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The slices that one controller manages.
pub struct Slices {
    ctx: Context,
    cache: Cache<EndpointSlice>,
    manager: &'static str,
    expectations: Expectations<String>,
}

impl Slices {
    /// The slices under the manager's label; a change of one wakes its Service in `queue`.
    pub async fn new(ctx: &Context, manager: &'static str, queue: &Queue<Key>) -> Self {
        let cache = ctx.cache::<EndpointSlice>();
        cache.synced().await;
        let expectations = Expectations::default();
        let (seen, keys) = (expectations.clone(), queue.clone());
        cache.on_change(ctx.shutdown.clone(), move |change| {
            let slice = change.object();
            if meta::labels(&slice.metadata).get(MANAGED_BY).map(String::as_str) != Some(manager) {
                // A slice that was ours and is not any more is replaced.
                if let Change::Updated { old, .. } = &change {
                    keys_of(old).into_iter().for_each(|k| keys.add(k));
                }
                return;
            }
            if let (Change::Added(_), Some(owner)) = (&change, meta::controller_of(&slice.metadata)) {
                seen.saw_creation(&owner.uid);
            }
            keys_of(slice).into_iter().for_each(|k| keys.add(k));
        });
        Self { ctx: ctx.clone(), cache, manager, expectations }
    }

    /// The slices of a Service.
    fn of(&self, key: &Key) -> Vec<Arc<EndpointSlice>> {
        let ours = |s: &EndpointSlice| {
            let labels = meta::labels(&s.metadata);
            labels.get(SERVICE_NAME) == Some(&key.name)
                && labels.get(MANAGED_BY).map(String::as_str) == Some(self.manager)
        };
        self.cache.list_in(&key.ns).into_iter().filter(|s| ours(s)).collect()
    }

    /// Deletes all slices of a Service.
    pub async fn remove(&self, key: &Key) -> anyhow::Result<()> {
        for slice in self.of(key) {
            self.delete(key, meta::name(&slice.metadata), slice.metadata.uid.clone()).await?;
        }
        Ok(())
    }

    /// Makes the slices of a Service hold exactly the groups.
    pub async fn apply(&self, key: &Key, mut common: Common, groups: Vec<Group>) -> anyhow::Result<()> {
        let uid = common.owner.uid.clone();
        // An outstanding creation wakes the Service again when the cache shows it.
        if !self.expectations.satisfied(&uid) {
            return Ok(());
        }
        common.labels.insert(SERVICE_NAME.to_owned(), key.name.clone());
        common.labels.insert(MANAGED_BY.to_owned(), self.manager.to_owned());
        let present = self.of(key);
        let plan = plan::plan(&common, &present, groups);
        let api = self.ctx.api::<EndpointSlice>(&key.ns);
        self.expectations.expect_creations(&uid, plan.create.len());
        let mut result = Ok(());
        for slice in &plan.create {
            if result.is_ok() {
                result = api.create(&PostParams::default(), slice).await.map(|_| ());
                if result.is_ok() {
                    continue;
                }
            }
            self.expectations.saw_creation(&uid);
        }
        match result {
            Err(error) if is_namespace_terminating(&error) => return Ok(()),
            other => other?,
        }
        for slice in &plan.update {
            api.replace(meta::name(&slice.metadata), &PostParams::default(), slice).await?;
        }
        let uids: BTreeMap<&str, _> =
            present.iter().map(|s| (meta::name(&s.metadata), s.metadata.uid.clone())).collect();
        for name in &plan.delete {
            self.delete(key, name, uids.get(name.as_str()).cloned().flatten()).await?;
        }
        Ok(())
    }

    async fn delete(&self, key: &Key, name: &str, uid: Option<String>) -> anyhow::Result<()> {
        let same = Preconditions { uid, resource_version: None };
        let params = DeleteParams::default().preconditions(same);
        gone_is_fine(self.ctx.api::<EndpointSlice>(&key.ns).delete(name, &params).await.map(|_| ()))?;
        Ok(())
    }
}

fn keys_of(slice: &EndpointSlice) -> Option<Key> {
    let service = meta::labels(&slice.metadata).get(SERVICE_NAME)?;
    Some(Key::new(meta::namespace(&slice.metadata), service))
}
