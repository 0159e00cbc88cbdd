//! `pintle up` and `pintle down`: a single-node cluster in the background.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::cli::{DEFAULT_DATA_DIR, DownArgs, ForwardArgs, UpArgs};
use crate::paths::Paths;
use crate::settings::Settings;
use crate::{image, net, teardown};
use pintle_cri::containerd::Programs;
use pintle_host::process::{self, Handle};

/// How long a server may take to stop before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// What the server tells about its start; milliseconds since it began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The API answers `/readyz`.
    pub api_ms: Option<u64>,
    /// The node is Ready.
    pub node_ms: Option<u64>,
    /// The cluster DNS answers.
    pub dns_ms: Option<u64>,
    /// What keeps the cluster from being of use.
    pub warning: Option<String>,
    /// Why the server gave up.
    pub error: Option<String>,
}

impl Status {
    /// Reads the status file; a missing one is an empty status.
    pub fn read(paths: &Paths) -> Self {
        std::fs::read(paths.run("status.json")).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
    }

    /// Replaces the status file.
    pub fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        pintle_host::file::replace(&paths.run("status.json"), &serde_json::to_vec(self)?, 0o644)
    }
}

/// Starts the cluster, or says that it is up.
pub async fn up(args: UpArgs) -> anyhow::Result<()> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "pintle up needs root: pods need namespaces, mounts and cgroups");
    let paths = Paths::new(&args.data.data_dir)?;
    for image in &args.runtime.image {
        anyhow::ensure!(image.exists(), "no such image archive or folder: {}", image.display());
    }
    let running = Handle::read(&paths.run("server.pid")).is_some();
    let before = Settings::read(&paths)?;
    let settings = Settings::of(&args, before.clone(), running)?;
    if running {
        let dir = settings.runtime.get("--containerd-dir").cloned();
        let (socket, programs) = (paths.cri_socket(), Programs { dir });
        let images = args.runtime.image.clone();
        let count = images.len();
        tokio::task::spawn_blocking(move || image::load(&socket, &programs, &images)).await??;
        pintle_host::say!("The cluster is up already.");
        if count > 0 {
            pintle_host::say!("Images loaded into its node: {count}");
        }
        print_hints(&paths, &settings);
        return Ok(());
    }
    let begin = Instant::now();
    {
        let _claim = paths.claim()?;
        if before.is_some_and(|before| before.port != settings.port) {
            stop_relay(&paths).await;
        }
        // The server and the relay are processes of their own, whose complaints are found in logs only.
        if Handle::read(&paths.run("forward.pid")).is_none() {
            let port = settings.port;
            let free = tokio::net::TcpListener::bind(("127.0.0.1", port)).await;
            free.with_context(|| format!("port {port} of 127.0.0.1"))?;
        }
        settings.write(&paths)?;
        Status::default().write(&paths)?;
    }
    start(&paths, &args, &settings).await?;
    wait(&paths, Duration::from_secs(args.timeout)).await?;
    pintle_host::say!("The cluster is up after {:.1} s.", begin.elapsed().as_secs_f64());
    print_hints(&paths, &settings);
    Ok(())
}

async fn start(paths: &Paths, args: &UpArgs, settings: &Settings) -> anyhow::Result<()> {
    let binary = std::env::current_exe().context("finding this binary")?;
    let mut server = if settings.isolated {
        net::ensure_namespace(paths).await?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", paths.id())).arg("--").arg(&binary);
        command
    } else {
        Command::new(&binary)
    };
    server.arg("server").arg("--data-dir").arg(paths.root()).arg("--port").arg(settings.port.to_string());
    server.args(&settings.network).args(&settings.features);
    if settings.isolated {
        server.arg("--node-ip").arg(net::ISOLATED_NODE_IP.to_string());
    }
    for (name, path) in &settings.runtime {
        server.arg(name).arg(path);
    }
    for image in &args.runtime.image {
        server.arg("--image").arg(std::path::absolute(image)?);
    }
    process::spawn_detached(server, &paths.log("server.log"), &paths.run("server.pid"))?;
    if settings.isolated && Handle::read(&paths.run("forward.pid")).is_none() {
        let mut forward = Command::new(&binary);
        forward.arg("forward").arg("--port").arg(settings.port.to_string()).arg("--to").arg(paths.run("api.sock"));
        process::spawn_detached(forward, &paths.log("forward.log"), &paths.run("forward.pid"))?;
    }
    Ok(())
}

