//! `pintle server`: API server, controllers, scheduler and, unless disabled, a node, in one process. The components talk
//! to the API server through its in-process service, each as its own user.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};
use pintle_apiserver::access::UserInfo;
use pintle_apiserver::{ApiServer, Features};
use pintle_client::connect::Observed;
use pintle_serving::http::Listener;
use pintle_serving::telemetry::Telemetry;
use pintle_serving::tls::Tls;
use pintle_store::Store;
use tokio_util::sync::CancellationToken;

use crate::cli::{ApiserverArgs, DEFAULT_DATA_DIR, NetworkArgs, ServerArgs, ServiceNetworkArgs};
use crate::node::{self, Identity};
use crate::paths::Paths;
use crate::up::Status;
use crate::{addons, agent, storage, telemetry};
use pintle_host::pki::{self, Authority, Subject};
use pintle_host::process::Handle;

/// Time between two tries of something that may need another one.
const RETRY: Duration = Duration::from_secs(1);

/// The address plan with everything filled in.
#[derive(Clone, Debug)]
pub struct Network {
    /// Addresses of pods.
    pub cluster_cidr: IpNet,
    /// Addresses of Services.
    pub service_cidr: IpNet,
    /// Address of the cluster DNS Service.
    pub dns: IpAddr,
    /// DNS domain.
    pub domain: String,
}

impl Network {
    /// Fills in what was not given.
    pub fn new(args: &NetworkArgs) -> anyhow::Result<Self> {
        let dns = match args.cluster_dns {
            Some(ip) => ip,
            None => args.services.service_cidr.hosts().nth(9).context("the Service addresses are too few")?,
        };
        anyhow::ensure!(args.services.service_cidr.contains(&dns), "cluster DNS {dns} is no Service address");
        Ok(Self {
            cluster_cidr: args.cluster_cidr,
            service_cidr: args.services.service_cidr,
            dns,
            domain: args.services.cluster_domain.clone(),
        })
    }
}

/// The keys and certificates of a control plane.
struct ControlPlanePki {
    authority: Authority,
    tls: Tls,
    config: PkiConfig,
}

struct PkiConfig {
    service_account_key: Vec<u8>,
    kubelet_certificate: Vec<u8>,
    kubelet_key: Vec<u8>,
}

/// Where and under which names the API server is reached.
struct Reach<'a> {
    node_ip: IpAddr,
    port: u16,
    services: &'a ServiceNetworkArgs,
    names: &'a [String],
}

impl Reach<'_> {
    /// The name of the API server's Service.
    fn service(&self) -> String {
        format!("kubernetes.default.svc.{}", self.services.cluster_domain)
    }
}

fn control_plane_pki(paths: &Paths, reach: &Reach) -> anyhow::Result<ControlPlanePki> {
    let dir = paths.pki();
    let authority = Authority::ensure(&dir, "ca", "pintle-ca")?;
    let service = reach.service();
    let mut dns = vec!["kubernetes", "kubernetes.default", "kubernetes.default.svc", &service, "localhost"];
    let first = reach.services.service_cidr.hosts().next().context("the Service addresses are too few")?;
    let mut ips = vec![first, reach.node_ip, IpAddr::from([127, 0, 0, 1])];
    for name in reach.names {
        match name.parse() {
            Ok(ip) => ips.push(ip),
            Err(_) => dns.push(name),
        }
    }
    let serving = authority.ensure_pair(&dir, "apiserver", &Subject::server("kube-apiserver", &[], &dns, &ips)?)?;
    let kubelet = Subject::client("kube-apiserver-kubelet-client", &["system:masters"]);
    let kubelet = authority.ensure_pair(&dir, "apiserver-kubelet-client", &kubelet)?;
    let admin = Subject::client("kubernetes-admin", &["system:masters"]);
    let admin = authority.ensure_pair(&dir, "admin", &admin)?;
    let url = format!("https://127.0.0.1:{}", reach.port);
    let text = pki::kubeconfig(&url, authority.pem(), "admin", &admin)?;
    pki::write_private(&paths.kubeconfig(), text.as_bytes())?;
    let users = [
        ("scheduler", "system:kube-scheduler"),
        ("controller-manager", "system:kube-controller-manager"),
        ("proxy", "system:kube-proxy"),
    ];
    for (component, user) in users {
        let pair = authority.ensure_pair(&dir, component, &Subject::client(user, &[]))?;
        let text = pki::kubeconfig(&url, authority.pem(), user, &pair)?;
        pki::write_private(&paths.component_kubeconfig(component), text.as_bytes())?;
    }
    let tls = Tls::from_files(&serving.cert, &serving.key, Some(&dir.join("ca.crt")))?;
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let config = PkiConfig {
        service_account_key: read(&pki::ensure_signing_key(&dir)?)?,
        kubelet_certificate: read(&kubelet.cert)?,
        kubelet_key: read(&kubelet.key)?,
    };
    Ok(ControlPlanePki { authority, tls, config })
}

