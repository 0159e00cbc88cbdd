//! garbage-collector-controller: what nobody owns any more goes; what is deleted in the foreground goes after what it owns.

mod graph;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use pintle_client::queue::Queue;
use pintle_client::reconcile::{self, Action};
use serde_json::json;

use crate::context::Context;
use crate::meta;
use crate::retry::{gone_is_fine, is_conflict};
use graph::{FOREGROUND, Node, ORPHAN, OwnerState, Place, Policy, Uid, Verdict};
use watch::{Watches, World};

/// Owners that are known to be gone; more are forgotten.
const REMEMBERED: usize = 500;
/// Keys that are worked on at the same time.
const WORKERS: usize = 10;

struct Collector {
    client: Client,
    world: Arc<RwLock<World>>,
    queue: Queue<Uid>,
    absent: Mutex<HashSet<Uid>>,
}

/// Runs the controller.
pub async fn run(ctx: Context) -> anyhow::Result<()> {
    let world = Arc::new(RwLock::new(World::default()));
    let queue: Queue<Uid> = ctx.queue("garbage_collector_attempt_to_delete");
    let collector = Arc::new(Collector {
        client: ctx.client.clone(),
        world: world.clone(),
        queue: queue.clone(),
        absent: Mutex::default(),
    });
    let watches = Watches::new(ctx.client.clone(), world, queue.clone(), ctx.shutdown.clone());
    let (ready, go) = tokio::sync::oneshot::channel();
    let work = async {
        // Nothing is judged before everything was seen once.
        if go.await.is_ok() {
            reconcile::run(queue, WORKERS, ctx.shutdown.clone(), |uid| {
                let collector = collector.clone();
                async move { collector.look_at(&uid).await }
            })
            .await;
        }
    };
    let follow = watches.run(move || {
        let _ = ready.send(());
    });
    tokio::join!(work, follow);
    Ok(())
}

impl Collector {
    async fn look_at(&self, uid: &Uid) -> anyhow::Result<Action> {
        let Some(node) = self.world.read().graph.get(uid).cloned() else { return Ok(Action::Done) };
        if node.waits_to_orphan() {
            return self.orphan(uid, &node).await;
        }
        if (node.deleting && !node.waits_for_dependents()) || self.world.read().graph.is_settled(&node) {
            return Ok(Action::Done);
        }
        let Some(api) = self.api(&node.place) else { return Ok(Action::Done) };
        let live = gone_is_fine(api.get_metadata(&node.place.name).await)?.map(|o| o.metadata);
        let Some(live) = live.filter(|m| meta::uid(m) == uid) else {
            let wake = self.world.write().graph.remove(uid);
            wake.into_iter().for_each(|uid| self.queue.add(uid));
            return Ok(Action::Done);
        };
        if node.waits_for_dependents() {
            return self.wait_for_dependents(uid, &api, &live).await;
        }
        let mut owners = Vec::new();
        for owner in live.owner_references.iter().flatten() {
            owners.push((owner.clone(), self.state_of(owner, &node.place).await?));
        }
        let verdict = {
            let world = self.world.read();
            let dependents: Vec<&Node> = world.graph.dependents(uid).into_iter().map(|(_, n)| n).collect();
            let fresh = Node::new(node.place.clone(), &live);
            graph::verdict(&fresh, &owners, &dependents)
        };
        self.execute(uid, &api, &live, verdict).await
    }

    async fn execute(
        &self,
        uid: &Uid,
        api: &Api<DynamicObject>,
        live: &ObjectMeta,
        verdict: Verdict,
    ) -> anyhow::Result<Action> {
        match verdict {
            Verdict::Keep => {}
            Verdict::DropOwners(uids) => {
                let kept = live.owner_references.iter().flatten().filter(|o| !uids.contains(&o.uid)).cloned();
                set_owners(api, live, kept.collect()).await?;
            }
            Verdict::Delete { policy, unblock } => {
                let mut version = live.resource_version.clone();
                if unblock {
                    let free = live.owner_references.iter().flatten().cloned();
                    let free = free.map(|o| OwnerReference { block_owner_deletion: Some(false), ..o });
                    set_owners(api, live, free.collect()).await?;
                    version = None;
                }
                let same = Preconditions { uid: Some(uid.clone()), resource_version: version };
                let params = match policy {
                    Policy::Background => DeleteParams::background(),
                    Policy::Foreground => DeleteParams::foreground(),
                    Policy::Orphan => DeleteParams::orphan(),
                };
                tracing::debug!(name = meta::name(live), namespace = meta::namespace(live), ?policy, "deleting");
                gone_is_fine(api.delete(meta::name(live), &params.preconditions(same)).await.map(|_| ()))?;
            }
        }
        Ok(Action::Done)
    }

