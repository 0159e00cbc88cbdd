//! persistentvolume-binder-controller: brings claims and volumes that are there together. Nobody makes volumes here: that
//! is for provisioners outside.

mod plan;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use pintle_api::volumes::{CHOSEN, COMPLETE, class_of, is_for};
use pintle_client::cache::Cache;
use pintle_client::events::Recorder;
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::key::Key;
use crate::meta;
use crate::retry::gone_is_fine;
use plan::{Class, Step};

struct Controller {
    ctx: Context,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    recorder: Recorder,
}

/// Claims by namespace and name; volumes have no namespace.
type Queued = Queue<Key>;

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let controller = Arc::new(Controller {
        claims: ctx.cache(),
        volumes: ctx.cache(),
        classes: ctx.cache(),
        recorder: ctx.recorder("persistentvolume-controller"),
        ctx: ctx.clone(),
    });
    controller.claims.synced().await;
    controller.volumes.synced().await;
    controller.classes.synced().await;
    let queue: Queued = ctx.queue("claims");
    let keys = queue.clone();
    let volumes = controller.volumes.clone();
    controller.claims.on_change(ctx.shutdown.clone(), move |change| {
        let claim = change.object();
        keys.add(Key::of(&**claim));
        for volume in volumes.list().iter().filter(|volume| is_for(volume, claim)) {
            keys.add(Key::of(&**volume));
        }
    });
    let (keys, claims) = (queue.clone(), controller.claims.clone());
    let pending = move |keys: &Queued| {
        let open = |claim: &PersistentVolumeClaim| claim.spec.as_ref().is_none_or(|spec| spec.volume_name.is_none());
        claims.list().iter().filter(|claim| open(claim)).for_each(|claim| keys.add(Key::of(&**claim)));
    };
    let wake = pending.clone();
    controller.volumes.on_change(ctx.shutdown.clone(), move |change| {
        let volume = change.object();
        keys.add(Key::of(&**volume));
        if let Some(claim) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
            let name = claim.name.clone().unwrap_or_default();
            keys.add(Key::new(claim.namespace.clone().unwrap_or_default(), name));
        } else {
            wake(&keys);
        }
    });
    let keys = queue.clone();
    controller.classes.on_change(ctx.shutdown.clone(), move |_| pending(&keys));
    // One worker: no volume is given to two claims.
    reconcile::run(queue, 1, ctx.shutdown, |key| {
        let controller = controller.clone();
        async move {
            match key.ns() {
                Some(_) => controller.claim(&key).await,
                None => controller.volume(&key).await,
            }
        }
    })
    .await;
    Ok(())
}

impl Controller {
    fn class(&self, name: &str) -> Class {
        match self.classes.get(None, name) {
            None => Class::default(),
            Some(class) => Class {
                provisioner: Some(class.provisioner.clone()),
                waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            },
        }
    }

    async fn claim(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(claim) = self.claims.get(key.ns(), &key.name) else { return Ok(Action::Done) };
        if meta::is_deleting(&claim.metadata) {
            return Ok(Action::Done);
        }
        let volumes = self.volumes.list();
        let class = self.class(class_of(&claim));
        match plan::claim(&claim, volumes.iter().map(|volume| &**volume), &class) {
            Step::Bind(name) => {
                if let Some(volume) = self.volumes.get(None, &name) {
                    self.bind(&claim, &volume).await?;
                }
            }
            Step::Stay(phase, why) => {
                if let Some((reason, message)) = why.filter(|_| phase_of(&claim) != phase || phase == "Pending") {
                    let normal = matches!(reason, "FailedBinding" | "WaitForFirstConsumer" | "ExternalProvisioning");
                    let about = claim.object_ref(&());
                    match normal {
                        true => self.recorder.normal(&about, reason, message),
                        false => self.recorder.warning(&about, reason, message),
                    }
                }
                if phase_of(&claim) != phase {
                    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
                    let api = self.ctx.api::<PersistentVolumeClaim>(&key.ns);
                    gone_is_fine(api.patch_status(&key.name, &PatchParams::default(), &patch).await)?;
                }
            }
        }
        Ok(Action::Done)
    }

    /// First the volume's side, then the claim's: whatever is interrupted is completed later.
    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> anyhow::Result<()> {
        let params = PatchParams::default();
        let (ns, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
        let held = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let volumes = self.ctx.api_all::<PersistentVolume>();
        if held.and_then(|held| held.uid.as_deref()) != Some(meta::uid(&claim.metadata)) {
            let mut patch = json!({
                "metadata": {"uid": volume.metadata.uid, "resourceVersion": volume.metadata.resource_version},
                "spec": {"claimRef": reference(claim)},
            });
            if held.is_none() {
                patch["metadata"]["annotations"] = json!({CHOSEN: "yes"});
            }
            volumes.patch(&volume.name_any(), &params, &Patch::Merge(patch)).await?;
        }
        let claims = self.ctx.api::<PersistentVolumeClaim>(ns);
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) == volume.metadata.name.as_deref();
        if !named || meta::annotation(&claim.metadata, COMPLETE).is_none() {
            let mut annotations = json!({COMPLETE: "yes"});
            if !named {
                annotations[CHOSEN] = json!("yes");
            }
            let patch = json!({
                "metadata": {"uid": claim.metadata.uid, "annotations": annotations},
                "spec": {"volumeName": volume.name_any()},
            });
            claims.patch(name, &params, &Patch::Merge(patch)).await?;
        }
        if phase_of(claim) != "Bound" {
            let spec = volume.spec.clone().unwrap_or_default();
            let status = json!({"phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity});
            claims.patch_status(name, &params, &Patch::Merge(json!({"status": status}))).await?;
        }
        Ok(())
    }

    async fn volume(&self, key: &Key) -> anyhow::Result<Action> {
        let Some(volume) = self.volumes.get(None, &key.name) else { return Ok(Action::Done) };
        let held = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let claim = held.and_then(|held| self.claims.get(held.namespace.as_deref(), &held.name.unwrap_or_default()));
        let phase = plan::phase(&volume, claim.as_deref());
        let current = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if current != phase {
            let patch = Patch::Merge(json!({"status": {"phase": phase}}));
            let api = self.ctx.api_all::<PersistentVolume>();
            gone_is_fine(api.patch_status(&key.name, &PatchParams::default(), &patch).await)?;
        }
        Ok(Action::Done)
    }
}

fn phase_of(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    claim.object_ref(&())
}
