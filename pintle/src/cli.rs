//! The command line.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Taint;
use pintle_apiserver::features::{FeatureError, Features};

use crate::storage::StoreArgs;
use crate::storage::commands::{SnapshotCommand, StoreCommand};

/// Where a cluster lives unless told otherwise.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/pintle";

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "pintle", version, disable_help_subcommand = true)]
pub struct Cli {
    /// Log filter, e.g. `info`, `debug`, `pintle_kubelet=debug,info`.
    #[arg(long, global = true, env = "PINTLE_LOG", default_value = "info")]
    pub log: String,
    /// Log lines as JSON.
    #[arg(long, global = true)]
    pub log_json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a single-node cluster in the background and wait until it is usable.
    Up(UpArgs),
    /// Stop the cluster started by `up`; its data stays.
    Down(DownArgs),
    /// Run the control plane (and, unless told otherwise, a node) in the foreground.
    Server(ServerArgs),
    /// Run a worker node that joins a server.
    Agent(AgentArgs),
    /// Run the API server alone.
    Apiserver(ApiserverArgs),
    /// Copies of a cluster's store.
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Work on stores that no server uses.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Run the scheduler alone, against any API server.
    Scheduler(ComponentArgs),
    /// Run the controller manager alone, against any API server.
    ControllerManager(ControllerManagerArgs),
    /// Run the service proxy alone, against any API server.
    Proxy(ProxyArgs),
    /// Run the kubelet alone, against any API server and CRI runtime.
    Kubelet(KubeletArgs),
    /// Run the cluster DNS alone, against any API server.
    Dns(DnsArgs),
    /// Judge a cluster by upstream's own tests and binaries.
    #[command(subcommand)]
    Conformance(pintle_conformance::Command),
    /// Print the name of the cluster's kernel objects: network namespace, cgroup, nftables table.
    Id(DataArgs),
    /// Relay a loopback port to the API server's socket of an isolated cluster.
    #[command(hide = true)]
    Forward(ForwardArgs),
}

/// Where the cluster lives.
#[derive(Args, Clone, Debug)]
pub struct DataArgs {
    /// Directory with everything of this cluster.
    #[arg(long, env = "PINTLE_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
}

/// What an API server needs to know of the address plan.
#[derive(Args, Clone, Debug)]
pub struct ServiceNetworkArgs {
    /// Addresses of Services.
    #[arg(long, default_value = "10.43.0.0/16")]
    pub service_cidr: IpNet,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
}

/// The address plan.
#[derive(Args, Clone, Debug)]
pub struct NetworkArgs {
    /// Addresses of pods; each node gets a /24 of it.
    #[arg(long, default_value = "10.42.0.0/16")]
    pub cluster_cidr: IpNet,
    /// Services and DNS names.
    #[command(flatten)]
    pub services: ServiceNetworkArgs,
    /// Address of the cluster DNS Service; the tenth of the Service addresses by default.
    #[arg(long)]
    pub cluster_dns: Option<IpAddr>,
}

impl Default for NetworkArgs {
    fn default() -> Self {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            network: NetworkArgs,
        }
        Alone::parse_from([""]).network
    }
}

/// What the API server serves beyond, or short of, the defaults; in upstream's words.
#[derive(Args, Clone, Debug, Default)]
pub struct FeatureArgs {
    /// Versions and resources of the API to serve or not: `api/all=true`, `api/beta=true`, `GROUP/VERSION=false`,
    /// `GROUP/VERSION/RESOURCE=true`.
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,
    /// Feature gates: `NAME=true`; `AllAlpha` and `AllBeta` stand for all of a stage.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
}

impl FeatureArgs {
    /// What they say.
    pub fn features(&self) -> Result<Features, FeatureError> {
        Features::parse(&self.feature_gates, &self.runtime_config)
    }

    /// As arguments of another command.
    pub fn arguments(&self) -> Vec<String> {
        let lists = [("--runtime-config", &self.runtime_config), ("--feature-gates", &self.feature_gates)];
        let told = lists.into_iter().filter(|(_, list)| !list.is_empty());
        told.map(|(name, list)| format!("{name}={}", list.join(","))).collect()
    }
}

