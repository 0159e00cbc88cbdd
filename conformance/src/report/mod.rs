//! `pintle conformance report`: what a run found, for people and for the repository.

/// `pintle conformance report`
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Writes the reports.
pub fn run(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
