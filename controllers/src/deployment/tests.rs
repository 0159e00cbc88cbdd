//! Tables for the plan of a deployment.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::json;

use super::plan::{Observed, Plan, Write, plan};
use super::{sets, status};

fn deployment(replicas: i32, image: &str, strategy: serde_json::Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "d", "namespace": "ns", "uid": "d-uid", "generation": 1},
        "spec": {
            "replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 1,
            "selector": {"matchLabels": {"app": "x"}}, "strategy": strategy, "template": template(image),
        },
    }))
    .unwrap()
}

fn template(image: &str) -> serde_json::Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A set of some size, with as many available pods as said; noted for a deployment of `noted` (25% surge) replicas.
fn set(image: &str, age: i64, size: i32, available: i32, noted: i32) -> Arc<ReplicaSet> {
    let created = Timestamp::from_second(10_000 - age).unwrap();
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("d-{image}"), "namespace": "ns", "uid": image, "creationTimestamp": created,
                "generation": 1,
                "annotations": {
                    sets::REVISION: (10_000 - age).to_string(),
                    sets::DESIRED: noted.to_string(),
                    sets::MAX: (noted + (noted + 3) / 4).to_string(),
                },
            },
            "spec": {"replicas": size, "selector": {}, "template": template(image)},
            "status": {
                "replicas": size, "availableReplicas": available, "readyReplicas": available, "observedGeneration": 1,
            },
        }))
        .unwrap(),
    )
}

fn run(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Plan {
    let now = Timestamp::from_second(20_000).unwrap();
    plan(Observed { deployment, sets: sets.to_vec(), old_pods_running: false, now })
}

/// Sizes that the plan gives, by set; `+` marks a new set.
fn sizes(plan: &Plan) -> Vec<String> {
    let line = |w: &Write| match w {
        Write::Create(s) => format!("+{}", sets::replicas(s)),
        Write::Update { set, scaled_from: Some(from) } => {
            format!("{} {from}->{}", set.metadata.uid.clone().unwrap(), sets::replicas(set))
        }
        Write::Update { set, .. } => format!("{} kept", set.metadata.uid.clone().unwrap()),
        Write::Delete(name) => format!("-{name}"),
    };
    plan.writes.iter().map(line).collect()
}

#[test]
fn rolling_steps() {
    let d = deployment(10, "b", json!({"type": "RollingUpdate"}));
    for (name, sets, expected) in [
        ("first set", vec![], vec!["+10"]),
        ("room for the surge", vec![set("a", 100, 10, 10, 10)], vec!["+3"]),
        ("old ones shrink", vec![set("a", 100, 10, 10, 10), set("b", 1, 3, 0, 10)], vec!["a 10->8"]),
        ("new one grows", vec![set("a", 100, 8, 8, 10), set("b", 1, 3, 0, 10)], vec!["b 3->5"]),
        ("nothing until something is available", vec![set("a", 100, 8, 8, 10), set("b", 1, 5, 0, 10)], vec![]),
        ("available ones replace", vec![set("a", 100, 8, 8, 10), set("b", 1, 5, 5, 10)], vec!["a 8->3"]),
        ("broken old ones go first", vec![set("a", 100, 10, 0, 10), set("b", 1, 3, 0, 10)], vec!["a 10->8"]),
        ("finished", vec![set("a", 100, 0, 0, 10), set("b", 1, 10, 10, 10)], vec![]),
        ("too many", vec![set("b", 1, 12, 10, 10)], vec!["b 12->10"]),
    ] {
        assert_eq!(sizes(&run(&d, &sets)), expected, "{name}");
    }
}

#[test]
fn recreate_waits_for_old_pods() {
    let d = deployment(3, "b", json!({"type": "Recreate"}));
    assert_eq!(sizes(&run(&d, &[set("a", 100, 3, 3, 3)])), ["a 3->0"]);
    let now = Timestamp::from_second(20_000).unwrap();
    let waiting = plan(Observed { deployment: &d, sets: vec![set("a", 100, 0, 0, 3)], old_pods_running: true, now });
    assert!(waiting.writes.is_empty());
    assert_eq!(sizes(&run(&d, &[set("a", 100, 0, 0, 3)])), ["+3"]);
}

#[test]
fn resizing_is_proportional() {
    let d = deployment(20, "b", json!({"type": "RollingUpdate"}));
    let sets = [set("a", 100, 8, 8, 10), set("b", 1, 5, 0, 10)];
    assert_eq!(sizes(&run(&d, &sets)), ["b 5->10", "a 8->15"]);
    assert_eq!(sizes(&run(&d, &[set("b", 1, 10, 10, 10)])), ["b 10->20"]);
}

#[test]
fn history_is_limited() {
    let d = deployment(2, "c", json!({}));
    let sets = [set("a", 300, 0, 0, 2), set("b", 200, 0, 0, 2), set("c", 1, 2, 2, 2)];
    assert_eq!(sizes(&run(&d, &sets)), ["-d-a"]);
}

#[test]
fn rolling_back_gives_a_new_revision() {
    let d = deployment(2, "a", json!({}));
    let sets = [set("a", 300, 0, 0, 2), set("b", 200, 2, 2, 2)];
    let plan = run(&d, &sets);
    assert_eq!(plan.revision.as_deref(), Some("9801"));
    let Some(Write::Update { set, .. }) = plan.writes.first() else { panic!("no update") };
    let annotations = set.metadata.annotations.clone().unwrap();
    assert_eq!(annotations[sets::REVISION], "9801");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "9700");
}

