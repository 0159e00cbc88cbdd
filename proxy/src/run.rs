//! The shell: caches in, tables out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use pintle_client::cache::{Cache, Cached};
use pintle_serving::telemetry::Telemetry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::health::{self, Servers};
use crate::model::{Place, Portal, SERVICE_NAME, portals};
use crate::netns::{Error, Namespace};
use crate::ruleset::Settings;
use crate::script::Table;
use crate::sync::Syncer;
use crate::telemetry::Metrics;

/// Pause that gathers changes which come together.
const GATHER: Duration = Duration::from_millis(20);
/// How often the tables are looked after when nothing changes.
const VERIFY: Duration = Duration::from_secs(30);
/// The proxy is ill when the rules were not in order for this long.
const LATE: Duration = Duration::from_secs(90);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// What the proxy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name.
    pub node: String,
    /// Name of the tables, in each IP family.
    pub table: String,
    /// Serve IPv6 as well.
    pub ipv6: bool,
    /// Addresses of all pods, one range a family.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of this node's pods, one range a family; if empty, the node's `spec.podCIDRs`.
    pub pod_cidrs: Vec<IpNet>,
    /// Masquerade traffic of pods that leaves the cluster.
    pub masquerade_pods: bool,
    /// Destinations that pods reach with their own address all the same.
    pub no_masquerade: Vec<IpNet>,
    /// Masquerade all service traffic.
    pub masquerade_all: bool,
    /// Node ports answer on 127.0.0.1 too.
    pub localhost_node_ports: bool,
    /// Node ports answer on these addresses only; empty for all addresses of the node.
    pub node_port_addresses: Vec<IpNet>,
    /// Serve `healthCheckNodePort`s.
    pub health_checks: bool,
    /// The bit of the packet mark that says "masquerade".
    pub mark: u32,
    /// The network namespace's file; the process's own namespace if there is none.
    pub netns: Option<PathBuf>,
    /// Where it tells about itself.
    pub telemetry: Telemetry,
}

impl Config {
    /// The usual settings for a node.
    pub fn new(node: impl Into<String>) -> Config {
        Config {
            node: node.into(),
            table: "pintle".to_owned(),
            ipv6: false,
            cluster_cidrs: Vec::new(),
            pod_cidrs: Vec::new(),
            masquerade_pods: false,
            no_masquerade: Vec::new(),
            masquerade_all: false,
            localhost_node_ports: true,
            node_port_addresses: Vec::new(),
            health_checks: true,
            mark: 0x4000,
            netns: None,
            telemetry: Telemetry::default(),
        }
    }

    fn families(&self) -> impl Iterator<Item = bool> {
        [false, true].into_iter().take(if self.ipv6 { 2 } else { 1 })
    }

    fn table(&self, v6: bool) -> Table {
        Table { v6, name: self.table.clone() }
    }

    fn settings(&self, v6: bool, pod_cidrs: &[IpNet]) -> Settings {
        let own = |net: &&IpNet| matches!(net, IpNet::V6(_)) == v6;
        Settings {
            v6,
            cluster_cidr: self.cluster_cidrs.iter().find(own).copied(),
            masquerade_pods: pod_cidrs.iter().find(own).copied().filter(|_| self.masquerade_pods),
            no_masquerade: self.no_masquerade.iter().filter(own).copied().collect(),
            masquerade_all: self.masquerade_all,
            localhost_node_ports: self.localhost_node_ports,
            node_port_addresses: self.node_port_addresses.iter().filter(own).copied().collect(),
            mark: self.mark,
        }
    }
}

/// Removes the tables of this name from the process's own network namespace; what can't be removed is logged.
pub async fn cleanup(table: &str) {
    if let Err(error) = cleanup_in(table, &Namespace::default()).await {
        warn!(table, %error, "cannot remove the rules");
    }
}

/// Removes the tables of this name.
///
/// # Errors
/// If nft can't be run.
pub async fn cleanup_in(table: &str, namespace: &Namespace) -> Result<(), Error> {
    let tables = [false, true].map(|v6| Table { v6, name: table.to_owned() });
    for table in &tables {
        namespace.nft(&table.remove()).await?;
    }
    Ok(())
}

/// Serves Services until told to stop. The rules stay when it ends: connections outlive a restart.
///
/// # Errors
/// None at present: whatever fails is retried.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> anyhow::Result<()> {
    let metrics = Metrics::new(&config.telemetry, LATE);
    let wake = Arc::new(Notify::new());
    let not_headless = watcher::Config::default().labels("!service.kubernetes.io/headless");
    let own_node = watcher::Config::default().fields(&format!("metadata.name={}", config.node));
    let services: Cache<Service> = start(&client, watcher::Config::default(), &wake, &shutdown);
    let slices: Cache<EndpointSlice> = start(&client, not_headless, &wake, &shutdown);
    let nodes: Cache<Node> = start(&client, own_node, &wake, &shutdown);
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        _ = async { tokio::join!(services.synced(), slices.synced(), nodes.synced()) } => {}
    }
    metrics.informers_synced();
    let mut proxy = Proxy::new(config, metrics, shutdown.clone());
    proxy.prepare().await;
    info!(node = proxy.config.node, "service proxy runs");
    loop {
        let pause = if proxy.sync(&services, &slices, &nodes).await { VERIFY } else { RETRY };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = wake.notified() => {}
            () = tokio::time::sleep(pause) => proxy.verify().await,
        }
        proxy.metrics.queued(proxy.config.families());
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = tokio::time::sleep(GATHER) => {}
        }
    }
}

