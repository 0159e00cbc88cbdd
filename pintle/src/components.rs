//! Components that run alone, against any API server, as upstream's do.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use pintle_client::leader;
use pintle_serving::telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::cli::{CgroupDriverArg, ComponentArgs, ControllerManagerArgs, DnsArgs, KubeletArgs, ProxyArgs};
use crate::{addons, kernel, net, telemetry};

/// `pintle scheduler`.
pub async fn scheduler(args: ComponentArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (client, telemetry) = connect(&args.kubeconfig).await?;
    telemetry::SCHEDULER.at(args.secure_port).serve(&telemetry, &client, None, &shutdown).await?;
    let config = pintle_scheduler::Config { host: host(), telemetry, ..pintle_scheduler::Config::default() };
    lead(&args, "kube-scheduler", client.clone(), shutdown, |token| pintle_scheduler::run(config, client, token)).await
}

/// `pintle controller-manager`.
pub async fn controller_manager(args: ControllerManagerArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (client, telemetry) = connect(&args.component.kubeconfig).await?;
    telemetry::CONTROLLER_MANAGER.at(args.component.secure_port).serve(&telemetry, &client, None, &shutdown).await?;
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
        telemetry,
        ..pintle_controllers::Config::default()
    };
    lead(&args.component, "kube-controller-manager", client.clone(), shutdown, |token| {
        pintle_controllers::run(config, client, token)
    })
    .await
}

/// `pintle proxy`.
pub async fn proxy(args: ProxyArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (client, telemetry) = connect(&args.kubeconfig).await?;
    telemetry::PROXY.at(args.metrics_port).serve(&telemetry, &client, None, &shutdown).await?;
    kernel::prepare(None)?;
    let node = args.hostname_override.unwrap_or_else(host);
    let config = pintle_proxy::Config {
        cluster_cidrs: args.cluster_cidr.into_iter().collect(),
        telemetry,
        ..pintle_proxy::Config::new(node)
    };
    pintle_proxy::run(config, client, shutdown).await
}

/// `pintle kubelet`.
pub async fn kubelet(args: KubeletArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let (client, telemetry) = connect(&args.kubeconfig).await?;
    kernel::prepare(None)?;
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let name = args.hostname_override.clone().unwrap_or_else(host);
    let ip = args.node_ip.unwrap_or_else(net::default_ip);
    let endpoint = format!("unix://{}", args.container_runtime_endpoint.display());
    let config = pintle_kubelet::Config {
        telemetry,
        root_dir: args.root_dir,
        pod_logs_dir: args.pod_logs_dir,
        cgroup_root: args.cgroup_root,
        cluster_dns: args.cluster_dns,
        cluster_domain: args.cluster_domain,
        port: args.port,
        max_pods: args.max_pods,
        resolv_conf: Some(args.resolv_conf).filter(|path| !path.as_os_str().is_empty()),
        static_pod_dir: args.static_pod_path,
        cgroup_driver: match args.cgroup_driver {
            CgroupDriverArg::Cgroupfs => pintle_kubelet::CgroupDriver::Cgroupfs,
            CgroupDriverArg::Systemd => pintle_kubelet::CgroupDriver::Systemd,
        },
        register: args.register_node,
        labels: args.node_labels.into_iter().collect(),
        taints: args.register_with_taints,
        provider_id: args.provider_id.unwrap_or_default(),
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
    let (client, telemetry) = connect(&args.kubeconfig).await?;
    telemetry::DNS.serve(&telemetry, &client, None, &shutdown).await?;
    let config = pintle_dns::Config {
        domain: args.cluster_domain,
        listen: args.listen,
        resolv_conf: args.resolv_conf,
        ttl: addons::DNS_TTL,
        telemetry,
    };
    pintle_dns::run(config, client, shutdown).await
}

/// Runs a component, as the elected leader if it takes part in that; an error if leadership is lost.
async fn lead<F, R>(
    args: &ComponentArgs,
    name: &str,
    client: Client,
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

/// A client whose requests are counted in a component's own telemetry.
async fn connect(kubeconfig: &Path) -> anyhow::Result<(Client, Telemetry)> {
    let telemetry = Telemetry::with_process();
    let client = pintle_client::connect::from_kubeconfig_observed(kubeconfig, telemetry::requests(&telemetry)).await?;
    Ok((client, telemetry))
}

fn host() -> String {
    nix::unistd::gethostname().ok().and_then(|h| h.into_string().ok()).unwrap_or_default()
}
