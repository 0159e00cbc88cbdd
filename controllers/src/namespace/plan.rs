//! What the status of a dying namespace says, and how long to wait.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;

/// What is left in the namespace after a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remains {
    /// Why resources could not be found out.
    pub discovery_failure: Option<String>,
    /// Why content could not be deleted.
    pub failures: Vec<String>,
    /// Objects left, by resource (`pods.`, `deployments.apps`).
    pub resources: BTreeMap<String, usize>,
    /// Objects that wait for a finalizer, by finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

impl Remains {
    /// True if the namespace can go.
    pub fn is_empty(&self) -> bool {
        self.discovery_failure.is_none() && self.failures.is_empty() && self.resources.is_empty()
    }

    /// Adds what is left of one resource.
    pub fn add<'a>(&mut self, resource: String, objects: usize, finalizers: impl Iterator<Item = &'a String>) {
        if objects > 0 {
            *self.resources.entry(resource).or_default() += objects;
        }
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// The status: phase Terminating and what holds the deletion up.
pub fn status(namespace: &Namespace, remains: &Remains, now: Timestamp) -> NamespaceStatus {
    let mut status = namespace.status.clone().unwrap_or_default();
    status.phase = Some("Terminating".to_owned());
    let old = status.conditions.take().unwrap_or_default();
    let fresh = conditions(remains, now);
    let mut merged: Vec<NamespaceCondition> =
        old.iter().filter(|c| !fresh.iter().any(|f| f.type_ == c.type_)).cloned().collect();
    for mut condition in fresh {
        if let Some(present) = old.iter().find(|c| c.type_ == condition.type_)
            && present.status == condition.status
        {
            condition.last_transition_time = present.last_transition_time.clone();
        }
        merged.push(condition);
    }
    status.conditions = Some(merged);
    status
}

fn conditions(remains: &Remains, now: Timestamp) -> Vec<NamespaceCondition> {
    let make = |kind: &str, bad: Option<(&str, String)>, good: (&str, &str)| NamespaceCondition {
        type_: kind.to_owned(),
        status: if bad.is_some() { "True" } else { "False" }.to_owned(),
        reason: Some(bad.as_ref().map_or(good.0, |b| b.0).to_owned()),
        message: Some(bad.map_or_else(|| good.1.to_owned(), |b| b.1)),
        last_transition_time: Some(Time(now)),
    };
    let listed = |map: &BTreeMap<String, usize>, verb: &str| {
        map.iter().map(|(k, n)| format!("{k} {verb} {n} resource instances")).collect::<Vec<_>>().join(", ")
    };
    let failed = remains.discovery_failure.clone().map(|text| ("DiscoveryFailed", text));
    let content = (!remains.failures.is_empty()).then(|| {
        ("ContentDeletionFailed", format!("Failed to delete all resource types, {}", remains.failures.join(", ")))
    });
    let some = (!remains.resources.is_empty()).then(|| {
        ("SomeResourcesRemain", format!("Some resources are remaining: {}", listed(&remains.resources, "has")))
    });
    let held = (!remains.finalizers.is_empty()).then(|| {
        let list = listed(&remains.finalizers, "in");
        ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {list}"))
    });
    vec![
        make(
            "NamespaceDeletionDiscoveryFailure",
            failed,
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        make(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        make(
            "NamespaceDeletionContentFailure",
            content,
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        make("NamespaceContentRemaining", some, ("ContentRemoved", "All content successfully removed")),
        make(
            "NamespaceFinalizersRemaining",
            held,
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ]
}

/// When to look again: soon at first, more rarely the longer it takes.
pub fn wait(namespace: &Namespace, now: Timestamp) -> Duration {
    let since = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    (age / 4).clamp(Duration::from_millis(300), Duration::from_secs(5))
}

/// True if the namespace still waits for this controller.
pub fn waits_for_us(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    meta::is_deleting(&namespace.metadata) && finalizers.into_iter().flatten().any(|f| f == super::FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_tell_what_is_left() {
        let mut remains = Remains::default();
        remains.add("pods.".into(), 2, ["a/b".to_owned()].iter());
        assert!(!remains.is_empty());
        let now = Timestamp::from_second(100).unwrap();
        let status = status(&Namespace::default(), &remains, now);
        assert_eq!(status.phase.as_deref(), Some("Terminating"));
        let find =
            |s: &NamespaceStatus, k: &str| s.conditions.iter().flatten().find(|c| c.type_ == k).cloned().unwrap();
        let left = find(&status, "NamespaceContentRemaining");
        assert_eq!(left.message.as_deref(), Some("Some resources are remaining: pods. has 2 resource instances"));
        let held = find(&status, "NamespaceFinalizersRemaining");
        assert!(held.message.unwrap().ends_with("a/b in 1 resource instances"));
        let namespace = Namespace { status: Some(status), ..Namespace::default() };
        let later = super::status(&namespace, &Remains::default(), Timestamp::from_second(200).unwrap());
        let gone = find(&later, "NamespaceContentRemaining");
        assert_eq!((gone.status.as_str(), gone.reason.as_deref()), ("False", Some("ContentRemoved")));
        let same = find(&later, "NamespaceDeletionContentFailure");
        assert_eq!(same.last_transition_time.unwrap().0, now);
    }
}
