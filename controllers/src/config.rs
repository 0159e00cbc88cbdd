//! What the controllers are told from outside.

use std::time::Duration;

use pintle_serving::telemetry::Telemetry;

/// Settings of the controller manager; the defaults are those of upstream's flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which controllers run: `*` all that are on by default, `foo` turns one on, `-foo` turns one off.
    pub controllers: Vec<String>,
    /// PEM bundle that the root-ca publisher puts into every namespace; without it that controller does nothing.
    pub root_ca: Option<String>,
    /// Ranges from which nodes get their pod ranges (`10.244.0.0/16`); empty: none are handed out.
    pub cluster_cidrs: Vec<String>,
    /// Prefix length of a node's IPv4 pod range.
    pub node_cidr_mask_ipv4: u8,
    /// Prefix length of a node's IPv6 pod range.
    pub node_cidr_mask_ipv6: u8,
    /// How often node health is looked at.
    pub node_monitor_period: Duration,
    /// How long a node may be silent before it counts as gone.
    pub node_monitor_grace_period: Duration,
    /// How many finished pods may lie about before the oldest are removed; 0 means no limit.
    pub terminated_pod_threshold: usize,
    /// Keys that each controller works on at the same time.
    pub workers: usize,
    /// The authority that signs kubelet certificates; without it nothing is signed.
    pub signing: Option<Signing>,
    /// Where they tell about themselves.
    pub telemetry: Telemetry,
}

/// A certificate authority for signing requests.
#[derive(Clone)]
pub struct Signing {
    /// The authority's certificate, PEM.
    pub certificate: String,
    /// The authority's private key, PEM.
    pub key: String,
    /// Longest life of a certificate.
    pub duration: Duration,
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signing").field("duration", &self.duration).finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            controllers: vec!["*".to_owned()],
            root_ca: None,
            cluster_cidrs: Vec::new(),
            node_cidr_mask_ipv4: 24,
            node_cidr_mask_ipv6: 64,
            node_monitor_period: Duration::from_secs(5),
            node_monitor_grace_period: Duration::from_secs(50),
            terminated_pod_threshold: 12_500,
            workers: 5,
            signing: None,
            telemetry: Telemetry::default(),
        }
    }
}
