//! Table tests of the plan.

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::pods::memory::{ContainerMemory, Health};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn pod(spec: serde_json::Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn sandbox(id: &str, ready: bool) -> Sandbox {
    Sandbox { id: id.to_owned(), ready, ips: vec!["10.0.0.1".to_owned()], ..Sandbox::default() }
}

fn record(name: &str, state: State, exit_code: i32) -> Record {
    Record {
        id: format!("id-{name}"),
        name: name.to_owned(),
        sandbox_id: "s".to_owned(),
        state,
        exit_code,
        started_at: 1,
        finished_at: i64::try_from(now().as_nanosecond()).unwrap(),
        ..Record::default()
    }
}

fn running(name: &str) -> Record {
    record(name, State::Running, 0)
}

fn exited(name: &str, code: i32) -> Record {
    record(name, State::Exited, code)
}

fn with(containers: Vec<Record>) -> RuntimePod {
    RuntimePod { sandboxes: vec![sandbox("s", true)], containers }
}

fn planned(pod: &Pod, runtime: &RuntimePod, memory: &Memory) -> Plan {
    plan(View { pod, runtime, memory, termination: None, now: now() })
}

fn start(name: &str, restart_count: u32) -> Action {
    Action::Start { name: name.to_owned(), restart_count, crashed: restart_count > 0 }
}

fn started(names: &[&str]) -> Memory {
    let health = Health { started: true, ready: true, failed: None };
    let health = names.iter().map(|n| (format!("id-{n}"), health.clone())).collect();
    Memory { health, ..Memory::default() }
}

#[test]
fn sandboxes() {
    let always = pod(json!({"containers": [{"name": "a"}]}));
    let never = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}));
    let create = |attempt| Action::CreateSandbox { attempt };
    let stop = || Action::StopSandbox { id: "s".to_owned() };
    let dead = RuntimePod { sandboxes: vec![sandbox("s", false)], containers: vec![] };
    let dead_with = |r| RuntimePod { sandboxes: vec![sandbox("s", false)], containers: vec![r] };
    let no_ip = RuntimePod { sandboxes: vec![Sandbox { ips: vec![], ..sandbox("s", true) }], containers: vec![] };
    let kill_a = vec![Action::Kill {
        id: "id-a".to_owned(),
        name: "a".to_owned(),
        grace: 30,
        message: "Stopping container a".to_owned(),
    }];
    let cases = [
        ("new pod", &always, RuntimePod::default(), vec![create(0)]),
        ("usable sandbox", &always, with(vec![]), vec![start("a", 0)]),
        ("dead sandbox", &always, dead.clone(), vec![stop(), create(1)]),
        ("no address", &always, no_ip, vec![stop(), create(1)]),
        ("dead sandbox, container runs", &always, dead_with(running("a")), kill_a),
        ("dead sandbox, container ended", &always, dead_with(exited("a", 1)), vec![stop(), create(1)]),
        ("never: not made again", &never, dead_with(exited("a", 137)), vec![stop()]),
    ];
    for (what, pod, runtime, want) in cases {
        assert_eq!(planned(pod, &runtime, &Memory::default()).actions, want, "{what}");
    }
}

#[test]
fn app_containers_by_restart_policy() {
    let of = |policy: &str| pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}));
    let cases = [
        ("Always", vec![], vec![start("a", 0), start("b", 0)], false),
        ("Always", vec![running("a")], vec![start("b", 0)], false),
        ("Always", vec![running("a"), exited("b", 0)], vec![start("b", 1)], false),
        ("OnFailure", vec![running("a"), exited("b", 0)], vec![], false),
        ("OnFailure", vec![running("a"), exited("b", 2)], vec![start("b", 1)], false),
        ("Never", vec![running("a"), exited("b", 2)], vec![], false),
        ("Never", vec![exited("a", 0), exited("b", 2)], vec![Action::StopSandbox { id: "s".to_owned() }], false),
    ];
    for (policy, containers, want, done) in cases {
        let plan = planned(&of(policy), &with(containers.clone()), &started(&["a", "b"]));
        assert_eq!((plan.actions, plan.done), (want, done), "{policy} {containers:?}");
    }
}

