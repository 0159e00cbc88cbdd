//! Who owns what: adoption of matching orphans and release of children that match no longer.

use std::fmt::Debug;
use std::sync::Arc;

use anyhow::bail;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::meta;
use crate::retry::gone_is_fine;

/// What is to be done about the candidates.
#[derive(Debug, PartialEq)]
pub struct Claim<K> {
    /// Already ours and matching.
    pub owned: Vec<Arc<K>>,
    /// Matching, without a controller: to be adopted.
    pub adopt: Vec<Arc<K>>,
    /// Ours but matching no longer: to be released.
    pub release: Vec<Arc<K>>,
}

/// Sorts candidates by what their owner has to do with them. An owner that is being deleted neither adopts nor releases.
pub fn classify<K: Resource>(
    owner: &ObjectMeta,
    candidates: impl IntoIterator<Item = Arc<K>>,
    matches: impl Fn(&K) -> bool,
) -> Claim<K> {
    let deleting = meta::is_deleting(owner);
    let mut claim = Claim { owned: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for object in candidates {
        match meta::controller_of(object.meta()) {
            Some(controller) if controller.uid != meta::uid(owner) => {}
            Some(_) if matches(&object) => claim.owned.push(object),
            Some(_) if deleting => {}
            Some(_) => claim.release.push(object),
            None if deleting || meta::is_deleting(object.meta()) || !matches(&object) => {}
            None => claim.adopt.push(object),
        }
    }
    claim
}

/// A kind whose objects own others.
pub trait Owner:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync
{
}
impl<K> Owner for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync
{
}

/// Carries out a claim and returns what is owned afterwards.
pub async fn execute<O: Owner, K: Owner>(client: &Client, owner: &O, claim: Claim<K>) -> anyhow::Result<Vec<Arc<K>>> {
    let ns = meta::namespace(owner.meta());
    let api: Api<K> = Api::namespaced(client.clone(), ns);
    let mut owned = claim.owned;
    if !claim.adopt.is_empty() {
        ensure_alive(client, owner).await?;
    }
    for object in claim.adopt {
        let patch = json!({"metadata": {
            "ownerReferences": [meta::controller_ref(owner)],
            "uid": meta::uid(object.meta()),
        }});
        let patched = api.patch(meta::name(object.meta()), &PatchParams::default(), &Patch::Strategic(patch)).await;
        owned.extend(gone_is_fine(patched)?.map(Arc::new));
    }
    for object in claim.release {
        let patch = json!({"metadata": {
            "ownerReferences": [{"$patch": "delete", "uid": meta::uid(owner.meta())}],
            "uid": meta::uid(object.meta()),
        }});
        gone_is_fine(api.patch(meta::name(object.meta()), &PatchParams::default(), &Patch::Strategic(patch)).await)?;
    }
    Ok(owned)
}

/// The cache may be late: nothing is adopted for an owner that is going or was replaced.
async fn ensure_alive<O: Owner>(client: &Client, owner: &O) -> anyhow::Result<()> {
    let api: Api<O> = Api::namespaced(client.clone(), meta::namespace(owner.meta()));
    let fresh = api.get_metadata(meta::name(owner.meta())).await?;
    if fresh.metadata.uid != owner.meta().uid || meta::is_deleting(&fresh.metadata) {
        bail!("{} was deleted or replaced: it adopts nothing", meta::name(owner.meta()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    use super::*;
    use crate::pods::testing::pod;

    fn owned_by(name: &str, uid: &str) -> Arc<Pod> {
        let mut p = pod(name, "Running");
        let owner = OwnerReference { uid: uid.into(), controller: Some(true), ..Default::default() };
        p.metadata.owner_references = Some(vec![owner]);
        Arc::new(p)
    }

    fn sorted(owner: &ObjectMeta) -> [Vec<String>; 3] {
        let candidates = [
            owned_by("mine", "o"),
            owned_by("mine-x", "o"),
            owned_by("other", "p"),
            Arc::new(pod("free", "Running")),
            Arc::new(pod("free-x", "Running")),
        ];
        let claim = classify(owner, candidates, |p: &Pod| !meta::name(&p.metadata).ends_with("-x"));
        [claim.owned, claim.adopt, claim.release]
            .map(|list| list.iter().map(|p| meta::name(&p.metadata).to_owned()).collect())
    }

    #[test]
    fn live_owner_adopts_and_releases() {
        let owner = ObjectMeta { uid: Some("o".into()), ..Default::default() };
        assert_eq!(sorted(&owner), [vec!["mine"], vec!["free"], vec!["mine-x"]]);
    }

    #[test]
    fn dying_owner_keeps_what_it_has() {
        let owner = ObjectMeta {
            uid: Some("o".into()),
            deletion_timestamp: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..Default::default()
        };
        assert_eq!(sorted(&owner), [vec!["mine"], vec![], vec![]]);
    }
}
