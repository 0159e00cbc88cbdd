//! The control groups of one name: cgroup v1 has one a controller, v2 has one in all.

use std::path::{Path, PathBuf};

/// Where the hierarchies are mounted.
const BASE: &str = "/sys/fs/cgroup";

/// The directories of a name, in every hierarchy.
pub fn dirs(name: &str) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = hierarchies().into_iter().map(|dir| dir.join(name)).collect();
    dirs.retain(|dir| is_group(dir));
    dirs
}

/// Makes the groups of a name in every hierarchy, ready to be used: a v1 cpuset takes its parent's CPUs and memory.
pub fn create(name: &str) -> std::io::Result<()> {
    for hierarchy in hierarchies().into_iter().filter(|dir| is_group(dir)) {
        let dir = hierarchy.join(name);
        if dir.exists() {
            continue;
        }
        std::fs::create_dir(&dir)?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            // In v2 an empty value means the parent's, and the file is there only if the controller is on.
            if hierarchy.join("cgroup.clone_children").exists() && hierarchy.join(file).exists() {
                std::fs::write(dir.join(file), std::fs::read(hierarchy.join(file))?)?;
            }
        }
    }
    Ok(())
}

/// The processes in a group and in those below it.
pub fn pids(dir: &Path) -> Vec<i32> {
    let mut pids: Vec<i32> = std::fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    for child in subdirs(dir) {
        pids.extend(self::pids(&child));
    }
    pids
}

/// Removes a group and those below it, as far as they are empty of processes.
pub fn remove(dir: &Path) {
    for child in subdirs(dir) {
        remove(&child);
    }
    if let Err(error) = std::fs::remove_dir(dir) {
        tracing::debug!(%error, dir = %dir.display(), "cgroup not removed");
    }
}

fn hierarchies() -> Vec<PathBuf> {
    let base = PathBuf::from(BASE);
    let mut all = subdirs(&base);
    all.push(base);
    all
}

fn is_group(dir: &Path) -> bool {
    dir.join("cgroup.procs").exists()
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    // A symbolic link (`cpu` to `cpu,cpuacct`) is the same group once more.
    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}