#[test]
fn a_finished_pod_is_done_when_its_sandbox_is_stopped() {
    let p = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}));
    let memory = Memory { stopped: ["s".to_owned()].into(), ..Memory::default() };
    assert!(planned(&p, &with(vec![exited("a", 0)]), &memory).done);
}

#[test]
fn init_containers_go_in_order() {
    let p = pod(json!({
        "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}, {"name": "j"}],
        "containers": [{"name": "a"}],
    }));
    let cases = [
        (vec![], vec![], vec![start("i", 0)]),
        (vec![running("i")], vec![], vec![]),
        (vec![exited("i", 1)], vec![], vec![start("i", 1)]),
        (vec![exited("i", 0)], vec![], vec![start("side", 0)]),
        (vec![exited("i", 0), running("side")], vec![], vec![]),
        (vec![exited("i", 0), running("side")], vec!["side"], vec![start("j", 0)]),
        (vec![exited("i", 0), running("side"), exited("j", 0)], vec!["side"], vec![start("a", 0)]),
        (vec![exited("side", 0), running("a")], vec!["a"], vec![start("side", 1)]),
        (vec![running("side"), running("a")], vec!["a", "side"], vec![]),
    ];
    for (containers, up, want) in cases {
        assert_eq!(planned(&p, &with(containers.clone()), &started(&up)).actions, want, "{containers:?}");
    }
}

#[test]
fn a_failed_init_container_ends_a_pod_that_is_not_restarted() {
    let p = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let runtime = with(vec![exited("i", 1)]);
    assert!(finished(&p, &runtime, &Memory::default()));
    assert_eq!(planned(&p, &runtime, &Memory::default()).actions, [Action::StopSandbox { id: "s".to_owned() }]);
}

#[test]
fn crash_loop_waits_from_the_end_of_the_container() {
    let p = pod(json!({"containers": [{"name": "a"}]}));
    let mut memory = ContainerMemory::default();
    memory.crash.next(now());
    let memory = Memory { containers: [("a".to_owned(), memory)].into(), ..Memory::default() };
    let plan = planned(&p, &with(vec![exited("a", 1)]), &memory);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.wake_at, Some(now() + SignedDuration::from_secs(10)));
    let waiting = &plan.waiting["a"];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(waiting.message, "back-off 10s restarting failed container=a pod=p_n(u)");
}

#[test]
fn failed_probes_and_changed_images_kill() {
    let p = pod(json!({"terminationGracePeriodSeconds": 7, "containers": [
        {"name": "a", "image": "x", "livenessProbe": {"terminationGracePeriodSeconds": 3}}]}));
    let runtime = with(vec![running("a")]);
    let mut memory = started(&["a"]);
    memory.health.get_mut("id-a").unwrap().failed = Some(ProbeKind::Liveness);
    let kill = |grace, message: &str| Action::Kill {
        id: "id-a".to_owned(),
        name: "a".to_owned(),
        grace,
        message: message.to_owned(),
    };
    assert_eq!(
        planned(&p, &runtime, &memory).actions,
        [kill(3, "Container a failed liveness probe, will be restarted")]
    );
    let other = with(vec![Record { hash: "0".to_owned(), ..running("a") }]);
    assert_eq!(
        planned(&p, &other, &started(&["a"])).actions,
        [kill(7, "Container a definition changed, will be restarted")]
    );
    memory.killing.insert("id-a".to_owned());
    assert_eq!(planned(&p, &runtime, &memory).actions, [], "already being killed");
}

