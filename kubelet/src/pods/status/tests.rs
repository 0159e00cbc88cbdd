//! Table tests of phases, container states and conditions.

use serde_json::json;

use super::*;
use crate::pods::memory::Health;
use crate::pods::model::Sandbox;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn pod(spec: serde_json::Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "generation": 3});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn record(name: &str, state: State, exit_code: i32) -> Record {
    Record {
        id: format!("id-{name}"),
        name: name.to_owned(),
        sandbox_id: "s".to_owned(),
        state,
        exit_code,
        started_at: 1_000_000_000,
        finished_at: 2_000_000_000,
        ..Record::default()
    }
}

struct Case<'a> {
    pod: &'a Pod,
    containers: Vec<Record>,
    waiting: Vec<(&'a str, &'a str)>,
    done: bool,
}

fn of(case: Case<'_>) -> PodStatus {
    let sandbox = Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.9".into()], ..Sandbox::default() };
    let runtime = RuntimePod { sandboxes: vec![sandbox], containers: case.containers };
    let health = Health { started: true, ready: true, failed: None };
    let memory = Memory {
        health: runtime.containers.iter().map(|c| (c.id.clone(), health.clone())).collect(),
        ..Memory::default()
    };
    let why = |(name, reason): &(&str, &str)| {
        ((*name).to_owned(), Waiting { reason: (*reason).to_owned(), message: "m".to_owned() })
    };
    let waiting = case.waiting.iter().map(why).collect();
    status(Facts {
        pod: case.pod,
        runtime: &runtime,
        memory: &memory,
        waiting: &waiting,
        termination: None,
        done: case.done,
        resize: Resize::default(),
        last: None,
        host_ips: &["192.0.2.1".to_owned()],
        seen: now(),
        now: now(),
    })
}

#[test]
fn phases() {
    let make = |policy: &str| pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}));
    let (r, e) = (|n| record(n, State::Running, 0), |n, c| record(n, State::Exited, c));
    let cases = [
        ("Always", vec![], vec![], false, "Pending"),
        ("Always", vec![r("a")], vec![], false, "Pending"),
        ("Always", vec![r("a"), r("b")], vec![], false, "Running"),
        ("Always", vec![r("a"), e("b", 1)], vec![("b", "CrashLoopBackOff")], false, "Running"),
        ("Always", vec![e("a", 0), e("b", 1)], vec![], false, "Running"),
        ("OnFailure", vec![e("a", 0), e("b", 1)], vec![], false, "Running"),
        ("OnFailure", vec![e("a", 0), e("b", 0)], vec![], false, "Succeeded"),
        ("Never", vec![e("a", 0), e("b", 1)], vec![], false, "Failed"),
        ("Never", vec![r("a"), e("b", 1)], vec![], false, "Running"),
        ("Always", vec![e("a", 0), e("b", 143)], vec![], true, "Failed"),
        ("Always", vec![e("a", 0), e("b", 0)], vec![], true, "Succeeded"),
        ("Always", vec![], vec![], true, "Failed"),
    ];
    for (policy, containers, waiting, done, want) in cases {
        let what = format!("{policy} {containers:?}");
        let got = of(Case { pod: &make(policy), containers, waiting, done });
        assert_eq!(got.phase.as_deref(), Some(want), "{what}");
    }
}

#[test]
fn a_running_pod() {
    let p = pod(json!({"containers": [{"name": "a", "image": "i"}]}));
    let got = of(Case { pod: &p, containers: vec![record("a", State::Running, 0)], waiting: vec![], done: false });
    assert_eq!(got.pod_ip.as_deref(), Some("10.0.0.9"));
    assert_eq!(got.host_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(got.observed_generation, Some(3));
    let container = &got.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some("containerd://id-a"));
    assert!(container.ready && container.started == Some(true));
    for condition in got.conditions.unwrap() {
        assert_eq!(
            (condition.status.as_str(), condition.observed_generation),
            ("True", Some(3)),
            "{}",
            condition.type_
        );
    }
}

#[test]
fn a_crash_loop() {
    let p = pod(json!({"containers": [{"name": "a"}]}));
    let waiting = vec![("a", "CrashLoopBackOff")];
    let got = of(Case { pod: &p, containers: vec![record("a", State::Exited, 7)], waiting, done: false });
    let container = &got.container_statuses.unwrap()[0];
    let state = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(state.reason.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (7, Some("Error")));
    let ready = got.conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [a]"));
}

#[test]
fn init_containers_hold_the_pod_back() {
    let p = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let got = of(Case { pod: &p, containers: vec![record("i", State::Running, 0)], waiting: vec![], done: false });
    assert_eq!(got.phase.as_deref(), Some("Pending"));
    let state = got.container_statuses.as_ref().unwrap()[0].state.clone().unwrap().waiting.unwrap();
    assert_eq!(state.reason.as_deref(), Some("PodInitializing"));
    let condition = got.conditions.unwrap().into_iter().find(|c| c.type_ == "Initialized").unwrap();
    assert_eq!(condition.message.as_deref(), Some("containers with incomplete status: [i]"));
}

#[test]
fn a_resize_shows_what_is_granted_and_what_is_in_effect() {
    let p = pod(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}));
    let sandbox = Sandbox { id: "s".into(), ready: true, ips: vec!["10.0.0.9".into()], ..Sandbox::default() };
    let runtime = RuntimePod { sandboxes: vec![sandbox], containers: vec![record("a", State::Running, 0)] };
    let before = serde_json::from_value(json!({"requests": {"cpu": "1"}})).unwrap();
    let memory = Memory { actuated: [("id-a".to_owned(), Some(before))].into(), ..Memory::default() };
    let pending = Pending { reason: "Deferred", message: "m".to_owned(), generation: Some(5) };
    let got = status(Facts {
        pod: &p,
        runtime: &runtime,
        memory: &memory,
        waiting: &BTreeMap::new(),
        termination: None,
        done: false,
        resize: Resize { pending: Some(&pending), in_progress: Some((Some(4), "trouble")) },
        last: None,
        host_ips: &[],
        seen: now(),
        now: now(),
    });
    let container = &serde_json::to_value(&got.container_statuses.unwrap()[0]).unwrap();
    assert_eq!(container["allocatedResources"], json!({"cpu": "2"}));
    assert_eq!(container["resources"], json!({"requests": {"cpu": "1"}}));
    let conditions = got.conditions.unwrap();
    let of = |kind: &str| {
        let c = conditions.iter().find(|c| c.type_ == kind).unwrap();
        (c.reason.as_deref(), c.message.as_deref(), c.observed_generation)
    };
    assert_eq!(of("PodResizePending"), (Some("Deferred"), Some("m"), Some(5)));
    assert_eq!(of("PodResizeInProgress"), (Some("Error"), Some("trouble"), Some(4)));
}

#[test]
fn containers_of_a_pod_with_init_containers_are_initializing() {
    let p = pod(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]}));
    let made = vec![record("i", State::Created, 0)];
    let got = of(Case { pod: &p, containers: made, waiting: vec![], done: false });
    let all = got.init_container_statuses.into_iter().flatten().chain(got.container_statuses.into_iter().flatten());
    for status in all {
        let reason = status.state.unwrap().waiting.unwrap().reason;
        assert_eq!(reason.as_deref(), Some("PodInitializing"), "{}", status.name);
    }
}
