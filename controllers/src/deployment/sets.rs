//! The replica sets of a deployment: which is the new one, what they carry, what a fresh one looks like.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::template::POD_TEMPLATE_HASH;
use crate::{hash, meta, template};

/// Annotation with the revision, on the deployment and on its sets.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation with the revisions that a set had before.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation with the deployment's replicas when the set was scaled last.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation with the most pods that the deployment might have had then.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Longest list of former revisions.
const HISTORY_CHARS: usize = 2000;
/// Annotations of the deployment that its sets do not inherit.
const NOT_INHERITED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// The replicas that the deployment asks for.
pub fn desired(d: &Deployment) -> i32 {
    d.spec.replicas.unwrap_or(1)
}

/// The replicas that a set is asked for.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// The pods of a set that are available.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

/// How far a roll-out may go above and below the replicas asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pods above.
    pub surge: i32,
    /// Pods below.
    pub unavailable: i32,
}

/// True if the deployment rolls; otherwise it recreates.
pub fn rolls(d: &Deployment) -> bool {
    let kind = d.spec.strategy.as_ref().and_then(|s| s.type_.as_deref());
    kind != Some("Recreate")
}

/// The bounds of a roll-out, percentages resolved.
pub fn bounds(d: &Deployment) -> Bounds {
    if !rolls(d) || desired(d) == 0 {
        return Bounds { surge: if rolls(d) { resolve_surge(d) } else { 0 }, unavailable: 0 };
    }
    let rolling = d.spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let surge = resolve_surge(d);
    let mut unavailable = resolve(rolling.and_then(|r| r.max_unavailable.as_ref()), desired(d), false);
    if surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    Bounds { surge, unavailable: unavailable.min(desired(d)) }
}

fn resolve_surge(d: &Deployment) -> i32 {
    let rolling = d.spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    resolve(rolling.and_then(|r| r.max_surge.as_ref()), desired(d), true)
}

/// A number or a percentage of `total`; 25% if there is none, 0 if it is malformed.
pub fn resolve(value: Option<&IntOrString>, total: i32, up: bool) -> i32 {
    let percent = match value {
        None => 25,
        Some(IntOrString::Int(number)) => return *number,
        Some(IntOrString::String(text)) => text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()).unwrap_or(0),
    };
    let hundredths = percent * i64::from(total);
    let rounded = if up { (hundredths + 99).div_euclid(100) } else { hundredths.div_euclid(100) };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

/// The set with the deployment's present template (the oldest, should there be several), and all others.
pub fn split(d: &Deployment, mut sets: Vec<Arc<ReplicaSet>>) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    sets.sort_by(|a, b| by_age(a, b));
    let wanted = &d.spec.template;
    let is_new = |set: &ReplicaSet| set.spec.template.as_ref().is_some_and(|has| template::same(wanted, has));
    match sets.iter().position(|s| is_new(s)) {
        Some(at) => {
            let new = sets.remove(at);
            (Some(new), sets)
        }
        None => (None, sets),
    }
}

/// Oldest first.
pub fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> std::cmp::Ordering {
    let key = |s: &ReplicaSet| (meta::created(&s.metadata), meta::name(&s.metadata).to_owned());
    key(a).cmp(&key(b))
}

/// The revision that a set carries.
pub fn revision(set: &ReplicaSet) -> i64 {
    meta::annotation(&set.metadata, REVISION).and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// The number in one of the sets' annotations.
pub fn number(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    meta::annotation(&set.metadata, annotation).and_then(|v| v.parse().ok())
}

/// Gives a set its size and notes what the deployment asked for at that time.
pub fn scale(d: &Deployment, set: &mut ReplicaSet, size: i32) {
    set.spec.replicas = Some(size);
    note_replicas(d, set);
}

/// Notes in the annotations what the deployment asks for.
pub fn note_replicas(d: &Deployment, set: &mut ReplicaSet) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED.to_owned(), desired(d).to_string());
    annotations.insert(MAX.to_owned(), (desired(d) + bounds(d).surge).to_string());
}

/// Passes the deployment's annotations on to its new set and gives it the revision, keeping former ones in a list.
pub fn annotate_new(d: &Deployment, set: &mut ReplicaSet, revision: i64, existed: bool) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (key, value) in d.metadata.annotations.iter().flatten() {
        if !NOT_INHERITED.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let old = annotations.get(REVISION).cloned();
    if old.as_deref().and_then(|v| v.parse::<i64>().ok()).unwrap_or(0) >= revision {
        return;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if let Some(old) = old.filter(|_| existed) {
        let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
        *history = lengthen(history, &old);
    }
}

/// Appends to the comma-separated list; the oldest entries go when it grows too long.
fn lengthen(history: &str, revision: &str) -> String {
    if history.is_empty() {
        return revision.to_owned();
    }
    let mut rest = history;
    while !rest.is_empty() && rest.len() + revision.len() + 1 > HISTORY_CHARS {
        rest = rest.split_once(',').map_or("", |(_, later)| later);
    }
    if rest.is_empty() { revision.to_owned() } else { format!("{rest},{revision}") }
}

/// A fresh set for the deployment's present template.
pub fn fresh(d: &Deployment, size: i32, revision: i64) -> ReplicaSet {
    let spec = d.spec.clone();
    let collisions = d.status.as_ref().and_then(|s| s.collision_count);
    let hash = hash::short(&spec.template, collisions);
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let template = template::with_label(&spec.template, POD_TEMPLATE_HASH, &hash);
    let labels: BTreeMap<String, String> =
        template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", meta::name(&d.metadata))),
            namespace: d.metadata.namespace.clone(),
            owner_references: Some(vec![meta::controller_ref(d)]),
            labels: Some(labels),
            ..Default::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(size),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    };
    note_replicas(d, &mut set);
    annotate_new(d, &mut set, revision, false);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        let text = |s: &str| Some(IntOrString::String(s.to_owned()));
        for (value, total, up, expected) in [
            (None, 10, true, 3),
            (None, 10, false, 2),
            (text("50%"), 3, true, 2),
            (text("50%"), 3, false, 1),
            (Some(IntOrString::Int(4)), 3, true, 4),
            (text("nonsense"), 3, true, 0),
            (text("100%"), 7, false, 7),
        ] {
            assert_eq!(resolve(value.as_ref(), total, up), expected, "{value:?} of {total}");
        }
    }

    #[test]
    fn history_grows_and_forgets() {
        assert_eq!(lengthen("", "1"), "1");
        assert_eq!(lengthen("1,3", "5"), "1,3,5");
        let long = vec!["12345"; 400].join(",");
        let longer = lengthen(&long, "99");
        assert!(longer.len() <= HISTORY_CHARS && longer.ends_with(",99"));
    }
}
