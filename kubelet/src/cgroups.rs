//! The pods' control groups: `kubepods[/burstable|/besteffort]/pod<uid>` under the configured root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use k8s_openapi::api::core::v1::Pod;

use crate::config::CgroupDriver;
use crate::container::resources::{self, PodLimits};
use crate::pods::spec::{self, Qos};

const CLASSES: [Qos; 3] = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];

/// The machine's hierarchies.
#[derive(Clone, Debug)]
enum Hierarchy {
    /// One mount point a controller.
    V1(Vec<PathBuf>),
    /// One for all.
    V2(PathBuf),
}

/// Makes and removes control groups.
#[derive(Clone, Debug)]
pub struct Cgroups {
    hierarchy: Hierarchy,
    /// Every mount; on a hybrid machine also the unified one, where the runtime makes groups as well.
    all: Vec<PathBuf>,
    driver: CgroupDriver,
    root: String,
}

impl Cgroups {
    /// Reads the machine's mounts.
    pub fn new(driver: CgroupDriver, root: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let all = [of_type(&mounts, "cgroup"), of_type(&mounts, "cgroup2")].concat();
        Ok(Self { hierarchy: hierarchy(&mounts), all, driver, root: root.trim_matches('/').to_owned() })
    }

    /// True on a machine with one unified hierarchy.
    pub fn unified(&self) -> bool {
        matches!(self.hierarchy, Hierarchy::V2(_))
    }

    /// What the runtime is told as the pod's parent group.
    pub fn parent(&self, pod: &Pod) -> String {
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.path(pod)),
            CgroupDriver::Systemd => slice(pod),
        }
    }

    /// Path of the pod's group below each hierarchy.
    fn path(&self, pod: &Pod) -> String {
        self.path_of(spec::qos(pod), spec::uid(pod))
    }

    fn path_of(&self, class: Qos, uid: &str) -> String {
        let class = match class {
            Qos::Guaranteed => "",
            Qos::Burstable => "burstable/",
            Qos::BestEffort => "besteffort/",
        };
        let under = if self.root.is_empty() { String::new() } else { format!("{}/", self.root) };
        format!("{under}kubepods/{class}pod{uid}")
    }

    /// Makes the pod's group and sets its limits. With systemd the slice comes with the pod's first scope.
    pub fn create(&self, pod: &Pod) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            return Ok(());
        }
        let path = self.path(pod);
        match &self.hierarchy {
            Hierarchy::V1(mounts) => mounts.iter().try_for_each(|mount| make_v1(mount, &path))?,
            Hierarchy::V2(mount) => make_v2(mount, &path)?,
        }
        if let Err(error) = self.limit(&path, resources::for_pod(pod)) {
            tracing::debug!(path, %error, "control group value not set");
        }
        Ok(())
    }

    /// Raises those values of the pod's group that are to grow; what shrinks waits until the containers have shrunk.
    pub fn grow(&self, pod: &Pod, limits: PodLimits) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            return Ok(());
        }
        let path = self.path(pod);
        let now = self.limits(&path);
        // No limit is as large as it can be.
        let larger = |wanted: Option<i64>, now: Option<i64>| wanted.filter(|w| now.is_some_and(|n| *w > n));
        let grown = PodLimits {
            shares: limits.shares,
            quota: larger(limits.quota, now.0),
            memory: larger(limits.memory, now.1),
        };
        self.limit(&path, grown)
    }

    /// Sets the values of the pod's group.
    pub fn set(&self, pod: &Pod, limits: PodLimits) -> io::Result<()> {
        if self.driver == CgroupDriver::Systemd {
            return Ok(());
        }
        self.limit(&self.path(pod), limits)
    }

    fn limit(&self, path: &str, limits: PodLimits) -> io::Result<()> {
        match &self.hierarchy {
            Hierarchy::V1(mounts) => mounts.iter().try_for_each(|mount| limit_v1(&mount.join(path), limits)),
            Hierarchy::V2(mount) => limit_v2(&mount.join(path), limits),
        }
    }

    /// CPU quota and memory limit of a group, each if it has one.
    fn limits(&self, path: &str) -> (Option<i64>, Option<i64>) {
        let read = |dir: &Path, file: &str| {
            let text = fs::read_to_string(dir.join(path).join(file)).ok()?;
            text.split_whitespace().next()?.parse::<i64>().ok().filter(|v| *v >= 0)
        };
        match &self.hierarchy {
            Hierarchy::V1(mounts) => {
                let first = |file: &str| mounts.iter().find_map(|mount| read(mount, file));
                (first("cpu.cfs_quota_us"), first("memory.limit_in_bytes"))
            }
            Hierarchy::V2(mount) => (read(mount, "cpu.max"), read(mount, "memory.max")),
        }
    }

    /// Weighs the classes against each other: burstable pods by their requests together, best-effort ones as little as
    /// possible.
    pub fn weigh(&self, burstable_milli: i64) {
        if self.driver == CgroupDriver::Systemd {
            return;
        }
        let under = if self.root.is_empty() { String::new() } else { format!("{}/", self.root) };
        for (class, shares) in [("burstable", resources::shares(burstable_milli)), ("besteffort", resources::shares(0))]
        {
            let path = format!("{under}kubepods/{class}");
            if let Err(error) = self.limit(&path, PodLimits { shares, quota: None, memory: None }) {
                tracing::debug!(path, %error, "class not weighed");
            }
        }
    }

    /// Removes the pod's group, of whatever class, and what the runtime left below it; it may be gone already. A group
    /// with processes stays.
    pub fn remove(&self, uid: &str) {
        if self.driver == CgroupDriver::Systemd {
            return;
        }
        for class in CLASSES {
            let path = self.path_of(class, uid);
            for mount in &self.all {
                remove_tree(&mount.join(&path));
            }
        }
    }

    /// Uids of all pods that have a group.
    pub fn pods(&self) -> BTreeSet<String> {
        let folders = self.all.iter().flat_map(|m| CLASSES.map(|class| m.join(self.path_of(class, ""))));
        // The path of no uid ends with the prefix of all pods' groups.
        let parents: BTreeSet<PathBuf> = folders.filter_map(|f| f.parent().map(Path::to_path_buf)).collect();
        let entries = parents.iter().flat_map(|p| fs::read_dir(p).into_iter().flatten().flatten());
        entries.filter_map(|e| e.file_name().to_str()?.strip_prefix("pod").map(str::to_owned)).collect()
    }
}

