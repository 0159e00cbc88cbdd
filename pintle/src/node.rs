//! A node: container runtime, kubelet, service proxy, cluster DNS and pod network of one machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};
use pintle_client::cache::Cache;
use pintle_serving::telemetry::{Beat, Telemetry};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::{NetworkArgs, NodeArgs};
use crate::containerd::Containerd;
use crate::paths::Paths;
use crate::routes::{self, Routes};
use crate::server::{Network, forever};
use crate::{addons, image, kernel, net, telemetry};
use pintle_host::pki::Pair;

/// Pause before routes that could not be set are tried again.
const RETRY_ROUTES: Duration = Duration::from_secs(5);

/// Who the node is.
pub struct Identity {
    /// The cluster's authority, PEM.
    pub ca_pem: String,
    /// Certificate towards the API server.
    pub client: Pair,
    /// Certificate of the kubelet's port.
    pub serving: Pair,
}

/// How the parts of the node reach the API server.
pub struct Clients {
    /// As the node.
    pub kubelet: Client,
    /// As the service proxy.
    pub proxy: Client,
    /// As the cluster DNS.
    pub dns: Client,
}

/// The node's name: as given, else the machine's host name.
pub fn name(args: &NodeArgs) -> String {
    args.node_name.clone().unwrap_or_else(|| {
        let host = nix::unistd::gethostname().ok().and_then(|h| h.into_string().ok()).unwrap_or_default();
        if host.is_empty() { "node".to_owned() } else { host.to_ascii_lowercase() }
    })
}

/// The node's address: as given, else the one of the default route.
pub fn ip(args: &NodeArgs) -> IpAddr {
    args.node_ip.unwrap_or_else(net::default_ip)
}

/// A container runtime that answers and has the images that were asked for.
pub struct Runtime {
    endpoint: String,
    /// Kept running by this process, unless it is somebody else's.
    own: Option<Containerd>,
}

/// Starts (or adopts) the container runtime and loads images into it.
pub async fn start_runtime(paths: &Paths, args: &NodeArgs) -> anyhow::Result<Runtime> {
    kernel::prepare(Some(&paths.kernel_settings()))?;
    if let Some(socket) = &args.container_runtime_endpoint {
        return Ok(Runtime { endpoint: format!("unix://{}", socket.display()), own: None });
    }
    let own = Containerd::start(paths, &args.runtime).await?;
    let (socket, programs, archives) = (paths.cri_socket(), own.programs().clone(), args.runtime.image.clone());
    tokio::task::spawn_blocking(move || image::load(&socket, &programs, &archives)).await??;
    Ok(Runtime { endpoint: format!("unix://{}", paths.cri_socket().display()), own: Some(own) })
}

/// Runs a node until `shutdown`.
pub async fn run(
    paths: &Paths,
    args: &NodeArgs,
    network: &NetworkArgs,
    identity: Identity,
    clients: Clients,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let runtime = start_runtime(paths, args).await.context("starting the container runtime")?;
    run_with(runtime, paths, args, network, identity, clients, shutdown).await
}