#[test]
fn paused_rolls_nothing_but_resizes() {
    let mut d = deployment(5, "b", json!({}));
    d.spec.paused = Some(true);
    let plan = run(&d, &[set("a", 100, 3, 3, 3)]);
    assert_eq!(sizes(&plan), ["a 3->5"]);
    let condition = status::get(&plan.status, status::PROGRESSING).unwrap();
    assert_eq!((condition.status.as_deref(), condition.reason.as_deref()), (Some("Unknown"), Some("DeploymentPaused")));
}

fn reasons(plan: &Plan) -> Vec<(String, String, String)> {
    let all = plan.status.conditions.iter().flatten();
    all.map(|c| (c.type_.clone().unwrap(), c.status.clone().unwrap(), c.reason.clone().unwrap())).collect()
}

#[test]
fn conditions_follow_the_roll_out() {
    let mut d = deployment(2, "a", json!({}));
    let expect = |plan: &Plan, available: (&str, &str), progressing: (&str, &str)| {
        let own = |k: &str, (s, r): (&str, &str)| (k.to_owned(), s.to_owned(), r.to_owned());
        let mut has = reasons(plan);
        has.sort();
        assert_eq!(has, [own("Available", available), own("Progressing", progressing)]);
    };
    let poor = ("False", "MinimumReplicasUnavailable");
    let created = run(&d, &[]);
    expect(&created, poor, ("True", "NewReplicaSetCreated"));
    d.status = Some(created.status);
    let growing = run(&d, &[set("a", 1, 2, 0, 2)]);
    expect(&growing, poor, ("True", "ReplicaSetUpdated"));
    assert!(growing.requeue.is_some());
    d.status = Some(growing.status);
    let done = run(&d, &[set("a", 1, 2, 2, 2)]);
    expect(&done, ("True", "MinimumReplicasAvailable"), ("True", "NewReplicaSetAvailable"));
    assert_eq!(done.requeue, None);
    let message = status::get(&done.status, status::PROGRESSING).unwrap().message.clone().unwrap();
    assert_eq!(message, "ReplicaSet \"d-a\" has successfully progressed.");
}

#[test]
fn deadline_passes() {
    let mut d = deployment(2, "a", json!({}));
    let started = Timestamp::from_second(20_000).unwrap();
    let sets = vec![set("a", 1, 2, 0, 2)];
    let at = |d: &Deployment, seconds| {
        let now = started + jiff::SignedDuration::from_secs(seconds);
        plan(Observed { deployment: d, sets: sets.clone(), old_pods_running: false, now })
    };
    d.status = Some(at(&d, 0).status);
    let waiting = at(&d, 599);
    assert_eq!(waiting.requeue, Some(std::time::Duration::from_secs(2)));
    let late = at(&d, 601);
    assert!(reasons(&late).contains(&("Progressing".into(), "False".into(), "ProgressDeadlineExceeded".into())));
    assert_eq!(late.requeue, None);
}
