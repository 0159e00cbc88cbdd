//! Where the images' content comes from: programs built from Go modules, busybox built from Debian's source package,
//! programs of Debian's packages, which are unpacked beside the system instead of into it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::runner::Runner;

/// Programs built from Go modules.
const GO_PROGRAMS: &[&str] = &["agnhost", "etcd", "nnp", "sample-apiserver"];
/// Packages with the programs that tests call.
const PACKAGES: &[&str] =
    &["bash", "bind9-dnsutils", "curl", "netcat-openbsd", "iproute2", "iperf", "socat", "nginx-light", "util-linux"];
/// Debian's release that has the busybox that the tests want, and its version there.
const BUSYBOX_RELEASE: &str = "trixie";
const BUSYBOX_VERSION: &str = "1.37.0";
/// What differs from busybox's default configuration. Without the first two its shell runs applets whatever the PATH
/// says; `tc` does not compile against newer kernel headers.
const BUSYBOX_CONFIG: &[(&str, bool)] = &[
    ("CONFIG_FEATURE_SH_STANDALONE", false),
    ("CONFIG_FEATURE_PREFER_APPLETS", false),
    ("CONFIG_TC", false),
    ("CONFIG_STATIC", true),
];

/// Everything that is copied into images.
#[derive(Debug)]
pub struct Sources {
    /// Folder of the programs built from Go modules.
    pub programs: PathBuf,
    /// Folder of the Go module k8s.io/kubernetes, with data of tests.
    pub kubernetes: PathBuf,
    /// busybox.
    pub busybox: PathBuf,
    /// Root of the unpacked packages.
    pub packages: PathBuf,
}

impl Sources {
    /// Makes what is not there yet below `work`; `module` is the folder conformance/upstream.
    pub fn make(module: &Path, work: &Path, say: &dyn Fn(&str), runner: &Runner) -> anyhow::Result<Self> {
        say("programs from Go modules");
        let programs = work.join("programs");
        runner.run(Command::new(module.join("build")).arg(&programs).args(GO_PROGRAMS))?;
        let list = Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
            .current_dir(module)
            .output()
            .context("running go")?;
        let kubernetes = PathBuf::from(String::from_utf8(list.stdout)?.trim());
        anyhow::ensure!(kubernetes.is_dir(), "the Go module k8s.io/kubernetes is not there");
        say("busybox");
        let busybox = busybox(work, runner)?;
        say("programs of Debian");
        let packages = packages(&work.join("packages"), runner)?;
        Ok(Self { programs, kubernetes, busybox, packages })
    }
}

/// busybox, compiled once.
fn busybox(work: &Path, runner: &Runner) -> anyhow::Result<PathBuf> {
    let binary = work.join(format!("busybox-{BUSYBOX_VERSION}-static"));
    if binary.exists() {
        return Ok(binary);
    }
    let folder = work.join("busybox");
    let archive = busybox_source(&folder, runner)?;
    runner.run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&folder))?;
    let source = folder.join(format!("busybox-{BUSYBOX_VERSION}"));
    let make = |arguments: &[&str]| runner.run(Command::new("make").args(arguments).current_dir(&source));
    make(&["defconfig"])?;
    let config = source.join(".config");
    std::fs::write(&config, configured(&std::fs::read_to_string(&config)?))?;
    // Options that depend on the changed ones take their defaults.
    runner.run(Command::new("sh").args(["-c", "yes '' | make oldconfig"]).current_dir(&source))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    make(&["-j", &jobs.to_string(), "busybox"])?;
    std::fs::copy(source.join("busybox"), &binary)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(binary)
}

/// Fetches busybox's source as Debian's archive has it, by an apt with lists of its own: the system's stay as they are.
fn busybox_source(folder: &Path, runner: &Runner) -> anyhow::Result<PathBuf> {
    for part in ["lists/partial", "parts", "cache"] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    let targets = Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]).output();
    let targets =
        String::from_utf8(targets.context("apt-get is needed: the images are made of Debian's packages")?.stdout)?;
    let mirror = targets.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    let mirror = mirror.context("apt has no archive of Debian in its sources")?;
    std::fs::write(
        folder.join("parts/source.sources"),
        format!(
            "Types: deb-src\nURIs: {mirror}\nSuites: {BUSYBOX_RELEASE}\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        ),
    )?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(folder).arg("-qq");
        for (option, value) in [
            ("Dir::State::lists", folder.join("lists")),
            ("Dir::Etc::sourceparts", folder.join("parts")),
            ("Dir::Cache", folder.join("cache")),
            ("Dir::Etc::sourcelist", PathBuf::from("/dev/null")),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        runner.run(command.args(arguments))
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "busybox"])?;
    let archive = folder.join(format!("busybox_{BUSYBOX_VERSION}.orig.tar.bz2"));
    anyhow::ensure!(archive.exists(), "Debian's archive has another busybox than {BUSYBOX_VERSION}");
    Ok(archive)
}

/// A configuration with the differences of [`BUSYBOX_CONFIG`].
fn configured(config: &str) -> String {
    let kept = config.lines().filter(|line| {
        let name = line.trim_start_matches("# ").split(['=', ' ']).next().unwrap_or_default();
        !BUSYBOX_CONFIG.iter().any(|(option, _)| *option == name)
    });
    let own = BUSYBOX_CONFIG
        .iter()
        .map(|(option, on)| if *on { format!("{option}=y") } else { format!("# {option} is not set") });
    kept.map(str::to_owned).chain(own).map(|line| line + "\n").collect()
}

/// Downloads the packages that this machine does not have, with what they need, and unpacks them below `folder`.
fn packages(folder: &Path, runner: &Runner) -> anyhow::Result<PathBuf> {
    let root = folder.join("root");
    if root.exists() {
        return Ok(root);
    }
    let archives = folder.join("archives");
    std::fs::create_dir_all(archives.join("partial"))?;
    let mut command = Command::new("apt-get");
    command.args(["-qq", "install", "--download-only", "--no-install-recommends", "--yes"]);
    command.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display())).args(PACKAGES);
    runner.run(&mut command).context("downloading packages (is `apt-get update` due?)")?;
    let unpacked = folder.join("root.new");
    for entry in std::fs::read_dir(&archives)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("deb")) {
            runner.run(Command::new("dpkg-deb").arg("--extract").arg(path).arg(&unpacked))?;
        }
    }
    std::fs::create_dir_all(&unpacked)?;
    std::fs::rename(&unpacked, &root)?;
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busybox_is_configured_whatever_it_was_before() {
        let before = "CONFIG_A=y\nCONFIG_TC=y\n# CONFIG_STATIC is not set\n# CONFIG_STATIC_LIBGCC is not set\n";
        let after = configured(before);
        assert!(after.starts_with("CONFIG_A=y\n# CONFIG_STATIC_LIBGCC is not set\n"), "{after}");
        assert!(after.contains("CONFIG_STATIC=y\n") && after.contains("# CONFIG_TC is not set\n"));
        assert!(!after.contains("CONFIG_TC=y"));
    }
}
