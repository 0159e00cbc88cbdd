//! The control plane of a lab: ours in one process, or upstream's four.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pintle_host::pki::{self, Authority, Subject};
use pintle_host::upstream::{self, Arguments};

use crate::lab::{API_PORT, CLUSTER_CIDR, Kind, SERVICE_CIDR, SERVICE_IP, Spec};
use crate::machine::{Daemon, Machine};
use crate::wait;

/// Issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Where etcd listens for clients; the next one is for other members.
const ETCD_PORT: u16 = 2379;

/// A control plane whose processes are started.
pub struct ControlPlane {
    /// The cluster's authority.
    pub authority: Authority,
    /// Where its files are.
    pub pki: PathBuf,
    /// URL of the API server for other machines.
    pub url: String,
    /// The processes.
    pub daemons: Vec<Daemon>,
    /// File with which a node of ours joins.
    pub token: PathBuf,
}

impl ControlPlane {
    /// Starts the control plane on its machine.
    pub async fn start(spec: &Spec, machine: &Machine) -> anyhow::Result<Self> {
        match spec.control_plane {
            Kind::Pintle => Self::ours(spec, machine).await,
            Kind::Upstream => Self::upstream(spec, machine),
        }
    }

    async fn ours(spec: &Spec, machine: &Machine) -> anyhow::Result<Self> {
        let data = spec.dir.join("server");
        let mut command = machine.command(&spec.pintle);
        command.args(["server", "--disable-node", "--node-ip", &machine.ip().to_string()]);
        command.args(["--cluster-cidr", CLUSTER_CIDR, "--service-cidr", SERVICE_CIDR]);
        command.arg("--data-dir").arg(&data);
        command.args(&spec.server_args);
        let daemon = machine.spawn("server", command)?;
        // The token is written when all keys are.
        let token = data.join("token");
        let dead = || daemon.check().err();
        wait::until_true("the server's keys", Duration::from_secs(30), || token.exists() || dead().is_some()).await?;
        daemon.check()?;
        let pki = data.join("pki");
        let authority = Authority::ensure(&pki, "ca", "")?;
        Ok(Self { authority, pki, url: url(machine), daemons: vec![daemon], token })
    }

    fn upstream(spec: &Spec, machine: &Machine) -> anyhow::Result<Self> {
        let pki = spec.dir.join("pki");
        std::fs::create_dir_all(&pki)?;
        let authority = Authority::ensure(&pki, "ca", "lab-ca")?;
        // A node of ours takes the authority from the server by its fingerprint; the rest of the token is for a node
        // that asks for certificates, which a lab's does not: it finds them.
        let token = spec.dir.join("token");
        std::fs::write(&token, format!("{}.lablab.lablablablablabl\n", authority.fingerprint()?))?;
        let files = Files { pki: &pki, authority: &authority, url: url(machine) };
        let mut daemons = Vec::new();
        let data = machine.name();
        let programs = [
            ("etcd", etcd(&spec.dir.join(data).join("etcd"))),
            ("kube-apiserver", apiserver(&files, machine)?),
            ("kube-controller-manager", controller_manager(&files)?),
            ("kube-scheduler", scheduler(&files)?),
        ];
        for (program, arguments) in programs {
            let mut command = machine.command(spec.upstream(program)?);
            command.args(arguments).current_dir(&pki);
            daemons.push(machine.spawn(program, command)?);
        }
        Ok(Self { authority, pki, url: url(machine), daemons, token })
    }

    /// A kubeconfig for a user, beside the keys.
    pub fn kubeconfig(&self, name: &str, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        Files { pki: &self.pki, authority: &self.authority, url: self.url.clone() }.kubeconfig(name, user, groups)
    }
}

fn url(machine: &Machine) -> String {
    format!("https://{}:{API_PORT}", machine.ip())
}

/// Keys and kubeconfigs that upstream's components are told.
struct Files<'a> {
    pki: &'a Path,
    authority: &'a Authority,
    url: String,
}

impl Files<'_> {
    fn path(&self, name: &str) -> OsString {
        self.pki.join(name).into_os_string()
    }

    fn kubeconfig(&self, name: &str, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        let pair = self.authority.ensure_pair(self.pki, &format!("lab-{name}"), &Subject::client(user, groups))?;
        let text = pki::kubeconfig(&self.url, self.authority.pem(), user, &pair)?;
        let file = self.pki.join(format!("lab-{name}.kubeconfig"));
        pki::write_private(&file, text.as_bytes())?;
        Ok(file)
    }
}

