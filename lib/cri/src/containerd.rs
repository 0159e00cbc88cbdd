//! containerd as a program: its version, its configuration, images loaded into it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::archive;

/// Directories in which distributions and releases put CNI plugins.
const CNI_BIN_DIRS: &[&str] = &["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// Which containerd: the one on the PATH, or the one in a folder of its own.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Folder with `containerd`, `containerd-shim-runc-v2` and `ctr`.
    pub dir: Option<PathBuf>,
}

impl Programs {
    /// A command for one of the programs. containerd finds its shims, and they find runc, on the PATH.
    pub fn command(&self, name: &str) -> Command {
        let Some(dir) = &self.dir else { return Command::new(name) };
        let mut command = Command::new(dir.join(name));
        command.env("PATH", self.path());
        command
    }

    /// The PATH with the folder in front.
    pub fn path(&self) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = self.dir.clone().into_iter().chain(std::env::split_paths(&path));
        std::env::join_paths(dirs).unwrap_or(path)
    }

    /// The major version of containerd.
    pub fn major(&self) -> anyhow::Result<u32> {
        let output = self
            .command("containerd")
            .arg("--version")
            .output()
            .context("containerd is needed to run pods (Debian: apt-get install containerd)")?;
        Ok(major(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Loads an image archive, or a layout folder, for the kubelet to use.
    pub fn import(&self, socket: &Path, images: &Path) -> anyhow::Result<()> {
        let loading = || format!("loading {}", images.display());
        let mut ctr = self.command("ctr");
        ctr.arg("--address").arg(socket).args(["--namespace", "k8s.io", "images", "import", "-"]);
        let mut ctr = ctr.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("ctr")?;
        let mut stdin = ctr.stdin.take().context("ctr has no input")?;
        let sent = if images.is_dir() {
            archive::pack(images, &mut stdin)
        } else {
            std::fs::File::open(images).and_then(|mut file| io::copy(&mut file, &mut stdin)).map(drop)
        };
        drop(stdin);
        let output = ctr.wait_with_output().with_context(loading)?;
        let told = String::from_utf8_lossy(&output.stderr);
        // ctr's own word first: that it stopped reading is but a consequence.
        anyhow::ensure!(output.status.success(), "{}: ctr: {}: {}", loading(), output.status, told.trim());
        sent.with_context(loading)
    }

    /// The names of the images that are there.
    pub fn images(&self, socket: &Path) -> anyhow::Result<Vec<String>> {
        let mut ctr = self.command("ctr");
        ctr.arg("--address").arg(socket).args(["--namespace", "k8s.io", "images", "list", "--quiet"]);
        let output = ctr.output().context("ctr")?;
        let told = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "listing images: ctr: {}: {}", output.status, told.trim());
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }
}

/// Major version in `containerd github.com/containerd/containerd v2.1.4 …` or Debian's `… 1.6.20~ds1 …`.
fn major(version: &str) -> u32 {
    version
        .split_whitespace()
        .filter_map(|word| word.trim_start_matches('v').split_once('.'))
        .find_map(|(major, _)| major.parse().ok())
        .unwrap_or(1)
}

/// The first directory that has the plugins that the pod network uses.
pub fn cni_bin_dir() -> anyhow::Result<PathBuf> {
    let has = |dir: &PathBuf| dir.join("ptp").exists() && dir.join("host-local").exists();
    let found = CNI_BIN_DIRS.iter().map(PathBuf::from).find(has);
    found.context("CNI plugins are needed (Debian: apt-get install containernetworking-plugins)")
}

/// What a containerd of a node is to be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Persistent data.
    pub root: PathBuf,
    /// What may be lost when the machine stops.
    pub state: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    /// Image of the pods' sandboxes.
    pub sandbox_image: String,
    /// Folder with CNI plugins.
    pub cni_bin: PathBuf,
    /// Folder with the pod network's configuration.
    pub cni_conf: PathBuf,
    /// Folder with a folder for each registry (`certs.d`): mirrors, authorities.
    pub registries: PathBuf,
}

impl Config {
    /// The configuration for a major version of containerd; what `extra` has of the same shape is laid over it, table by
    /// table.
    pub fn render(&self, major: u32, extra: Option<&str>) -> anyhow::Result<String> {
        let mut config: toml::Table = self.base(major).parse().context("containerd's configuration")?;
        if let Some(extra) = extra {
            let extra: toml::Table = extra.parse().context("the additional configuration of containerd")?;
            let (own, given) = (config.get("version").cloned(), extra.get("version"));
            anyhow::ensure!(
                given.is_none() || given == own.as_ref(),
                "the additional configuration of containerd must be of version {}",
                own.unwrap_or_else(|| 2.into())
            );
            merge(&mut config, extra);
        }
        Ok(toml::to_string(&config)?)
    }

