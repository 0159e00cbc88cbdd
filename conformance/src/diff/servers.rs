//! The two API servers side by side on loopback: started, made ready, stopped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use pintle_host::upstream;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::Args;
use super::compare::{self, Comparison};
use super::wire::{Answer, Request, Server, Status};
use crate::upstream::programs;

/// A server must be ready by then.
const START: Duration = Duration::from_secs(180);
/// Addresses of Services, on both.
const SERVICE_CIDR: &str = "10.97.0.0/16";
/// Issuer of service account tokens, on both.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The two servers.
pub struct Pair {
    /// kube-apiserver over etcd.
    pub upstream: Server,
    /// What is judged.
    pub ours: Server,
    /// Upstream's kubectl.
    pub kubectl: PathBuf,
    processes: Vec<Child>,
    /// What they keep; removed at the end.
    _directory: Option<tempfile::TempDir>,
}

impl Pair {
    /// Starts both. They trust the same certificates and sign with the same key, so that the same user is known to both.
    pub async fn start(args: &Args) -> anyhow::Result<Self> {
        let bin = match &args.upstream_bin {
            Some(bin) => std::path::absolute(bin)?,
            None => programs(&["kube-apiserver", "etcd", "kubectl"]).context("or give --upstream-bin")?,
        };
        let directory = tempfile::Builder::new().prefix("pintle-diff-").tempdir()?;
        let home = directory.path();
        let [port, upstream_port, etcd, peer] = free_ports()?;
        let program = match &args.pintle {
            Some(path) => path.clone(),
            None => std::env::current_exe()?,
        };
        let data = home.join("pintle");
        let mut processes = Vec::new();
        let mut command = Command::new(program);
        command.args(["--log", "warn", "apiserver", "--storage", "memory", "--service-cidr", SERVICE_CIDR]);
        command.arg("--data-dir").arg(&data).args(["--port", &port.to_string()]);
        processes.push(spawn(&mut command, &home.join("pintle.log"))?);
        let kubeconfig = data.join("kubeconfig");
        let ours = ready("pintle", &kubeconfig, &home.join("pintle.log")).await?;
        processes.extend(start_upstream(&bin, home, &data.join("pki"), upstream_port, (etcd, peer))?);
        let theirs = home.join("upstream.kubeconfig");
        write_kubeconfig(&kubeconfig, &theirs, upstream_port)?;
        let upstream = ready("upstream", &theirs, &home.join("upstream.log")).await?;
        Ok(Self { upstream, ours, kubectl: bin.join("kubectl"), processes, _directory: Some(directory) })
    }

    /// Two servers that are not there, for tests of what goes around them.
    #[cfg(test)]
    pub async fn idle(home: &Path, kubectl: PathBuf) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        for name in ["upstream", "ours"] {
            let kubeconfig = home.join(format!("{name}.kubeconfig"));
            let config = json!({
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c",
            });
            std::fs::write(&kubeconfig, config.to_string())?;
            servers.push(Server::connect(name, &kubeconfig).await?);
        }
        let (Some(ours), Some(upstream)) = (servers.pop(), servers.pop()) else { anyhow::bail!("two servers") };
        Ok(Self { upstream, ours, kubectl, processes: Vec::new(), _directory: None })
    }

    /// Sends the same request to both.
    pub async fn send(&self, request: &Request) -> anyhow::Result<(Answer, Answer)> {
        tokio::try_join!(self.upstream.send(request), self.ours.send(request))
    }

    /// Sends the same request to both and compares.
    pub async fn compare(&self, request: &Request) -> anyhow::Result<Comparison> {
        let (upstream, ours) = self.send(request).await?;
        Ok(compare::answers(request, upstream, ours))
    }

    /// Makes a namespace with a service account on both: nobody else would.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let space = json!({"metadata": {"name": name}});
        let account = json!({"metadata": {"name": "default"}});
        self.make("/api/v1/namespaces", &space).await?;
        self.make(&format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await
    }

    /// Creates an object on both, unless it is there.
    pub async fn make(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        let (upstream, ours) = self.send(&Request::json("POST", path, object)).await?;
        for answer in [&upstream, &ours] {
            let body = String::from_utf8_lossy(&answer.body);
            ensure!(matches!(answer.status, Status::Http(201 | 409)), "POST {path}: {} {body}", answer.status);
        }
        Ok(())
    }

    /// What pods need in the default namespace.
    pub async fn prepare(&self) -> anyhow::Result<()> {
        self.namespace("default").await
    }

    /// Ends what was started.
    pub async fn stop(mut self) {
        for process in &mut self.processes {
            let _ = process.kill().await;
        }
    }
}

