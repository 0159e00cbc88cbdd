//! Command lines of upstream's etcd and kube-apiserver, for all that compare themselves with these or take their place.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Arguments `--name=value`.
#[derive(Clone, Debug, Default)]
pub struct Arguments(Vec<OsString>);

impl Arguments {
    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value);
        self.0.push(argument);
        self
    }
}

impl IntoIterator for Arguments {
    type Item = OsString;
    type IntoIter = std::vec::IntoIter<OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// URL of an etcd on loopback.
pub fn etcd_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// An etcd of one member on loopback whose data nobody needs later: it does not wait for the disk.
pub fn etcd(data: &Path, port: u16, peer_port: u16) -> Arguments {
    let (client, peer) = (etcd_url(port), etcd_url(peer_port));
    Arguments::default()
        .with("data-dir", data)
        .with("unsafe-no-fsync", "true")
        .with("listen-client-urls", &client)
        .with("advertise-client-urls", client)
        .with("listen-peer-urls", &peer)
        .with("initial-advertise-peer-urls", &peer)
        .with("initial-cluster", format!("default={peer}"))
}

/// What every kube-apiserver has to be told.
#[derive(Clone, Copy, Debug)]
pub struct Apiserver<'a> {
    /// Where it listens.
    pub port: u16,
    /// Where its etcd listens.
    pub etcd_port: u16,
    /// Addresses of Services.
    pub service_cidr: &'a str,
    /// Issuer of service accounts' tokens.
    pub issuer: &'a str,
    /// Key that signs these,
    pub signing_key: &'a Path,
    /// and the public key that belongs to it.
    pub public_key: &'a Path,
}

impl Apiserver<'_> {
    /// On all addresses; certificates and the ways to log in are still to be told.
    pub fn arguments(&self) -> Arguments {
        Arguments::default()
            .with("secure-port", self.port.to_string())
            .with("etcd-servers", etcd_url(self.etcd_port))
            .with("service-cluster-ip-range", self.service_cidr)
            .with("service-account-issuer", self.issuer)
            .with("service-account-key-file", self.public_key)
            .with("service-account-signing-key-file", self.signing_key)
            .with("allow-privileged", "true")
    }

    /// On loopback only, with certificates of its own in a folder.
    pub fn on_loopback(&self, certificates: &Path) -> Arguments {
        self.arguments()
            .with("bind-address", "127.0.0.1")
            .with("advertise-address", "127.0.0.1")
            .with("endpoint-reconciler-type", "none")
            .with("cert-dir", certificates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_names_and_values() {
        let arguments: Vec<OsString> = etcd(Path::new("/data"), 1, 2).into_iter().collect();
        for expected in [
            "--data-dir=/data",
            "--listen-client-urls=http://127.0.0.1:1",
            "--initial-cluster=default=http://127.0.0.1:2",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected} in {arguments:?}");
        }
        let key = Path::new("/k");
        let server = Apiserver {
            port: 3,
            etcd_port: 1,
            service_cidr: "10.0.0.0/24",
            issuer: "https://i",
            signing_key: key,
            public_key: key,
        };
        let arguments: Vec<OsString> = server.on_loopback(Path::new("/c")).into_iter().collect();
        for expected in
            ["--secure-port=3", "--etcd-servers=http://127.0.0.1:1", "--cert-dir=/c", "--bind-address=127.0.0.1"]
        {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected} in {arguments:?}");
        }
    }
}