/// Runs a node on a runtime that is there already.
pub async fn run_with(
    runtime: Runtime,
    paths: &Paths,
    args: &NodeArgs,
    network: &NetworkArgs,
    identity: Identity,
    clients: Clients,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let network = Network::new(network)?;
    let routes = Routes::read(&paths.routes())?;
    let mut parts = tokio::task::JoinSet::new();
    if let Some(own) = runtime.own {
        parts.spawn(own.supervise(shutdown.clone()));
    }
    let (pod_cidrs, known) = watch::channel(Vec::new());
    let kubelet = kubelet_config(paths, args, &network, &runtime.endpoint, &identity, pod_cidrs)?;
    let client = clients.kubelet.clone();
    let success = kubelet.telemetry.success("pod-routes");
    parts.spawn(forever("kubelet", shutdown.clone(), {
        let shutdown = shutdown.clone();
        move || pintle_kubelet::run(kubelet.clone(), client.clone(), shutdown.clone())
    }));
    let pods = PodNetwork { paths: paths.clone(), own: name(args), routes, success };
    parts.spawn(pods.run(known, clients.proxy.clone(), shutdown.clone()));
    let telemetry = Telemetry::with_process();
    telemetry::PROXY.try_serve(&telemetry, &clients.proxy, None, &shutdown).await;
    let proxy = pintle_proxy::Config {
        table: paths.id(),
        telemetry,
        cluster_cidrs: vec![network.cluster_cidr],
        masquerade_pods: true,
        no_masquerade: vec![network.cluster_cidr, network.service_cidr],
        ..pintle_proxy::Config::new(name(args))
    };
    parts.spawn(forever("proxy", shutdown.clone(), {
        let shutdown = shutdown.clone();
        move || pintle_proxy::run(proxy.clone(), clients.proxy.clone(), shutdown.clone())
    }));
    let telemetry = Telemetry::with_process();
    telemetry::DNS.try_serve(&telemetry, &clients.dns, None, &shutdown).await;
    let dns = pintle_dns::Config {
        telemetry,
        domain: network.domain.clone(),
        listen: vec![SocketAddr::new(ip(args), addons::DNS_PORT)],
        resolv_conf: Some("/etc/resolv.conf".into()),
        ttl: addons::DNS_TTL,
    };
    parts.spawn(forever("dns", shutdown.clone(), {
        let shutdown = shutdown.clone();
        move || pintle_dns::run(dns.clone(), clients.dns.clone(), shutdown.clone())
    }));
    while parts.join_next().await.is_some() {}
    Ok(())
}

fn kubelet_config(
    paths: &Paths,
    args: &NodeArgs,
    network: &Network,
    endpoint: &str,
    identity: &Identity,
    pod_cidrs: watch::Sender<Vec<String>>,
) -> anyhow::Result<pintle_kubelet::Config> {
    let mut labels: BTreeMap<String, String> = BTreeMap::from([(addons::DNS_LABEL.to_owned(), "true".to_owned())]);
    labels.extend(args.node_label.iter().cloned());
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    Ok(pintle_kubelet::Config {
        telemetry: Telemetry::with_process(),
        root_dir: paths.kubelet(),
        pod_logs_dir: paths.pod_logs(),
        cgroup_root: format!("/{}", paths.id()),
        cluster_dns: vec![network.dns],
        cluster_domain: network.domain.clone(),
        resolv_conf: Some("/etc/resolv.conf".into()),
        pod_cidrs: Some(pod_cidrs),
        static_pod_dir: Some(paths.static_pods()),
        port: args.kubelet_port,
        labels,
        server: Some(pintle_kubelet::ServerTls {
            certificate: read(&identity.serving.cert)?,
            key: read(&identity.serving.key)?,
            client_ca: identity.ca_pem.clone().into_bytes(),
        }),
        ..pintle_kubelet::Config::new(&name(args), ip(args), endpoint)
    })
}

/// The pod network: CNI as soon as this node's pod addresses are known, routes to the other nodes' pods.
struct PodNetwork {
    paths: Paths,
    /// Name of this node.
    own: String,
    routes: Routes,
    success: Beat,
}

impl PodNetwork {
    async fn run(mut self, mut known: watch::Receiver<Vec<String>>, client: Client, shutdown: CancellationToken) {
        let nodes: Cache<NodeObject> = Cache::start(Api::all(client), Default::default(), shutdown.clone());
        let mut changes = nodes.subscribe();
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = nodes.synced() => {}
        }
        loop {
            let good = self.routes.bring(&routes::wanted(&nodes.list(), &self.own), routes::make).await;
            if good {
                self.success.now();
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                changed = known.changed() => {
                    if changed.is_err() {
                        // The kubelet is being started again; it tells anew through the same channel or not at all.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                    let cidrs = known.borrow_and_update().clone();
                    self.configure(&cidrs);
                }
                change = changes.recv() => {
                    if change.is_none() {
                        return;
                    }
                }
                () = tokio::time::sleep(RETRY_ROUTES), if !good => {}
            }
        }
    }

    fn configure(&self, cidrs: &[String]) {
        if let Some(cidr) = cidrs.iter().find_map(|c| c.parse::<IpNet>().ok())
            && let Err(error) = net::write_cni(&self.paths, &cidr)
        {
            tracing::error!(error = format!("{error:#}"), "pod network not configured");
        }
    }
}
