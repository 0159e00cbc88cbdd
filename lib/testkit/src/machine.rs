//! A machine of a lab: a process that is PID 1 of namespaces of its own. When it is killed, everything that was started
//! on the machine is gone, and its mounts with it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use pintle_host::process::{self, Handle};

use crate::network::Network;
use crate::wait;

/// Folders that programs of a node use under fixed names: each machine has its own in their place.
pub const OWN_FOLDERS: &[&str] = &[
    "/var/lib/kubelet",
    "/run/containerd",
    "/run/netns",
    "/run/pintle",
    "/var/log/pods",
    "/var/log/containers",
    "/var/lib/cni",
    "/etc/cni/net.d",
];

/// PID 1: `init.sh HOSTNAME FOLDER FOLDER-OF-OWN...`. It reaps whatever ends on the machine.
const INIT: &str = r#"set -e
hostname "$1"
own=$2
shift 2
mount --make-rshared /
for folder; do
  mkdir -p "$own$folder"
  mount --bind "$own$folder" "$folder"
  mount --make-rshared "$folder"
done
mount --bind "$own/resolv.conf" /etc/resolv.conf
echo 1 > /proc/sys/net/ipv4/ip_forward
for setting in all default; do echo 0 > /proc/sys/net/ipv4/conf/$setting/rp_filter; done
touch "$own/ready"
while :; do sleep 3600 & wait $!; done
"#;

/// A running machine.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    ip: Ipv4Addr,
    init: i32,
    own: PathBuf,
    runs: PathBuf,
    logs: PathBuf,
}

impl Machine {
    /// Starts a machine in its network namespace, which must be there. Its files are in `dir/NAME`, pid files in `dir/run`, logs
    /// in `dir/log`. The host name is `lab-NAME`.
    pub async fn start(dir: &Path, network: &Network, name: &str, ip: Ipv4Addr) -> anyhow::Result<Self> {
        let (runs, logs, own) = (dir.join("run"), dir.join("log"), dir.join(name).join("own"));
        for folder in [&runs, &logs, &own] {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        // Nobody answers there: names outside the cluster fail at once.
        std::fs::write(own.join("resolv.conf"), "nameserver 127.0.0.1\n")?;
        let script = own.join("init.sh");
        std::fs::write(&script, INIT)?;
        let ready = own.join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", pintle_host::netns::file(&network.namespace(name)).display()));
        command.args(["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["--propagation", "private", "sh"]).arg(&script).arg(format!("lab-{name}")).arg(&own);
        command.args(OWN_FOLDERS);
        let log = logs.join(format!("{name}.init.log"));
        let outer = process::spawn_detached(command, &log, &runs.join(format!("{name}.init.pid")))?;
        let started = wait::until_true("a machine", Duration::from_secs(10), || ready.exists() || !outer.alive()).await;
        started.with_context(|| tail(&log))?;
        let init = process::children(outer.pid()).first().copied();
        let init = init.with_context(|| format!("machine {name} ended at once: {}", tail(&log)))?;
        Ok(Self { name: name.to_owned(), ip, init, own, runs, logs })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Where a folder of [`OWN_FOLDERS`] is as seen from outside.
    pub fn outside(&self, path: &str) -> PathBuf {
        self.own.join(path.trim_start_matches('/'))
    }

    /// A command on this machine.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--uts", "--net", "--pid", "--"]).arg(program);
        command
    }

    /// Starts such a command in the background; its log is `log/MACHINE.NAME.log`.
    pub fn spawn(&self, name: &str, command: Command) -> anyhow::Result<Daemon> {
        let id = format!("{}.{name}", self.name);
        let log = self.logs.join(format!("{id}.log"));
        let handle = process::spawn_detached(command, &log, &self.runs.join(format!("{id}.pid")))?;
        Ok(Daemon { id, handle, log })
    }
}

/// A program in the background.
#[derive(Clone, Debug)]
pub struct Daemon {
    id: String,
    handle: Handle,
    log: PathBuf,
}

impl Daemon {
    /// An error with the end of its log if it does not run any more.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.handle.alive(), "{} ended:\n{}", self.id, tail(&self.log));
        Ok(())
    }
}

/// Kills what the pid files in a folder name, machines first, and waits until it is gone.
pub async fn kill_all(runs: &Path) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Ok(()) };
    let (mut machines, mut others) = (Vec::new(), Vec::new());
    for file in entries.flatten().map(|entry| entry.path()) {
        let Some(handle) = Handle::read(&file) else { continue };
        if file.to_string_lossy().ends_with(".init.pid") {
            machines.extend(process::children(handle.pid()).into_iter().filter_map(Handle::of));
            machines.push(handle);
        } else {
            others.push(handle);
        }
    }
    for handle in machines.iter().chain(&others) {
        handle.signal(nix::sys::signal::Signal::SIGKILL);
    }
    let all = [machines, others].concat();
    wait::until_true("the lab's processes end", Duration::from_secs(20), || all.iter().all(|h| !h.alive())).await
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