    /// AppArmor is off since profiles may be missing; lowering `oom_score_adj` is clamped since a container may not be
    /// allowed to.
    fn base(&self, major: u32) -> String {
        let (root, state, socket) = (self.root.display(), self.state.display(), self.socket.display());
        let (cni_bin, cni_conf, registries) =
            (self.cni_bin.display(), self.cni_conf.display(), self.registries.display());
        let sandbox = &self.sandbox_image;
        let head = format!(
            "root = \"{root}\"\nstate = \"{state}\"\n[grpc]\naddress = \"{socket}\"\n[ttrpc]\naddress = \"{socket}.ttrpc\"\n"
        );
        let runtime = "disable_apparmor = true\nrestrict_oom_score_adj = true\ndisable_hugetlb_controller = true\n\
             tolerate_missing_hugetlb_controller = true\nnetns_mounts_under_state_dir = true\n";
        let stream = "stream_server_address = \"127.0.0.1\"\nstream_server_port = \"0\"\n";
        if major >= 2 {
            let (images, cri) = ("plugins.'io.containerd.cri.v1.images'", "plugins.'io.containerd.cri.v1.runtime'");
            format!(
                "version = 3\n{head}[{images}.pinned_images]\nsandbox = \"{sandbox}\"\n[{images}.registry]\n\
                 config_path = \"{registries}\"\n[{cri}]\n{runtime}[{cri}.cni]\nbin_dirs = [\"{cni_bin}\"]\n\
                 conf_dir = \"{cni_conf}\"\n[plugins.'io.containerd.grpc.v1.cri']\n{stream}"
            )
        } else {
            let cri = "plugins.'io.containerd.grpc.v1.cri'";
            // The default handler goes when another one is configured, unless it is configured as well.
            let runc = handler(major, "runc");
            format!(
                "version = 2\n{head}[{cri}]\nsandbox_image = \"{sandbox}\"\n{runtime}{stream}[{cri}.cni]\n\
                 bin_dir = \"{cni_bin}\"\nconf_dir = \"{cni_conf}\"\n[{cri}.registry]\nconfig_path = \"{registries}\"\n{runc}"
            )
        }
    }
}

/// Additional configuration that defines a runtime handler which is runc once more under the given name.
pub fn handler(major: u32, name: &str) -> String {
    let plugin = if major >= 2 { "io.containerd.cri.v1.runtime" } else { "io.containerd.grpc.v1.cri" };
    format!("[plugins.'{plugin}'.containerd.runtimes.{name}]\nruntime_type = 'io.containerd.runc.v2'\n")
}

/// Lays one table over another: tables are merged, everything else is replaced.
fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let path = PathBuf::from;
        Config {
            root: path("/r"),
            state: path("/s"),
            socket: path("/c.sock"),
            sandbox_image: "pause:1".to_owned(),
            cni_bin: path("/cni"),
            cni_conf: path("/net.d"),
            registries: path("/certs.d"),
        }
    }

    #[test]
    fn versions_of_debian_and_of_upstream_are_understood() {
        assert_eq!(major("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u2"), 1);
        assert_eq!(major("containerd github.com/containerd/containerd/v2 v2.1.4 abcdef"), 2);
    }

    #[test]
    fn additions_are_merged_and_the_rest_stays() {
        for (version, plugin) in [(1, "io.containerd.grpc.v1.cri"), (2, "io.containerd.cri.v1.runtime")] {
            let text = config().render(version, Some(&handler(version, "other"))).unwrap();
            let table: toml::Table = text.parse().unwrap();
            if version < 2 {
                assert!(table["plugins"][plugin]["containerd"]["runtimes"]["runc"].is_table(), "the default one stays");
            }
            let cri = &table["plugins"][plugin];
            assert_eq!(cri["restrict_oom_score_adj"].as_bool(), Some(true));
            assert_eq!(cri["containerd"]["runtimes"]["other"]["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
        }
    }

    #[test]
    fn additions_for_another_version_are_refused() {
        assert!(config().render(2, Some("version = 2")).is_err());
        assert!(config().render(1, Some("version = 2")).is_ok());
        assert!(config().render(1, Some("not toml")).is_err());
    }
}
