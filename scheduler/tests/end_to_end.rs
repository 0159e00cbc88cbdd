//! The scheduler against an API server: ours in this process, or any that `PINTLE_TEST_KUBECONFIG` names. Nodes are objects
//! made here: no kubelet runs.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pintle_testapi::Server;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Of this run alone: a server without controllers never finishes deleting a namespace.
static NAMESPACE: LazyLock<String> = LazyLock::new(|| format!("scheduler-test-{}", std::process::id()));

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid object")
}

/// A client of the server that `PINTLE_TEST_KUBECONFIG` names, else of one in this process, which lives as long as the
/// second value.
async fn client() -> (Client, Option<Server>) {
    let Some(path) = std::env::var_os("PINTLE_TEST_KUBECONFIG") else {
        let server = Server::start(pintle_testapi::config().expect("a configuration")).await.expect("an API server");
        return (server.client(), Some(server));
    };
    (pintle_client::connect::from_kubeconfig(path.as_ref()).await.expect("a client"), None)
}

async fn make_node(client: &Client, name: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
    nodes.create(&PostParams::default(), &object(node)).await.expect("node");
    let status = json!({"status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
        "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("status");
    // Admission taints new nodes as not ready.
    let untaint = json!({"spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(untaint)).await.expect("taints");
}

async fn make_pod(pods: &Api<Pod>, name: &str, cpu: &str, class: Option<&str>) {
    let pod = json!({"metadata": {"name": name}, "spec": {"priorityClassName": class, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
    pods.create(&PostParams::default(), &object(pod)).await.expect("pod");
}

async fn wait(pods: &Api<Pod>, name: &str, what: &str, done: impl Fn(&Pod) -> bool) -> Pod {
    for _ in 0..200 {
        if let Some(pod) = pods.get_opt(name).await.expect("pod").filter(&done) {
            return pod;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} did not get to: {what}");
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn message(pod: &Pod) -> String {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    conditions.into_iter().find(|c| c.type_ == "PodScheduled").and_then(|c| c.message).unwrap_or_default()
}

async fn has_event(client: &Client, pod: &str, reason: &str, message: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), &NAMESPACE);
    let parameters = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
    for _ in 0..50 {
        let list = events.list(&parameters).await.expect("events");
        if list.iter().any(|e| e.message.as_deref() == Some(message)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no event {reason} for {pod}");
}

async fn prepare(client: &Client) {
    let namespace = json!({"metadata": {"name": *NAMESPACE}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object(namespace)).await.expect("namespace");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &NAMESPACE);
    accounts.create(&PostParams::default(), &object(json!({"metadata": {"name": "default"}}))).await.expect("account");
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let class = json!({"metadata": {"name": "scheduler-test-high"}, "value": 1000});
    classes.create(&PostParams::default(), &object(class)).await.expect("class");
}

async fn clean(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &NAMESPACE);
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.expect("pods");
    let classes: Api<PriorityClass> = Api::all(client.clone());
    classes.delete("scheduler-test-high", &DeleteParams::default()).await.expect("class");
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["st-a", "st-b"] {
        nodes.delete(name, &DeleteParams::default()).await.expect("node");
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(&NAMESPACE, &DeleteParams::default()).await.expect("namespace");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_reports_and_preempts() {
    let (client, _server) = client().await;
    prepare(&client).await;
    let shutdown = CancellationToken::new();
    let config = pintle_scheduler::Config::default();
    let telemetry = config.telemetry.clone();
    let scheduler = tokio::spawn(pintle_scheduler::run(config, client.clone(), shutdown.clone()));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &NAMESPACE);

    // No node at all, then one.
    make_pod(&pods, "first", "1", None).await;
    wait(&pods, "first", "a report", |p| message(p) == "no nodes available to schedule pods").await;
    make_node(&client, "st-a", "2").await;
    wait(&pods, "first", "a node", |p| node_of(p) == Some("st-a")).await;
    let assigned = format!("Successfully assigned {}/first to st-a", *NAMESPACE);
    has_event(&client, "first", "Scheduled", &assigned).await;

    // No room, in upstream's words; a second node helps.
    make_pod(&pods, "second", "2", None).await;
    let want = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                1 No preemption victims found for incoming pod.";
    wait(&pods, "second", "a report", |p| message(p) == want).await;
    has_event(&client, "second", "FailedScheduling", want).await;
    make_node(&client, "st-b", "2").await;
    wait(&pods, "second", "a node", |p| node_of(p) == Some("st-b")).await;

    // A pod of high priority takes the place of the least.
    make_pod(&pods, "third", "1500m", Some("scheduler-test-high")).await;
    let third = wait(&pods, "third", "a node", |p| node_of(p).is_some()).await;
    let victim = if node_of(&third) == Some("st-a") { "first" } else { "second" };
    assert!(pods.get_opt(victim).await.expect("answer").is_none(), "{victim} should have gone");

    let ready = telemetry.checks.respond("/readyz", Some("verbose")).await.expect("an answer").into_body();
    assert!(ready.contains("[+]informer-sync ok\n"), "{ready}");
    let metrics = telemetry.metrics.render();
    for line in [
        "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 3\n",
        "scheduler_preemption_attempts_total 1\n",
        "scheduler_preemption_victims_count 1\n",
        "scheduler_cache_size{type=\"nodes\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }

    shutdown.cancel();
    scheduler.await.expect("no panic").expect("no error");
    clean(&client).await;
}
