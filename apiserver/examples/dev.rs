//! A development API server on loopback: memory store, self-made certificate, static admin token.
//!
//! `cargo run -p pintle-apiserver --example dev -- apiserver --port 17480 --data-dir DIR` serves on https://127.0.0.1:17480
//! and writes DIR/kubeconfig, DIR/pki/sa.key and DIR/pki/tokens.csv, as `pintle apiserver` (whose flags it takes, most
//! without effect) or the differential tests want them. The token is `admintoken` (group system:masters). Ends with ctrl-C.

#![allow(clippy::print_stdout, reason = "a tool for development")]

use std::sync::Arc;

use anyhow::Context;
use pintle_apiserver::{ApiServer, Config, StaticToken};
use pintle_serving::http::Listener;
use pintle_serving::tls::SelfSigned;
use pintle_store::memory::Memory;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let port: u16 = value("--port").context("--port")?.parse().context("--port")?;
    let home = std::path::PathBuf::from(value("--data-dir").context("--data-dir")?);
    let service_cidr = value("--service-cidr").map_or("10.96.0.0/16", String::as_str);
    std::fs::create_dir_all(home.join("pki"))?;
    let signing_key = rcgen::KeyPair::generate()?.serialize_pem();
    let own = SelfSigned::new(&["127.0.0.1", "localhost", "kubernetes"])?;
    let config = Config {
        store: Arc::new(Memory::new(Default::default())),
        service_cidr: service_cidr.parse()?,
        node_ports: 30000..=32767,
        advertise_address: [127, 0, 0, 1].into(),
        advertise_port: port,
        issuer: "https://kubernetes.default.svc.cluster.local".into(),
        service_account_key: signing_key.clone().into_bytes(),
        service_account_verify_keys: Vec::new(),
        client_ca: None,
        cluster_ca: own.certificate.clone().into_bytes(),
        static_tokens: vec![StaticToken {
            token: "admintoken".into(),
            user: "admin".into(),
            uid: "admin".into(),
            groups: vec!["system:masters".into()],
        }],
        kubelet_client: None,
        features: Default::default(),
    };
    let server = ApiServer::build(config)?;
    let listener = Listener::tcp(([127, 0, 0, 1], port).into()).await?;
    let tls = own.tls(None)?;
    std::fs::write(home.join("pki/sa.key"), signing_key)?;
    std::fs::write(home.join("pki/tokens.csv"), "admintoken,admin,admin,system:masters\n")?;
    std::fs::write(home.join("kubeconfig"), kubeconfig_text(port))?;
    server.ready().await;
    println!("ready");
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    server.serve(vec![listener], tls, shutdown).await;
    Ok(())
}

fn kubeconfig_text(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: dev, cluster: {{server: \"https://127.0.0.1:{port}\", \
         insecure-skip-tls-verify: true}}}}]\nusers: [{{name: admin, user: {{token: admintoken}}}}]\ncontexts: [{{name: \
         dev, context: {{cluster: dev, user: admin}}}}]\ncurrent-context: dev\n"
    )
}