/// The node's container runtime.
#[derive(Args, Clone, Debug, Default)]
pub struct RuntimeArgs {
    /// Image archives (OCI or docker, tar) or OCI layout folders to load into the node.
    #[arg(long)]
    pub image: Vec<PathBuf>,
    /// Folder with containerd, its shim and ctr to use instead of those on the PATH.
    #[arg(long)]
    pub containerd_dir: Option<PathBuf>,
    /// Folder with mirrors and authorities of registries, a folder for each (containerd's `config_path`); by default
    /// `DATA_DIR/registries`.
    #[arg(long)]
    pub registry_config: Option<PathBuf>,
    /// File with additional configuration of containerd, laid over the one that pintle makes: runtime handlers, for
    /// example.
    #[arg(long)]
    pub containerd_config: Option<PathBuf>,
}

impl RuntimeArgs {
    /// How the runtime is set up: absolute paths by the names of their arguments.
    pub fn set_up(&self) -> std::io::Result<BTreeMap<String, PathBuf>> {
        let told = [
            ("--containerd-dir", &self.containerd_dir),
            ("--registry-config", &self.registry_config),
            ("--containerd-config", &self.containerd_config),
        ];
        let told = told.into_iter().filter_map(|(name, path)| path.as_ref().map(|path| (name, path)));
        told.map(|(name, path)| Ok((name.to_owned(), std::path::absolute(path)?))).collect()
    }
}

/// `pintle up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Where the cluster lives.
    #[command(flatten)]
    pub data: DataArgs,
    /// The address plan.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Port of the API server; as at its last start, 6443 at its first.
    #[arg(long)]
    pub port: Option<u16>,
    /// Put the node into a network namespace of its own without uplink; the API is on the loopback address only. A cluster
    /// stays as it was started first.
    #[arg(long)]
    pub isolated: bool,
    /// Seconds to wait for the node and DNS.
    #[arg(long, default_value_t = 120)]
    pub timeout: u64,
    /// The container runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// What the API server serves; as at the cluster's last start unless told.
    #[command(flatten)]
    pub features: FeatureArgs,
}

/// `pintle down`.
#[derive(Args, Clone, Debug)]
pub struct DownArgs {
    /// Where the cluster lives.
    #[command(flatten)]
    pub data: DataArgs,
    /// Remove the data too, and everything that the cluster left in the kernel.
    #[arg(long)]
    pub reset: bool,
}

/// `pintle server`.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Where the cluster lives.
    #[command(flatten)]
    pub data: DataArgs,
    /// The address plan.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// Address that the API server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Further names or addresses for the API server's certificate.
    #[arg(long)]
    pub tls_san: Vec<String>,
    /// Where objects are kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// What is served.
    #[command(flatten)]
    pub features: FeatureArgs,
    /// Do not run a node in this process.
    #[arg(long, conflicts_with_all = ["node_name", "node_label", "kubelet_port", "container_runtime_endpoint", "RuntimeArgs"])]
    pub disable_node: bool,
    /// The node, unless disabled.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// What a node needs to know.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Name of the node; the host name by default.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node; the one of the default route by default.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    pub kubelet_port: u16,
    /// Labels of the node, `key=value`.
    #[arg(long, value_parser = label)]
    pub node_label: Vec<(String, String)>,
    /// The container runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// A CRI runtime's socket to use instead of a containerd of our own.
    #[arg(long, conflicts_with = "RuntimeArgs")]
    pub container_runtime_endpoint: Option<PathBuf>,
}

/// `pintle agent`.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// Where the node lives.
    #[command(flatten)]
    pub data: DataArgs,
    /// The address plan; must be the server's.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// URL of the server, `https://ADDRESS:PORT`.
    #[arg(long)]
    pub server: String,
    /// File with the server's token (`DATA_DIR/token` there).
    #[arg(long)]
    pub token_file: PathBuf,
    /// The node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// `pintle apiserver`.
#[derive(Args, Clone, Debug)]
pub struct ApiserverArgs {
    /// Where keys, certificates and the store live.
    #[command(flatten)]
    pub data: DataArgs,
    /// Services and DNS names.
    #[command(flatten)]
    pub services: ServiceNetworkArgs,
    /// Where objects are kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Port to listen on.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// Further names or addresses for the certificate.
    #[arg(long)]
    pub tls_san: Vec<String>,
    /// What is served.
    #[command(flatten)]
    pub features: FeatureArgs,
}

/// Storage engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Storage {
    /// On disk below the data directory.
    Embedded,
    /// In memory; gone when the process ends.
    Memory,
}

/// What every component that runs alone needs.
#[derive(Args, Clone, Debug)]
pub struct ComponentArgs {
    /// How to reach the API server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Take part in leader election.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// Loopback port of health and metrics, by default upstream's; 0 for none.
    #[arg(long)]
    pub secure_port: Option<u16>,
}

