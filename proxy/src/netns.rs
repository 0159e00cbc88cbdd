//! Runs the system's tools in the network namespace that the rules are for.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A tool could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool could not be started.
    #[error("cannot run {tool}: {source}")]
    Start {
        /// Its name.
        tool: String,
        /// Why.
        source: std::io::Error,
    },
    /// The tool failed.
    #[error("{tool} failed: {message}")]
    Failed {
        /// Its name.
        tool: String,
        /// What it said.
        message: String,
    },
}

/// The network namespace to work in.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    /// Its file; the process's own namespace if there is none.
    pub path: Option<PathBuf>,
}

impl Namespace {
    /// Runs a tool with this input and returns what it prints.
    ///
    /// # Errors
    /// If it can't be started or ends with a failure.
    pub async fn run(&self, tool: &str, arguments: &[&str], input: &str) -> Result<String, Error> {
        let mut command = match &self.path {
            Some(path) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", path.display())).arg("--").arg(tool);
                command
            }
            None => Command::new(tool),
        };
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let start = |source| Error::Start { tool: tool.to_owned(), source };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A tool that ends before it has read everything says why itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().chars().take(2000).collect();
        Err(Error::Failed { tool: tool.to_owned(), message })
    }

    /// Applies an nft script as one transaction.
    ///
    /// # Errors
    /// If nft refuses it; then nothing of it has taken effect.
    pub async fn nft(&self, script: &str) -> Result<(), Error> {
        self.run("nft", &["-f", "-"], script).await.map(drop)
    }

    /// Opens a listening TCP socket in the namespace.
    ///
    /// # Errors
    /// If the namespace can't be entered or the address is taken.
    pub async fn listen(&self, address: std::net::SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
        let path = self.path.clone();
        // The socket stays in the namespace of the thread that opened it.
        let open = move || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        };
        let opened = move || match path {
            Some(path) => pintle_host::netns::within(&path, open)?,
            None => open(),
        };
        let listener = tokio::task::spawn_blocking(opened).await.map_err(std::io::Error::other)??;
        tokio::net::TcpListener::from_std(listener)
    }
}
