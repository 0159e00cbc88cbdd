//! Where everything of one cluster lives: one data directory, nothing outside it but kernel objects.

use std::path::{Path, PathBuf};

use anyhow::Context;
use pintle_host::owned::{self, Claim};
use sha2::{Digest, Sha256};

/// The layout of a data directory.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// The layout below `root`, made absolute: containerd and CNI need that.
    pub fn new(root: &Path) -> anyhow::Result<Self> {
        let root = std::path::absolute(root).with_context(|| format!("data directory {}", root.display()))?;
        Ok(Self { root })
    }

    /// The data directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A name for kernel objects (namespace, cgroup, nftables table) that is this cluster's alone.
    pub fn id(&self) -> String {
        if self.root == Path::new(crate::cli::DEFAULT_DATA_DIR) {
            return "pintle".to_owned();
        }
        let digest = Sha256::digest(self.root.as_os_str().as_encoded_bytes());
        format!("pintle-{}", &digest.iter().map(|b| format!("{b:02x}")).collect::<String>()[..8])
    }

    /// Keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Kubeconfigs of components that run on their own, such as `scheduler`.
    pub fn component_kubeconfig(&self, component: &str) -> PathBuf {
        self.pki().join(format!("{component}.kubeconfig"))
    }

    /// The token with which nodes join.
    pub fn token(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The embedded store.
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Sockets, pid files and the status file; emptied of pid files when the cluster is stopped.
    pub fn run(&self, name: &str) -> PathBuf {
        self.root.join("run").join(name)
    }

    /// Log files of the processes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("log").join(name)
    }

    /// containerd's own files.
    pub fn containerd(&self, name: &str) -> PathBuf {
        self.root.join("containerd").join(name)
    }

    /// containerd's socket.
    pub fn cri_socket(&self) -> PathBuf {
        self.run("containerd.sock")
    }

    /// The directory from which containerd reads the pod network's configuration.
    pub fn cni_conf(&self) -> PathBuf {
        self.root.join("cni/net.d")
    }

    /// Address leases of the pod network.
    pub fn cni_ipam(&self) -> PathBuf {
        self.root.join("cni/ipam")
    }

    /// The kubelet's directory: volumes, pods, its certificates.
    pub fn kubelet(&self) -> PathBuf {
        self.root.join("kubelet")
    }

    /// Log files of the pods' containers.
    pub fn pod_logs(&self) -> PathBuf {
        self.root.join("pod-logs")
    }

    /// Manifests of static pods.
    pub fn static_pods(&self) -> PathBuf {
        self.root.join("manifests")
    }

    /// What the kernel's settings were before.
    pub fn kernel_settings(&self) -> PathBuf {
        self.root.join("kernel-settings.json")
    }

    /// How `pintle up` started the cluster.
    pub fn settings(&self) -> PathBuf {
        self.root.join("settings.json")
    }

    /// The routes to other nodes' pods that this node has set.
    pub fn routes(&self) -> PathBuf {
        self.root.join("routes.json")
    }

    /// The directory is a cluster's: nothing else is ever removed.
    pub fn is_ours(&self) -> bool {
        owned::is_ours(&self.root)
    }

    /// Makes the directories and takes them into use. A directory that has something else in it is left alone, and so is
    /// one that another process uses.
    pub fn claim(&self) -> anyhow::Result<Claim> {
        owned::make(&self.root)?;
        let claim = owned::claim(&self.root)?;
        let dirs = [
            self.pki(),
            self.root.join("run"),
            self.root.join("log"),
            self.root.join("containerd"),
            self.cni_conf(),
            self.cni_ipam(),
            self.kubelet(),
            self.pod_logs(),
            self.static_pods(),
        ];
        for dir in dirs {
            std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.pki(), std::fs::Permissions::from_mode(0o700))?;
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let paths = Paths::new(dir.path()).expect("paths");
        std::fs::write(dir.path().join("letter"), "dear").expect("a file");
        assert!(paths.claim().is_err() && !paths.is_ours(), "somebody's directory");
        std::fs::remove_file(dir.path().join("letter")).expect("removed");
        let claim = paths.claim().expect("an empty directory");
        assert!(paths.is_ours() && paths.claim().is_err(), "in use");
        drop(claim);
        paths.claim().expect("the same again");
    }
}
