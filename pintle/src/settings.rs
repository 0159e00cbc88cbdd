//! How `pintle up` started a cluster, kept in its data directory so that it comes up again as it was.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::cli::{NetworkArgs, UpArgs};
use crate::paths::Paths;

/// Port of the API server unless told otherwise.
pub const DEFAULT_PORT: u16 = 6443;

/// What a cluster keeps from its first start on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The node is in a network namespace of its own.
    pub isolated: bool,
    /// Port of the API server.
    pub port: u16,
    /// The address plan, as arguments of `pintle server`.
    pub network: Vec<String>,
    /// The container runtime: paths by the names of such arguments.
    #[serde(default)]
    pub runtime: BTreeMap<String, PathBuf>,
    /// What the API server serves, as arguments of `pintle server`.
    #[serde(default)]
    pub features: Vec<String>,
}

impl Settings {
    /// Those of an earlier start, if there was one.
    pub fn read(paths: &Paths) -> anyhow::Result<Option<Self>> {
        let file = paths.settings();
        match std::fs::read(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => {
                let bytes = read.with_context(|| format!("reading {}", file.display()))?;
                serde_json::from_slice(&bytes).map(Some).with_context(|| format!("reading {}", file.display()))
            }
        }
    }

    /// Keeps them.
    pub fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        pintle_host::file::replace(&paths.settings(), &serde_json::to_vec(self)?, 0o644)
    }

    /// What was asked for, the rest as before. What a cluster can't change is an error, and while it runs so is all the rest.
    pub fn of(args: &UpArgs, before: Option<Self>, running: bool) -> anyhow::Result<Self> {
        let network = arguments(&args.network);
        let runtime = args.runtime.set_up()?;
        args.features.features()?;
        let features = args.features.arguments();
        let Some(before) = before else {
            let port = args.port.unwrap_or(DEFAULT_PORT);
            return Ok(Self { isolated: args.isolated, port, network, runtime, features });
        };
        ensure!(
            before.isolated || !args.isolated,
            "this cluster's node is in the machine's own network: remove the cluster first (pintle down --reset), or give \
             --data-dir for another one"
        );
        let unsaid = arguments(&NetworkArgs::default());
        ensure!(
            network.iter().all(|asked| before.network.contains(asked) || unsaid.contains(asked)),
            "a cluster can't change its addresses: it has {}",
            before.network.join(" ")
        );
        let mut settings = before.clone();
        settings.port = args.port.unwrap_or(before.port);
        settings.runtime.extend(runtime);
        if !features.is_empty() {
            settings.features = features;
        }
        ensure!(
            !running || settings == before,
            "the cluster runs with {before}, not with {settings}: stop it first (pintle down)"
        );
        Ok(settings)
    }
}

/// What can be changed while the cluster is stopped.
impl Display for Settings {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "--port {}", self.port)?;
        self.runtime.iter().try_for_each(|(name, path)| write!(f, " {name} {}", path.display()))?;
        self.features.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

fn arguments(network: &NetworkArgs) -> Vec<String> {
    let mut out = vec![
        format!("--cluster-cidr={}", network.cluster_cidr),
        format!("--service-cidr={}", network.services.service_cidr),
        format!("--cluster-domain={}", network.services.cluster_domain),
    ];
    out.extend(network.cluster_dns.map(|dns| format!("--cluster-dns={dns}")));
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(arguments: &[&str]) -> UpArgs {
        let cli = Cli::parse_from([&["pintle", "up"], arguments].concat());
        let Command::Up(args) = cli.command else { panic!("not up") };
        args
    }

    #[test]
    fn a_cluster_comes_up_as_it_was() {
        let first =
            Settings::of(&asked(&["--isolated", "--port", "7000", "--cluster-domain", "x.y"]), None, false).unwrap();
        assert_eq!((first.isolated, first.port), (true, 7000));
        let again = Settings::of(&asked(&[]), Some(first.clone()), false).unwrap();
        assert_eq!(again, first);
        assert_eq!(Settings::of(&asked(&["--port", "6443"]), Some(first.clone()), false).unwrap().port, 6443);
        let plan = asked(&["--cluster-domain", "x.y", "--cluster-cidr", "10.42.0.0/16"]);
        assert_eq!(Settings::of(&plan, Some(first.clone()), true).unwrap(), first, "part of the plan, as it is");
        let moved = Settings::of(&asked(&["--containerd-dir", "/a"]), Some(first.clone()), false).unwrap();
        assert_eq!(Settings::of(&asked(&[]), Some(moved.clone()), false).unwrap(), moved);
        let other = Settings::of(&asked(&["--registry-config", "/b"]), Some(moved), false).unwrap();
        assert_eq!(other.to_string(), "--port 7000 --containerd-dir /a --registry-config /b");
        let beta = Settings::of(&asked(&["--runtime-config", "api/beta=true"]), Some(first.clone()), false).unwrap();
        assert_eq!(beta.to_string(), "--port 7000 --runtime-config=api/beta=true");
        assert_eq!(Settings::of(&asked(&[]), Some(beta.clone()), false).unwrap(), beta);
        assert!(Settings::of(&asked(&["--feature-gates", "X=true"]), Some(beta), false).is_err());
        assert_eq!(Settings::of(&asked(&[]), None, false).unwrap().port, DEFAULT_PORT);
    }

    #[test]
    fn what_can_not_change_is_told() {
        let own = Settings::of(&asked(&[]), None, false).unwrap();
        let told = |arguments: &[&str], running| {
            Settings::of(&asked(arguments), Some(own.clone()), running).unwrap_err().to_string()
        };
        assert!(told(&["--isolated"], false).contains("machine's own network"));
        assert!(told(&["--cluster-cidr", "10.9.0.0/16"], false).contains("--cluster-cidr=10.42.0.0/16"));
        assert!(told(&["--port", "7000"], true).contains("runs with --port 6443"));
        assert!(told(&["--containerd-dir", "/a"], true).contains("runs with --port 6443"));
    }
}