fn spawn(command: &mut Command, log: &Path) -> anyhow::Result<Child> {
    let log = std::fs::File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
    command.spawn().with_context(|| format!("starting {:?}", command.as_std().get_program()))
}

fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let held = (0..N).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn start_upstream(
    bin: &Path,
    home: &Path,
    pki: &Path,
    port: u16,
    (etcd, peer): (u16, u16),
) -> anyhow::Result<Vec<Child>> {
    let mut command = Command::new(bin.join("etcd"));
    command.args(upstream::etcd(&home.join("etcd"), etcd, peer));
    let members = spawn(&mut command, &home.join("etcd.log"))?;
    let signing_key = pki.join("sa.key");
    let public_key = home.join("sa.pub");
    let pair = rcgen::KeyPair::from_pem(&std::fs::read_to_string(&signing_key)?).context("reading the signing key")?;
    std::fs::write(&public_key, pair.public_key_pem())?;
    let server = upstream::Apiserver {
        port,
        etcd_port: etcd,
        service_cidr: SERVICE_CIDR,
        issuer: ISSUER,
        signing_key: &signing_key,
        public_key: &public_key,
    };
    let mut command = Command::new(bin.join("kube-apiserver"));
    command.args(server.on_loopback(&home.join("certs")).with("authorization-mode", "Node,RBAC"));
    for (flag, file) in [("--client-ca-file", pki.join("ca.crt")), ("--token-auth-file", pki.join("tokens.csv"))] {
        if file.exists() {
            command.arg(flag).arg(file);
        }
    }
    let server = spawn(&mut command, &home.join("upstream.log"))?;
    Ok(vec![server, members])
}

/// The same user at another server, whose certificate nobody signed.
fn write_kubeconfig(ours: &Path, theirs: &Path, port: u16) -> anyhow::Result<()> {
    let mut config: Value = serde_yaml_ng::from_slice(&std::fs::read(ours)?)?;
    config["clusters"][0]["cluster"] =
        json!({"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true});
    std::fs::write(theirs, serde_yaml_ng::to_string(&config)?)?;
    Ok(())
}

/// Waits until a server answers that it is ready.
async fn ready(name: &'static str, kubeconfig: &Path, log: &Path) -> anyhow::Result<Server> {
    let deadline = tokio::time::Instant::now() + START;
    loop {
        if listens(kubeconfig).await {
            let server = Server::connect(name, kubeconfig).await?;
            if let Ok(answer) = server.send(&Request::new("GET", "/readyz")).await
                && answer.status == Status::Http(200)
            {
                return Ok(server);
            }
        }
        if tokio::time::Instant::now() > deadline {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(5).collect();
            anyhow::bail!("{name} is not ready: {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether anyone accepts connections where a kubeconfig leads.
async fn listens(kubeconfig: &Path) -> bool {
    let Ok(text) = std::fs::read(kubeconfig) else { return false };
    let config: Value = serde_yaml_ng::from_slice(&text).unwrap_or_default();
    let url = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
    tokio::net::TcpStream::connect(url.trim_start_matches("https://")).await.is_ok()
}
