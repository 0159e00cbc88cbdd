//! `pintle conformance diff`: the same requests to upstream's API server and to ours, the answers compared.
//!
//! Three feeds: sessions of a corpus ([`sessions`]), generated and spoilt objects ([`objects`]), and sequences of patches
//! ([`patches`]). What may differ by nature (uids, versions, times, generated names) is taken out first ([`scrub`]);
//! what differs is classed and counted ([`compare`], [`score`]); what is known to differ is data with a reason
//! ([`known`]) and may only shrink.

mod changes;
mod compare;
mod corpus;
mod generate;
mod known;
mod kubectl;
mod objects;
mod patch_bodies;
mod patches;
mod score;
mod script;
mod scrub;
mod servers;
mod sessions;
mod wire;

use std::path::PathBuf;
use std::time::{Duration, Instant};

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
    /// Generated requests of each feed, at most.
    #[arg(long, default_value_t = 10_000)]
    pub requests: u64,
    /// Seconds for each generated feed, at most.
    #[arg(long, default_value_t = 600)]
    pub seconds: u64,
    /// Only sessions with this in their name, only objects of kinds with this in their name.
    #[arg(long)]
    pub only: Option<String>,
    /// Fail when there is any difference that is not known, or a known one that is gone.
    #[arg(long)]
    pub strict: bool,
    /// Differences per 1,000 generated objects above which the run fails.
    #[arg(long)]
    pub max_per_thousand: Option<f64>,
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
    until: Instant,
    only: Option<String>,
    shutdown: CancellationToken,
}

impl Bounds {
    fn new(args: &Args, shutdown: &CancellationToken) -> Self {
        Self {
            seed: args.seed,
            requests: args.requests,
            until: Instant::now() + Duration::from_secs(args.seconds),
            only: args.only.clone(),
            shutdown: shutdown.clone(),
        }
    }

    /// The feed has to end.
    fn over(&self, requests: u64) -> bool {
        requests >= self.requests || Instant::now() >= self.until || self.shutdown.is_cancelled()
    }

    /// Whether something of that name is wanted.
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.to_lowercase().contains(&only.to_lowercase()))
    }
}

/// Runs until done, or until `shutdown`.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let outcome = differential(&args, &shutdown).await?;
    print!("{}", outcome.summary());
    outcome.write(&args.out)?;
    outcome.judge(args.strict, args.max_per_thousand)
}

/// Starts both servers, runs the feeds, stops the servers.
async fn differential(args: &Args, shutdown: &CancellationToken) -> anyhow::Result<score::Outcome> {
    let corpus = corpus::Corpus::read(&args.corpus)?;
    let known = known::Known::read(&args.corpus.join("known.yaml"))?;
    let pair = servers::Pair::start(args).await.context("starting the two servers")?;
    let mut outcome = score::Outcome::new(args.seed, known);
    let ran = feeds(args, &pair, &corpus, &mut outcome, shutdown).await;
    pair.stop().await;
    ran?;
    Ok(outcome)
}

async fn feeds(
    args: &Args,
    pair: &servers::Pair,
    corpus: &corpus::Corpus,
    outcome: &mut score::Outcome,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
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
    Ok(())
}