/// Prints each step as the server reports it; an error if it gives up or time is over.
async fn wait(paths: &Paths, limit: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + limit;
    let log = paths.log("server.log");
    let mut shown = 0;
    loop {
        let status = Status::read(paths);
        let steps =
            [("API server ready", status.api_ms), ("node Ready", status.node_ms), ("DNS answers", status.dns_ms)];
        while let Some((step, Some(ms))) = steps.get(shown) {
            pintle_host::say!("  {:>6.2} s  {step}", Duration::from_millis(*ms).as_secs_f64());
            shown += 1;
        }
        if shown == steps.len() {
            if let Some(warning) = status.warning {
                pintle_host::say!("Warning: {warning}");
            }
            return Ok(());
        }
        if let Some(error) = status.error {
            anyhow::bail!("the server gave up: {error}\nits log: {}", log.display());
        }
        anyhow::ensure!(
            Handle::read(&paths.run("server.pid")).is_some(),
            "the server ended; the end of its log {}:\n{}",
            log.display(),
            tail(&log)
        );
        anyhow::ensure!(
            Instant::now() < end,
            "no {} within {} s; see {}",
            steps[shown].0,
            limit.as_secs(),
            log.display()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn print_hints(paths: &Paths, settings: &Settings) {
    let file = paths.kubeconfig();
    if settings.isolated {
        pintle_host::say!("network namespace of the node: {}", paths.id());
    }
    pintle_host::say!("kubeconfig: {}", file.display());
    pintle_host::say!("Try:");
    pintle_host::say!("  export KUBECONFIG={}", file.display());
    pintle_host::say!("  kubectl get nodes -o wide");
    pintle_host::say!("  kubectl get pods,services -A");
    let own = paths.root() != Path::new(DEFAULT_DATA_DIR);
    let data = if own { format!(" --data-dir {}", paths.root().display()) } else { String::new() };
    pintle_host::say!("Stop it: pintle down{data}        Remove it: pintle down --reset{data}");
}

/// Stops the cluster; with `--reset` removes it.
pub async fn down(args: DownArgs) -> anyhow::Result<()> {
    let paths = Paths::new(&args.data.data_dir)?;
    if !paths.root().exists() {
        pintle_host::say!("There is no cluster in {}.", paths.root().display());
        return Ok(());
    }
    anyhow::ensure!(paths.is_ours(), "{} is not a data directory of pintle", paths.root().display());
    let mut ran = false;
    for pid_file in ["server.pid", "agent.pid", "forward.pid"] {
        let file = paths.run(pid_file);
        if let Some(handle) = Handle::read(&file) {
            ran = true;
            handle.stop(STOP_PATIENCE).await;
        }
        let _ = std::fs::remove_file(file);
    }
    stop_relay(&paths).await;
    teardown::node(&paths).await?;
    if args.reset {
        let _claim = pintle_host::owned::claim(paths.root())?;
        teardown::everything(&paths).await?;
        pintle_host::say!("The cluster is removed.");
    } else {
        let state = if ran { "is stopped" } else { "was not running" };
        pintle_host::say!("The cluster {state}; its data stays in {}.", paths.root().display());
    }
    Ok(())
}

async fn stop_relay(paths: &Paths) {
    let socket = paths.run("api.sock");
    for relay in process::find(&["forward", "--to", &socket.to_string_lossy()]) {
        relay.stop(STOP_PATIENCE).await;
    }
}

/// Relays connections on a loopback port to the API server's socket, in whatever network namespace that listens.
pub async fn forward(args: ForwardArgs) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port))
        .await
        .with_context(|| format!("listening on 127.0.0.1:{}", args.port))?;
    loop {
        let (mut from, _) = listener.accept().await?;
        let to = args.to.clone();
        tokio::spawn(async move {
            match tokio::net::UnixStream::connect(&to).await {
                Ok(mut api) => {
                    let _ = from.set_nodelay(true);
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut api).await;
                }
                Err(error) => tracing::debug!(%error, "API server not reached"),
            }
        });
    }
}
