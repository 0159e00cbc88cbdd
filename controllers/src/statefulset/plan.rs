//! The next step towards numbered pods that come, change and go in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};

use crate::revisions::REVISION_LABEL;
use crate::{meta, pods, template};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// A revision by name, with its template.
pub struct Revision<'a> {
    /// Its name: the value of the pods' label.
    pub name: &'a str,
    /// What it holds.
    pub template: &'a PodTemplateSpec,
}

/// What one pass looks at.
pub struct Observed<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
    /// The revision that pods had before.
    pub current: Revision<'a>,
    /// The revision that they shall have.
    pub update: Revision<'a>,
    /// The time of the pass.
    pub now: Timestamp,
}

/// What one pass does.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Pods to make, with the claims that they need.
    pub create: Vec<(Pod, Vec<PersistentVolumeClaim>)>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// The status.
    pub status: StatefulSetStatus,
}

/// The number at the end of a pod's name, if the pod has the set's name before it.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, number) = meta::name(&pod.metadata).rsplit_once('-')?;
    (parent == meta::name(&set.metadata)).then(|| number.parse().ok()).flatten()
}

fn range(set: &StatefulSet) -> std::ops::Range<i32> {
    let start = set.spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0);
    start..start + set.spec.replicas.unwrap_or(1)
}

fn rolls(set: &StatefulSet) -> bool {
    let strategy = set.spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref());
    strategy != Some("OnDelete")
}

fn partition(set: &StatefulSet) -> Option<i32> {
    set.spec.update_strategy.as_ref()?.rolling_update.as_ref()?.partition
}

/// Works out one pass.
pub fn plan(o: &Observed<'_>) -> Plan {
    let set = o.set;
    let by_ordinal: BTreeMap<i32, &Arc<Pod>> = o.pods.iter().filter_map(|p| Some((ordinal(set, p)?, p))).collect();
    let mut plan = Plan { status: status(o, &by_ordinal), ..Plan::default() };
    if meta::is_deleting(&set.metadata) {
        return plan;
    }
    let ordered = set.spec.pod_management_policy.as_deref() != Some("Parallel");
    if steps_up(o, &by_ordinal, ordered, &mut plan) && steps_down(o, &by_ordinal, ordered, &mut plan) {
        update(o, &by_ordinal, &mut plan);
    }
    plan
}

fn is_healthy(o: &Observed<'_>, pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod) && !meta::is_deleting(&pod.metadata) && is_available(o, pod)
}

fn is_available(o: &Observed<'_>, pod: &Pod) -> bool {
    pods::is_available(pod, o.set.spec.min_ready_seconds.unwrap_or(0), o.now)
}

/// Makes missing pods and replaces ended ones; true if the pass may go on.
fn steps_up(o: &Observed<'_>, have: &BTreeMap<i32, &Arc<Pod>>, ordered: bool, plan: &mut Plan) -> bool {
    for number in range(o.set) {
        match have.get(&number) {
            None => plan.create.push(build(o, number)),
            Some(pod) if pods::is_finished(pod) => {
                // It is made again when it is gone.
                if !meta::is_deleting(&pod.metadata) {
                    plan.delete.push((*pod).clone());
                }
            }
            Some(pod) if is_healthy(o, pod) || !ordered => continue,
            Some(_) => {}
        }
        if ordered {
            return false;
        }
    }
    true
}

/// Deletes pods beyond the wanted number, the highest first; true if the pass may go on. In order, a pod that is not well waits
/// while one below it is not well either.
fn steps_down(o: &Observed<'_>, have: &BTreeMap<i32, &Arc<Pod>>, ordered: bool, plan: &mut Plan) -> bool {
    let wanted = range(o.set);
    let well = |pod: &Pod| pods::phase(pod) == "Running" && pods::is_ready(pod) && !meta::is_deleting(&pod.metadata);
    let lowest_ill = have.iter().find(|(_, pod)| !well(pod)).map(|(number, _)| *number);
    for (number, pod) in have.iter().rev().filter(|(n, _)| !wanted.contains(n)) {
        let waits = ordered && lowest_ill.is_some_and(|lowest| lowest < *number) && !well(pod);
        if !meta::is_deleting(&pod.metadata) && !waits {
            plan.delete.push((*pod).clone());
        }
        if ordered {
            return false;
        }
    }
    true
}

/// Replaces the highest outdated pod once all above it are well.
fn update(o: &Observed<'_>, have: &BTreeMap<i32, &Arc<Pod>>, plan: &mut Plan) {
    if !rolls(o.set) || !plan.create.is_empty() || !plan.delete.is_empty() {
        return;
    }
    let from = range(o.set).start.max(partition(o.set).unwrap_or(0));
    for number in (from..range(o.set).end).rev() {
        let Some(pod) = have.get(&number) else { return };
        let is_new = meta::labels(&pod.metadata).get(REVISION_LABEL).map(String::as_str) == Some(o.update.name);
        if !is_new && !meta::is_deleting(&pod.metadata) {
            plan.delete.push((*pod).clone());
            return;
        }
        if !is_healthy(o, pod) {
            return;
        }
    }
}

