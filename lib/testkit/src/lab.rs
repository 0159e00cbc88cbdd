//! A lab: up and down.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt};
use pintle_cri::archive;
use pintle_host::{cgroup, owned};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::control_plane::ControlPlane;
use crate::machine::{self, Daemon, Machine};
use crate::network::{self, Network};
use crate::node::{self, Plan};
use crate::{objects, wait};

/// Port of the API server.
pub const API_PORT: u16 = 6443;
/// Addresses of pods.
pub const CLUSTER_CIDR: &str = "10.42.0.0/16";
/// Addresses of Services.
pub const SERVICE_CIDR: &str = "10.43.0.0/16";
/// Address of the API server's Service.
pub const SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 1);
/// Address of the cluster DNS Service.
pub const CLUSTER_DNS: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 10);
/// Address of the control plane's machine.
const CONTROL_PLANE_IP: Ipv4Addr = Ipv4Addr::new(172, 31, 78, 10);
/// Port of the registry on it.
const REGISTRY_PORT: u16 = 5000;
/// How long nodes may take: loading images into them is most of it, on a machine that has other things to do.
const NODE_LIMIT: Duration = Duration::from_secs(300);
/// Names of all labs' network namespaces begin so.
const TAG: &str = "lab";

/// Whose programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Pintle,
    /// Upstream's, built from their Go modules.
    Upstream,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Folder with everything of the lab; see [`Spec::new`].
    pub dir: PathBuf,
    /// How many nodes.
    pub nodes: u8,
    /// Whose control plane.
    pub control_plane: Kind,
    /// Whose nodes.
    pub nodes_are: Kind,
    /// The `pintle` binary.
    pub pintle: PathBuf,
    /// Folder with upstream's programs.
    pub upstream: Option<PathBuf>,
    /// Folder with a containerd other than the one on the PATH.
    pub containerd_dir: Option<PathBuf>,
    /// Image archives or OCI layout folders: loaded into the nodes, and served by a registry that stands for all others.
    pub images: Vec<PathBuf>,
    /// Further arguments of `pintle server`.
    pub server_args: Vec<String>,
    /// Further arguments of `pintle agent`.
    pub agent_args: Vec<String>,
}

impl Spec {
    /// A control plane and two nodes of ours in a folder that is made, and that [`down`] removes with all its content.
    pub fn new(dir: &Path, pintle: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            dir: std::path::absolute(dir)?,
            nodes: 2,
            control_plane: Kind::Pintle,
            nodes_are: Kind::Pintle,
            pintle: std::path::absolute(pintle)?,
            upstream: None,
            containerd_dir: None,
            images: Vec::new(),
            server_args: Vec::new(),
            agent_args: Vec::new(),
        })
    }

    /// One of upstream's programs.
    pub fn upstream(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.upstream.as_ref().context("a folder with upstream's programs is needed")?;
        let path = dir.join(name);
        anyhow::ensure!(path.exists(), "{} is missing: conformance/upstream/build makes it", path.display());
        Ok(path)
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(nix::unistd::geteuid().is_root(), "a lab needs root: namespaces, mounts and control groups");
        anyhow::ensure!((1..=100).contains(&self.nodes), "a lab has 1 to 100 nodes");
        anyhow::ensure!(self.pintle.exists(), "{} is missing: cargo build -p pintle", self.pintle.display());
        for path in self.images.iter().chain(&self.containerd_dir) {
            anyhow::ensure!(path.exists(), "{} is missing", path.display());
        }
        let servers = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        for name in servers.iter().filter(|_| self.control_plane == Kind::Upstream) {
            self.upstream(name)?;
        }
        for name in ["kubelet", "kube-proxy"].iter().filter(|_| self.nodes_are == Kind::Upstream) {
            self.upstream(name)?;
        }
        anyhow::ensure!(
            self.nodes_are == Kind::Pintle || !self.images.is_empty(),
            "upstream's nodes need images, the sandbox's at least"
        );
        Ok(())
    }
}

/// What a lab has made beside its folder, processes and namespaces.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    cgroups: Vec<String>,
    folders: Vec<PathBuf>,
}

impl State {
    fn file(dir: &Path) -> PathBuf {
        dir.join("lab.json")
    }

    fn read(dir: &Path) -> Self {
        std::fs::read(Self::file(dir)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn write(&self, dir: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(Self::file(dir), serde_json::to_vec(self)?)?)
    }
}

/// A running lab. It goes on when this is dropped; [`down`] ends it.
pub struct Lab {
    dir: PathBuf,
    network: Network,
    machines: Vec<Machine>,
    daemons: Vec<Daemon>,
}

impl Lab {
    /// The administrator's kubeconfig; the API server is reached from within [`Lab::namespace`].
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Network namespace of the control plane.
    pub fn namespace(&self) -> String {
        self.network.namespace("cp")
    }

