//! Components that run alone, against any API server, as upstream's do.

use std::net::SocketAddr;

use anyhow::Context;
use pintle_client::leader;
use pintle_serving::component::{Component, serve_component};
use pintle_serving::health::Checks;
use pintle_serving::metrics::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::{ComponentArgs, ControllerManagerArgs, DnsArgs, KubeletArgs, ProxyArgs};
use crate::{addons, net};

/// Ports on the loopback address for health and metrics: upstream's numbers.
const SCHEDULER_PORT: u16 = 10259;
const CONTROLLER_MANAGER_PORT: u16 = 10257;
const PROXY_PORT: u16 = 10249;

/// `pintle scheduler`.
pub async fn scheduler(args: ComponentArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(&args.kubeconfig).await?;
    serve_health(SCHEDULER_PORT, &shutdown).await?;
    let config = pintle_scheduler::Config { host: host(), ..pintle_scheduler::Config::default() };
    lead(&args, "kube-scheduler", client.clone(), shutdown, |token| pintle_scheduler::run(config, client, token)).await
}

/// `pintle controller-manager`.
pub async fn controller_manager(args: ControllerManagerArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(&args.component.kubeconfig).await?;
    serve_health(CONTROLLER_MANAGER_PORT, &shutdown).await?;
    let read = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let signing = match (&args.cluster_signing_cert_file, &args.cluster_signing_key_file) {
        (Some(cert), Some(key)) => Some(pintle_controllers::config::Signing {
            certificate: read(cert)?,
            key: read(key)?,
            duration: std::time::Duration::from_secs(365 * 86_400),
        }),
        _ => None,
    };
    let config = pintle_controllers::Config {
        controllers: args.controllers.clone(),
        root_ca: args.root_ca_file.as_ref().map(read).transpose()?,
        cluster_cidrs: args.cluster_cidr.iter().map(ToString::to_string).collect(),
        signing,
        ..pintle_controllers::Config::default()
    };
    lead(&args.component, "kube-controller-manager", client.clone(), shutdown, |token| {
        pintle_controllers::run(config, client, token)
    })
    .await
}

/// `pintle proxy`.
pub async fn proxy(args: ProxyArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(&args.kubeconfig).await?;
    serve_health(PROXY_PORT, &shutdown).await?;
    net::enable_forwarding()?;
    let node = args.hostname_override.unwrap_or_else(host);
    let config = pintle_proxy::Config {
        cluster_cidrs: args.cluster_cidr.into_iter().collect(),
        ..pintle_proxy::Config::new(node)
    };
    pintle_proxy::run(config, client, shutdown).await
}

/// `pintle kubelet`.
pub async fn kubelet(args: KubeletArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(&args.kubeconfig).await?;
    net::enable_forwarding()?;
    let read = |path: &std::path::Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let name = args.hostname_override.clone().unwrap_or_else(host);
    let ip = args.node_ip.unwrap_or_else(net::default_ip);
    let endpoint = format!("unix://{}", args.container_runtime_endpoint.display());
    let config = pintle_kubelet::Config {
        root_dir: args.root_dir,
        pod_logs_dir: args.pod_logs_dir,
        cgroup_root: args.cgroup_root,
        cluster_dns: args.cluster_dns,
        cluster_domain: args.cluster_domain,
        port: args.port,
        server: Some(pintle_kubelet::ServerTls {
            certificate: read(&args.tls_cert_file)?,
            key: read(&args.tls_private_key_file)?,
            client_ca: read(&args.client_ca_file)?,
        }),
        ..pintle_kubelet::Config::new(&name, ip, &endpoint)
    };
    pintle_kubelet::run(config, client, shutdown).await
}

/// `pintle dns`.
pub async fn dns(args: DnsArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let client = pintle_client::connect::from_kubeconfig(&args.kubeconfig).await?;
    let config = pintle_dns::Config {
        domain: args.cluster_domain,
        listen: args.listen,
        resolv_conf: args.resolv_conf,
        ttl: addons::DNS_TTL,
    };
    pintle_dns::run(config, client, shutdown).await
}

/// Runs a component, as the elected leader if it takes part in that; an error if leadership is lost.
async fn lead<F, R>(
    args: &ComponentArgs,
    name: &str,
    client: kube::Client,
    shutdown: CancellationToken,
    run: F,
) -> anyhow::Result<()>
where
    F: FnOnce(CancellationToken) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    if !args.leader_elect {
        return run(shutdown).await;
    }
    let identity = format!("{}_{:016x}", host(), rand::random::<u64>());
    let election = leader::Config::new(name, &identity);
    let Some(leading) = leader::acquire(client, election, shutdown.clone()).await else { return Ok(()) };
    run(leading).await?;
    anyhow::ensure!(shutdown.is_cancelled(), "leadership lost");
    Ok(())
}

async fn serve_health(port: u16, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))
        .await
        .with_context(|| format!("listening on 127.0.0.1:{port}"))?;
    let component = Component { checks: Checks::default(), metrics: Registry::with_process(), auth: None };
    tokio::spawn(serve_component(listener, None, component, shutdown.clone()));
    Ok(())
}

fn host() -> String {
    nix::unistd::gethostname().ok().and_then(|h| h.into_string().ok()).unwrap_or_default()
}
