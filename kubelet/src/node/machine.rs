//! What the machine is and has.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// Facts about the machine that do not change while it runs.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Largest number of processes.
    pub max_pids: i64,
    /// What the Node object tells about the system; the runtime's version is filled in later.
    pub info: NodeSystemInfo,
}

/// Use of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disk {
    /// Size in bytes.
    pub total: i64,
    /// Free for ordinary users, in bytes.
    pub available: i64,
    /// Number of inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Use of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// All there is.
    pub total: i64,
    /// What can be had without swapping.
    pub available: i64,
}

impl Machine {
    /// Reads the machine.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let release = text("/etc/os-release");
        let pretty = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
        let machine_id = text("/etc/machine-id");
        let uname = nix::sys::utsname::uname().ok();
        let info = NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            container_runtime_version: String::new(),
            kernel_version: uname.map(|u| u.release().to_string_lossy().into_owned()).unwrap_or_default(),
            kube_proxy_version: String::new(),
            kubelet_version: format!("v{}", crate::KUBERNETES_VERSION),
            machine_id,
            operating_system: "linux".to_owned(),
            os_image: pretty.map(|p| p.trim_matches('"').to_owned()).unwrap_or_default(),
            system_uuid: text("/sys/class/dmi/id/product_uuid"),
            ..NodeSystemInfo::default()
        };
        Self {
            cpu_milli: i64::try_from(cpus).unwrap_or(1) * 1000,
            memory: memory().total,
            max_pids: text("/proc/sys/kernel/pid_max").parse().unwrap_or(32768),
            info,
        }
    }

    /// Use of the file system that holds `path`; zeros if it cannot be read.
    pub fn disk(&self, path: &Path) -> Disk {
        let Ok(stat) = rustix::fs::statvfs(path) else { return Disk::default() };
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
        Disk {
            total: bytes(stat.f_blocks),
            available: bytes(stat.f_bavail),
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
        }
    }
}

/// The machine's memory.
pub fn memory() -> Memory {
    parse_meminfo(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

/// Processor time that the machine has used since it started, in nanoseconds.
pub fn cpu_nanoseconds() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second.
    let idle = fields.get(3)? + fields.get(4)?;
    let all: u64 = fields.iter().take(8).sum();
    Some((all - idle) * 10_000_000)
}

fn parse_meminfo(text: &str) -> Memory {
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * 1024)
    };
    Memory { total: field("MemTotal").unwrap_or(0), available: field("MemAvailable").unwrap_or(0) }
}

/// The architecture as Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo() {
        let text = "MemTotal:       100 kB\nMemFree: 5 kB\nMemAvailable:    50 kB\n";
        assert_eq!(parse_meminfo(text), Memory { total: 102_400, available: 51_200 });
    }
}
