//! The store of a server as the flags say, and the commands on stores: snapshots, moving between engines, verifying.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use futures::AsyncReadExt;
use pintle_apiserver::storage::{decoder, resource_of, upstream_form};
use pintle_store::embedded::{Durability, Embedded};
use pintle_store::encryption::Encrypted;
use pintle_store::etcd::{self, Etcd};
use pintle_store::memory::Memory;
use pintle_store::renamed::Renamed;
use pintle_store::snapshot::Snapshot;
use pintle_store::{Revision, Store, TlsFiles};

use crate::cli::{DataArgs, Storage};
use crate::paths::Paths;

/// Prefix of all keys here, and there unless told otherwise.
const PREFIX: &str = "/registry";
/// Added to the revision of a restored snapshot: clients that saw later revisions than the snapshot's must not take what
/// is written now for something that they have seen.
const BUMP: Revision = 1_000_000;

/// Where objects are kept.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Storage engine, unless etcd servers are given.
    #[arg(long, value_enum, default_value_t = Storage::Embedded)]
    pub storage: Storage,
    /// When the embedded store acknowledges a write.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Sync)]
    pub durability: DurabilityArg,
    /// etcd, and how it is used.
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// File that says which resources are encrypted, and how (EncryptionConfiguration).
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Take up changes of that file while running.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
}

/// etcd, and how it is used.
#[derive(Args, Clone, Debug)]
pub struct EtcdArgs {
    /// URLs of etcd's members; objects are kept there, in the form of kube-apiserver.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// Prefix of all keys in etcd.
    #[arg(long, default_value = PREFIX)]
    pub etcd_prefix: String,
    /// Authority of etcd's certificates.
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// How often etcd's history is compacted; 0: never.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DurabilityArg {
    /// When it is on the disk.
    Sync,
    /// At once; it is on the disk within a second, so that a crash loses the writes of at most the last second.
    Relaxed,
    /// Nothing is written to disk: as `--storage=memory`.
    Memory,
}

/// `5m`, `1h30m`, `0`.
fn duration(text: &str) -> Result<Duration, String> {
    pintle_store::duration::parse(text).ok_or_else(|| format!("{text:?} is no duration: want 30s, 5m, 1h"))
}

/// Opens the store that the flags say. Must be called within the runtime.
pub fn open(paths: &Paths, args: &StoreArgs) -> anyhow::Result<Arc<dyn Store>> {
    let on_etcd = !args.etcd.etcd_servers.is_empty();
    let base: Arc<dyn Store> = match (on_etcd, args.storage, args.durability) {
        (true, ..) => Arc::new(open_etcd(&args.etcd)?),
        (false, Storage::Memory, _) | (false, _, DurabilityArg::Memory) => Arc::new(Memory::default()),
        (false, Storage::Embedded, durability) => Arc::new(open_embedded(&paths.store(), durability)?),
    };
    let prefix = prefix_of(&args.etcd);
    let ours = format!("{PREFIX}/");
    let renamed = on_etcd && prefix != ours;
    let base = match &args.encryption_provider_config {
        Some(path) => encrypted(base, path, args, if renamed { &prefix } else { &ours })?,
        None => base,
    };
    let base = if renamed { Arc::new(Renamed::under(base, &ours, &prefix)) } else { base };
    Ok(if on_etcd { upstream_form(base) } else { base })
}

fn prefix_of(args: &EtcdArgs) -> String {
    format!("{}/", args.etcd_prefix.trim_end_matches('/'))
}

/// Values are bound to the keys where they are kept, so this goes below a renaming.
fn encrypted(base: Arc<dyn Store>, path: &Path, args: &StoreArgs, prefix: &str) -> anyhow::Result<Arc<dyn Store>> {
    let (resource_of, prefix) = (resource_of(), prefix.to_owned());
    let by_key = move |key: &str| resource_of(&format!("{PREFIX}/{}", key.strip_prefix(&prefix)?));
    let reload = args.encryption_provider_config_automatic_reload;
    Ok(Arc::new(Encrypted::from_file(base, path, reload, Arc::new(by_key))?))
}