fn apiserver_config(
    store: Arc<dyn Store>,
    pki: &ControlPlanePki,
    reach: &Reach,
    features: Features,
) -> pintle_apiserver::Config {
    let ca = pki.authority.pem().as_bytes().to_vec();
    pintle_apiserver::Config {
        store,
        service_cidr: reach.services.service_cidr,
        node_ports: 30000..=32767,
        advertise_address: reach.node_ip,
        advertise_port: reach.port,
        // Also the audience that the API server takes.
        issuer: format!("https://{}", reach.service()),
        service_account_key: pki.config.service_account_key.clone(),
        service_account_verify_keys: Vec::new(),
        client_ca: Some(ca.clone()),
        cluster_ca: ca.clone(),
        static_tokens: Vec::new(),
        kubelet_client: Some(pintle_apiserver::KubeletClient {
            certificate: pki.config.kubelet_certificate.clone(),
            key: pki.config.kubelet_key.clone(),
            ca: Some(ca),
        }),
        features,
    }
}

/// A client into the API server of this process, as the given user.
fn client_as(server: &ApiServer, user: &str, groups: &[&str]) -> Client {
    let user = UserInfo::new(user, groups);
    let service = tower::ServiceBuilder::new()
        .map_request(move |mut request: http::Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        })
        .service(server.service());
    pintle_client::connect::from_service(service)
}

/// The same for a component whose requests are counted in telemetry of its own.
fn observed_client(server: &ApiServer, user: &str, groups: &[&str]) -> (Telemetry, Client) {
    let telemetry = Telemetry::with_process();
    let observer = telemetry::requests(&telemetry);
    let inner = server.service_as(UserInfo::new(user, groups));
    (telemetry, pintle_client::connect::from_service(Observed { inner, observer }))
}

/// `pintle apiserver`.
pub async fn run_apiserver(args: ApiserverArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let features = args.features.features()?;
    // Without a directory of its own a store in memory leaves nothing behind.
    let passing = args.store.in_memory() && args.data.data_dir == Path::new(DEFAULT_DATA_DIR);
    let temporary = passing.then(tempfile::tempdir).transpose()?;
    let paths = Paths::new(temporary.as_ref().map_or(args.data.data_dir.as_path(), |dir| dir.path()))?;
    let _claim = paths.claim()?;
    let listener = Listener::tcp(SocketAddr::new(args.bind_address, args.port)).await?;
    let node_ip = if args.bind_address.is_unspecified() { crate::net::default_ip() } else { args.bind_address };
    let reach = Reach { node_ip, port: args.port, services: &args.services, names: &args.tls_san };
    let pki = control_plane_pki(&paths, &reach)?;
    let begin = Instant::now();
    let server = ApiServer::build(apiserver_config(storage::open(&paths, &args.store)?, &pki, &reach, features))?;
    let ready = server.clone();
    let file = paths.kubeconfig();
    tokio::spawn(async move {
        ready.ready().await;
        tracing::info!(ms = begin.elapsed().as_millis(), kubeconfig = %file.display(), "API server ready");
    });
    server.serve(vec![listener], pki.tls, shutdown).await;
    Ok(())
}

