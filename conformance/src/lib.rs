//! The judge: `pintle conformance` runs upstream's e2e suite, builds its test images, compares servers, and reports.
//!
//! Nothing here depends on a component: what is judged is reached over the wire only.

pub mod diff;
pub mod golden;
mod group;
pub mod images;
pub mod known;
mod name;
pub mod report;
pub mod results;
pub mod run;
mod upstream;

use tokio_util::sync::CancellationToken;

/// `pintle conformance ...`
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run upstream's e2e tests against a cluster.
    Run(run::Args),
    /// Print the names of upstream's e2e tests.
    List(run::ListArgs),
    /// Turn the results of a run into Markdown, a web page and figures.
    Report(report::Args),
    /// Send the same requests to upstream's API server and to another one, and compare the answers.
    Diff(diff::Args),
    /// Read and write upstream's samples of every kind and release, and compare the bytes.
    Golden(golden::Args),
    /// Build the tests' images and load them into the nodes.
    Images(images::Args),
    /// Serve image layouts as a registry, to be read only.
    Registry(images::registry::Args),
}

/// Does what `command` says; an error is what the user is told, with a failing exit status.
pub async fn execute(command: Command, shutdown: CancellationToken) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(args, shutdown).await,
        Command::List(args) => run::list(args).await,
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(args, shutdown).await,
        Command::Golden(args) => golden::run(&args),
        Command::Images(args) => images::run(args, shutdown).await,
        Command::Registry(args) => images::registry::run(args, shutdown).await,
    }
}
