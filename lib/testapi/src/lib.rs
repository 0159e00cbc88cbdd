//! For tests of components: the API server in this process, over the memory store. A component gets a client into it;
//! programs that need a socket get one, and a kubeconfig.
//!
//! Invariants: only tests depend on this; two servers in one process know nothing of each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use pintle_apiserver::access::UserInfo;
use pintle_apiserver::{ApiServer, StaticToken};
pub use pintle_apiserver::{Config, KubeletClient};
use pintle_serving::http::Listener;
use pintle_serving::tls::SelfSigned;
use pintle_store::memory::Memory;
use tokio_util::sync::CancellationToken;

/// Token of the administrator.
const TOKEN: &str = "admin-token";

/// A running API server; stopped when dropped.
pub struct Server {
    api: ApiServer,
    shutdown: CancellationToken,
}

/// What a server for tests is told unless a test wants something else.
pub fn config() -> anyhow::Result<Config> {
    Ok(Config {
        store: Arc::new(Memory::new(Default::default())),
        service_cidr: "10.96.0.0/16".parse()?,
        node_ports: 30000..=32767,
        advertise_address: [127, 0, 0, 1].into(),
        advertise_port: 6443,
        issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
        service_account_key: rcgen::KeyPair::generate()?.serialize_pem().into_bytes(),
        service_account_verify_keys: Vec::new(),
        client_ca: None,
        cluster_ca: Vec::new(),
        static_tokens: vec![StaticToken {
            token: TOKEN.to_owned(),
            user: "admin".to_owned(),
            uid: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        }],
        kubelet_client: None,
        features: Default::default(),
    })
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let api = ApiServer::build(config)?;
        api.ready().await;
        Ok(Self { api, shutdown: CancellationToken::new() })
    }

    /// A client with every right.
    pub fn client(&self) -> Client {
        pintle_client::connect::from_service(self.api.service_as(UserInfo::new("admin", &["system:masters"])))
    }

    /// Serves on a loopback address, too, and writes an administrator's kubeconfig into `dir`.
    pub async fn listen(&self, port: u16, dir: &Path) -> anyhow::Result<PathBuf> {
        let own = SelfSigned::new(&["127.0.0.1"])?;
        let tls = own.tls(None)?;
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let address = listener.address().ok_or_else(|| anyhow::anyhow!("a TCP listener has an address"))?;
        let (api, shutdown) = (self.api.clone(), self.shutdown.clone());
        tokio::spawn(async move { api.serve(vec![listener], tls, shutdown).await });
        std::fs::write(dir.join("apiserver.crt"), &own.certificate)?;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: a}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://{address}\", certificate-authority: apiserver.crt}}}}]\n\
             users: [{{name: a, user: {{token: {TOKEN}}}}}]\n"
        );
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, text)?;
        Ok(kubeconfig)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.api.stop();
    }
}
