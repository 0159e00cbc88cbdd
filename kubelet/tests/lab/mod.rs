//! A node of the test's own: API server, containerd with images and pod network, all in the namespaces of this process.
//!
//! The process that runs this is PID 1 of a PID namespace (see `e2e.rs`): when it ends, everything it started ends.

mod images;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pintle_host::upstream;

/// Name of the node.
pub const NODE: &str = "node-1";
/// Address of the node.
pub const NODE_IP: &str = "172.31.99.1";
const POD_CIDR: &str = "10.231.0.0/24";
const API_PORT: u16 = 17600;

/// The parts of the lab and where they are.
pub struct Lab {
    /// Everything is below this folder.
    pub dir: PathBuf,
    kubectl: PathBuf,
    api: Option<OwnApi>,
}

/// Our API server and what it runs on.
struct OwnApi {
    _runtime: tokio::runtime::Runtime,
    _server: pintle_testapi::Server,
}

impl Lab {
    /// Starts everything; `dir` is empty.
    pub fn start(dir: &Path) -> Self {
        let bin = std::env::var_os("PINTLE_UPSTREAM_BIN").map(PathBuf::from);
        let kubectl = std::env::var_os("KUBECTL").map_or_else(|| "kubectl".into(), PathBuf::from);
        let mut lab = Self { dir: dir.to_path_buf(), kubectl, api: None };
        lab.network();
        lab.containerd();
        lab.certificates();
        match bin {
            Some(bin) => lab.upstream_api_server(&bin),
            None => lab.api = Some(lab.own_api_server()),
        }
        lab.account();
        lab
    }

    fn network(&self) {
        let script = format!(
            "ip link add node0 type veth peer name node0p; ip addr add {NODE_IP}/24 dev node0; \
             ip link set node0 up; ip link set node0p up; ip route add default via 172.31.99.254 dev node0; \
             sysctl -qw net.ipv4.ip_forward=1"
        );
        run(Command::new("sh").args(["-ec", &script]));
    }

