//! The layer table: dependencies between the workspace's crates are those of `layers.txt` and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

#[test]
fn dependencies_are_those_of_the_layer_table() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = include_str!("../layers.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(package, uses)| (package, uses.split_whitespace().collect()))
        .collect();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata gives JSON");
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        let Some(uses) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let used: BTreeSet<&str> = dependencies.iter().filter_map(|dependency| dependency["name"].as_str()).collect();
        wrong.extend(
            uses.difference(&used).map(|unused| format!("{name} does not use {unused}: it goes from the table")),
        );
        for dependency in dependencies {
            let (on, dev) = (dependency["name"].as_str().expect("name"), dependency["kind"] == "dev");
            if !on.starts_with("pintle") || uses.contains(on) || (dev && allowed["dev"].contains(on)) {
                continue;
            }
            wrong.push(format!("{name} must not depend on {on}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
