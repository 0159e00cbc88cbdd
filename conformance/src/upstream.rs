//! Upstream's programs, built within Pintle's source tree when they are wanted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// The script that builds them, from the root of the source tree.
const BUILD: &str = "conformance/upstream/build";

/// Builds those that are not there yet; gives their directory, an absolute path.
pub fn programs(names: &[&str]) -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|dir| dir.join(BUILD).exists());
    let root = root.context("upstream's programs are built only within Pintle's source tree")?;
    let out = directory(std::env::var_os("CARGO_TARGET_DIR"), &here, root);
    let missing: Vec<&&str> = names.iter().filter(|name| !is_current(&out.join(name), root)).collect();
    if !missing.is_empty() {
        pintle_host::complain!("building {missing:?}: minutes the first time");
        let status = Command::new(root.join(BUILD)).arg(&out).args(&missing).status().context("running the build")?;
        anyhow::ensure!(status.success(), "building {missing:?} failed: {status}");
    }
    Ok(out)
}

/// Beside cargo's output. Like cargo, a relative `CARGO_TARGET_DIR` is taken from the working directory.
fn directory(target: Option<OsString>, here: &Path, root: &Path) -> PathBuf {
    target.map_or_else(|| root.join("target"), |target| here.join(target)).join("upstream")
}

/// Newer than the module file, which has upstream's version.
fn is_current(binary: &Path, root: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let module = root.join(BUILD).with_file_name("go.mod");
    matches!((time(binary), time(&module)), (Some(binary), Some(module)) if binary > module)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_directory_is_absolute() {
        let of = |target: Option<&str>| directory(target.map(OsString::from), Path::new("/src/lib"), Path::new("/src"));
        assert_eq!(of(None), Path::new("/src/target/upstream"));
        assert_eq!(of(Some("out")), Path::new("/src/lib/out/upstream"));
        assert_eq!(of(Some("/cache")), Path::new("/cache/upstream"));
    }

    /// The script changes its own working directory: what it is told is relative to the caller's.
    #[test]
    fn the_script_builds_where_the_caller_says() {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        // A stand-in for go: `go list` gives a version, `go build` makes the file behind -o.
        let text =
            "#!/bin/sh\n[ \"$1\" != list ] || exec echo v1.37.2\nwhile [ \"$1\" != -o ]; do shift; done\n: > \"$2\"\n";
        std::fs::write(&go, text).unwrap();
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream/build");
        let link = dir.path().join("tree");
        std::os::unix::fs::symlink(script.parent().unwrap(), &link).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        // By a relative path, as the README has it.
        let mut command = Command::new("tree/build");
        command.args(["out/upstream", "kubectl"]).current_dir(dir.path()).env("PATH", path);
        assert!(command.status().unwrap().success());
        assert!(dir.path().join("out/upstream/kubectl").exists());
    }
}