    /// Runs something with a client in the control plane's network namespace.
    pub async fn with_client<T, F>(&self, work: impl FnOnce(Client) -> F + Send + 'static) -> anyhow::Result<T>
    where
        F: Future<Output = anyhow::Result<T>>,
        T: Send + 'static,
    {
        let kubeconfig = self.kubeconfig();
        network::within(&self.namespace(), move || async move {
            work(pintle_client::connect::from_kubeconfig(&kubeconfig).await?).await
        })
        .await
    }

    /// An error if one of the lab's programs has ended.
    pub fn check(&self) -> anyhow::Result<()> {
        self.daemons.iter().try_for_each(Daemon::check)
    }
}

/// Starts a lab and waits until its nodes are Ready. What fails is taken down; the logs stay.
pub async fn up(spec: &Spec, say: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Lab> {
    spec.check()?;
    anyhow::ensure!(!State::file(&spec.dir).exists(), "there is a lab in {} already", spec.dir.display());
    // What is in it goes with the lab.
    owned::make(&spec.dir)?;
    let begin = Instant::now();
    let say = |text: &str| say(&format!("{:6.1} s  {text}", begin.elapsed().as_secs_f64()));
    let outcome = tokio::select! {
        outcome = start(spec, &say) => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(lab) => Ok(lab),
        Err(error) => {
            remove(&spec.dir, true).await.context("taking down a lab that did not start")?;
            Err(error.context(format!("the lab did not start; logs: {}", spec.dir.join("log").display())))
        }
    }
}

/// Ends a lab and removes all that it left.
pub async fn down(dir: &Path) -> anyhow::Result<()> {
    let dir = std::path::absolute(dir)?;
    anyhow::ensure!(owned::is_ours(&dir), "{} is no lab's folder", dir.display());
    remove(&dir, false).await
}

/// INT or TERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}

/// A name for kernel objects that is the lab's alone: its network namespaces' names begin so.
pub fn tag(dir: &Path) -> String {
    let digest = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    format!("{TAG}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2])
}

async fn start(spec: &Spec, say: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Lab> {
    let tag = tag(&spec.dir);
    prepare(spec, &tag).await?;
    let network = Network::new(&tag);
    network.create().await?;
    let mut machines = Vec::new();
    let nodes = (0..spec.nodes).map(|n| (format!("n{}", n + 1), node::address(n), Some(CONTROL_PLANE_IP)));
    for (name, ip, gateway) in std::iter::once(("cp".to_owned(), CONTROL_PLANE_IP, None)).chain(nodes) {
        network.attach(&name, ip, gateway).await?;
        machines.push(Machine::start(&spec.dir, &network, &name, ip).await?);
    }
    say("machines and network");
    let mut lab = Lab { dir: spec.dir.clone(), network, machines, daemons: Vec::new() };
    let registries = start_registry(spec, &mut lab)?;
    let control_plane = ControlPlane::start(spec, &lab.machines[0]).await?;
    lab.daemons.extend(control_plane.daemons.iter().cloned());
    let admin = control_plane.kubeconfig("admin", "kubernetes-admin", &["system:masters"])?;
    std::fs::copy(admin, lab.kubeconfig())?;
    std::fs::write(spec.dir.join("netns"), lab.namespace())?;
    api_ready(&lab).await?;
    say("API server ready");
    if spec.control_plane == Kind::Upstream {
        let nodes: Vec<_> = lab.machines[1..].iter().map(|m| (node::node_name(m), m.ip())).collect();
        lab.with_client(|client| async move { objects::apply(&client, objects::cluster(CLUSTER_DNS, &nodes)).await })
            .await?;
    }
    let starts = lab.machines[1..].iter().map(|machine| {
        let cgroup = cgroup_of(&tag, machine.name());
        let (control_plane, registries) = (&control_plane, &registries);
        async move { Plan { spec, machine, control_plane, registries, cgroup: &cgroup }.start().await }
    });
    let started: Vec<Vec<Daemon>> = futures::future::try_join_all(starts).await?;
    lab.daemons.extend(started.into_iter().flatten());
    say("nodes started");
    connect_pods(spec, &lab).await?;
    nodes_ready(&lab).await?;
    say("nodes Ready");
    Ok(lab)
}

/// Writes down what will have to be removed, and makes the folders that machines mount their own over.
async fn prepare(spec: &Spec, tag: &str) -> anyhow::Result<()> {
    // Logs of an earlier lab that did not start.
    let _ = std::fs::remove_dir_all(spec.dir.join("log"));
    let mut state = State::default();
    for n in 1..=spec.nodes {
        let name = format!("n{n}");
        state.cgroups.push(cgroup_of(tag, &name));
        let data = spec.dir.join(&name).join("data");
        let data = data.to_str().context("the folder's name is not UTF-8")?;
        let pintle = spec.pintle.to_str().context("the binary's name is not UTF-8")?;
        let id = pintle_host::process::run(pintle, &["id", "--data-dir", data]).await?;
        state.cgroups.push(id.trim().to_owned());
    }
    for folder in machine::OWN_FOLDERS.iter().map(Path::new) {
        let missing = folder.ancestors().take_while(|path| !path.exists());
        state.folders.extend(missing.map(Path::to_owned));
    }
    state.write(&spec.dir)?;
    for folder in machine::OWN_FOLDERS {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {folder}"))?;
    }
    Ok(())
}

fn cgroup_of(tag: &str, machine: &str) -> String {
    format!("{tag}-{machine}")
}

/// Starts the registry if there are images, and tells containerd to go there whatever the registry's name: what is not
/// there does not exist.
fn start_registry(spec: &Spec, lab: &mut Lab) -> anyhow::Result<PathBuf> {
    let registries = spec.dir.join("registries");
    std::fs::create_dir_all(&registries)?;
    if spec.images.is_empty() {
        return Ok(registries);
    }
    let machine = &lab.machines[0];
    let listen = format!("{}:{REGISTRY_PORT}", machine.ip());
    let mut command = machine.command(&spec.pintle);
    command.args(["conformance", "registry", "--listen", &listen]);
    for (n, images) in spec.images.iter().enumerate() {
        let mut layout = images.clone();
        if images.is_file() {
            layout = spec.dir.join("images").join(n.to_string());
            let file = std::fs::File::open(images).with_context(|| format!("opening {}", images.display()))?;
            archive::unpack(file, &layout).with_context(|| format!("unpacking {}", images.display()))?;
        }
        command.arg(layout);
    }
    lab.daemons.push(machine.spawn("registry", command)?);
    let hosts =
        format!("server = \"http://{listen}\"\n[host.\"http://{listen}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    let folder = registries.join("_default");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("hosts.toml"), hosts)?;
    Ok(registries)
}

async fn api_ready(lab: &Lab) -> anyhow::Result<()> {
    wait::until("the API server is ready", Duration::from_secs(90), || async {
        // A program that has ended will not become ready.
        let ended = lab.check().err();
        let asked = lab
            .with_client(|client| async move {
                let request = http_get("/readyz")?;
                Ok(client.request_text(request).await?)
            })
            .await;
        match (ended, asked) {
            (Some(error), _) => Ok(Some(Err(error))),
            (None, Ok(_)) => Ok(Some(Ok(()))),
            (None, Err(error)) => Err(error),
        }
    })
    .await?
}

fn http_get(path: &str) -> anyhow::Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// Routes the nodes' pod addresses: on the control plane's machine in any case (it reaches webhooks and further API
/// servers by pod address), between nodes where they do not do it themselves.
async fn connect_pods(spec: &Spec, lab: &Lab) -> anyhow::Result<()> {
    for machine in &lab.machines[1..] {
        let cidr = pod_cidr(lab, node::node_name(machine)).await?;
        if spec.nodes_are == Kind::Upstream {
            node::write_cni(machine, &cidr)?;
        }
        for other in lab.machines.iter().filter(|other| other.name() != machine.name()) {
            if other.name() == "cp" || spec.nodes_are == Kind::Upstream {
                lab.network.route(other.name(), &cidr, machine.ip()).await?;
            }
        }
    }
    Ok(())
}

async fn pod_cidr(lab: &Lab, node: String) -> anyhow::Result<String> {
    let what = format!("pod addresses of {node}");
    let look = |nodes: Vec<Node>| {
        let own = nodes.into_iter().find(|n| n.name_any() == node);
        own.and_then(|node| node.spec?.pod_cidr)
    };
    observe(lab, &what, look).await
}

async fn nodes_ready(lab: &Lab) -> anyhow::Result<()> {
    let wanted = lab.machines.len() - 1;
    observe(lab, "all nodes Ready", |nodes| {
        let ready = nodes.iter().filter(|node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
        });
        (ready.count() >= wanted).then_some(())
    })
    .await
}

/// Looks at the nodes until there is an answer; gives up when one of the lab's programs ends.
async fn observe<T>(lab: &Lab, what: &str, look: impl Fn(Vec<Node>) -> Option<T>) -> anyhow::Result<T> {
    let look = &look;
    wait::until(what, NODE_LIMIT, || async move {
        if let Err(ended) = lab.check() {
            return Ok(Some(Err(ended)));
        }
        let nodes = lab
            .with_client(|client| async move { Ok(Api::<Node>::all(client).list(&Default::default()).await?.items) });
        Ok(look(nodes.await?).map(Ok))
    })
    .await?
}

async fn remove(dir: &Path, keep_logs: bool) -> anyhow::Result<()> {
    let state = State::read(dir);
    machine::kill_all(&dir.join("run")).await?;
    Network::new(&tag(dir)).remove().await?;
    let groups = || state.cgroups.iter().flat_map(|name| cgroup::dirs(name)).collect::<Vec<_>>();
    wait::until_true("the control groups are empty", Duration::from_secs(10), || {
        groups().iter().for_each(|group| cgroup::remove(group));
        groups().is_empty()
    })
    .await?;
    if network::namespaces(TAG).is_empty() {
        // No other lab that has its own folders mounted there. What holds something is somebody else's by now.
        for folder in &state.folders {
            let _ = std::fs::remove_dir(folder);
        }
    }
    match keep_logs {
        true => owned::clear(dir, &["log"]),
        false => owned::remove(dir),
    }
}
