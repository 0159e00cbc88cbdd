//! Project tools.

mod bench;
mod gap;
mod image;
mod lab;
mod schema;

use std::process::ExitCode;

use clap::Parser;

/// Project tools.
#[derive(Debug, Parser)]
#[command(name = "hack")]
enum Command {
    /// Make the API tables out of the published API descriptions.
    Schema(schema::Args),
    /// List what of upstream's API is not served or has no test.
    ApiGap(gap::Args),
    /// Measure the project's bars on a cluster of its own.
    Bench(bench::BenchArgs),
    /// Make the demo's image archive.
    Image(image::ImageArgs),
    /// Start and end a control plane and nodes in network namespaces.
    #[command(subcommand)]
    Lab(lab::LabCommand),
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            pintle_host::complain!("hack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Schema(args) => schema::run(&args),
        Command::ApiGap(args) => gap::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Lab(command) => lab::run(command),
    }
}