/// `pintle controller-manager`.
#[derive(Args, Clone, Debug)]
pub struct ControllerManagerArgs {
    /// What every component needs.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Controllers to run: `*`, names, and `-name` for those to leave out.
    #[arg(long, value_delimiter = ',', default_value = "*")]
    pub controllers: Vec<String>,
    /// Certificate authority that pods are told to trust.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Addresses of pods; each node gets a /24 of it. None: node addresses are not allocated.
    #[arg(long)]
    pub cluster_cidr: Option<IpNet>,
    /// Authority certificate that signs kubelets' certificates.
    #[arg(long, requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long)]
    pub cluster_signing_key_file: Option<PathBuf>,
}

/// `pintle proxy`.
#[derive(Args, Clone, Debug)]
pub struct ProxyArgs {
    /// How to reach the API server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Name of this node.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// Addresses of pods.
    #[arg(long)]
    pub cluster_cidr: Option<IpNet>,
    /// Loopback port of health and metrics, by default upstream's; 0 for none.
    #[arg(long)]
    pub metrics_port: Option<u16>,
}

/// `pintle kubelet`.
#[derive(Args, Clone, Debug)]
pub struct KubeletArgs {
    /// How to reach the API server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Directory for volumes and pods.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Socket of the CRI runtime.
    #[arg(long, default_value = "/run/containerd/containerd.sock")]
    pub container_runtime_endpoint: PathBuf,
    /// Certificate authority of clients.
    #[arg(long)]
    pub client_ca_file: PathBuf,
    /// Serving certificate.
    #[arg(long)]
    pub tls_cert_file: PathBuf,
    /// Its key.
    #[arg(long)]
    pub tls_private_key_file: PathBuf,
    /// Addresses of the cluster DNS.
    #[arg(long, value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Name of this node.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// Address of this node.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// Port to listen on.
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Directory of the pods' logs.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_logs_dir: PathBuf,
    /// cgroup below which pods' cgroups are made.
    #[arg(long, default_value = "/")]
    pub cgroup_root: String,
    /// Most pods that the node takes.
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Resolver configuration that pods inherit; empty for none.
    #[arg(long, default_value = "/etc/resolv.conf", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub resolv_conf: PathBuf,
    /// Folder of manifests of static pods.
    #[arg(long)]
    pub static_pod_path: Option<PathBuf>,
    /// Who makes control groups.
    #[arg(long, value_enum, default_value_t = CgroupDriverArg::Cgroupfs)]
    pub cgroup_driver: CgroupDriverArg,
    /// Make the Node object if there is none.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub register_node: bool,
    /// Labels that the node registers with, `key=value`.
    #[arg(long, value_delimiter = ',', value_parser = label)]
    pub node_labels: Vec<(String, String)>,
    /// Taints that the node registers with, `key=value:effect`.
    #[arg(long, value_delimiter = ',', value_parser = taint)]
    pub register_with_taints: Vec<Taint>,
    /// `spec.providerID` that the node registers with.
    #[arg(long)]
    pub provider_id: Option<String>,
}

/// Who makes control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CgroupDriverArg {
    /// The kubelet.
    Cgroupfs,
    /// systemd.
    Systemd,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} is not key=value:effect"))?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("{effect:?} is no effect of a taint"));
    }
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value)));
    let value = value.filter(|value| !value.is_empty()).map(str::to_owned);
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}

/// `pintle dns`.
#[derive(Args, Clone, Debug)]
pub struct DnsArgs {
    /// How to reach the API server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Addresses to listen on, UDP and TCP.
    #[arg(long, default_value = "0.0.0.0:53")]
    pub listen: Vec<std::net::SocketAddr>,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// File that names the resolvers for other names.
    #[arg(long)]
    pub resolv_conf: Option<PathBuf>,
}

