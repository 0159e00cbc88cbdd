//! Stock kubectl over TLS, if there is one: `KUBECTL` names it, else `kubectl` on the PATH of version 1.36 or later.

mod common;

use std::process::Stdio;
use std::sync::Arc;

use pintle_apiserver::ApiServer;
use pintle_serving::http::Listener;
use pintle_serving::tls::SelfSigned;
use pintle_store::memory::Memory;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

struct Kubectl {
    binary: String,
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    async fn run(&self, arguments: &str) -> (bool, String) {
        self.run_with(arguments, "").await
    }

    async fn run_with(&self, arguments: &str, input: &str) -> (bool, String) {
        use tokio::io::AsyncWriteExt;
        let mut child = Command::new(&self.binary)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.kubeconfig.parent().expect("directory"))
            .args(arguments.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(input.as_bytes()).await.expect("input");
        drop(stdin);
        let limit = std::time::Duration::from_secs(30);
        let output = tokio::time::timeout(limit, child.wait_with_output()).await.expect("in time").expect("output");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

/// A kubectl that is new enough.
async fn find() -> Option<String> {
    let binary = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".into());
    let output = Command::new(&binary).args(["version", "--client", "-o", "json"]).output().await.ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor: u32 = version["clientVersion"]["minor"].as_str()?.trim_end_matches('+').parse().ok()?;
    (minor >= 36).then_some(binary)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_kubectl_works() {
    let binary = find().await.expect("KUBECTL, or kubectl on the PATH, of 1.36 or later; hack/test builds one");
    let directory = tempfile::tempdir().expect("directory");
    let own = SelfSigned::new(&["127.0.0.1"]).expect("certificate");
    let tls = own.tls(None).expect("TLS");
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).await.expect("listener");
    let address = listener.address().expect("address");
    let server = ApiServer::build(common::config(Arc::new(Memory::new(Default::default())))).expect("server");
    server.ready().await;
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(vec![listener], tls, shutdown).await }
    });
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(directory.path().join("ca.pem"), &own.certificate).expect("CA");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://{address}\", \
         certificate-authority: ca.pem}}}}]\nusers: [{{name: a, user: {{token: {}}}}}]\ncontexts: [{{name: x, context: \
         {{cluster: c, user: a}}}}]\ncurrent-context: x\n",
        common::ADMIN
    );
    std::fs::write(&kubeconfig, text).expect("kubeconfig");
    let kubectl = Kubectl { binary, kubeconfig };
    session(&kubectl).await;
    shutdown.cancel();
    serving.await.expect("drained");
}

/// What a user types, and what must be in the answer.
async fn session(kubectl: &Kubectl) {
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n";
    let steps = [
        ("version", "", true, "Server Version: v1.37"),
        ("get namespaces", "", true, "kube-system"),
        ("create serviceaccount default", "", true, "created"),
        ("apply -f -", manifest, true, "configmap/a created"),
        ("apply -f -", manifest, true, "configmap/a unchanged"),
        ("apply --server-side -f -", manifest, true, "serverside-applied"),
        ("get configmap a -o jsonpath={.data.k}", "", true, "v"),
        ("patch configmap a --type=merge -p {\"data\":{\"k\":\"w\"}}", "", true, "patched"),
        ("label configmap a x=y", "", true, "labeled"),
        ("get configmaps -A -l x=y", "", true, "default"),
        ("create deployment d --image=i --replicas=2", "", true, "created"),
        ("scale deployment d --replicas=3", "", true, "scaled"),
        ("get deployment d", "", true, "0/3"),
        ("expose deployment d --port=80", "", true, "exposed"),
        ("describe service d", "", true, "ClusterIP"),
        ("explain pod.spec.containers", "", true, "<[]Container>"),
        ("api-resources", "", true, "deployments"),
        ("auth can-i create pods", "", true, "yes"),
        ("create token default", "", true, "ey"),
        ("run p --image=i", "", true, "created"),
        ("get pods", "", true, "Pending"),
        ("delete pod p", "", true, "deleted"),
        ("get pod p", "", false, "pods \"p\" not found"),
        ("delete configmap,deployment --all", "", true, "deleted"),
        ("get --raw /readyz", "", true, "ok"),
    ];
    for (arguments, input, succeeds, wanted) in steps {
        let (success, text) = kubectl.run_with(arguments, input).await;
        assert!(success == succeeds && text.contains(wanted), "kubectl {arguments}: {text}");
    }
    let (_, text) = kubectl.run("get nodes").await;
    assert!(text.contains("No resources found"), "{text}");
}
