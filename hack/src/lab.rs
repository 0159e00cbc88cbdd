//! `cargo x lab`: a control plane and nodes in network namespaces.

use std::path::PathBuf;

use anyhow::Context;
use pintle_testkit::{Kind, Spec, lab};

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum LabCommand {
    /// Start a lab in a folder and wait until its nodes are Ready.
    Up(UpArgs),
    /// End the lab in a folder and remove the folder with all that the lab left.
    Down {
        /// The lab's folder.
        dir: PathBuf,
    },
}

/// What the lab is to be.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// The lab's folder.
    dir: PathBuf,
    /// Whose control plane.
    #[arg(long, value_enum, default_value_t = Whose::Pintle)]
    control_plane: Whose,
    /// Whose nodes.
    #[arg(long, value_enum, default_value_t = Whose::Pintle)]
    nodes: Whose,
    /// How many nodes.
    #[arg(long, default_value_t = 2)]
    count: u8,
    /// Folder with a containerd other than the one on the PATH.
    #[arg(long)]
    containerd_dir: Option<PathBuf>,
    /// Image archive or OCI layout folder, loaded into the nodes and served by the lab's registry.
    #[arg(long)]
    images: Vec<PathBuf>,
    /// The pintle binary; by default the one beside this program.
    #[arg(long, env = "PINTLE")]
    pintle: Option<PathBuf>,
    /// Folder with upstream's programs, as conformance/upstream/build makes them.
    #[arg(long, env = "PINTLE_UPSTREAM_BIN")]
    upstream: Option<PathBuf>,
    /// Further argument of `pintle server`.
    #[arg(long, allow_hyphen_values = true)]
    server_arg: Vec<String>,
    /// Further argument of `pintle agent`.
    #[arg(long, allow_hyphen_values = true)]
    agent_arg: Vec<String>,
}

/// Whose programs.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Whose {
    /// Ours.
    Pintle,
    /// Upstream's.
    Upstream,
}

impl From<Whose> for Kind {
    fn from(whose: Whose) -> Self {
        match whose {
            Whose::Pintle => Kind::Pintle,
            Whose::Upstream => Kind::Upstream,
        }
    }
}

/// Does it.
pub fn run(command: LabCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match command {
        LabCommand::Up(args) => runtime.block_on(up(args)),
        LabCommand::Down { dir } => runtime.block_on(lab::down(&dir)),
    }
}

async fn up(args: UpArgs) -> anyhow::Result<()> {
    let pintle = match args.pintle {
        Some(path) => path,
        None => std::env::current_exe()?.parent().context("this program is in no folder")?.join("pintle"),
    };
    let absolute = |path: PathBuf| std::path::absolute(path);
    let spec = Spec {
        nodes: args.count,
        control_plane: args.control_plane.into(),
        nodes_are: args.nodes.into(),
        upstream: args.upstream.map(absolute).transpose()?,
        containerd_dir: args.containerd_dir.map(absolute).transpose()?,
        images: args.images.into_iter().map(absolute).collect::<Result<_, _>>()?,
        server_args: args.server_arg,
        agent_args: args.agent_arg,
        ..Spec::new(&args.dir, &pintle)?
    };
    let lab = lab::up(&spec, &|text| pintle_host::say!("{text}")).await?;
    pintle_host::say!("network namespace: {}", lab.namespace());
    pintle_host::say!("kubeconfig: {}", lab.kubeconfig().display());
    pintle_host::say!("Try:");
    pintle_host::say!(
        "  nsenter --net=/run/netns/{} kubectl --kubeconfig {} get nodes",
        lab.namespace(),
        lab.kubeconfig().display()
    );
    pintle_host::say!("  cargo x lab down {}", spec.dir.display());
    Ok(())
}
