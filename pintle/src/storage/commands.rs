//! Commands on stores: snapshots, moving between engines, verifying.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use futures::AsyncReadExt;
use pintle_apiserver::storage::decoder;
use pintle_host::owned::{self, Claim};
use pintle_store::embedded::Embedded;
use pintle_store::snapshot::Snapshot;
use pintle_store::{Revision, Store};

use super::{DurabilityArg, EtcdArgs, EtcdOptions, PREFIX, encryption, on_etcd, open_embedded, open_etcd, slashed};
use crate::cli::DataArgs;
use crate::paths::Paths;

/// Added to the revision of a restored snapshot: clients that saw later revisions than the snapshot's must not take what
/// is written now for something that they have seen.
const BUMP: Revision = 1_000_000;

/// `pintle snapshot`.
#[derive(Subcommand, Clone, Debug)]
pub enum SnapshotCommand {
    /// Copy the store of a running server into a file, while it goes on.
    Save {
        /// The file.
        file: PathBuf,
        /// How to reach the API server; by default the kubeconfig in the data directory.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Where the cluster lives.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Verify a copy and tell what is in it.
    Status {
        /// The file.
        file: PathBuf,
    },
    /// Make a new store out of a copy, in a data directory without one, or in an empty etcd.
    Restore {
        /// The file.
        file: PathBuf,
        /// Where the cluster is to live.
        #[command(flatten)]
        data: DataArgs,
        /// Added to the revision of the copy. An etcd goes on from its own.
        #[arg(long, default_value_t = BUMP, conflicts_with = "etcd_servers")]
        bump_revision: Revision,
        /// Prefix of the keys in the copy: the `--etcd-prefix` of the server that it was taken from.
        #[arg(long, default_value = PREFIX)]
        snapshot_prefix: String,
        /// File that says how values in the copy are encrypted, and how the new store's are to be (EncryptionConfiguration).
        #[arg(long)]
        encryption_provider_config: Option<PathBuf>,
        /// etcd to restore into instead.
        #[command(flatten)]
        etcd: EtcdArgs,
    },
}

/// Runs `pintle snapshot`.
pub async fn snapshot(command: SnapshotCommand) -> anyhow::Result<()> {
    match command {
        SnapshotCommand::Save { file, kubeconfig, data } => {
            let kubeconfig = match kubeconfig {
                Some(path) => path,
                None => Paths::new(&data.data_dir)?.kubeconfig(),
            };
            save(&file, &kubeconfig).await
        }
        SnapshotCommand::Status { file } => tell(&file, &read(&file)?),
        SnapshotCommand::Restore { file, data, bump_revision, snapshot_prefix, encryption_provider_config, etcd } => {
            let config = encryption_provider_config.as_deref();
            let copy = plain(&read(&file)?, &slashed(&snapshot_prefix), config).await?;
            let target = match etcd.etcd_servers[..] {
                [] => Target::Embedded(Paths::new(&data.data_dir)?),
                _ => Target::Etcd(etcd),
            };
            let _claim = target.claim()?;
            copy_into(&copy, &target, bump_revision, config).await
        }
    }
}

async fn save(file: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(kubeconfig).await?;
    let request = http::Request::get(pintle_apiserver::backup::PATH).body(Vec::new())?;
    let mut body = std::pin::pin!(client.request_stream(request).await.context("asking the API server for a copy")?);
    // Only a whole, verified copy gets the name.
    let partial = file.with_extension("partial");
    let mut out = std::fs::File::create(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = body.read(&mut buffer).await.context("receiving the copy")?;
        if read == 0 {
            break;
        }
        out.write_all(&buffer[..read])?;
    }
    out.sync_all()?;
    let copy = read(&partial)?;
    std::fs::rename(&partial, file)?;
    tell(file, &copy)
}

fn read(file: &Path) -> anyhow::Result<Snapshot> {
    let input = std::fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
    Snapshot::read(std::io::BufReader::new(input)).with_context(|| format!("reading {}", file.display()))
}

fn tell(file: &Path, copy: &Snapshot) -> anyhow::Result<()> {
    pintle_host::say!(
        "{}: revision {}, {} keys, {} bytes of values, checksum ok",
        file.display(),
        copy.revision(),
        copy.keys(),
        copy.bytes()
    );
    Ok(())
}

/// `pintle store`.
#[derive(Subcommand, Clone, Debug)]
pub enum StoreCommand {
    /// Move all objects from one engine into another one, which must be empty. Neither may be in use by a server.
    Migrate {
        /// `embedded:DATA_DIR` or `etcd:URL[,URL]`.
        #[arg(long)]
        from: String,
        /// The same.
        #[arg(long)]
        to: String,
        /// File that says how values are encrypted where they are, and how they are to be (EncryptionConfiguration).
        #[arg(long)]
        encryption_provider_config: Option<PathBuf>,
        /// Prefix and credentials of etcd.
        #[command(flatten)]
        etcd: EtcdOptions,
    },
    /// Read all of an embedded store and check it. It must not be in use by a server.
    Verify {
        /// Where the cluster lives.
        #[command(flatten)]
        data: DataArgs,
    },
}

/// Runs `pintle store`.
pub async fn store(command: StoreCommand) -> anyhow::Result<()> {
    match command {
        StoreCommand::Migrate { from, to, encryption_provider_config, etcd } => {
            let (from, to) = (Target::parse(&from, &etcd)?, Target::parse(&to, &etcd)?);
            migrate(&from, &to, encryption_provider_config.as_deref()).await
        }
        StoreCommand::Verify { data } => {
            let dir = Paths::new(&data.data_dir)?.store();
            let copy = copy_of(&existing(&dir)?).await?;
            tell(&dir, &copy)
        }
    }
}

async fn migrate(from: &Target, to: &Target, config: Option<&Path>) -> anyhow::Result<()> {
    // Neither may be in use until all is done.
    let (_source, copy, prefix) = match from {
        Target::Embedded(paths) => {
            let claim = owned::claim(paths.root())?;
            (Some(claim), copy_of(&existing(&paths.store())?).await?, slashed(PREFIX))
        }
        Target::Etcd(args) => (None, copy_of(&open_etcd(args)?).await?, slashed(&args.options.etcd_prefix)),
    };
    let _target = to.claim()?;
    copy_into(&plain(&copy, &prefix, config).await?, to, BUMP, config).await
}

/// A store that there already is.
fn existing(dir: &Path) -> anyhow::Result<Embedded> {
    ensure!(dir.is_dir(), "there is no store in {}", dir.display());
    open_embedded(dir, DurabilityArg::Sync)
}

async fn copy_of(store: &dyn Store) -> anyhow::Result<Snapshot> {
    let mut bytes = Vec::new();
    store.snapshot(&mut bytes).await?;
    Ok(Snapshot::read(&bytes[..])?)
}

/// Where objects are moved from or to.
enum Target {
    Embedded(Paths),
    Etcd(EtcdArgs),
}

impl Target {
    fn parse(text: &str, etcd: &EtcdOptions) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("embedded", dir)) => Ok(Self::Embedded(Paths::new(Path::new(dir))?)),
            Some(("etcd", urls)) => {
                let etcd_servers = urls.split(',').map(str::to_owned).collect();
                Ok(Self::Etcd(EtcdArgs { etcd_servers, options: etcd.clone() }))
            }
            _ => bail!("{text:?} is neither embedded:DATA_DIR nor etcd:URL"),
        }
    }

    /// Takes its data directory into use, if it has one.
    fn claim(&self) -> anyhow::Result<Option<Claim>> {
        match self {
            Self::Embedded(paths) => paths.claim().map(Some),
            Self::Etcd(_) => Ok(None),
        }
    }
}