#[test]
fn termination_ends_apps_then_sidecars_then_sandboxes() {
    let p = pod(json!({
        "initContainers": [{"name": "s1", "restartPolicy": "Always"}, {"name": "s2", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}],
    }));
    let order = Termination { end: End::Deleted, since: now() - SignedDuration::from_secs(4), grace: 10 };
    let planned = |runtime: &RuntimePod, memory: &Memory| {
        plan(View { pod: &p, runtime, memory, termination: Some(&order), now: now() })
    };
    let killed = |plan: &Plan| -> Vec<(String, i64)> {
        let kills = plan.actions.iter().filter_map(|a| match a {
            Action::Kill { name, grace, .. } => Some((name.clone(), *grace)),
            _ => None,
        });
        kills.collect()
    };
    let none = Memory::default();
    let all = with(vec![running("s1"), running("s2"), running("a")]);
    assert_eq!(killed(&planned(&all, &none)), [("a".to_owned(), 6)]);
    let sidecars = with(vec![running("s1"), running("s2"), exited("a", 0)]);
    assert_eq!(killed(&planned(&sidecars, &none)), [("s2".to_owned(), 6)]);
    let first = with(vec![running("s1"), exited("s2", 0), exited("a", 0)]);
    assert_eq!(killed(&planned(&first, &none)), [("s1".to_owned(), 6)]);
    let gone = with(vec![exited("a", 0)]);
    assert_eq!(planned(&gone, &none).actions, [Action::StopSandbox { id: "s".to_owned() }]);
    let stopped = Memory { stopped: ["s".to_owned()].into(), ..Memory::default() };
    assert!(planned(&gone, &stopped).done);
}

#[test]
fn nothing_is_started_for_a_pod_that_ends() {
    let p = pod(json!({"containers": [{"name": "a"}]}));
    let order = Termination { end: End::Deleted, since: now(), grace: 10 };
    let memory = Memory::default();
    let runtime = RuntimePod::default();
    let plan = plan(View { pod: &p, runtime: &runtime, memory: &memory, termination: Some(&order), now: now() });
    assert!(plan.done && plan.actions.is_empty());
}

#[test]
fn a_pod_that_ended_before_is_not_started_again() {
    let mut p = pod(json!({"containers": [{"name": "a"}]}));
    p.status = serde_json::from_value(json!({"phase": "Failed"})).unwrap();
    let plan = planned(&p, &RuntimePod::default(), &Memory::default());
    assert!(plan.done && plan.actions.is_empty());
}

#[test]
fn resizes() {
    let asks = |cpu: &str, policy: &str| {
        pod(json!({"restartPolicy": "OnFailure", "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]}]}))
    };
    let before = asks("1", "NotRequired");
    let mut memory = started(&["a"]);
    memory.group = Some(crate::container::resources::for_pod(&before));
    memory.actuated.insert("id-a".to_owned(), spec::spec(&before).containers[0].resources.clone());
    let runtime = with(vec![running("a")]);
    assert_eq!(planned(&before, &runtime, &memory).actions, []);

    let in_place = planned(&asks("2", "NotRequired"), &runtime, &memory);
    assert_eq!(in_place.actions, [Action::Resize { containers: vec![("id-a".to_owned(), "a".to_owned())] }]);
    assert!(in_place.restarts.is_empty());

    let by_restart = planned(&asks("2", "RestartContainer"), &runtime, &memory);
    let kill = Action::Kill {
        id: "id-a".to_owned(),
        name: "a".to_owned(),
        grace: 30,
        message: "Container a resize requires restart".to_owned(),
    };
    assert_eq!(by_restart.actions, [Action::Resize { containers: vec![] }, kill]);
    assert_eq!(by_restart.restarts, ["id-a"]);

    // It ended well, which its restart policy would leave at that.
    let mut ended = memory.clone();
    ended.group = None;
    let over = with(vec![exited("a", 0)]);
    assert_eq!(
        planned(&asks("2", "RestartContainer"), &over, &ended).actions,
        [Action::StopSandbox { id: "s".to_owned() }]
    );
    ended.restart.insert("id-a".to_owned());
    assert_eq!(planned(&asks("2", "RestartContainer"), &over, &ended).actions, [start("a", 1)]);

    let later = now() + SignedDuration::from_secs(5);
    let failure = Failure { reason: "Error".to_owned(), message: "m".to_owned(), retry_at: later, image: None };
    memory.unresized = Some(failure);
    let waits = planned(&asks("2", "NotRequired"), &runtime, &memory);
    assert_eq!((waits.actions, waits.wake_at), (vec![], Some(later)));
}