    /// Starts containerd and imports the images.
    fn containerd(&self) {
        images::write(&self.dir);
        let dir = self.dir.display();
        for folder in ["cni/net.d", "cni/ipam", "certs.d", "containerd"] {
            fs::create_dir_all(self.dir.join(folder)).unwrap();
        }
        let config = format!(
            r#"version = 2
root = "{dir}/containerd/root"
state = "{dir}/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{dir}/containerd.sock"
[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{dir}/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{dir}/certs.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#
        );
        fs::write(self.dir.join("containerd.toml"), config).unwrap();
        let network = format!(
            r#"{{"cniVersion":"1.0.0","name":"lab","plugins":[
 {{"type":"ptp","ipMasq":false,"mtu":1500,"ipam":{{"type":"host-local","dataDir":"{dir}/cni/ipam","ranges":[[{{"subnet":"{POD_CIDR}"}}]],"routes":[{{"dst":"0.0.0.0/0"}}]}}}},
 {{"type":"portmap","capabilities":{{"portMappings":true}}}}]}}"#
        );
        fs::write(self.dir.join("cni/net.d/10-lab.conflist"), network).unwrap();
        self.start_containerd();
        let tar = self.dir.join("images.tar");
        run(Command::new("ctr")
            .args(["-a", &self.socket(), "-n", "k8s.io", "images", "import"])
            .arg(tar)
            .stdout(Stdio::null()));
    }

    /// Starts containerd (again).
    pub fn start_containerd(&self) {
        self.spawn("containerd", Command::new("containerd").arg("-c").arg(self.dir.join("containerd.toml")));
        wait("containerd", Duration::from_secs(20), || {
            let mut version = Command::new("ctr");
            version.args(["-a", &self.socket(), "version"]).stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|s| s.success())
        });
    }

    fn certificates(&self) {
        let at = |name: &str| self.dir.join(name).display().to_string();
        let script = format!(
            "openssl genrsa -out {key} 2048 2>/dev/null; openssl rsa -in {key} -pubout -out {public} 2>/dev/null; \
             echo token,admin,admin,system:masters > {tokens}; \
             openssl req -x509 -newkey rsa:2048 -nodes -keyout {ca}.key -out {ca}.crt -subj /CN=ca -days 2 2>/dev/null; \
             issue() {{ openssl req -newkey rsa:2048 -nodes -keyout $1.key -out $1.csr -subj \"$2\" 2>/dev/null; \
             echo \"subjectAltName=IP:{NODE_IP}\" > $1.ext; \
             openssl x509 -req -in $1.csr -CA {ca}.crt -CAkey {ca}.key -CAcreateserial -days 2 -extfile $1.ext -out $1.crt 2>/dev/null; }}; \
             issue {client} /O=system:masters/CN=apiserver; issue {serving} /CN=node",
            key = at("sa.key"),
            public = at("sa.pub"),
            tokens = at("tokens.csv"),
            ca = at("ca"),
            client = at("client"),
            serving = at("serving"),
        );
        run(Command::new("sh").args(["-ec", &script]));
    }

    /// No token in pods, since no controller makes what that needs.
    fn account(&self) {
        self.create(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default}\nautomountServiceAccountToken: false\n",
        );
    }

    /// Ours, as upstream's is below.
    fn own_api_server(&self) -> OwnApi {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let read = |name: &str| fs::read(self.dir.join(name)).unwrap();
        let (certificate, key, ca) = (read("client.crt"), read("client.key"), Some(read("ca.crt")));
        let mut config = pintle_testapi::config().unwrap();
        config.kubelet_client = Some(pintle_testapi::KubeletClient { certificate, key, ca });
        let server = runtime.block_on(async {
            let server = pintle_testapi::Server::start(config).await.unwrap();
            server.listen(API_PORT, &self.dir).await.unwrap();
            server
        });
        OwnApi { _runtime: runtime, _server: server }
    }

    fn upstream_api_server(&self, bin: &Path) {
        let at = |name: &str| self.dir.join(name);
        let mut etcd = Command::new(bin.join("etcd"));
        etcd.args(upstream::etcd(&self.dir.join("etcd"), API_PORT + 1, API_PORT + 2).with("log-level", "error"));
        self.spawn("etcd", &mut etcd);
        let told = upstream::Apiserver {
            port: API_PORT,
            etcd_port: API_PORT + 1,
            service_cidr: "10.97.0.0/16",
            issuer: "https://kubernetes.default.svc",
            signing_key: &self.dir.join("sa.key"),
            public_key: &self.dir.join("sa.pub"),
        };
        let told = told
            .on_loopback(&self.dir.join("certs"))
            .with("token-auth-file", at("tokens.csv"))
            .with("authorization-mode", "RBAC")
            .with("kubelet-certificate-authority", at("ca.crt"))
            .with("kubelet-client-certificate", at("client.crt"))
            .with("kubelet-client-key", at("client.key"))
            .with("kubelet-preferred-address-types", "InternalIP")
            .with("disable-admission-plugins", "ServiceAccount,TaintNodesByCondition");
        let mut server = Command::new(bin.join("kube-apiserver"));
        server.args(told);
        self.spawn("kube-apiserver", &mut server);
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\n\
             clusters: [{{name: u, cluster: {{server: \"https://127.0.0.1:{API_PORT}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: a, user: {{token: token}}}}]\ncontexts: [{{name: u, context: {{cluster: u, user: a}}}}]\n\
             current-context: u\n"
        );
        fs::write(self.kubeconfig(), kubeconfig).unwrap();
        wait("API server", Duration::from_secs(60), || self.try_kubectl(&["get", "--raw=/readyz"], "").is_ok());
    }

    /// containerd's socket.
    pub fn socket(&self) -> String {
        self.dir.join("containerd.sock").display().to_string()
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    #[expect(clippy::zombie_processes, reason = "ended by the end of the PID namespace")]
    fn spawn(&self, name: &str, command: &mut Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join(format!("{name}.log"))).unwrap();
        let errors = log.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = child.unwrap_or_else(|e| panic!("{name}: {e}"));
        fs::write(self.dir.join(format!("{name}.pid")), child.id().to_string()).unwrap();
    }

    /// Runs kubectl with `input`; its output, or its error text.
    pub fn try_kubectl(&self, args: &[&str], input: &str) -> Result<String, String> {
        use std::io::Write;
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("KUBECTL must name a kubectl ({e})"));
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs kubectl, which must succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args, "").unwrap_or_else(|e| panic!("kubectl {args:?}: {e}"))
    }

    /// Creates objects from YAML.
    pub fn create(&self, yaml: &str) {
        self.try_kubectl(&["create", "-f", "-"], yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
    }

    /// A field of an object by JSON path.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.try_kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").unwrap_or_default()
    }

    /// Waits until a field has a value.
    pub fn wait_field(&self, object: &str, path: &str, want: &str, limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            let got = self.field(object, path);
            if got == want {
                return;
            }
            if Instant::now() > end {
                let all = self.try_kubectl(&["get", object, "-o", "yaml"], "").unwrap_or_default();
                let events = self.try_kubectl(&["get", "events"], "").unwrap_or_default();
                panic!("{object} {path} is {got:?}, not {want:?}, after {limit:?}\n{all}\n{events}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until an object is gone.
    pub fn wait_gone(&self, object: &str, limit: Duration) {
        wait(&format!("end of {object}"), limit, || self.try_kubectl(&["get", object], "").is_err());
    }
}

/// Waits until `done`, or panics.
pub fn wait(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
