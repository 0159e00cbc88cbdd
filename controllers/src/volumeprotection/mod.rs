//! persistentvolumeclaim-protection-controller, persistentvolume-protection-controller and
//! volumeattributesclass-protection-controller: what is in use stays until nobody uses it any more.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pintle_api::volumes::claims_of;
use pintle_client::cache::{Cache, Cached};
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::key::Key;
use crate::retry::gone_is_fine;
use crate::{meta, pods};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";

/// Runs persistentvolumeclaim-protection-controller.
pub async fn claims(ctx: Context) -> anyhow::Result<()> {
    let (claims, all): (Cache<PersistentVolumeClaim>, Cache<Pod>) = (ctx.cache(), ctx.cache());
    claims.synced().await;
    all.synced().await;
    let queue: Queue<Key> = ctx.queue("pvcprotection");
    let keys = queue.clone();
    claims.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let keys = queue.clone();
    all.on_change(ctx.shutdown.clone(), move |change| {
        let pod = change.object();
        let done = matches!(change, pintle_client::cache::Change::Deleted(_)) || pods::is_finished(pod);
        for claim in claims_of(pod).filter(|_| done) {
            keys.add(Key::new(meta::namespace(&pod.metadata), claim));
        }
    });
    let shared = Arc::new((ctx.clone(), claims, all));
    reconcile::run(queue, 1, ctx.shutdown, |key| {
        let shared = shared.clone();
        async move {
            let (ctx, claims, pods) = &*shared;
            let Some(claim) = claims.get(key.ns(), &key.name) else { return Ok(Action::Done) };
            let used = pods.list_in(&key.ns).iter().any(|p| uses(p, &key.name));
            write(&ctx.api::<PersistentVolumeClaim>(&key.ns), &claim.metadata, CLAIM, used).await
        }
    })
    .await;
    Ok(())
}

/// Runs persistentvolume-protection-controller.
pub async fn volumes(ctx: Context) -> anyhow::Result<()> {
    let volumes: Cache<PersistentVolume> = ctx.cache();
    volumes.synced().await;
    let queue: Queue<Key> = ctx.queue("pvprotection");
    let keys = queue.clone();
    volumes.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let shared = Arc::new((ctx.clone(), volumes));
    reconcile::run(queue, 1, ctx.shutdown, |key| {
        let shared = shared.clone();
        async move {
            let (ctx, volumes) = &*shared;
            let Some(volume) = volumes.get(None, &key.name) else { return Ok(Action::Done) };
            let used = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
            write(&ctx.api_all::<PersistentVolume>(), &volume.metadata, VOLUME, used).await
        }
    })
    .await;
    Ok(())
}

/// Runs volumeattributesclass-protection-controller.
pub async fn classes(ctx: Context) -> anyhow::Result<()> {
    let all: Cache<VolumeAttributesClass> = ctx.cache();
    let (claims, volumes): (Cache<PersistentVolumeClaim>, Cache<PersistentVolume>) = (ctx.cache(), ctx.cache());
    all.synced().await;
    claims.synced().await;
    volumes.synced().await;
    let queue: Queue<Key> = ctx.queue("vacprotection");
    let going = {
        let all = all.clone();
        move |keys: &Queue<Key>| {
            all.list().iter().filter(|c| meta::is_deleting(&c.metadata)).for_each(|c| keys.add(Key::of(&**c)));
        }
    };
    let keys = queue.clone();
    all.on_change(ctx.shutdown.clone(), move |change| keys.add(Key::of(&**change.object())));
    let (keys, wake) = (queue.clone(), going.clone());
    claims.on_change(ctx.shutdown.clone(), move |_| wake(&keys));
    let keys = queue.clone();
    volumes.on_change(ctx.shutdown.clone(), move |_| going(&keys));
    let shared = Arc::new((ctx.clone(), all, claims, volumes));
    reconcile::run(queue, 1, ctx.shutdown, |key| {
        let shared = shared.clone();
        async move {
            let (ctx, all, claims, volumes) = &*shared;
            let Some(class) = all.get(None, &key.name) else { return Ok(Action::Done) };
            let name = Some(key.name.as_str());
            let used = claims.list().iter().any(|claim| classes_of(claim).any(|own| Some(own) == name))
                || volumes.list().iter().any(|volume| {
                    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()) == name
                });
            write(&ctx.api_all::<VolumeAttributesClass>(), &class.metadata, CLASS, used).await
        }
    })
    .await;
    Ok(())
}

/// The classes of attributes that a claim has, wants, or is on its way to.
fn classes_of(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = target.and_then(|target| target.target_volume_attributes_class_name.as_deref());
    [wanted, current, target].into_iter().flatten()
}

/// True if the pod has or may yet get the claim's volume.
fn uses(pod: &Pod, claim: &str) -> bool {
    let never_placed = pods::node_name(pod).is_empty() && meta::is_deleting(&pod.metadata);
    !pods::is_finished(pod) && !never_placed && claims_of(pod).any(|c| c == claim)
}

/// The finalizers as they should be; `None` if they are.
fn finalizers(object: &ObjectMeta, finalizer: &str, used: bool) -> Option<Vec<String>> {
    let has = meta::has_finalizer(object, finalizer);
    let mut all = object.finalizers.clone().unwrap_or_default();
    match (meta::is_deleting(object), has) {
        (true, true) if !used => all.retain(|f| f != finalizer),
        (false, false) => all.push(finalizer.to_owned()),
        _ => return None,
    }
    Some(all)
}

async fn write<K: Cached>(api: &Api<K>, object: &ObjectMeta, finalizer: &str, used: bool) -> anyhow::Result<Action> {
    if let Some(all) = finalizers(object, finalizer, used) {
        let patch = json!({"metadata": {
            "uid": object.uid, "resourceVersion": object.resource_version, "finalizers": all,
        }});
        gone_is_fine(api.patch_metadata(meta::name(object), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    }
    Ok(Action::Done)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn protection_ends_with_the_last_use() {
        let object = |deleting: bool, protected: bool| ObjectMeta {
            deletion_timestamp: deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
            finalizers: protected.then(|| vec!["f".to_owned()]),
            ..ObjectMeta::default()
        };
        for (deleting, protected, used, expected) in [
            (false, true, false, None),
            (false, false, false, Some(vec!["f".to_owned()])),
            (true, true, true, None),
            (true, true, false, Some(vec![])),
            (true, false, false, None),
        ] {
            assert_eq!(finalizers(&object(deleting, protected), "f", used), expected);
        }
    }
}