/// `pintle forward`.
#[derive(Args, Clone, Debug)]
pub struct ForwardArgs {
    /// Loopback port.
    #[arg(long)]
    pub port: u16,
    /// Unix socket to relay to.
    #[arg(long)]
    pub to: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let words = ["pintle"].into_iter().chain(line.split(' '));
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
    }

    fn kubelet(more: &str) -> KubeletArgs {
        let line =
            format!("kubelet --kubeconfig=k --client-ca-file=c --tls-cert-file=t --tls-private-key-file=p {more}");
        let Command::Kubelet(args) = parse(&line).unwrap() else { panic!("another command") };
        args
    }

    #[test]
    fn pods_may_be_given_no_resolvers() {
        assert!(kubelet("--resolv-conf=").resolv_conf.as_os_str().is_empty());
        assert!(kubelet("--resolv-conf ").resolv_conf.as_os_str().is_empty());
    }

    #[test]
    fn nodes_register_as_told() {
        let args =
            kubelet("--node-labels=a=b,c= --register-with-taints=k=v:NoSchedule,l:NoExecute --register-node=false");
        let text = |taint: &Taint| format!("{}={:?}:{}", taint.key, taint.value.as_deref(), taint.effect);
        let taints: Vec<_> = args.register_with_taints.iter().map(text).collect();
        assert_eq!(taints, ["k=Some(\"v\"):NoSchedule", "l=None:NoExecute"]);
        assert_eq!(args.node_labels, [("a".into(), "b".into()), ("c".into(), String::new())]);
        assert!(!args.register_node && kubelet("--register-node").register_node);
    }

    #[test]
    fn features_are_told_in_upstreams_words() {
        let line = "apiserver --runtime-config=api/beta=true,apps/v1=false --runtime-config batch/v1 --feature-gates=AllAlpha=true";
        let Command::Apiserver(args) = parse(line).unwrap() else { panic!("another command") };
        assert_eq!(args.features.runtime_config, ["api/beta=true", "apps/v1=false", "batch/v1"]);
        let told = ["--runtime-config=api/beta=true,apps/v1=false,batch/v1", "--feature-gates=AllAlpha=true"];
        assert_eq!(args.features.arguments(), told);
        let fault = args.features.features().unwrap_err().to_string();
        assert!(fault.contains("WorkloadWithJob is enabled, but depends on features that are disabled"), "{fault}");
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        for (line, fault) in [
            ("apiserver --cluster-cidr=10.0.0.0/16", "unexpected argument '--cluster-cidr'"),
            ("apiserver --encryption-provider-config-automatic-reload", "--encryption-provider-config <"),
            ("apiserver --etcd-prefix=/a", "--etcd-servers <"),
            ("apiserver --etcd-cafile=f", "--etcd-servers <"),
            ("apiserver --etcd-certfile=f --etcd-keyfile=f", "--etcd-servers <"),
            ("apiserver --etcd-compaction-interval=1m", "--etcd-servers <"),
            ("apiserver --etcd-servers-overrides=/events#u", "--etcd-servers <"),
            ("apiserver --etcd-servers=u --etcd-servers-overrides=events#u", "want group/resource#url;url"),
            ("apiserver --etcd-servers=u --etcd-servers-overrides=/events", "want group/resource#url;url"),
            ("apiserver --etcd-servers=u --etcd-servers-overrides=apps/events#u", "there is no resource"),
            ("apiserver --etcd-servers=u --storage=memory", "cannot be used with"),
            ("apiserver --etcd-servers=u --durability=relaxed", "cannot be used with"),
            ("snapshot restore f --etcd-prefix=/a", "--etcd-servers <"),
            ("store migrate --from=a --to=b --etcd-servers=u", "unexpected argument '--etcd-servers'"),
            ("server --disable-node --image=a.tar", "cannot be used with"),
            ("server --disable-node --node-label=a=b", "cannot be used with"),
            ("agent --server=u --token-file=t --container-runtime-endpoint=s --image=a.tar", "cannot be used with"),
            ("agent --server=u --token-file=t --feature-gates=AllBeta=true", "unexpected argument '--feature-gates'"),
            ("proxy --kubeconfig=k --node-ip=10.0.0.1", "unexpected argument '--node-ip'"),
        ] {
            let refused = parse(line).map(|_| ()).expect_err(line);
            assert!(refused.contains(fault), "{line}: {refused}");
        }
        for line in [
            "apiserver --cluster-domain=x --encryption-provider-config=f --encryption-provider-config-automatic-reload",
            "apiserver --encryption-provider-config-automatic-reload=false",
            "apiserver --etcd-servers=u --etcd-prefix=/a --etcd-compaction-interval=1m",
            "apiserver --etcd-servers=u --etcd-servers-overrides=/events#u;v,coordination.k8s.io/leases#w",
            "store migrate --from=a --to=b --etcd-prefix=/a",
            "server --disable-node --node-ip=10.0.0.1",
        ] {
            assert_eq!(parse(line).map(|_| ()), Ok(()), "{line}");
        }
    }
}
