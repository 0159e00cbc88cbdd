//! A containerd of its own with one pod in the node's network, and a kubelet that knows just that pod.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use pintle_cri::{
    Client,
    archive::{self, Entry, Image},
    messages::*,
};
use pintle_kubelet::server::{Host, stats::Summary};
use serde_json::{Value, json};

const IMAGE: &str = "pintle.test/busybox:1";

/// A running containerd with one sandbox and its containers.
pub struct Lab {
    /// The runtime.
    pub runtime: Client,
    /// The pod, as an API server would show it.
    pub pod: Pod,
    /// The sandbox's id.
    pub sandbox: String,
    /// Names and ids of its containers.
    pub containers: Vec<(String, String)>,
    directory: PathBuf,
}

impl Lab {
    /// Starts everything: `containers` are name, shell script and whether it reads standard input. All of it ends with
    /// the test's namespaces.
    pub async fn start(pod_name: &str, containers: &[(&str, &str, bool)]) -> Self {
        let directory = crate::confined::dir();
        let runtime = containerd(&directory).await;
        let mut lab = Self { runtime, pod: Pod::default(), sandbox: String::new(), containers: Vec::new(), directory };
        lab.run(pod_name, containers).await;
        lab
    }

    async fn run(&mut self, pod_name: &str, containers: &[(&str, &str, bool)]) {
        let options = NamespaceOption { network: NamespaceMode::Node as i32, ..Default::default() };
        let linux = LinuxPodSandboxConfig {
            cgroup_parent: format!("/{}/pod", crate::confined::group()),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(options.clone()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let metadata =
            PodSandboxMetadata { name: pod_name.into(), uid: "uid-1".into(), namespace: "default".into(), attempt: 0 };
        let config = PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.directory.join("logs").display().to_string(),
            linux: Some(linux),
            ..Default::default()
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        self.sandbox = self.runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
        for (name, script, stdin) in containers {
            let id = self.container(&config, &options, name, script, *stdin).await;
            self.containers.push(((*name).to_owned(), id));
        }
        self.pod = self.described(pod_name);
    }

    async fn container(
        &self,
        sandbox: &PodSandboxConfig,
        options: &NamespaceOption,
        name: &str,
        script: &str,
        stdin: bool,
    ) -> String {
        let security = LinuxContainerSecurityContext { namespace_options: Some(options.clone()), ..Default::default() };
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            stdin,
            linux: Some(LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
            ..Default::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: self.sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.clone()),
        };
        let container_id = self.runtime.create_container(request).await.unwrap().container_id;
        let start = StartContainerRequest { container_id: container_id.clone() };
        self.runtime.start_container(start).await.unwrap();
        container_id
    }

    fn described(&self, pod_name: &str) -> Pod {
        let spec: Vec<Value> = self.containers.iter().map(|(name, _)| json!({"name": name, "image": IMAGE})).collect();
        let status = self.containers.iter().map(|(name, id)| {
            let id = format!("containerd://{id}");
            json!({"name": name, "image": IMAGE, "imageID": "", "ready": true, "restartCount": 0,
                "containerID": id, "state": {"running": {}}})
        });
        serde_json::from_value(json!({
            "metadata": {"name": pod_name, "namespace": "default", "uid": "uid-1"},
            "spec": {"containers": spec},
            "status": {"phase": "Running", "containerStatuses": status.collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    /// A kubelet with this one pod.
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::new(OnePod {
            pod: Arc::new(self.pod.clone()),
            sandbox: self.sandbox.clone(),
            containers: self.containers.clone(),
        })
    }
}

struct OnePod {
    pod: Arc<Pod>,
    sandbox: String,
    containers: Vec<(String, String)>,
}

#[async_trait]
impl Host for OnePod {
    fn node_name(&self) -> &str {
        "n1"
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        vec![self.pod.clone()]
    }

    async fn running_pods(&self) -> anyhow::Result<Vec<Pod>> {
        Ok(vec![self.pod.as_ref().clone()])
    }

    async fn running_container(&self, _pod: &Pod, container: &str) -> anyhow::Result<Option<String>> {
        Ok(self.containers.iter().find(|(name, _)| name == container).map(|(_, id)| id.clone()))
    }

    async fn sandbox(&self, _pod: &Pod) -> anyhow::Result<Option<String>> {
        Ok(Some(self.sandbox.clone()))
    }

    async fn summary(&self) -> anyhow::Result<Summary> {
        Ok(Summary::default())
    }

    fn config(&self) -> Value {
        json!({"kind": "KubeletConfiguration"})
    }
}

#[expect(clippy::zombie_processes, reason = "ended by the end of the PID namespace")]
async fn containerd(directory: &Path) -> Client {
    let path = |name: &str| directory.join(name).display().to_string();
    let config = format!(
        r#"version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#,
        root = path("root"),
        state = path("state"),
        socket = path("c.sock"),
    );
    std::fs::write(path("config.toml"), config).unwrap();
    let log = std::fs::File::create(path("containerd.log")).unwrap();
    let mut command = Command::new("containerd");
    command.args(["--config", &path("config.toml")]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let client = Client::new(&format!("unix://{}", path("c.sock"))).unwrap();
    let ready = async {
        while client.version(VersionRequest { version: String::new() }).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("containerd answers");
    let image = Image {
        name: IMAGE.into(),
        layer: busybox(),
        entrypoint: ["/bin/sleep", "1000000"].map(str::to_owned).to_vec(),
        ..Image::default()
    };
    std::fs::write(path("image.tar"), archive::build(&[image]).unwrap()).unwrap();
    let mut import = Command::new("ctr");
    import.args(["-a", &path("c.sock"), "-n", "k8s.io", "images", "import", &path("image.tar")]);
    let imported = import.output().unwrap();
    assert!(imported.status.success(), "the image is not imported: {}", String::from_utf8_lossy(&imported.stderr));
    client
}

fn busybox() -> Vec<Entry> {
    let applets = ["sh", "cat", "echo", "sleep", "tar", "stty", "nc", "ls", "wc", "head", "test", "seq", "mkdir", "rm"];
    let links = applets.map(|name| Entry::Link(format!("bin/{name}"), "busybox".into()));
    let mut layer = vec![
        Entry::File("bin/busybox".into(), std::fs::read("/bin/busybox").unwrap(), 0o755),
        Entry::Dir("tmp".into(), 0o1777),
        Entry::Dir("proc".into(), 0o755),
    ];
    layer.extend(links);
    layer
}
