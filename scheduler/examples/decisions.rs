//! How many pods a second the core places: `cargo run --release --example decisions [NODES] [PODS]`. No API is involved.

#![allow(clippy::print_stdout, reason = "a tool for development")]

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use pintle_client::cache::Change;
use pintle_scheduler::core::{Core, Input};
use pintle_scheduler::{Pauses, Profile};
use serde_json::json;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (nodes, pods) = (arguments.next().unwrap_or(5000), arguments.next().unwrap_or(10_000));
    let now = Instant::now();
    let profile = Profile::with_defaults("default-scheduler");
    let mut core = Core::new(vec![profile], Pauses::default(), 0, now, Box::new(|n| n / 2));
    for at in 0..nodes {
        let labels =
            json!({"kubernetes.io/hostname": format!("n{at}"), "topology.kubernetes.io/zone": format!("z{}", at % 3)});
        let node: Node = serde_json::from_value(json!({"metadata": {"name": format!("n{at}"), "labels": labels},
            "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}}))?;
        core.handle(Input::Node(Change::Added(Arc::new(node))), now);
    }
    for at in 0..pods {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("p{at}"), "namespace": "default", "uid": format!("u{at}"), "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]}}))?;
        core.handle(Input::Pod(Change::Added(Arc::new(pod))), now);
    }
    let began = Instant::now();
    let mut placed = 0;
    while core.step(now).is_some() {
        placed += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{placed} decisions on {nodes} nodes in {seconds:.2} s: {:.0} a second", f64::from(placed) / seconds);
    Ok(())
}