/// Name of the pod's slice for systemd.
fn slice(pod: &Pod) -> String {
    let uid = spec::uid(pod).replace('-', "_");
    match spec::qos(pod) {
        Qos::Guaranteed => format!("kubepods-pod{uid}.slice"),
        Qos::Burstable => format!("kubepods-burstable-pod{uid}.slice"),
        Qos::BestEffort => format!("kubepods-besteffort-pod{uid}.slice"),
    }
}

/// Mount points of a type.
fn of_type(mounts: &str, kind: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    fields.filter(|f| f.get(2) == Some(&kind)).filter_map(|f| f.get(1).map(PathBuf::from)).collect()
}

/// Legacy hierarchies with controllers count; if there are none, the unified one.
fn hierarchy(mounts: &str) -> Hierarchy {
    let v1 = of_type(mounts, "cgroup");
    match (v1.is_empty(), of_type(mounts, "cgroup2").into_iter().next()) {
        (true, Some(mount)) => Hierarchy::V2(mount),
        _ => Hierarchy::V1(v1),
    }
}

fn make_v1(mount: &Path, path: &str) -> io::Result<()> {
    let mut dir = mount.to_path_buf();
    for part in path.split('/') {
        let parent = dir.clone();
        dir.push(part);
        if !dir.is_dir() {
            match fs::create_dir(&dir) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        // A new cpuset is empty: nothing can run in it before it is filled.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = dir.join(file);
            if fs::read_to_string(&own).is_ok_and(|text| text.trim().is_empty()) {
                fs::write(&own, fs::read_to_string(parent.join(file))?)?;
            }
        }
    }
    Ok(())
}

