//! What the results of the client programs come to: nothing that did not run passes.

use std::path::Path;
use std::process::Command;

const TESTS: &str = "# Listed\ngo/TestA\ngo/TestB\nhelm\n";

/// Complaints about the results of some clients.
fn complaints(known: &str, results: &str, clients: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("a file");
        file
    };
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/judge");
    let mut command = Command::new(judge);
    command.arg(file("tests", TESTS)).arg(file("known", known)).arg(file("results", results)).args(clients);
    let output = command.output().expect("the judge");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let summary = lines.pop().expect("a summary");
    assert_eq!(output.status.success(), lines.is_empty(), "{text}");
    assert!(summary.contains(&format!("{} faults", lines.len())), "{text}");
    lines.into_iter().map(|line| line.split(',').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn all_that_are_listed_have_to_run() {
    let both = "go/TestA\tpassed\ngo/TestB\tpassed\n";
    assert!(complaints("", both, &["go"]).is_empty());
    assert_eq!(complaints("", both, &["go", "helm"]), ["helm: did not run"]);
    assert_eq!(complaints("", "go/TestA\tpassed\n", &["go"]), ["go/TestB: did not run"]);
    assert_eq!(complaints("", "", &["helm"]), ["helm: did not run"]);
    assert_eq!(complaints("", &format!("{both}go/TestC\tpassed\n"), &["go"]), ["go/TestC: ran"]);
}

#[test]
fn a_list_that_is_not_there_is_a_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").expect("a file");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/judge");
    let output = Command::new(judge).arg(dir.path().join("tests")).args([&empty, &empty]).output().expect("the judge");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn known_failures_fail_and_exist() {
    let known = "# Known\ngo/TestB\tnot there\tissue 1\n";
    assert!(complaints(known, "go/TestA\tpassed\ngo/TestB\tFAILED\n", &["go"]).is_empty());
    assert_eq!(complaints("", "helm\tFAILED\n", &["helm"]), ["helm: failed"]);
    assert_eq!(complaints(known, "go/TestA\tpassed\ngo/TestB\tpassed\n", &["go"]), ["go/TestB: known to fail"]);
    assert_eq!(complaints("helmet\tx\ty\n", "helm\tpassed\n", &["helm"]), ["helmet: known to fail"]);
}