/// `pintle server`.
pub async fn run(args: ServerArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    let paths = Paths::new(&args.data.data_dir)?;
    let _claim = paths.claim()?;
    let own = Handle::of(i32::try_from(std::process::id())?).context("finding this process")?;
    own.write(&paths.run("server.pid"))?;
    let outcome = serve(&args, &paths, shutdown.clone()).await;
    if let Err(error) = &outcome {
        let status = Status { error: Some(format!("{error:#}")), ..Status::read(&paths) };
        status.write(&paths)?;
    }
    outcome
}

async fn serve(args: &ServerArgs, paths: &Paths, shutdown: CancellationToken) -> anyhow::Result<()> {
    let begin = Instant::now();
    let features = args.features.features()?;
    Status::default().write(paths)?;
    let network = Network::new(&args.network)?;
    let listeners = vec![
        Listener::tcp(SocketAddr::new(args.bind_address, args.port)).await?,
        Listener::unix(&paths.run("api.sock"))?,
    ];
    let node_ip = node::ip(&args.node);
    let reach = Reach { node_ip, port: args.port, services: &args.network.services, names: &args.tls_san };
    let pki = control_plane_pki(paths, &reach)?;
    let token = agent::ensure_token(&paths.token(), &pki.authority.fingerprint()?)?;
    // The runtime starts while the API server does.
    let runtime = (!args.disable_node).then(|| {
        let (paths, args) = (paths.clone(), args.node.clone());
        tokio::spawn(async move { node::start_runtime(&paths, &args).await })
    });
    let server = ApiServer::build(apiserver_config(storage::open(paths, &args.store)?, &pki, &reach, features))?;
    let serving = tokio::spawn({
        let (server, tls, shutdown) = (server.clone(), pki.tls.clone(), shutdown.clone());
        async move { server.serve(listeners, tls, shutdown).await }
    });
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = server.ready() => {}
    }
    let mut status = Status { api_ms: Some(millis(begin)), ..Status::default() };
    status.write(paths)?;
    tracing::info!(ms = millis(begin), port = args.port, "API server ready");

    // What runs in this process must end before the API server does: its last writes go there.
    let components = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let admin = client_as(&server, "system:apiserver", &["system:masters"]);
    tasks.spawn(addons::run(addons::Config { network: network.clone(), token }, admin.clone(), components.clone()));
    start_control_plane(&mut tasks, &server, &pki, &network, &components).await;
    if let Some(runtime) = runtime {
        let identity = node_identity(paths, &pki.authority, args, node_ip)?;
        let runtime = runtime.await?.context("starting the container runtime")?;
        let name = node::name(&args.node);
        let clients = node::Clients {
            kubelet: client_as(&server, &format!("system:node:{name}"), &["system:nodes"]),
            proxy: client_as(&server, "system:kube-proxy", &[]),
            dns: client_as(&server, "system:kube-proxy", &[]),
        };
        let (home, node, plan, token) = (paths.clone(), args.node.clone(), args.network.clone(), components.clone());
        tasks.spawn(async move {
            if let Err(error) = node::run_with(runtime, &home, &node, &plan, identity, clients, token).await {
                tracing::error!(error = format!("{error:#}"), "node ended");
            }
        });
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = report(paths, &admin, &name, &network, &mut status, begin) => {}
        }
    }
    shutdown.cancelled().await;
    components.cancel();
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(5), drained).await.is_err() {
        tracing::warn!("some components did not end in time");
    }
    serving.await?;
    Ok(())
}

