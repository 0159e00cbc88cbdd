//! Runs a test of this program once more, as PID 1 of namespaces of its own: whatever it starts and mounts goes when it
//! ends, however it ends. Its control groups are removed afterwards; its folder is kept, and the end of its logs shown,
//! if it failed.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DIR: &str = "PINTLE_TEST_DIR";
const GROUP: &str = "PINTLE_TEST_CGROUP";
/// Lines of each log that are shown after a failure.
const SHOWN: usize = 30;

/// Runs the ignored test `inner` of this program in fresh namespaces; panics if it fails.
pub fn run(inner: &str) {
    let dir = tempfile::tempdir().unwrap();
    let group = format!("pintle-kubelet-{inner}-{}", std::process::id());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args(["--ignored", "--exact", "--nocapture", inner]);
    let status = command.env(DIR, dir.path()).env(GROUP, &group).status();
    remove_cgroups(&group);
    let status = status.unwrap_or_else(|error| panic!("unshare (Debian: util-linux): {error}"));
    if !status.success() {
        let kept = dir.keep();
        show_logs(&kept);
        panic!("{inner}: {status}; its files are in {}", kept.display());
    }
}

/// To be called first inside: a shared mount table, as on a machine that systemd started, and a loopback link.
pub fn prepare() {
    for (program, args) in [("mount", &["--make-rshared", "/"][..]), ("ip", &["link", "set", "lo", "up"][..])] {
        let status = Command::new(program).args(args).status().unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(status.success(), "{program} {args:?}: {status}");
    }
}

/// The folder of the test; empty at first.
pub fn dir() -> PathBuf {
    std::env::var_os(DIR).expect("run by the outer test").into()
}

/// Name of the control group below which the test stays.
pub fn group() -> String {
    std::env::var(GROUP).expect("run by the outer test")
}

fn show_logs(dir: &Path) {
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let end = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
            eprintln!("--- the end of {}\n{end}", path.display());
        }
    }
}

fn remove_cgroups(group: &str) {
    fn tree(dir: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                tree(&entry.path());
            }
        }
        let _ = std::fs::remove_dir(dir);
    }
    let base = Path::new("/sys/fs/cgroup");
    // Killed processes leave their groups a moment later.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let hierarchies = std::fs::read_dir(base).into_iter().flatten().flatten().map(|e| e.path().join(group));
        let left: Vec<PathBuf> = hierarchies.chain([base.join(group)]).filter(|dir| dir.exists()).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "control groups are left: {left:?}");
        left.iter().for_each(|dir| tree(dir));
        std::thread::sleep(Duration::from_millis(50));
    }
}