fn start<K: Cached>(
    client: &Client,
    config: watcher::Config,
    wake: &Arc<Notify>,
    shutdown: &CancellationToken,
) -> Cache<K> {
    let cache = Cache::start(Api::all(client.clone()), config, shutdown.clone());
    let wake = wake.clone();
    cache.on_change(shutdown.clone(), move |_| wake.notify_one());
    cache
}

struct Proxy {
    config: Config,
    metrics: Metrics,
    namespace: Namespace,
    syncers: Vec<(Settings, Syncer)>,
    servers: Servers,
    shutdown: CancellationToken,
}

impl Proxy {
    fn new(config: Config, metrics: Metrics, shutdown: CancellationToken) -> Proxy {
        let namespace = Namespace { path: config.netns.clone() };
        Proxy { config, metrics, namespace, syncers: Vec::new(), servers: Servers::default(), shutdown }
    }

    /// Lets packets with a loopback source leave for pods, if node ports are to answer there.
    async fn prepare(&self) {
        let mut settings = vec![("ipv4/ip_forward", "1")];
        if self.config.localhost_node_ports {
            settings.push(("ipv4/conf/all/route_localnet", "1"));
        }
        if self.config.ipv6 {
            settings.push(("ipv6/conf/all/forwarding", "1"));
        }
        for (name, value) in settings {
            let command = format!("echo {value} > /proc/sys/net/{name}");
            if let Err(error) = self.namespace.run("sh", &["-c", &command], "").await {
                warn!(setting = name, %error, "cannot set a kernel parameter");
            }
        }
    }

    async fn verify(&mut self) {
        for (_, syncer) in &mut self.syncers {
            syncer.verify().await;
        }
    }

    /// One table a family; a new one is begun when the settings change.
    fn arrange(&mut self, node: Option<&Node>) {
        let assigned = node.and_then(|n| n.spec.as_ref()).and_then(|s| s.pod_cidrs.clone()).unwrap_or_default();
        let assigned: Vec<IpNet> = assigned.iter().filter_map(|c| c.parse().ok()).collect();
        let pods = if self.config.pod_cidrs.is_empty() { assigned } else { self.config.pod_cidrs.clone() };
        for (at, v6) in self.config.families().enumerate() {
            let settings = self.config.settings(v6, &pods);
            let make = || Syncer::new(self.config.table(v6), settings.clone(), self.namespace.clone());
            match self.syncers.get_mut(at) {
                Some((old, _)) if *old == settings => {}
                Some((old, syncer)) => {
                    syncer.adopt(settings.clone());
                    *old = settings;
                }
                None => self.syncers.push((settings.clone(), make())),
            }
        }
    }

    async fn sync(&mut self, services: &Cache<Service>, slices: &Cache<EndpointSlice>, nodes: &Cache<Node>) -> bool {
        let node = nodes.get(None, &self.config.node);
        self.arrange(node.as_deref());
        let labels = node.as_ref().and_then(|n| n.metadata.labels.as_ref());
        let zone = labels.and_then(|l| l.get("topology.kubernetes.io/zone")).cloned();
        let place = Place { node: self.config.node.clone(), zone };
        let (services, slices) = (services.list(), by_service(&slices.list()));
        let mut all = Vec::new();
        let mut good = true;
        for (settings, syncer) in &mut self.syncers {
            let portals = collect(&services, &slices, &place, settings.v6);
            all.extend(portals.iter().filter(|p| p.health_check_port.is_some()).cloned());
            let (ports, begin) = (portals.len(), Instant::now());
            let outcome = syncer.sync(portals).await;
            self.metrics.synced(settings.v6, ports, begin.elapsed(), outcome.is_ok());
            if let Err(error) = outcome {
                tracing::error!(%error, "cannot write the rules");
                good = false;
            }
        }
        if good {
            self.metrics.in_order();
        }
        if self.config.health_checks {
            self.servers.set(health::wanted(&all), &self.namespace, &self.shutdown).await;
        }
        good
    }
}

type Slices = HashMap<(String, String), Vec<Arc<EndpointSlice>>>;

fn by_service(slices: &[Arc<EndpointSlice>]) -> Slices {
    let mut out = Slices::new();
    for slice in slices {
        let meta = slice.meta();
        if let Some(name) = meta.labels.as_ref().and_then(|l| l.get(SERVICE_NAME)) {
            out.entry((meta.namespace.clone().unwrap_or_default(), name.clone())).or_default().push(slice.clone());
        }
    }
    out
}

fn collect(services: &[Arc<Service>], slices: &Slices, place: &Place, v6: bool) -> Vec<Portal> {
    let mut out = Vec::new();
    for service in services {
        let meta = service.meta();
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let own = slices.get(&key).into_iter().flatten().map(AsRef::as_ref);
        out.extend(portals(service, own, place, v6));
    }
    out
}