fn open_embedded(dir: &Path, durability: DurabilityArg) -> anyhow::Result<Embedded> {
    let durability = if durability == DurabilityArg::Relaxed { Durability::Relaxed } else { Durability::Sync };
    let options = pintle_store::embedded::Options { durability, ..Default::default() };
    Embedded::open(dir, options).with_context(|| format!("opening the store in {}", dir.display()))
}

fn open_etcd(args: &EtcdArgs) -> anyhow::Result<Etcd> {
    let tls =
        TlsFiles { ca: args.etcd_cafile.clone(), cert: args.etcd_certfile.clone(), key: args.etcd_keyfile.clone() };
    let (endpoints, compaction_interval) = (args.etcd_servers.clone(), args.etcd_compaction_interval);
    Ok(Etcd::new(&etcd::Options { endpoints, tls, compaction_interval })?)
}

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
        /// Added to the revision of the copy.
        #[arg(long, default_value_t = BUMP)]
        bump_revision: Revision,
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
        SnapshotCommand::Restore { file, data, bump_revision, etcd } => {
            let copy = read(&file)?;
            if etcd.etcd_servers.is_empty() {
                let paths = Paths::new(&data.data_dir)?;
                paths.create()?;
                let decode = decoder();
                let copy = copy.map_values(|key, value| decode(key, &value))?;
                Embedded::restore(paths.store(), &copy, bump_revision)?;
                println!("restored {} keys into {}", copy.keys(), paths.store().display());
                return Ok(());
            }
            let target = Target::Etcd(etcd);
            copy_into(&copy, &target).await
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
    println!(
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
        /// Prefix and credentials of etcd.
        #[command(flatten)]
        etcd: EtcdArgs,
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
        StoreCommand::Migrate { from, to, etcd } => {
            let source = match Target::parse(&from, &etcd)? {
                Target::Embedded(dir) => copy_of(&existing(&dir)?).await?,
                Target::Etcd(args) => {
                    copy_of(&open_etcd(&args)?).await?.moved(&prefix_of(&args), &format!("{PREFIX}/"))
                }
            };
            copy_into(&source, &Target::parse(&to, &etcd)?).await
        }
        StoreCommand::Verify { data } => {
            let dir = Paths::new(&data.data_dir)?.store();
            let copy = copy_of(&existing(&dir)?).await?;
            tell(&dir, &copy)
        }
    }
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
    Embedded(PathBuf),
    Etcd(EtcdArgs),
}

impl Target {
    fn parse(text: &str, etcd: &EtcdArgs) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("embedded", dir)) => Ok(Self::Embedded(Paths::new(Path::new(dir))?.store())),
            Some(("etcd", urls)) => {
                let etcd_servers = urls.split(',').map(str::to_owned).collect();
                Ok(Self::Etcd(EtcdArgs { etcd_servers, ..etcd.clone() }))
            }
            _ => bail!("{text:?} is neither embedded:DATA_DIR nor etcd:URL"),
        }
    }
}

/// Values are brought into the form that the target's servers expect. What is encrypted stays so.
async fn copy_into(copy: &Snapshot, target: &Target) -> anyhow::Result<()> {
    let decode = decoder();
    let copy = copy.map_values(|key, value| decode(key, &value))?;
    match target {
        Target::Embedded(dir) => {
            Embedded::restore(dir, &copy, BUMP)?;
            println!("{} keys are in {}, at revision {}", copy.keys(), dir.display(), copy.revision() + BUMP);
        }
        Target::Etcd(args) => {
            let etcd = Renamed::under(Arc::new(open_etcd(args)?), &format!("{PREFIX}/"), &prefix_of(args));
            let copied = pintle_store::copy::copy(&copy, &format!("{PREFIX}/"), upstream_form(Arc::new(etcd))).await?;
            println!("{} keys are in etcd, at revision {}", copied.keys, copied.revision);
        }
    }
    Ok(())
}