/// What is in a copy, as an embedded store without encryption keeps it.
async fn plain(copy: &Snapshot, prefix: &str, config: Option<&Path>) -> anyhow::Result<Snapshot> {
    let read = copy.moved(prefix, prefix).here(&encryption(config, false, prefix)?).await;
    let copy = match config {
        Some(file) => read.with_context(|| format!("decrypting as {} says", file.display()))?,
        None => read.context("--encryption-provider-config must name the file that says how values are encrypted")?,
    };
    let decode = decoder();
    Ok(copy.moved(prefix, &slashed(PREFIX)).map_values(|key, value| decode(key, &value))?)
}

/// Values are brought into the form that the target's servers expect.
async fn copy_into(copy: &Snapshot, target: &Target, bump: Revision, config: Option<&Path>) -> anyhow::Result<()> {
    let encryption = |prefix: &str| encryption(config, false, prefix);
    match target {
        Target::Embedded(paths) => {
            let dir = paths.store();
            Embedded::restore(&dir, &copy.there(&encryption(&slashed(PREFIX))?).await?, bump)?;
            pintle_host::say!("{} keys are in {}, at revision {}", copy.keys(), dir.display(), copy.revision() + bump);
        }
        Target::Etcd(args) => {
            let prefix = slashed(&args.options.etcd_prefix);
            let etcd = on_etcd(Arc::new(open_etcd(args)?), &prefix, Some(encryption(&prefix)?));
            let copied = pintle_store::copy::copy(copy, &slashed(PREFIX), etcd).await?;
            pintle_host::say!("{} keys are in etcd, at revision {}", copied.keys, copied.revision);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
