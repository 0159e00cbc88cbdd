//! A node of a lab: ours in one process, or containerd with upstream's kubelet and service proxy.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pintle_cri::containerd::{self, Programs};
use pintle_host::pki::{self, Subject};
use pintle_host::{cgroup, owned};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::lab::{CLUSTER_CIDR, CLUSTER_DNS, Kind, SERVICE_CIDR, Spec};
use crate::machine::{Daemon, Machine};
use crate::objects::{DNS_LABEL, DNS_PORT};
use crate::wait;

/// Image of the pods' sandboxes on upstream's nodes; among those that the lab is given.
const SANDBOX_IMAGE: &str = "registry.k8s.io/pause:3.10.2";
/// containerd's socket on the machine.
const SOCKET: &str = "/run/containerd/containerd.sock";
/// Name of a runtime handler beside the default one: tests of RuntimeClass ask for it.
const HANDLER: &str = "test-handler";

/// What a node is made of.
pub struct Plan<'a> {
    /// The lab.
    pub spec: &'a Spec,
    /// The machine.
    pub machine: &'a Machine,
    /// The control plane to join.
    pub control_plane: &'a ControlPlane,
    /// Folder that tells containerd how registries are reached.
    pub registries: &'a Path,
    /// Control group of the node, where upstream's kubelet is to make the pods'.
    pub cgroup: &'a str,
}