/// The revision that a pod of this number is made from.
fn revision_of<'a>(o: &'a Observed<'_>, number: i32) -> &'a Revision<'a> {
    let start = range(o.set).start;
    let old_ones = match (rolls(o.set), partition(o.set)) {
        (false, _) => start,
        (true, Some(partition)) if partition > 0 => start.max(partition),
        (true, _) => {
            let noted = start + o.set.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0);
            // The pod below the lowest new one is the next to be replaced: it need not come back as it was.
            noted.min(lowest_new(o).map_or(i32::MAX, |lowest| lowest - 1))
        }
    };
    if number < old_ones { &o.current } else { &o.update }
}

/// The lowest number that has the new revision, while two revisions are about.
fn lowest_new(o: &Observed<'_>) -> Option<i32> {
    let is_new =
        |p: &&Arc<Pod>| meta::labels(&p.metadata).get(REVISION_LABEL).map(String::as_str) == Some(o.update.name);
    o.pods.iter().filter(is_new).filter_map(|p| ordinal(o.set, p)).min()
}

fn build(o: &Observed<'_>, number: i32) -> (Pod, Vec<PersistentVolumeClaim>) {
    let set = o.set;
    let revision = revision_of(o, number);
    let mut pod = template::instantiate(revision.template, meta::namespace(&set.metadata), meta::controller_ref(set));
    let name = format!("{}-{number}", meta::name(&set.metadata));
    pod.metadata.name = Some(name.clone());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), number.to_string());
    labels.insert(REVISION_LABEL.to_owned(), revision.name.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.service_name.clone().filter(|s| !s.is_empty());
    let mut claims = Vec::new();
    for wanted in set.spec.volume_claim_templates.iter().flatten() {
        let volume = meta::name(&wanted.metadata).to_owned();
        let claim_name = format!("{volume}-{name}");
        let source = PersistentVolumeClaimVolumeSource { claim_name: claim_name.clone(), read_only: None };
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|v| v.name != volume);
        volumes.push(Volume { name: volume, persistent_volume_claim: Some(source), ..Volume::default() });
        claims.push(claim(set, wanted, claim_name));
    }
    (pod, claims)
}

fn claim(set: &StatefulSet, wanted: &PersistentVolumeClaim, name: String) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim { status: None, ..wanted.clone() };
    claim.metadata.name = Some(name);
    claim.metadata.namespace = set.metadata.namespace.clone();
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.extend(set.spec.selector.match_labels.iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    claim
}

