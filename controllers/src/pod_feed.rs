//! Feeds the queue of a controller that owns pods, and ticks off what it expected.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pintle_client::cache::Change;
use pintle_client::queue::Queue;

use crate::context::Context;
use crate::expectations::Expectations;
use crate::key::Key;
use crate::meta;

/// Follows all pods: a change wakes the owners of kind `kind`; a pod without a controller wakes the keys that `orphan`
/// names. Expectations are kept by the owner's uid.
pub fn follow(
    ctx: &Context,
    kind: &'static str,
    expectations: Expectations<String>,
    queue: Queue<Key>,
    orphan: impl Fn(&Pod) -> Vec<Key> + Send + 'static,
) {
    ctx.cache::<Pod>().on_change(ctx.shutdown.clone(), move |change| {
        tick_off(&change, kind, &expectations);
        for key in keys(&change, kind, &orphan) {
            queue.add(key);
        }
    });
}

fn tick_off(change: &Change<Pod>, kind: &str, expectations: &Expectations<String>) {
    let pod = change.object();
    let Some(owner) = meta::controller_of_kind(&pod.metadata, kind) else { return };
    if matches!(change, Change::Added(_)) {
        expectations.saw_creation(&owner.uid);
    }
    if matches!(change, Change::Deleted(_)) || meta::is_deleting(&pod.metadata) {
        expectations.saw_deletion(&owner.uid, meta::uid(&pod.metadata));
    }
}

fn keys(change: &Change<Pod>, kind: &str, orphan: &impl Fn(&Pod) -> Vec<Key>) -> Vec<Key> {
    let owner = |pod: &Pod| {
        meta::controller_of_kind(&pod.metadata, kind).map(|r| Key::new(meta::namespace(&pod.metadata), &r.name))
    };
    let pod = change.object();
    let mut keys: Vec<Key> = owner(pod).into_iter().collect();
    if let Change::Updated { old, .. } = change {
        let before = owner(old).filter(|k| Some(k) != keys.first());
        keys.extend(before);
    }
    let free = |pod: &Arc<Pod>| meta::controller_of(&pod.metadata).is_none();
    if free(pod) && !matches!(change, Change::Deleted(_)) && relevant(change) {
        keys.extend(orphan(pod));
    }
    keys
}

/// An orphan matters when it appears, when its labels change and when it loses its controller.
fn relevant(change: &Change<Pod>) -> bool {
    match change {
        Change::Updated { old, new } => {
            old.metadata.labels != new.metadata.labels || meta::controller_of(&old.metadata).is_some()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::pods::testing::pod;

    fn owned(name: &str, owner: &str) -> Arc<Pod> {
        let mut p = pod(name, "Running");
        p.metadata.owner_references = Some(vec![OwnerReference {
            kind: "ReplicaSet".into(),
            name: owner.into(),
            uid: format!("{owner}-uid"),
            controller: Some(true),
            ..Default::default()
        }]);
        Arc::new(p)
    }

    fn names(change: Change<Pod>) -> Vec<String> {
        keys(&change, "ReplicaSet", &|_| vec![Key::new("ns", "matching")]).into_iter().map(|k| k.name).collect()
    }

    #[test]
    fn wakes_old_and_new_owner() {
        assert_eq!(names(Change::Added(owned("p", "a"))), ["a"]);
        assert_eq!(names(Change::Updated { old: owned("p", "a"), new: owned("p", "a") }), ["a"]);
        assert_eq!(names(Change::Updated { old: owned("p", "a"), new: owned("p", "b") }), ["b", "a"]);
        assert_eq!(names(Change::Deleted(owned("p", "a"))), ["a"]);
    }

    #[test]
    fn orphans_wake_whoever_matches() {
        let free = Arc::new(pod("p", "Running"));
        assert_eq!(names(Change::Added(free.clone())), ["matching"]);
        assert_eq!(names(Change::Updated { old: owned("p", "a"), new: free.clone() }), ["a", "matching"]);
        assert!(names(Change::Updated { old: free.clone(), new: free.clone() }).is_empty());
        assert!(names(Change::Deleted(free)).is_empty());
    }

    #[test]
    fn expectations_follow_the_feed() {
        let e = Expectations::default();
        let key = "a-uid".to_owned();
        e.expect_creations(&key, 1);
        tick_off(&Change::Added(owned("p", "a")), "ReplicaSet", &e);
        assert!(e.satisfied(&key));
        e.expect_deletion(&key, "p");
        tick_off(&Change::Added(owned("q", "a")), "ReplicaSet", &e);
        assert!(!e.satisfied(&key));
        tick_off(&Change::Deleted(owned("p", "a")), "ReplicaSet", &e);
        assert!(e.satisfied(&key));
    }
}
