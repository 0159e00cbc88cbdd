//! Runs the controllers against the cluster of a kubeconfig: `controllers KUBECONFIG [NAME…]`.

use std::path::Path;

use pintle_controllers::Config;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut args = std::env::args().skip(1);
    let Some(kubeconfig) = args.next() else { anyhow::bail!("usage: controllers KUBECONFIG [NAME…]") };
    let mut config = Config { cluster_cidrs: vec!["10.244.0.0/16".to_owned()], ..Config::default() };
    config.root_ca = Some("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_owned());
    let names: Vec<String> = args.collect();
    if !names.is_empty() {
        config.controllers = names;
    }
    let client = pintle_client::connect::from_kubeconfig(Path::new(&kubeconfig)).await?;
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        // Without the signal handler the process just runs until it is killed.
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    pintle_controllers::run(config, client, shutdown).await
}