fn status(o: &Observed<'_>, have: &BTreeMap<i32, &Arc<Pod>>) -> StatefulSetStatus {
    let old = o.set.status.clone().unwrap_or_default();
    let is_of = |pod: &Pod, revision: &str| {
        meta::labels(&pod.metadata).get(REVISION_LABEL).map(String::as_str) == Some(revision)
    };
    let count =
        |wanted: &dyn Fn(&Pod) -> bool| i32::try_from(have.values().filter(|p| wanted(p)).count()).unwrap_or(i32::MAX);
    let running_ready = |p: &Pod| pods::phase(p) == "Running" && pods::is_ready(p);
    let live = |p: &Pod| !pods::is_finished(p) && !meta::is_deleting(&p.metadata);
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    let mut current = count(&|p| live(p) && is_of(p, o.current.name));
    let mut current_name = o.current.name.to_owned();
    let updated = count(&|p| live(p) && is_of(p, o.update.name));
    let (replicas, ready) = (count(&|_| true), count(&running_ready));
    // The roll-out is over when every pod is new and well.
    let wanted = o.set.spec.replicas.unwrap_or(1);
    if rolls(o.set) && updated == wanted && replicas == wanted && ready == wanted && current_name != o.update.name {
        current = updated;
        current_name = o.update.name.to_owned();
    }
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: some(count(&|p| running_ready(p) && is_available(o, p))),
        current_replicas: some(current),
        updated_replicas: some(updated),
        current_revision: Some(current_name),
        update_revision: Some(o.update.name.to_owned()),
        observed_generation: o.set.metadata.generation,
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(replicas: i32, spec: serde_json::Value) -> StatefulSet {
        let mut set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "s"}, "spec": {
                "selector": {"matchLabels": {"app": "x"}}, "serviceName": "svc", "template": {},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        }))
        .unwrap();
        set.spec.replicas = Some(replicas);
        set.spec.pod_management_policy = spec["policy"].as_str().map(str::to_owned);
        if let Some(partition) = spec["partition"].as_i64() {
            set.spec.update_strategy =
                serde_json::from_value(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}))
                    .unwrap();
        }
        set
    }

    fn member(number: i32, revision: &str, ready: bool) -> Arc<Pod> {
        let name = format!("web-{number}");
        let mut p = if ready {
            pods::testing::ready(&name, "n", Timestamp::UNIX_EPOCH)
        } else {
            pods::testing::pod(&name, "Pending")
        };
        p.metadata.labels = Some([(REVISION_LABEL.to_owned(), revision.to_owned())].into());
        Arc::new(p)
    }

    fn run(set: &StatefulSet, pods: &[Arc<Pod>]) -> (Vec<String>, Vec<String>, StatefulSetStatus) {
        let template = PodTemplateSpec::default();
        let revision = |name| Revision { name, template: &template };
        let now = Timestamp::from_second(100).unwrap();
        let plan = plan(&Observed { set, pods, current: revision("old"), update: revision("new"), now });
        let name = |p: &Pod| meta::name(&p.metadata).to_owned();
        (plan.create.iter().map(|(p, _)| name(p)).collect(), plan.delete.iter().map(|p| name(p)).collect(), plan.status)
    }

    #[test]
    fn in_order() {
        for (name, replicas, policy, pods, create, delete) in [
            ("first", 3, "OrderedReady", vec![], vec!["web-0"], vec![]),
            ("waits", 3, "OrderedReady", vec![member(0, "new", false)], vec![], vec![]),
            ("second", 3, "OrderedReady", vec![member(0, "new", true)], vec!["web-1"], vec![]),
            ("all at once", 3, "Parallel", vec![], vec!["web-0", "web-1", "web-2"], vec![]),
            ("hole", 2, "OrderedReady", vec![member(1, "new", true)], vec!["web-0"], vec![]),
            (
                "highest goes first",
                1,
                "OrderedReady",
                vec![member(0, "new", true), member(1, "new", true), member(2, "new", true)],
                vec![],
                vec!["web-2"],
            ),
            (
                "an ill one goes if it is the lowest ill one",
                0,
                "OrderedReady",
                vec![member(0, "new", true), member(1, "new", false)],
                vec![],
                vec!["web-1"],
            ),
            (
                "ill ones wait for the lowest",
                0,
                "OrderedReady",
                vec![member(0, "new", false), member(1, "new", false)],
                vec![],
                vec![],
            ),
            (
                "newest template from above",
                2,
                "OrderedReady",
                vec![member(0, "old", true), member(1, "old", true)],
                vec![],
                vec!["web-1"],
            ),
            ("one by one", 2, "OrderedReady", vec![member(0, "old", true), member(1, "new", false)], vec![], vec![]),
        ] {
            let (has_create, has_delete, _) = run(&set(replicas, json!({"policy": policy})), &pods);
            assert_eq!(
                (has_create, has_delete),
                (create.iter().map(|s| (*s).to_owned()).collect(), delete.iter().map(|s| (*s).to_owned()).collect()),
                "{name}"
            );
        }
    }

    #[test]
    fn partition_keeps_the_lower_ones() {
        let s = set(2, json!({"partition": 1}));
        let (_, gone, _) = run(&s, &[member(0, "old", true), member(1, "new", true)]);
        assert!(gone.is_empty());
        let (_, gone, _) = run(&s, &[member(0, "old", true), member(1, "old", true)]);
        assert_eq!(gone, ["web-1"]);
    }

    #[test]
    fn pods_and_claims() {
        let s = set(1, json!({}));
        let template = PodTemplateSpec::default();
        let revision = |name| Revision { name, template: &template };
        let now = Timestamp::UNIX_EPOCH;
        let plan = plan(&Observed { set: &s, pods: &[], current: revision("r"), update: revision("r"), now });
        let (pod, claims) = &plan.create[0];
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-0"), Some("svc")));
        assert_eq!(claims[0].metadata.name.as_deref(), Some("data-web-0"));
        assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["app"], "x");
        let volume = &spec.volumes.as_ref().unwrap()[0];
        assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-web-0");
    }

    #[test]
    fn the_next_to_be_replaced_comes_back_new() {
        let mut s = set(2, json!({}));
        s.status = Some(StatefulSetStatus { current_replicas: Some(1), ..Default::default() });
        let template = PodTemplateSpec::default();
        let revision = |name| Revision { name, template: &template };
        let pods = [member(1, "new", true)];
        let now = Timestamp::from_second(100).unwrap();
        let plan = plan(&Observed { set: &s, pods: &pods, current: revision("old"), update: revision("new"), now });
        assert_eq!(meta::labels(&plan.create[0].0.metadata)[REVISION_LABEL], "new");
        assert_eq!(plan.status.current_revision.as_deref(), Some("old"));
    }

    #[test]
    fn status_ends_the_roll_out() {
        let s = set(2, json!({}));
        let (_, _, rolling) = run(&s, &[member(0, "old", true), member(1, "new", true)]);
        assert_eq!((rolling.current_replicas, rolling.updated_replicas), (Some(1), Some(1)));
        assert_eq!(rolling.current_revision.as_deref(), Some("old"));
        let (_, _, done) = run(&s, &[member(0, "new", true), member(1, "new", true)]);
        assert_eq!((done.current_replicas, done.current_revision.as_deref()), (Some(2), Some("new")));
    }
}
