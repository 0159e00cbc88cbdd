//! The store of a server as the flags say.

pub mod commands;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use pintle_apiserver::storage::{prefix_of, resource_of, upstream_form};
use pintle_store::embedded::{Durability, Embedded};
use pintle_store::encryption::{Encrypted, Encryption};
use pintle_store::etcd::{self, Etcd};
use pintle_store::memory::Memory;
use pintle_store::renamed::Renamed;
use pintle_store::routed::Routed;
use pintle_store::{Store, TlsFiles};

use crate::cli::Storage;
use crate::paths::Paths;

/// Prefix of all keys here, and there unless told otherwise.
const PREFIX: &str = "/registry";
/// What means nothing without servers.
const OF_SERVERS: [&str; 5] =
    ["etcd_prefix", "etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_compaction_interval"];

/// Where objects are kept.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Storage engine, where no etcd servers are given.
    #[arg(long, value_enum, default_value_t = Storage::Embedded, conflicts_with = "etcd_servers")]
    pub storage: Storage,
    /// When the embedded store acknowledges a write.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Sync, conflicts_with = "etcd_servers")]
    pub durability: DurabilityArg,
    /// etcd, and how it is used.
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Resources in etcd servers of their own: `group/resource#url;url`, the core group being empty.
    #[arg(long, value_delimiter = ',', value_parser = overriding, requires = "etcd_servers")]
    pub etcd_servers_overrides: Vec<Override>,
    /// File that says which resources are encrypted, and how (EncryptionConfiguration).
    #[arg(long)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Take up changes of that file while running.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    #[arg(requires_if("true", "encryption_provider_config"))]
    pub encryption_provider_config_automatic_reload: bool,
}

impl StoreArgs {
    /// Nothing outlives the process.
    pub fn in_memory(&self) -> bool {
        self.storage == Storage::Memory && self.etcd.etcd_servers.is_empty()
    }
}

/// A resource in servers of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Prefix of its keys.
    prefix: String,
    servers: Vec<String>,
}

/// `/events#https://a:2379;https://b:2379`, `apps/deployments#…`
fn overriding(text: &str) -> Result<Override, String> {
    let parts = text.split_once('#').and_then(|(resource, servers)| Some((resource.split_once('/')?, servers)));
    let Some(((group, resource), servers)) = parts.filter(|(_, servers)| !servers.is_empty()) else {
        return Err("want group/resource#url;url".into());
    };
    let none = || format!("there is no resource {resource:?} of group {group:?}");
    let prefix = prefix_of(group, resource).ok_or_else(none)?;
    Ok(Override { prefix, servers: servers.split(';').map(str::to_owned).collect() })
}

/// etcd, and how it is used.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("etcd_in_use").args(OF_SERVERS).multiple(true).requires("etcd_servers")))]
pub struct EtcdArgs {
    /// URLs of etcd's members; objects are kept there, in the form of kube-apiserver.
    #[arg(long, value_delimiter = ',')]
    pub etcd_servers: Vec<String>,
    /// How.
    #[command(flatten)]
    pub options: EtcdOptions,
}

/// How etcd is used.
#[derive(Args, Clone, Debug)]
pub struct EtcdOptions {
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
    let config = args.encryption_provider_config.as_deref();
    let encryption = |prefix: &str| {
        let reload = args.encryption_provider_config_automatic_reload;
        config.map(|path| encryption(Some(path), reload, prefix)).transpose()
    };
    if !args.etcd.etcd_servers.is_empty() {
        let prefix = slashed(&args.etcd.options.etcd_prefix);
        let open = |servers: &[String]| -> anyhow::Result<Arc<dyn Store>> {
            let etcd = EtcdArgs { etcd_servers: servers.to_vec(), options: args.etcd.options.clone() };
            Ok(on_etcd(Arc::new(open_etcd(&etcd)?), &prefix, encryption(&prefix)?))
        };
        let main = open(&args.etcd.etcd_servers)?;
        let separate = args.etcd_servers_overrides.iter().map(|of| Ok((of.prefix.clone(), open(&of.servers)?)));
        let separate = separate.collect::<anyhow::Result<Vec<_>>>()?;
        return Ok(if separate.is_empty() { main } else { Arc::new(Routed::new(main, separate)) });
    }
    let base: Arc<dyn Store> = match (args.storage, args.durability) {
        (Storage::Memory, _) | (_, DurabilityArg::Memory) => Arc::new(Memory::default()),
        (Storage::Embedded, durability) => Arc::new(open_embedded(&paths.store(), durability)?),
    };
    Ok(encrypted(base, encryption(&slashed(PREFIX))?))
}

/// A server's store on top of one with keys and values as kube-apiserver keeps them. Values are bound to the keys where they
/// are kept, so encryption goes below a renaming.
fn on_etcd(etcd: Arc<dyn Store>, prefix: &str, encryption: Option<Encryption>) -> Arc<dyn Store> {
    let (base, ours) = (encrypted(etcd, encryption), slashed(PREFIX));
    upstream_form(if prefix == ours { base } else { Arc::new(Renamed::under(base, &ours, prefix)) })
}

fn encrypted(base: Arc<dyn Store>, encryption: Option<Encryption>) -> Arc<dyn Store> {
    match encryption {
        Some(encryption) => Arc::new(Encrypted::new(base, encryption)),
        None => base,
    }
}

/// As the file says, of keys under `prefix`. Without a file encrypted values can't be read.
fn encryption(file: Option<&Path>, reload: bool, prefix: &str) -> anyhow::Result<Encryption> {
    let (resource_of, prefix) = (resource_of(), prefix.to_owned());
    let by_key = Arc::new(move |key: &str| resource_of(&format!("{PREFIX}/{}", key.strip_prefix(&prefix)?)));
    Ok(match file {
        Some(path) => Encryption::from_file(path, reload, by_key)?,
        None => Encryption::none(by_key),
    })
}

fn slashed(prefix: &str) -> String {
    format!("{}/", prefix.trim_end_matches('/'))
}

fn open_embedded(dir: &Path, durability: DurabilityArg) -> anyhow::Result<Embedded> {
    let durability = if durability == DurabilityArg::Relaxed { Durability::Relaxed } else { Durability::Sync };
    let options = pintle_store::embedded::Options { durability, ..Default::default() };
    Embedded::open(dir, options).with_context(|| format!("opening the store in {}", dir.display()))
}

fn open_etcd(args: &EtcdArgs) -> anyhow::Result<Etcd> {
    let how = &args.options;
    let tls = TlsFiles { ca: how.etcd_cafile.clone(), cert: how.etcd_certfile.clone(), key: how.etcd_keyfile.clone() };
    let (endpoints, compaction_interval) = (args.etcd_servers.clone(), how.etcd_compaction_interval);
    Ok(Etcd::new(&etcd::Options { endpoints, tls, compaction_interval })?)
}
