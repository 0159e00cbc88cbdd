//! Where e2e.test comes from, and what it is told about the cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;

use super::netns::{Netns, within};
use super::worker::Suite;
use crate::upstream;

/// The suite and its surroundings.
#[derive(Clone, Debug, clap::Args)]
pub struct SuiteArgs {
    /// Upstream's e2e.test. Within Pintle's source tree, it is built by default.
    #[arg(long, value_name = "FILE")]
    e2e_binary: Option<PathBuf>,
    /// The kubectl that tests call. [default: what is built along with e2e.test, or else the one in PATH]
    #[arg(long, value_name = "FILE")]
    kubectl_path: Option<PathBuf>,
    /// What upstream calls the kind of infrastructure; `skeleton` is none in particular.
    #[arg(long, default_value = "skeleton")]
    provider: String,
    /// Nodes of the cluster. [default: counted]
    #[arg(long)]
    num_nodes: Option<u32>,
    /// Nodes that need not be ready; -1 waits for none.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    allowed_not_ready_nodes: i32,
    /// Have the events and pods of a failed test's namespace in its log.
    #[arg(long)]
    dump_on_failure: bool,
    /// Run the tests in this network namespace (name or file).
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// More flags for e2e.test, behind `--`; they win over ours.
    #[arg(last = true, value_name = "E2E_FLAGS")]
    more: Vec<String>,
}

impl SuiteArgs {
    /// The suite for a cluster; builds it if need be.
    pub fn suite(&self, kubeconfig: Option<&Path>) -> anyhow::Result<Suite> {
        let binary = match &self.e2e_binary {
            Some(binary) => absolute(binary)?,
            None => upstream::programs(&["e2e.test", "kubectl"]).context("or give --e2e-binary")?.join("e2e.test"),
        };
        let kubectl = self.kubectl(&binary)?;
        let mut flags = vec![
            format!("--provider={}", self.provider),
            format!("--kubectl-path={}", kubectl.display()),
            format!("--allowed-not-ready-nodes={}", self.allowed_not_ready_nodes),
            format!("--dump-logs-on-failure={}", self.dump_on_failure),
            "--disable-log-dump=true".to_owned(),
        ];
        if let Some(kubeconfig) = kubeconfig {
            flags.push(format!("--kubeconfig={}", absolute(kubeconfig)?.display()));
        }
        flags.extend(self.num_nodes.map(|nodes| format!("--num-nodes={nodes}")));
        flags.extend(self.more.iter().cloned());
        Ok(Suite { binary, netns: self.netns.as_deref().map(Netns::new), flags })
    }

    /// The version of the cluster's API server.
    pub async fn server_version(&self, suite: &Suite, kubeconfig: Option<&Path>) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(self.kubectl(&suite.binary)?);
        command.args(["get", "--raw", "/version", "--request-timeout=30s"]).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(kubeconfig) = kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let child = within(suite.netns.as_ref(), move || command.spawn().context("running kubectl"))?;
        let output = child.wait_with_output().await.context("running kubectl")?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "the cluster can't be reached: {}", error.trim());
        let version: serde_json::Value = serde_json::from_slice(&output.stdout).context("the server's version")?;
        Ok(version["gitVersion"].as_str().unwrap_or("unknown").to_owned())
    }

    fn kubectl(&self, binary: &Path) -> anyhow::Result<PathBuf> {
        match &self.kubectl_path {
            // A plain name is looked up in PATH.
            Some(path) if path.components().count() > 1 => absolute(path),
            Some(name) => Ok(name.clone()),
            None => {
                let beside = binary.with_file_name("kubectl");
                Ok(if beside.exists() { beside } else { "kubectl".into() })
            }
        }
    }
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| format!("looking for {}", path.display()))
}
