//! What an API server has to be told.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use pintle_store::Store;

use crate::features::Features;

/// Configuration of an API server.
#[derive(Clone)]
pub struct Config {
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// Addresses of Services.
    pub service_cidr: IpNet,
    /// Ports of NodePort Services.
    pub node_ports: RangeInclusive<u16>,
    /// Address that cluster members reach this server at.
    pub advertise_address: IpAddr,
    /// Port there.
    pub advertise_port: u16,
    /// Issuer of service account tokens.
    pub issuer: String,
    /// Private key (PEM) that signs service account tokens.
    pub service_account_key: Vec<u8>,
    /// Further keys (PEM, public or private) whose tokens are accepted.
    pub service_account_verify_keys: Vec<Vec<u8>>,
    /// Certificates (PEM) that client certificates must chain to.
    pub client_ca: Option<Vec<u8>>,
    /// Certificate authority (PEM) of the cluster, for clients inside of it.
    pub cluster_ca: Vec<u8>,
    /// Static tokens: (token, user, uid, groups).
    pub static_tokens: Vec<StaticToken>,
    /// TLS towards kubelets: their server certificates' authority, our client certificate.
    pub kubelet_client: Option<KubeletClient>,
    /// What is served beyond, or short of, the defaults.
    pub features: Features,
}

/// A token of a token file.
#[derive(Clone)]
pub struct StaticToken {
    /// The secret.
    pub token: String,
    /// User name.
    pub user: String,
    /// UID.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// How this server talks to kubelets.
#[derive(Clone)]
pub struct KubeletClient {
    /// Client certificate chain (PEM).
    pub certificate: Vec<u8>,
    /// Its key (PEM).
    pub key: Vec<u8>,
    /// Authority of the kubelets' certificates (PEM); `None`: any certificate is taken.
    pub ca: Option<Vec<u8>>,
}