    /// The last step of a deletion in the foreground, or the deletion of what holds it up.
    async fn wait_for_dependents(
        &self,
        uid: &Uid,
        api: &Api<DynamicObject>,
        live: &ObjectMeta,
    ) -> anyhow::Result<Action> {
        let blocking: Vec<(Uid, bool)> = {
            let world = self.world.read();
            let blocking = world.graph.blocking(uid).into_iter();
            blocking.map(|(d, n)| (d.clone(), n.waits_for_dependents())).collect()
        };
        if blocking.is_empty() {
            drop_finalizer(api, live, FOREGROUND).await?;
        }
        for (dependent, _) in blocking.into_iter().filter(|(_, going)| !going) {
            self.queue.add(dependent);
        }
        Ok(Action::Done)
    }

    /// Lets all dependents go, then the owner.
    async fn orphan(&self, uid: &Uid, node: &Node) -> anyhow::Result<Action> {
        let dependents: Vec<Place> =
            self.world.read().graph.dependents(uid).into_iter().map(|(_, n)| n.place.clone()).collect();
        for place in dependents {
            let Some(api) = self.api(&place) else { continue };
            let Some(live) = gone_is_fine(api.get_metadata(&place.name).await)? else { continue };
            let owners = live.metadata.owner_references.iter().flatten();
            let kept: Vec<_> = owners.clone().filter(|o| o.uid != *uid).cloned().collect();
            if kept.len() != owners.count() {
                set_owners(&api, &live.metadata, kept).await?;
            }
        }
        let Some(api) = self.api(&node.place) else { return Ok(Action::Done) };
        if let Some(live) = gone_is_fine(api.get_metadata(&node.place.name).await)?
            && meta::uid(&live.metadata) == uid
        {
            drop_finalizer(&api, &live.metadata, ORPHAN).await?;
        }
        Ok(Action::Done)
    }

    fn api(&self, place: &Place) -> Option<Api<DynamicObject>> {
        let resource = self.world.read().resources.get(place.resource)?.api.clone();
        Some(self.api_of(&resource, &place.ns))
    }

    fn api_of(&self, resource: &ApiResource, ns: &str) -> Api<DynamicObject> {
        match ns {
            "" => Api::all_with(self.client.clone(), resource),
            ns => Api::namespaced_with(self.client.clone(), ns, resource),
        }
    }

    /// What an owner is up to, by the server itself. An owner of a kind that the server does not know is taken to be
    /// there: what cannot be checked is never a reason to delete.
    async fn state_of(&self, owner: &OwnerReference, dependent: &Place) -> anyhow::Result<OwnerState> {
        if self.absent.lock().contains(&owner.uid) {
            return Ok(OwnerState::Absent);
        }
        let Some((resource, namespaced)) = self.resource_of(owner) else {
            anyhow::bail!("no resource for owner {} {}", owner.api_version, owner.kind);
        };
        if namespaced && dependent.ns.is_empty() {
            // A cluster-scoped object cannot be owned by a namespaced one: the reference is a mistake.
            return Ok(OwnerState::Solid);
        }
        let ns = if namespaced { dependent.ns.as_str() } else { "" };
        let live = gone_is_fine(self.api_of(&resource, ns).get_metadata(&owner.name).await)?.map(|o| o.metadata);
        let Some(live) = live.filter(|m| meta::uid(m) == owner.uid) else {
            let mut absent = self.absent.lock();
            if absent.len() >= REMEMBERED {
                absent.clear();
            }
            absent.insert(owner.uid.clone());
            return Ok(OwnerState::Absent);
        };
        let waiting = meta::is_deleting(&live) && meta::has_finalizer(&live, FOREGROUND);
        Ok(if waiting { OwnerState::Waiting } else { OwnerState::Solid })
    }

    /// The resource behind an owner's kind, in the version that the server prefers, and whether it is namespaced.
    fn resource_of(&self, owner: &OwnerReference) -> Option<(ApiResource, bool)> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let world = self.world.read();
        let found = world.resources.iter().find(|r| r.api.group == group && r.api.kind == owner.kind)?;
        Some((found.api.clone(), found.namespaced))
    }
}

/// Writes the owner references; a conflict is somebody else's change, which will be looked at again.
async fn set_owners(api: &Api<DynamicObject>, live: &ObjectMeta, owners: Vec<OwnerReference>) -> anyhow::Result<()> {
    let owners = if owners.is_empty() { json!(null) } else { json!(owners) };
    patch(api, live, HashMap::from([("ownerReferences", owners)])).await
}

async fn drop_finalizer(api: &Api<DynamicObject>, live: &ObjectMeta, finalizer: &str) -> anyhow::Result<()> {
    let all = live.finalizers.iter().flatten();
    let kept: Vec<_> = all.clone().filter(|f| *f != finalizer).cloned().collect();
    if kept.len() == all.count() {
        return Ok(());
    }
    patch(api, live, HashMap::from([("finalizers", json!(kept))])).await
}

async fn patch(
    api: &Api<DynamicObject>,
    live: &ObjectMeta,
    mut fields: HashMap<&str, serde_json::Value>,
) -> anyhow::Result<()> {
    fields.insert("uid", json!(live.uid));
    fields.insert("resourceVersion", json!(live.resource_version));
    let patch = Patch::Merge(json!({ "metadata": fields }));
    let written = api.patch_metadata(meta::name(live), &PatchParams::default(), &patch).await;
    match gone_is_fine(written) {
        Err(error) if is_conflict(&error) => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}
