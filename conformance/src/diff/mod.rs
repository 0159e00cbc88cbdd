//! `pintle conformance diff`: the same requests to upstream's API server and to ours, the answers compared.
//!
//! Three feeds: sessions of a corpus ([`sessions`]), generated and spoilt objects ([`objects`]), and sequences of patches
//! ([`patches`]). What may differ by nature (uids, versions, times, generated names) is taken out first ([`scrub`]);
//! what differs is classed and counted ([`compare`], [`score`]); what is known to differ, with reasons ([`known`]), and how many
//! differences may be ([`limits`]) is data that may only shrink.

mod changes;
mod compare;
mod corpus;
mod generate;
mod known;
mod kubectl;
mod limits;
mod objects;
mod own;
mod patch_bodies;
mod patches;
mod score;
mod script;
mod scrub;
mod servers;
mod sessions;
mod wire;

use std::path::PathBuf;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

/// `pintle conformance diff`
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory with upstream's kube-apiserver, etcd and kubectl. Within Pintle's source tree, they are built by default.
    #[arg(long, env = "PINTLE_UPSTREAM_BIN")]
    pub upstream_bin: Option<PathBuf>,
    /// The pintle binary to compare with; this program by default.
    #[arg(long)]
    pub pintle: Option<PathBuf>,
    /// Directory of the corpus: sessions, objects, known differences.
    #[arg(long, default_value = "conformance/corpus")]
    pub corpus: PathBuf,
    /// Directory for the report: differential.json and a file of differences for each feed and kind.
    #[arg(long, default_value = "conformance-diff")]
    pub out: PathBuf,
    /// The feeds to run.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sessions,objects,patches")]
    pub feed: Vec<Feed>,
    /// Seed of the generated requests.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Generated requests: so many of objects, and sequences of patches that come to about as many.
    #[arg(long, default_value_t = 10_000)]
    pub requests: u64,
    /// Only sessions with this in their name, only objects of kinds with this in their name.
    #[arg(long, conflicts_with = "limits")]
    pub only: Option<String>,
    /// How many differences may be, by feed, kind and class (JSON). A number above its limit fails the run, and so does an entry
    /// of known.yaml that nothing matched. The figures of a run are written in this form to OUT/limits.json.
    #[arg(long, value_name = "FILE")]
    pub limits: Option<PathBuf>,
    /// Write numbers that are lower now into the file of --limits.
    #[arg(long, requires = "limits")]
    pub shrink_limits: bool,
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Feed {
    /// The corpus of sessions.
    Sessions,
    /// Generated objects.
    Objects,
    /// Sequences of patches.
    Patches,
}

/// What a feed needs to know.
struct Bounds {
    seed: u64,
    requests: u64,
    only: Option<String>,
    shutdown: CancellationToken,
}

impl Bounds {
    fn new(args: &Args, shutdown: &CancellationToken) -> Self {
        Self { seed: args.seed, requests: args.requests, only: args.only.clone(), shutdown: shutdown.clone() }
    }

    /// Whether something of that name is wanted.
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.to_lowercase().contains(&only.to_lowercase()))
    }
}

/// Runs until done, or until `shutdown`.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Before minutes go by: a file that can't be read.
    let mut limits = args.limits.as_deref().map(limits::Limits::read).transpose()?;
    let outcome = differential(&args, &shutdown).await?;
    anyhow::ensure!(!shutdown.is_cancelled(), "interrupted");
    pintle_host::say!("{}", outcome.summary().trim_end());
    outcome.write(&args.out)?;
    let faults = outcome.faults();
    faults.iter().for_each(|fault| pintle_host::complain!("{fault}"));
    let (Some(file), Some(limits)) = (&args.limits, &mut limits) else {
        // A known difference that a part of the feeds does not meet is no fault; a feed without requests is.
        return outcome.idle().next().map_or(Ok(()), |fault| Err(anyhow::anyhow!(fault)));
    };
    let verdict = limits.judge(&outcome.figures())?;
    verdict.loose.iter().for_each(|text| pintle_host::say!("the limit can shrink: {text}"));
    verdict.above.iter().for_each(|text| pintle_host::complain!("above the limit: {text}"));
    if args.shrink_limits && !verdict.loose.is_empty() {
        limits.write(file)?;
    }
    let (above, faults) = (verdict.above.len(), faults.len());
    anyhow::ensure!(above + faults == 0, "{above} numbers above their limit, {faults} other faults");
    Ok(())
}

/// Starts both servers, runs the feeds, stops the servers.
async fn differential(args: &Args, shutdown: &CancellationToken) -> anyhow::Result<score::Outcome> {
    let corpus = corpus::Corpus::read(&args.corpus)?;
    let known = known::Known::read(&args.corpus.join("known.yaml"))?;
    let pair = servers::Pair::start(args).await.context("starting the two servers")?;
    let ran = feeds(args, &pair, &corpus, known, shutdown).await;
    pair.stop().await;
    ran
}

async fn feeds(
    args: &Args,
    pair: &servers::Pair,
    corpus: &corpus::Corpus,
    known: known::Known,
    shutdown: &CancellationToken,
) -> anyhow::Result<score::Outcome> {
    let mut outcome = score::Outcome::new(args.seed, args.requests, pair.upstream.version().await?, known);
    pair.prepare().await?;
    for feed in &args.feed {
        let bounds = Bounds::new(args, shutdown);
        let found = match feed {
            Feed::Sessions => sessions::run(pair, corpus, &bounds).await?,
            Feed::Objects => objects::run(pair, corpus, &bounds).await?,
            Feed::Patches => patches::run(pair, corpus, &bounds).await?,
        };
        outcome.add(*feed, found);
    }
    Ok(outcome)
}
