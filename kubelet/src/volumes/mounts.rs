//! A container's mounts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;
use pintle_cri::messages as cri;

use super::{Paths, host};
use crate::container::config::TERMINATION_PATH;
use crate::container::expand::expand;

/// What mounts are made from.
pub struct Sources<'a> {
    /// The pod's folder.
    pub dir: &'a Path,
    /// Its volumes.
    pub volumes: &'a Paths,
    /// Images that are mounted, by volume.
    pub images: &'a BTreeMap<String, cri::ImageSpec>,
    /// The container's environment, for `subPathExpr`.
    pub env: &'a [(String, String)],
    /// The managed hosts file.
    pub hosts: Option<&'a Path>,
    /// Restart count, which names the termination message's file.
    pub restart_count: u32,
}

/// All mounts of a container; makes sub-paths and the termination message's file. `Err` is a message for the status.
pub fn mounts(container: &Container, sources: &Sources<'_>) -> Result<Vec<cri::Mount>, String> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = sources.volumes.get(&mount.name);
        let volume = volume.ok_or_else(|| {
            format!("cannot find volume \"{}\" to mount into container \"{}\"", mount.name, container.name)
        })?;
        let sub = sub_path(mount.sub_path.as_deref(), mount.sub_path_expr.as_deref(), sources.env)?;
        let propagation = match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => cri::MountPropagation::HostToContainer as i32,
            Some("Bidirectional") => cri::MountPropagation::Bidirectional as i32,
            _ => cri::MountPropagation::Private as i32,
        };
        if let Some(image) = sources.images.get(&mount.name) {
            // The runtime mounts it: there is no path on the node.
            mounts.push(cri::Mount {
                container_path: absolute(&mount.mount_path),
                image: Some(image.clone()),
                image_sub_path: sub.unwrap_or_default(),
                readonly: true,
                propagation,
                ..cri::Mount::default()
            });
            continue;
        }
        let host_path = match sub {
            None => volume.clone(),
            Some(sub) => {
                let target = sub_path_target(sources.dir, &mount.name, &container.name, index);
                host::bind_sub_path(volume, &sub, &target).map_err(|e| {
                    format!(
                        "failed to prepare subPath for volumeMount \"{}\" of container \"{}\": {e}",
                        mount.name, container.name
                    )
                })?;
                target
            }
        };
        mounts.push(cri::Mount {
            container_path: absolute(&mount.mount_path),
            host_path: host_path.to_string_lossy().into_owned(),
            readonly: mount.read_only.unwrap_or(false),
            propagation,
            ..cri::Mount::default()
        });
    }
    let taken = mounts.iter().any(|m| m.container_path == "/etc/hosts");
    if let Some(hosts) = sources.hosts.filter(|_| !taken) {
        mounts.push(plain("/etc/hosts", hosts));
    }
    let path = container.termination_message_path.as_deref().unwrap_or(TERMINATION_PATH);
    if !path.is_empty() {
        let file = termination_file(sources.dir, &container.name, sources.restart_count);
        make_world_writable(&file).map_err(|e| format!("error on creating termination-log file {:?}: {e}", file))?;
        mounts.push(plain(path, &file));
    }
    Ok(mounts)
}

fn plain(container_path: &str, host_path: &Path) -> cri::Mount {
    cri::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
        ..cri::Mount::default()
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn sub_path(plain: Option<&str>, expression: Option<&str>, env: &[(String, String)]) -> Result<Option<String>, String> {
    if let Some(expression) = expression.filter(|e| !e.is_empty()) {
        let missing = std::cell::Cell::new(false);
        let path = expand(expression, |name| {
            let value = env.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.clone());
            missing.set(missing.get() || value.is_none());
            value
        });
        return if missing.get() { Err(format!("missing value for {expression:?}")) } else { checked(path).map(Some) };
    }
    plain.filter(|p| !p.is_empty()).map(|p| checked(p.to_owned())).transpose()
}

fn checked(path: String) -> Result<String, String> {
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("unable to provision SubPath `{path}`: must not contain '..'"));
    }
    Ok(path)
}

fn sub_path_target(dir: &Path, volume: &str, container: &str, index: usize) -> PathBuf {
    dir.join("volume-subpaths").join(volume).join(container).join(index.to_string())
}

/// The file that holds a container's termination message.
pub fn termination_file(dir: &Path, container: &str, restart_count: u32) -> PathBuf {
    dir.join("containers").join(container).join(format!("{restart_count:08x}"))
}

fn make_world_writable(file: &Path) -> std::io::Result<()> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(file, b"")?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o666))
}

/// Keeps a pod's hosts file.
pub fn write_hosts(file: &Path, text: &str) -> std::io::Result<()> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(file, text)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_mounted_by_the_runtime() {
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "terminationMessagePath": "",
            "volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "etc"}]}))
            .unwrap();
        let image = cri::ImageSpec { image: "sha256:1".to_owned(), ..cri::ImageSpec::default() };
        let sources = Sources {
            dir: Path::new("/nowhere"),
            volumes: &[("v".to_owned(), PathBuf::from("/nowhere/v"))].into(),
            images: &[("v".to_owned(), image.clone())].into(),
            env: &[],
            hosts: None,
            restart_count: 0,
        };
        let found = mounts(&container, &sources).unwrap();
        let mount = &found[0];
        assert_eq!((mount.host_path.as_str(), mount.image_sub_path.as_str()), ("", "etc"));
        assert_eq!((mount.container_path.as_str(), mount.image.as_ref(), mount.readonly), ("/m", Some(&image), true));
    }

    #[test]
    fn sub_paths() {
        let env = [("A".to_owned(), "x/y".to_owned())];
        let cases = [
            (None, None, Ok(None)),
            (Some("a/b"), None, Ok(Some("a/b"))),
            (None, Some("$(A)/z"), Ok(Some("x/y/z"))),
            (None, Some("$(B)"), Err(())),
            (Some("../a"), None, Err(())),
            (Some("/a"), None, Err(())),
        ];
        for (plain, expression, want) in cases {
            let got = sub_path(plain, expression, &env).map_err(drop);
            assert_eq!(got, want.map(|w| w.map(str::to_owned)), "{plain:?} {expression:?}");
        }
    }
}
