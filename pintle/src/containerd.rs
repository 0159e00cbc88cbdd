//! The node's own containerd: own root, state and socket, adopted when it already runs, started again when it dies.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::image::PAUSE_IMAGE;
use crate::paths::Paths;
use crate::process::{self, Handle};

/// How long containerd may take to answer on its socket.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Directories in which distributions and releases put CNI plugins.
const CNI_BIN_DIRS: &[&str] = &["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// A containerd that is kept running.
pub struct Containerd {
    paths: Paths,
}

impl Containerd {
    /// Adopts the containerd of this data directory or starts one, and waits until it answers.
    pub async fn start(paths: &Paths) -> anyhow::Result<Self> {
        let this = Self { paths: paths.clone() };
        this.ensure().await?;
        Ok(this)
    }

    async fn ensure(&self) -> anyhow::Result<()> {
        let pid_file = self.paths.run("containerd.pid");
        let handle = match Handle::read(&pid_file) {
            Some(handle) => handle,
            None => self.spawn(&pid_file).await?,
        };
        let end = tokio::time::Instant::now() + START_LIMIT;
        while tokio::net::UnixStream::connect(self.paths.cri_socket()).await.is_err() {
            let log = self.paths.log("containerd.log");
            anyhow::ensure!(handle.alive(), "containerd ended at once; see {}", log.display());
            anyhow::ensure!(tokio::time::Instant::now() < end, "containerd does not answer; see {}", log.display());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn spawn(&self, pid_file: &Path) -> anyhow::Result<Handle> {
        let version = process::run("containerd", &["--version"])
            .await
            .context("containerd is needed to run pods (Debian: apt-get install containerd)")?;
        let config = self.paths.containerd("config.toml");
        let cni =
            cni_bin_dir().context("CNI plugins are needed (Debian: apt-get install containernetworking-plugins)")?;
        std::fs::write(&config, render(&self.paths, major(&version), &cni))?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(&config);
        process::spawn_detached(command, &self.paths.log("containerd.log"), pid_file)
    }

    /// Looks once a second whether containerd lives and starts it again if not, until `shutdown`.
    pub async fn supervise(self, shutdown: CancellationToken) {
        let mut failures: u32 = 0;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(1 << failures.min(5))) => {}
            }
            if Handle::read(&self.paths.run("containerd.pid")).is_some() {
                failures = 0;
                continue;
            }
            tracing::warn!("containerd is gone, starting it again");
            match self.ensure().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::error!(error = format!("{error:#}"), "containerd not started, will retry");
                }
            }
        }
    }
}

/// The first directory that has the plugins that the pod network uses.
pub fn cni_bin_dir() -> Option<PathBuf> {
    CNI_BIN_DIRS.iter().map(PathBuf::from).find(|dir| dir.join("ptp").exists() && dir.join("host-local").exists())
}

/// Major version in `containerd github.com/containerd/containerd v2.1.4 …` or Debian's `… 1.6.20~ds1 …`.
fn major(version: &str) -> u32 {
    version
        .split_whitespace()
        .filter_map(|word| word.trim_start_matches('v').split_once('.'))
        .find_map(|(major, _)| major.parse().ok())
        .unwrap_or(1)
}

/// containerd's configuration. AppArmor is off since profiles may be missing; lowering `oom_score_adj` is clamped since a
/// container may not be allowed to.
fn render(paths: &Paths, major: u32, cni_bin: &Path) -> String {
    let root = paths.containerd("root");
    let state = paths.containerd("state");
    let socket = paths.cri_socket();
    let certs = paths.root().join("registries");
    let (cni_conf, cni_bin) = (paths.cni_conf(), cni_bin.display());
    let head = format!(
        "root = \"{}\"\nstate = \"{}\"\n[grpc]\n  address = \"{}\"\n[ttrpc]\n  address = \"{}.ttrpc\"\n",
        root.display(),
        state.display(),
        socket.display(),
        socket.display()
    );
    let runtime = "disable_apparmor = true\nrestrict_oom_score_adj = true\ndisable_hugetlb_controller = true\n\
         tolerate_missing_hugetlb_controller = true\nnetns_mounts_under_state_dir = true\n";
    let stream = "stream_server_address = \"127.0.0.1\"\nstream_server_port = \"0\"\n";
    if major >= 2 {
        let (images, cri) = ("plugins.'io.containerd.cri.v1.images'", "plugins.'io.containerd.cri.v1.runtime'");
        format!(
            "version = 3\n{head}[{images}]\n[{images}.pinned_images]\nsandbox = \"{PAUSE_IMAGE}\"\n[{images}.registry]\nconfig_path = \"{}\"\n\
             [{cri}]\n{runtime}[{cri}.cni]\nbin_dirs = [\"{cni_bin}\"]\nconf_dir = \"{}\"\n\
             [plugins.'io.containerd.grpc.v1.cri']\n{stream}",
            certs.display(),
            cni_conf.display()
        )
    } else {
        let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
        format!(
            "version = 2\n{head}[{cri}]\nsandbox_image = \"{PAUSE_IMAGE}\"\n{runtime}{stream}[{cri}.cni]\nbin_dir = \"{cni_bin}\"\nconf_dir = \"{}\"\n\
             [{cri}.registry]\nconfig_path = \"{}\"\n",
            cni_conf.display(),
            certs.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_debian_and_of_upstream_are_understood() {
        assert_eq!(major("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u2"), 1);
        assert_eq!(major("containerd github.com/containerd/containerd/v2 v2.1.4 abcdef"), 2);
    }
}
