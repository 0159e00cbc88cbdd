//! A lab that cannot start leaves nothing but its logs and the mark of its folder; needs root.

#![allow(clippy::unwrap_used, reason = "a test: a failure is to end it")]

use std::os::unix::fs::PermissionsExt;

use pintle_testkit::{Spec, lab, network};

#[tokio::test]
async fn a_lab_that_does_not_start_says_why_and_leaves_nothing() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pintle = folder.path().join("pintle");
    let id = format!("pintle-labtest-{}", std::process::id());
    std::fs::write(&pintle, format!("#!/bin/sh\n[ \"$1\" = id ] && exec echo {id}\necho no such luck >&2\nexit 1\n"))
        .unwrap();
    std::fs::set_permissions(&pintle, std::fs::Permissions::from_mode(0o755)).unwrap();
    let spec = Spec::new(&folder.path().join("lab"), &pintle).unwrap();
    let Err(error) = lab::up(&spec, &|_| {}).await else { panic!("a lab without a server is up") };
    assert!(format!("{error:#}").contains("no such luck"), "{error:#}");
    let mut left: Vec<String> =
        std::fs::read_dir(&spec.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [".pintle", "log"]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(spec.dir.to_str().unwrap()));
    lab::down(&spec.dir).await.unwrap();
    assert!(!spec.dir.exists());
    assert!(network::namespaces(&lab::tag(&spec.dir)).is_empty());
}