fn millis(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn start_control_plane(
    tasks: &mut tokio::task::JoinSet<()>,
    server: &ApiServer,
    pki: &ControlPlanePki,
    network: &Network,
    shutdown: &CancellationToken,
) {
    let ca = Some(pki.authority.pem().as_bytes().to_vec());
    let (telemetry, client) = observed_client(server, "system:kube-controller-manager", &["system:masters"]);
    telemetry::CONTROLLER_MANAGER.try_serve(&telemetry, &client, ca.clone(), shutdown).await;
    let controllers = pintle_controllers::Config {
        telemetry,
        root_ca: Some(pki.authority.pem().to_owned()),
        cluster_cidrs: vec![network.cluster_cidr.to_string()],
        signing: Some(pintle_controllers::config::Signing {
            certificate: pki.authority.pem().to_owned(),
            key: pki.authority.key_pem().to_owned(),
            duration: Duration::from_secs(365 * 86_400),
        }),
        ..pintle_controllers::Config::default()
    };
    // One user for all controllers, with every right: upstream gives each its own service account.
    tasks.spawn(forever("controller manager", shutdown.clone(), {
        let shutdown = shutdown.clone();
        move || pintle_controllers::run(controllers.clone(), client.clone(), shutdown.clone())
    }));
    let (telemetry, client) = observed_client(server, "system:kube-scheduler", &[]);
    telemetry::SCHEDULER.try_serve(&telemetry, &client, ca, shutdown).await;
    let scheduler = pintle_scheduler::Config { telemetry, ..pintle_scheduler::Config::default() };
    tasks.spawn(forever("scheduler", shutdown.clone(), {
        let shutdown = shutdown.clone();
        move || pintle_scheduler::run(scheduler.clone(), client.clone(), shutdown.clone())
    }));
}

/// Runs a component until `shutdown`, again after each failure.
pub async fn forever<F>(name: &'static str, shutdown: CancellationToken, start: impl Fn() -> F + Send)
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    while !shutdown.is_cancelled() {
        match start().await {
            Ok(()) if shutdown.is_cancelled() => return,
            Ok(()) => tracing::warn!(component = name, "ended, starting it again"),
            Err(error) => tracing::error!(component = name, error = format!("{error:#}"), "failed, starting it again"),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn node_identity(paths: &Paths, authority: &Authority, args: &ServerArgs, ip: IpAddr) -> anyhow::Result<Identity> {
    let name = node::name(&args.node);
    let user = format!("system:node:{name}");
    let client = authority.ensure_pair(&paths.pki(), "kubelet-client", &Subject::client(&user, &["system:nodes"]))?;
    let serving = Subject::server(&user, &["system:nodes"], &[&name], &[ip])?;
    let serving = authority.ensure_pair(&paths.pki(), "kubelet-serving", &serving)?;
    Ok(Identity { ca_pem: authority.pem().to_owned(), client, serving })
}

/// Writes into the status file when the node is Ready and when the cluster DNS answers.
async fn report(paths: &Paths, client: &Client, node: &str, network: &Network, status: &mut Status, begin: Instant) {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let ready = kube::runtime::wait::await_condition(nodes, node, |object: Option<&NodeObject>| {
        let conditions = object.and_then(|o| o.status.as_ref()).and_then(|s| s.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
    });
    match ready.await {
        Ok(object) => status.warning = object.and_then(|object| unschedulable(&object, paths)),
        Err(error) => tracing::warn!(%error, "not known whether the node is ready"),
    }
    status.node_ms = Some(millis(begin));
    write_status(status, paths);
    while !addons::dns_answers(network).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    status.dns_ms = Some(millis(begin));
    write_status(status, paths);
    tracing::info!(node_ms = status.node_ms, dns_ms = status.dns_ms, "node ready, cluster DNS answers");
}

/// Why a node that is ready takes no pods.
fn unschedulable(node: &NodeObject, paths: &Paths) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let short = conditions.iter().find(|c| c.status == "True" && c.type_.ends_with("Pressure"))?;
    let mut text = format!("the node takes no pods: {}", short.message.as_deref().unwrap_or(&short.type_));
    if short.type_ == "DiskPressure"
        && let Ok(disk) = nix::sys::statvfs::statvfs(paths.root())
    {
        let free = 100 * disk.blocks_available() / disk.blocks().max(1);
        text.push_str(&format!("; {free} % of the disk with {} are free", paths.root().display()));
    }
    Some(text)
}

fn write_status(status: &Status, paths: &Paths) {
    if let Err(error) = status.write(paths) {
        tracing::warn!(%error, "status file not written");
    }
}
