//! `pintle conformance` without the rest of Pintle: quicker to build while working on the judge.

use clap::Parser;
use pintle_conformance::Command;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let _ = rustls::crypto::ring::default_provider().install_default();
    pintle_conformance::execute(Cli::parse().command, CancellationToken::new()).await
}