fn etcd(data: &Path) -> Arguments {
    upstream::etcd(data, ETCD_PORT, ETCD_PORT + 1).with("quota-backend-bytes", "4294967296")
}

fn apiserver(files: &Files, machine: &Machine) -> anyhow::Result<Arguments> {
    let front = Authority::ensure(files.pki, "front", "lab-front-proxy-ca")?;
    front.ensure_pair(files.pki, "front-client", &Subject::client("front-proxy-client", &[]))?;
    let kubelet = Subject::client("kube-apiserver-kubelet-client", &["system:masters"]);
    files.authority.ensure_pair(files.pki, "kubelet-client", &kubelet)?;
    let names =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", &ISSUER["https://".len()..]];
    let ips = [SERVICE_IP.into(), machine.ip().into(), [127, 0, 0, 1].into()];
    files.authority.ensure_pair(files.pki, "apiserver", &Subject::server("kube-apiserver", &[], &names, &ips)?)?;
    let signing = pki::ensure_signing_key(files.pki)?;
    let server = upstream::Apiserver {
        port: API_PORT,
        etcd_port: ETCD_PORT,
        service_cidr: SERVICE_CIDR,
        issuer: ISSUER,
        signing_key: &signing,
        public_key: &pki::public_key(&signing)?,
    };
    Ok(server
        .arguments()
        .with("advertise-address", machine.ip().to_string())
        .with("client-ca-file", files.path("ca.crt"))
        .with("tls-cert-file", files.path("apiserver.crt"))
        .with("tls-private-key-file", files.path("apiserver.key"))
        .with("service-account-jwks-uri", format!("{ISSUER}/openid/v1/jwks"))
        .with("kubelet-client-certificate", files.path("kubelet-client.crt"))
        .with("kubelet-client-key", files.path("kubelet-client.key"))
        .with("kubelet-certificate-authority", files.path("ca.crt"))
        .with("kubelet-preferred-address-types", "InternalIP")
        .with("requestheader-client-ca-file", files.path("front.crt"))
        .with("requestheader-allowed-names", "front-proxy-client")
        .with("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .with("requestheader-group-headers", "X-Remote-Group")
        .with("requestheader-username-headers", "X-Remote-User")
        .with("proxy-client-cert-file", files.path("front-client.crt"))
        .with("proxy-client-key-file", files.path("front-client.key"))
        // Webhooks and further API servers are reached by pod address: there is no service proxy on this machine.
        .with("enable-aggregator-routing", "true")
        .with("enable-bootstrap-token-auth", "true")
        .with("authorization-mode", "Node,RBAC")
        .with("enable-admission-plugins", "NodeRestriction"))
}

fn controller_manager(files: &Files) -> anyhow::Result<Arguments> {
    let config = files.kubeconfig("controller-manager", "system:kube-controller-manager", &[])?;
    Ok(component(Arguments::default(), &config)
        .with("client-ca-file", files.path("ca.crt"))
        .with("requestheader-client-ca-file", files.path("front.crt"))
        .with("use-service-account-credentials", "true")
        .with("service-account-private-key-file", files.path("sa.key"))
        .with("root-ca-file", files.path("ca.crt"))
        .with("cluster-signing-cert-file", files.path("ca.crt"))
        .with("cluster-signing-key-file", files.path("ca.key"))
        .with("allocate-node-cidrs", "true")
        .with("cluster-cidr", CLUSTER_CIDR)
        .with("service-cluster-ip-range", SERVICE_CIDR)
        .with("controllers", "*,bootstrapsigner,tokencleaner"))
}

fn scheduler(files: &Files) -> anyhow::Result<Arguments> {
    Ok(component(Arguments::default(), &files.kubeconfig("scheduler", "system:kube-scheduler", &[])?))
}

fn component(arguments: Arguments, kubeconfig: &Path) -> Arguments {
    arguments
        .with("kubeconfig", kubeconfig)
        .with("authentication-kubeconfig", kubeconfig)
        .with("authorization-kubeconfig", kubeconfig)
        .with("leader-elect", "false")
}
