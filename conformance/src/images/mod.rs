//! `pintle conformance images`: the tests' images.

use tokio_util::sync::CancellationToken;

/// `pintle conformance images`
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs until done, or until `shutdown`.
pub async fn run(_args: Args, _shutdown: CancellationToken) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
