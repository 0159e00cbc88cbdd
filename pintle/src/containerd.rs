//! The node's own containerd: own root, state and socket, adopted when it already runs, started again when it dies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pintle_cri::containerd::{self, Config, Programs};
use pintle_host::process::{self, Handle};
use tokio_util::sync::CancellationToken;

use crate::cli::RuntimeArgs;
use crate::image::PAUSE_IMAGE;
use crate::paths::Paths;

/// How long containerd may take to answer on its socket.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A containerd that is kept running.
pub struct Containerd {
    paths: Paths,
    programs: Programs,
    registries: PathBuf,
    extra: Option<PathBuf>,
}

impl Containerd {
    /// Adopts the containerd of this data directory or starts one, and waits until it answers.
    pub async fn start(paths: &Paths, args: &RuntimeArgs) -> anyhow::Result<Self> {
        let this = Self {
            paths: paths.clone(),
            programs: Programs { dir: args.containerd_dir.clone() },
            registries: args.registry_config.clone().unwrap_or_else(|| paths.root().join("registries")),
            extra: args.containerd_config.clone(),
        };
        this.ensure().await?;
        Ok(this)
    }

    async fn ensure(&self) -> anyhow::Result<()> {
        let pid_file = self.paths.run("containerd.pid");
        let handle = match Handle::read(&pid_file) {
            Some(handle) => handle,
            None => self.spawn(&pid_file)?,
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

    fn spawn(&self, pid_file: &Path) -> anyhow::Result<Handle> {
        let extra = match &self.extra {
            Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?),
            None => None,
        };
        let config = Config {
            root: self.paths.containerd("root"),
            state: self.paths.containerd("state"),
            socket: self.paths.cri_socket(),
            sandbox_image: PAUSE_IMAGE.to_owned(),
            cni_bin: containerd::cni_bin_dir()?,
            cni_conf: self.paths.cni_conf(),
            registries: self.registries.clone(),
        };
        let file = self.paths.containerd("config.toml");
        std::fs::write(&file, config.render(self.programs.major()?, extra.as_deref())?)?;
        let mut command = self.programs.command("containerd");
        command.arg("--config").arg(&file);
        process::spawn_detached(command, &self.paths.log("containerd.log"), pid_file)
    }

    /// The programs of this containerd.
    pub fn programs(&self) -> &Programs {
        &self.programs
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