fn make_v2(mount: &Path, path: &str) -> io::Result<()> {
    let mut dir = mount.to_path_buf();
    for part in path.split('/') {
        for controller in ["+cpuset", "+cpu", "+io", "+memory", "+pids", "+hugetlb"] {
            // Not every machine has every controller.
            let _ = fs::write(dir.join("cgroup.subtree_control"), controller);
        }
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Writes a value if the controller is there.
fn put(dir: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = dir.join(file);
    if !path.exists() {
        return Ok(());
    }
    fs::write(&path, value.to_string()).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn limit_v1(dir: &Path, limits: PodLimits) -> io::Result<()> {
    put(dir, "cpu.shares", limits.shares)?;
    if let Some(quota) = limits.quota {
        put(dir, "cpu.cfs_period_us", resources::QUOTA_PERIOD)?;
        put(dir, "cpu.cfs_quota_us", quota)?;
    }
    limits.memory.map_or(Ok(()), |memory| put(dir, "memory.limit_in_bytes", memory))
}

fn limit_v2(dir: &Path, limits: PodLimits) -> io::Result<()> {
    put(dir, "cpu.weight", 1 + (limits.shares - 2) * 9999 / 262_142)?;
    if let Some(quota) = limits.quota {
        put(dir, "cpu.max", format!("{quota} {}", resources::QUOTA_PERIOD))?;
    }
    limits.memory.map_or(Ok(()), |memory| put(dir, "memory.max", memory))
}

fn remove_tree(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove_tree(&entry.path());
    }
    if let Err(error) = fs::remove_dir(dir) {
        tracing::debug!(dir = %dir.display(), %error, "control group not removed");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hierarchies() {
        let hybrid =
            "cgroup /c/cpu cgroup rw 0 0\ncgroup /c/systemd cgroup rw 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n";
        assert!(matches!(hierarchy(hybrid), Hierarchy::V1(m) if m.len() == 2));
        assert!(matches!(hierarchy("cgroup2 /c cgroup2 rw 0 0\n"), Hierarchy::V2(_)));
    }

    #[test]
    fn what_grows_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": []}})).unwrap();
        let (mounts, root) = (vec![dir.path().to_path_buf()], String::new());
        let all = mounts.clone();
        let groups = Cgroups { hierarchy: Hierarchy::V1(mounts), all, driver: CgroupDriver::Cgroupfs, root };
        let group = dir.path().join(groups.path(&pod));
        fs::create_dir_all(&group).unwrap();
        let files = ["cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes"];
        let put = |values: [&str; 4]| files.iter().zip(values).for_each(|(f, v)| fs::write(group.join(f), v).unwrap());
        let get = || files.map(|f| fs::read_to_string(group.join(f)).unwrap());
        let limits = PodLimits { shares: 20, quota: Some(5000), memory: Some(50) };
        put(["10", "100000", "-1", "100"]);
        groups.grow(&pod, limits).unwrap();
        assert_eq!(get(), ["20", "100000", "-1", "100"]);
        groups.set(&pod, limits).unwrap();
        assert_eq!(get(), ["20", "100000", "5000", "50"]);
        groups.grow(&pod, PodLimits { quota: Some(4000), memory: Some(60), ..limits }).unwrap();
        assert_eq!(get(), ["20", "100000", "5000", "60"]);
    }

    #[test]
    fn names() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "a-b"}, "spec": {"containers": [{"name": "x"}]}}))
                .unwrap();
        let of = |driver, root: &str| {
            Cgroups { hierarchy: Hierarchy::V1(vec![]), all: vec![], driver, root: root.trim_matches('/').to_owned() }
                .parent(&pod)
        };
        assert_eq!(of(CgroupDriver::Cgroupfs, "/"), "/kubepods/besteffort/poda-b");
        assert_eq!(of(CgroupDriver::Cgroupfs, "/n1"), "/n1/kubepods/besteffort/poda-b");
        assert_eq!(of(CgroupDriver::Systemd, "/"), "kubepods-besteffort-poda_b.slice");
    }
}
