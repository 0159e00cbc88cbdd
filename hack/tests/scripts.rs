//! What the commands of hack/ share (lib.sh), where a fault would be seen only on a machine that lacks something.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a script after lib.sh, with what stands in `path` as PATH.
fn run(script: &str, path: &str, target: &Path) -> Output {
    let lib = concat!(env!("CARGO_MANIFEST_DIR"), "/lib.sh");
    let text = format!("set -euo pipefail\nsource {lib}\n[ -z '{path}' ] || PATH={path}\nWORK=$target\n{script}");
    Command::new("bash").args(["-c", &text]).env("CARGO_TARGET_DIR", target).output().expect("bash")
}

#[test]
fn a_machine_without_kubectl_takes_the_one_that_is_built() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (bin, built) = (dir.path().join("bin"), dir.path().join("upstream/kubectl"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::create_dir_all(dir.path().join("upstream")).expect("a folder");
    std::os::unix::fs::symlink("/bin/sed", bin.join("sed")).expect("sed");
    // Newer than the module file: it is not built again.
    std::fs::write(&built, "").expect("a file");
    let output = run("need_kubectl; echo \"$KUBECTL\"", &bin.display().to_string(), dir.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), built.display().to_string(), "{output:?}");
    assert!(output.status.success());
}

#[test]
fn only_tests_that_ran_pass() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("temporary directory");
    let tests = dir.path().join("tests");
    std::fs::create_dir(&tests).expect("a folder");
    for (name, code) in [("10-good", 0), ("20-two-good", 0), ("30-bad", 1)] {
        let file = tests.join(name);
        std::fs::write(&file, format!("#!/bin/sh\nexit {code}\n")).expect("a script");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    let passes = |script: &str| {
        let script = script.replace("FOLDER", &tests.display().to_string());
        run(&script, "", dir.path()).status.success()
    };
    assert!(passes("run_tests FOLDER good") && passes("run_tests FOLDER good two-good"));
    assert!(!passes("run_tests FOLDER bad") && !passes("run_tests FOLDER"), "one fails");
    assert!(!passes("run_tests FOLDER nothing"), "nothing ran");
    assert!(passes("known_tests FOLDER good two-good") && !passes("known_tests FOLDER wo-good"));
    assert!(!passes("known_tests FOLDER '*'"));
}
