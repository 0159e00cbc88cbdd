//! The cluster under measurement: `pintle up --isolated` in a directory of its own, gone when the value is dropped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Clock ticks a second in /proc: the same on every Linux that Pintle runs on.
const TICKS: f64 = 100.0;

/// Programs that are used.
pub struct Tools {
    /// The binary under measurement.
    pub pintle: PathBuf,
    /// A kubectl.
    pub kubectl: PathBuf,
}

/// Times since `pintle up` was started.
#[derive(Default)]
pub struct Start {
    /// `/readyz` answers.
    pub api: Duration,
    /// The node is Ready.
    pub node: Duration,
    /// The cluster DNS answers.
    pub dns: Duration,
}

/// What the process uses while nothing is asked of it.
pub struct Idle {
    /// Resident memory at the end of the window.
    pub resident_mb: f64,
    /// CPU time over the window.
    pub cpu_percent: f64,
}

/// A running cluster.
pub struct Cluster {
    tools: Tools,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster; the times are those at which `pintle up` says so.
    pub fn start(tools: Tools, image: &Path, port: u16) -> anyhow::Result<(Self, Start)> {
        let cluster = Self { tools, dir: tempfile::Builder::new().prefix("pintle-bench").tempdir()? };
        let mut command = Command::new(&cluster.tools.pintle);
        command.args(["up", "--isolated", "--port", &port.to_string(), "--data-dir"]).arg(cluster.data());
        command.arg("--image").arg(image).stdout(Stdio::piped());
        let begin = Instant::now();
        let mut up = command.spawn().with_context(|| format!("starting {}", cluster.tools.pintle.display()))?;
        let mut start = Start::default();
        let output = up.stdout.take().context("its output")?;
        for line in BufReader::new(output).lines() {
            match line? {
                line if line.ends_with("API server ready") => start.api = begin.elapsed(),
                line if line.ends_with("node Ready") => start.node = begin.elapsed(),
                line if line.ends_with("DNS answers") => start.dns = begin.elapsed(),
                _ => {}
            }
        }
        anyhow::ensure!(up.wait()?.success(), "pintle up failed; its words are above");
        anyhow::ensure!(!start.api.is_zero() && !start.node.is_zero(), "pintle up told no times");
        Ok((cluster, start))
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    /// How to reach the API.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data().join("kubeconfig")
    }

    /// The runtime's endpoint.
    pub fn cri_endpoint(&self) -> String {
        format!("unix://{}", self.data().join("run/containerd.sock").display())
    }

    /// A directory for logs of containers.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// Name of the cluster's cgroup.
    pub fn id(&self) -> anyhow::Result<String> {
        let output = Command::new(&self.tools.pintle).args(["id", "--data-dir"]).arg(self.data()).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    fn kubectl(&self, args: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.tools.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(args).stdout(Stdio::null());
        let status = command.env("HOME", self.dir.path()).status().context("kubectl")?;
        anyhow::ensure!(status.success(), "kubectl {args:?}: {status}");
        Ok(())
    }

    /// Applies the demo and waits until all of it runs.
    pub fn run_demo(&self, manifest: &Path) -> anyhow::Result<()> {
        self.kubectl(&["apply", "-f", &manifest.to_string_lossy()])?;
        for deployment in ["deployment/back", "deployment/front"] {
            self.kubectl(&["-n", "demo", "rollout", "status", deployment, "--timeout=90s"])?;
        }
        self.kubectl(&["-n", "demo", "wait", "--for=condition=Ready", "pod/client", "--timeout=60s"])?;
        self.kubectl(&["-n", "demo", "wait", "--for=condition=Complete", "job/once", "--timeout=60s"])
    }

    /// Leaves the cluster alone for that long and tells what its process used.
    pub async fn idle(&self, window: Duration) -> anyhow::Result<Idle> {
        let pid = std::fs::read_to_string(self.data().join("run/server.pid")).context("the server's pid file")?;
        let pid: u32 = pid.split_whitespace().next().context("the server's pid file")?.parse()?;
        let before = cpu_ticks(pid)?;
        let begin = Instant::now();
        tokio::time::sleep(window).await;
        let used = cpu_ticks(pid)? - before;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Idle {
            resident_mb: resident_kib(&status).context("VmRSS")? * 1024.0 / 1e6,
            cpu_percent: used / TICKS / begin.elapsed().as_secs_f64() * 100.0,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tools.pintle);
        let status = command.args(["down", "--reset", "--data-dir"]).arg(self.data()).stdout(Stdio::null()).status();
        if !status.as_ref().is_ok_and(|s| s.success()) {
            pintle_host::complain!("the cluster in {} was not removed: {status:?}", self.data().display());
        }
    }
}

fn cpu_ticks(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    user_and_system_ticks(&text).with_context(|| format!("/proc/{pid}/stat"))
}

/// Fields 14 and 15, counted behind the name, which may hold anything but ends with the last parenthesis.
fn user_and_system_ticks(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

fn resident_kib(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 7 0 0 20";
        assert_eq!(user_and_system_ticks(stat), Some(18.0));
        assert_eq!(user_and_system_ticks("42"), None);
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2048.0));
    }
}