impl Plan<'_> {
    /// Name of the Node object.
    pub fn name(&self) -> String {
        node_name(self.machine)
    }

    fn dir(&self) -> PathBuf {
        self.spec.dir.join(self.machine.name())
    }

    /// Starts the node.
    pub async fn start(&self) -> anyhow::Result<Vec<Daemon>> {
        match self.spec.nodes_are {
            Kind::Pintle => self.ours(),
            Kind::Upstream => self.upstream().await,
        }
    }

    fn ours(&self) -> anyhow::Result<Vec<Daemon>> {
        let programs = Programs { dir: self.spec.containerd_dir.clone() };
        let extra = self.dir().join("containerd.toml");
        std::fs::write(&extra, containerd::handler(programs.major()?, HANDLER))?;
        let data = self.dir().join("data");
        if self.spec.control_plane == Kind::Upstream {
            // The agent takes no directory of somebody else.
            owned::make(&data)?;
            self.place_certificates(&data.join("pki"))?;
        }
        let mut command = self.machine.command(&self.spec.pintle);
        command.args(["agent", "--server", &self.control_plane.url]);
        command.arg("--data-dir").arg(&data).arg("--token-file").arg(&self.control_plane.token);
        command.args(["--cluster-cidr", CLUSTER_CIDR, "--service-cidr", SERVICE_CIDR]);
        command.args(["--node-name", &self.name(), "--node-ip", &self.machine.ip().to_string()]);
        command.arg("--registry-config").arg(self.registries).arg("--containerd-config").arg(&extra);
        if let Some(dir) = &self.spec.containerd_dir {
            command.arg("--containerd-dir").arg(dir);
        }
        for image in &self.spec.images {
            command.arg("--image").arg(image);
        }
        command.args(&self.spec.agent_args);
        Ok(vec![self.machine.spawn("agent", command)?])
    }

    /// The certificates that a node of ours asks a control plane of ours for; upstream's lets nobody approve those of
    /// servers.
    fn place_certificates(&self, pki: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(pki)?;
        let authority = &self.control_plane.authority;
        let user = format!("system:node:{}", self.name());
        authority.ensure_pair(pki, "kubelet-client", &Subject::client(&user, &["system:nodes"]))?;
        let names = [self.name()];
        let server = Subject::server(&user, &["system:nodes"], &[&names[0]], &[self.machine.ip().into()])?;
        authority.ensure_pair(pki, "kubelet-serving", &server)?;
        Ok(())
    }

    async fn upstream(&self) -> anyhow::Result<Vec<Daemon>> {
        let mut daemons = vec![self.containerd().await?];
        let pki = self.dir().join("pki");
        self.place_certificates(&pki)?;
        cgroup::create(self.cgroup).context("making the node's control groups")?;
        let user = format!("system:node:{}", self.name());
        let node = self.control_plane.kubeconfig(self.machine.name(), &user, &["system:nodes"])?;
        let proxy = self.control_plane.kubeconfig("proxy", "system:kube-proxy", &[])?;

        let mut kubelet = self.machine.command(self.spec.upstream("kubelet")?);
        kubelet.arg("--config").arg(self.write("kubelet.json", &self.kubelet_config(&pki))?);
        kubelet.arg("--kubeconfig").arg(&node).args(["--root-dir", "/var/lib/kubelet"]);
        kubelet.args(["--hostname-override", &self.name(), "--node-ip", &self.machine.ip().to_string()]);
        kubelet.args(["--node-labels", &format!("{DNS_LABEL}=true")]);
        daemons.push(self.machine.spawn("kubelet", kubelet)?);

        let mut kube_proxy = self.machine.command(self.spec.upstream("kube-proxy")?);
        kube_proxy.arg("--config").arg(self.write("kube-proxy.json", &self.proxy_config(&proxy))?);
        daemons.push(self.machine.spawn("kube-proxy", kube_proxy)?);

        let mut dns = self.machine.command(&self.spec.pintle);
        dns.args(["dns", "--listen", &format!("{}:{DNS_PORT}", self.machine.ip())]);
        dns.arg("--kubeconfig").arg(&proxy).args(["--resolv-conf", "/etc/resolv.conf"]);
        daemons.push(self.machine.spawn("dns", dns)?);
        Ok(daemons)
    }

    async fn containerd(&self) -> anyhow::Result<Daemon> {
        let programs = Programs { dir: self.spec.containerd_dir.clone() };
        let major = programs.major()?;
        let config = containerd::Config {
            root: self.dir().join("containerd"),
            state: "/run/containerd/state".into(),
            socket: SOCKET.into(),
            sandbox_image: SANDBOX_IMAGE.to_owned(),
            cni_bin: containerd::cni_bin_dir()?,
            cni_conf: "/etc/cni/net.d".into(),
            registries: self.registries.to_owned(),
        };
        let file = self.dir().join("containerd.toml");
        std::fs::write(&file, config.render(major, Some(&containerd::handler(major, HANDLER)))?)?;
        let program = programs.dir.as_ref().map_or_else(|| "containerd".into(), |dir| dir.join("containerd"));
        let mut command = self.machine.command(program);
        command.env("PATH", programs.path()).arg("--config").arg(&file);
        let daemon = self.machine.spawn("containerd", command)?;
        let socket = self.machine.outside(SOCKET);
        wait::until_true("containerd", std::time::Duration::from_secs(20), || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok() || daemon.check().is_err()
        })
        .await?;
        daemon.check()?;
        let images = self.spec.images.clone();
        let import = move || images.iter().try_for_each(|images| programs.import(&socket, images));
        tokio::task::spawn_blocking(import).await??;
        Ok(daemon)
    }

    fn kubelet_config(&self, pki: &Path) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", self.cgroup),
            "enforceNodeAllocatable": ["pods"],
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "clusterDNS": [CLUSTER_DNS], "clusterDomain": "cluster.local", "resolvConf": "/etc/resolv.conf",
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.control_plane.pki.join("ca.crt")}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki.join("kubelet-serving.crt"), "tlsPrivateKeyFile": pki.join("kubelet-serving.key"),
            "failSwapOn": false, "serializeImagePulls": false,
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
            "volumePluginDir": "/var/lib/kubelet/volumeplugins",
            "systemReserved": {"memory": "256Mi"},
        })
    }

    fn proxy_config(&self, kubeconfig: &Path) -> Value {
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig}, "clusterCIDR": CLUSTER_CIDR, "mode": "nftables",
            "hostnameOverride": self.name(),
            // These settings are the whole machine's: a network namespace may not change them.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        })
    }

    /// Writes a configuration, JSON being YAML, and returns where.
    fn write(&self, name: &str, config: &Value) -> anyhow::Result<PathBuf> {
        let path = self.dir().join(name);
        pki::write_private(&path, &serde_json::to_vec_pretty(config)?)?;
        Ok(path)
    }
}

/// Name of a machine's Node object.
pub fn node_name(machine: &Machine) -> String {
    format!("lab-{}", machine.name())
}

/// Configures the pod network of one of upstream's nodes: a routed link for each pod, host ports.
pub fn write_cni(machine: &Machine, pod_cidr: &str) -> anyhow::Result<()> {
    let config = json!({
        "cniVersion": "0.4.0", "name": "lab",
        "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local", "ranges": [[{"subnet": pod_cidr}]], "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
        ]
    });
    let file = machine.outside("/etc/cni/net.d").join("10-lab.conflist");
    std::fs::write(&file, serde_json::to_vec(&config)?).with_context(|| format!("writing {}", file.display()))
}

/// Address of the `n`th node, from 0.
pub fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, 78, 11 + n)
}
