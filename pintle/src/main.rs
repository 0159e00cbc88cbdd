//! The `pintle` binary: command line, processes, certificates and the wiring of the components. No component's logic.

mod addons;
mod agent;
mod cli;
mod components;
mod containerd;
mod hostports;
mod image;
mod kernel;
mod net;
mod node;
mod paths;
mod routes;
mod server;
mod settings;
mod storage;
mod teardown;
mod telemetry;
mod up;
mod upstream;

use clap::Parser;
use cli::{Cli, Command};
use pintle_host::process;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Objects are trees of small pieces: with the C library's allocator a write costs a quarter more processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let (cli, accepted) = match command_line() {
        Ok(told) => told,
        Err(upstream::Error::Help(text)) => {
            pintle_host::say!("{}", text.trim_end());
            return std::process::ExitCode::SUCCESS;
        }
        Err(error) => {
            pintle_host::complain!("Error: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    if let Err(error) = start_log(&cli) {
        pintle_host::complain!("pintle: {error:#}");
        return std::process::ExitCode::FAILURE;
    }
    if !accepted.is_empty() {
        tracing::warn!(settings = accepted.join(", "), "accepted, without effect");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            pintle_host::complain!("pintle: starting the runtime: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli.command)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            pintle_host::complain!("pintle: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// What to do, and which of upstream's settings have no effect on it.
fn command_line() -> Result<(Cli, Vec<String>), upstream::Error> {
    let mut arguments = std::env::args_os();
    let Some(component) = arguments.next().as_deref().and_then(upstream::component) else {
        return Ok((Cli::parse(), Vec::new()));
    };
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let told = upstream::tell(component, &arguments, |file| std::fs::read_to_string(file))?;
    Ok((Cli::parse_from(told.arguments), told.accepted))
}

fn start_log(cli: &Cli) -> anyhow::Result<()> {
    // Requests that are meant to be refused are no errors.
    let quiet = if matches!(cli.command, Command::Conformance(_)) { "kube_client=off," } else { "" };
    let filter = EnvFilter::try_new(format!("{quiet}{}", cli.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    if cli.log_json {
        log.json().init()
    } else {
        log.with_ansi(false).init()
    }
    Ok(())
}

async fn run(command: Command) -> anyhow::Result<()> {
    // One provider for all TLS in the process; only a second call could fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command {
        Command::Up(args) => up::up(args).await,
        Command::Down(args) => up::down(args).await,
        Command::Id(args) => {
            pintle_host::say!("{}", paths::Paths::new(&args.data_dir)?.id());
            Ok(())
        }
        Command::Forward(args) => up::forward(args).await,
        Command::Server(args) => server::run(args, on_signal()?).await,
        Command::Agent(args) => agent::run(args, on_signal()?).await,
        Command::Apiserver(args) => server::run_apiserver(args, on_signal()?).await,
        Command::Snapshot(command) => storage::commands::snapshot(command).await,
        Command::Store(command) => storage::commands::store(command).await,
        Command::Scheduler(args) => components::scheduler(args, on_signal()?).await,
        Command::ControllerManager(args) => components::controller_manager(args, on_signal()?).await,
        Command::Proxy(args) => components::proxy(args, on_signal()?).await,
        Command::Kubelet(args) => components::kubelet(args, on_signal()?).await,
        Command::Dns(args) => components::dns(args, on_signal()?).await,
        Command::Conformance(command) => {
            // Tests run in groups of their own, which a terminal's interrupt does not reach.
            let at_once = || process::children(own_pid()).into_iter().for_each(process::kill_group);
            pintle_conformance::execute(command, on_signals(at_once)?).await
        }
    }
}

fn own_pid() -> i32 {
    std::process::id().try_into().unwrap_or_default()
}

/// A token that is cancelled by TERM or INT; a second signal ends the process at once.
fn on_signal() -> anyhow::Result<CancellationToken> {
    on_signals(|| {})
}

/// The same; before the end at once something is done.
fn on_signals(at_once: impl Fn() + Send + 'static) -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        for round in 0.. {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if round > 0 {
                at_once();
                std::process::exit(130);
            }
            tracing::info!("shutting down");
            cancel.cancel();
        }
    });
    Ok(token)
}
