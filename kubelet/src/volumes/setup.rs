//! Brings a pod's volumes up, refreshes their content, and takes them down again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, Pod, ProjectedVolumeSource, Volume, VolumeProjection,
};
use kube::Api;
use tokio::sync::Mutex;

use super::payload::{self, DEFAULT_MODE, Downward};
use super::{atomic, host};
use crate::container::field::Addresses;
use crate::pods::spec;
use crate::quantity;
use crate::shared::Shared;

/// Path of each volume on the node, by the volume's name.
pub type Paths = BTreeMap<String, PathBuf>;

/// A volume that could not be brought up.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its name.
    pub volume: String,
    /// What went wrong.
    pub message: String,
}

/// How long a projected token is valid if its source does not say.
const TOKEN_LIFETIME: i64 = 3600;

/// The work on a pod's folder: off the async threads, as it may block, and one piece at a time. A piece that has begun goes
/// on when the task that wanted it is aborted, and the next one, such as [`teardown`], waits for it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<()>>);

impl Disk {
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let held = self.0.clone().lock_owned().await;
        let work = move || {
            let _held = held;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }
}

/// Brings up all volumes of a pod; run again it refreshes what changed.
pub async fn setup(shared: &Shared, disk: &Disk, pod: &Pod, addresses: &Addresses) -> Result<Paths, Failure> {
    let dir = shared.config.pod_dir(spec::uid(pod));
    let mut paths = Paths::new();
    for volume in spec::spec(pod).volumes.iter().flatten() {
        let path = one(shared, disk, pod, addresses, &dir, volume).await;
        let path = path.map_err(|message| Failure { volume: volume.name.clone(), message })?;
        paths.insert(volume.name.clone(), path);
    }
    Ok(paths)
}

fn group(pod: &Pod) -> Option<u32> {
    spec::spec(pod).security_context.as_ref().and_then(|c| c.fs_group).and_then(|g| u32::try_from(g).ok())
}

fn place(dir: &Path, plugin: &str, name: &str) -> PathBuf {
    dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
}

async fn one(
    shared: &Shared,
    disk: &Disk,
    pod: &Pod,
    addresses: &Addresses,
    dir: &Path,
    volume: &Volume,
) -> Result<PathBuf, String> {
    let name = &volume.name;
    if let Some(source) = &volume.host_path {
        return host::host_path(source);
    }
    if let Some(source) = &volume.empty_dir {
        let memory = source.medium.as_deref() == Some("Memory");
        let limit = source.size_limit.as_ref().map(quantity::value).filter(|v| *v > 0);
        let (path, group) = (place(dir, "empty-dir", name), group(pod));
        return disk.run(move || empty_dir(path, memory, limit, group)).await.map_err(|e| e.to_string());
    }
    if volume.image.is_some() {
        // The runtime mounts it; the folder stands for it.
        let path = place(dir, "image", name);
        return host::make_dir(&path, 0o755).map(|()| path).map_err(|e| e.to_string());
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        return persistent(shared, disk, pod, dir, name, &claim.claim_name).await;
    }
    let (plugin, in_memory, files) = files(shared, pod, addresses, volume).await?;
    let path = place(dir, plugin, name);
    let (target, group) = (path.clone(), group(pod));
    let write = move || -> io::Result<()> {
        host::make_dir(&target, 0o777)?;
        if in_memory {
            host::mount_tmpfs(&target, None)?;
            host::make_dir(&target, 0o777)?;
        }
        atomic::write(&target, &files, group)?;
        if let Some(group) = group {
            std::os::unix::fs::chown(&target, None, Some(group))?;
            host::make_dir(&target, 0o2777)?;
        }
        Ok(())
    };
    disk.run(write).await.map_err(|e| e.to_string())?;
    Ok(path)
}

fn empty_dir(path: PathBuf, memory: bool, limit: Option<i64>, group: Option<u32>) -> io::Result<PathBuf> {
    let fresh = !path.exists();
    if fresh {
        host::make_dir(&path, 0o777)?;
    }
    if memory && !host::is_mount_point(&path) {
        host::mount_tmpfs(&path, limit)?;
        host::make_dir(&path, 0o777)?;
    }
    if let (true, Some(group)) = (fresh, group) {
        host::give_to_group(&path, group, false)?;
    }
    Ok(path)
}

/// Plugin, whether it is kept in memory, and the files of a volume that is made of API objects.
async fn files(
    shared: &Shared,
    pod: &Pod,
    addresses: &Addresses,
    volume: &Volume,
) -> Result<(&'static str, bool, Vec<atomic::File>), String> {
    let namespace = spec::namespace(pod);
    if let Some(source) = &volume.config_map {
        let map = shared.objects.config_map(namespace, &source.name).await.map_err(|e| e.to_string())?;
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let optional = source.optional.unwrap_or(false);
        let files = payload::config_map(&source.name, map.as_ref(), source.items.as_deref(), mode, optional)?;
        return Ok(("configmap", false, files));
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret = shared.objects.secret(namespace, name).await.map_err(|e| e.to_string())?;
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let optional = source.optional.unwrap_or(false);
        let files = payload::secret(name, secret.as_ref(), source.items.as_deref(), mode, optional)?;
        return Ok(("secret", true, files));
    }
    let from = Downward { pod, addresses, allocatable: shared.allocatable() };
    if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let files = payload::downward(source.items.as_deref().unwrap_or_default(), mode, from)?;
        return Ok(("downward-api", false, files));
    }
    if let Some(source) = &volume.projected {
        return Ok(("projected", true, projected(shared, pod, &volume.name, source, from).await?));
    }
    Err("no volume plugin matched".to_owned())
}

async fn projected(
    shared: &Shared,
    pod: &Pod,
    volume: &str,
    source: &ProjectedVolumeSource,
    from: Downward<'_>,
) -> Result<Vec<atomic::File>, String> {
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    // A later source wins where two give the same path.
    let mut files: BTreeMap<PathBuf, atomic::File> = BTreeMap::new();
    for (place, part) in source.sources.iter().flatten().enumerate() {
        let more = match &part.pod_certificate {
            Some(wanted) => {
                let credential = shared.certificates.credential(pod, volume, place, wanted).await?;
                payload::certificate(pod, wanted, &credential, mode)
            }
            None => projection(shared, pod, part, mode, from).await?,
        };
        files.extend(more.into_iter().map(|f| (f.path.clone(), f)));
    }
    Ok(files.into_values().collect())
}

async fn projection(
    shared: &Shared,
    pod: &Pod,
    part: &VolumeProjection,
    mode: i32,
    from: Downward<'_>,
) -> Result<Vec<atomic::File>, String> {
    let namespace = spec::namespace(pod);
    if let Some(source) = &part.config_map {
        let map = shared.objects.config_map(namespace, &source.name).await.map_err(|e| e.to_string())?;
        let optional = source.optional.unwrap_or(false);
        return payload::config_map(&source.name, map.as_ref(), source.items.as_deref(), mode, optional);
    }
    if let Some(source) = &part.secret {
        let secret = shared.objects.secret(namespace, &source.name).await.map_err(|e| e.to_string())?;
        let optional = source.optional.unwrap_or(false);
        return payload::secret(&source.name, secret.as_ref(), source.items.as_deref(), mode, optional);
    }
    if let Some(source) = &part.downward_api {
        return payload::downward(source.items.as_deref().unwrap_or_default(), mode, from);
    }
    if let Some(source) = &part.service_account_token {
        let audience = source.audience.as_deref().unwrap_or_default();
        let lifetime = source.expiration_seconds.unwrap_or(TOKEN_LIFETIME);
        let text = shared.objects.token(pod, audience, lifetime).await;
        let text = text.map_err(|e| format!("failed to fetch token: {e}"))?;
        return Ok(vec![payload::private(pod, &source.path, &text, mode)]);
    }
    if let Some(source) = &part.cluster_trust_bundle {
        let content = shared.trust.anchors(source).await?.into_bytes();
        let mode = mode.unsigned_abs() & 0o777;
        return Ok(vec![atomic::File { path: PathBuf::from(&source.path), content, mode, owner: None }]);
    }
    Err("unsupported projection".to_owned())
}

/// A claim that is bound to a volume on this node: hostPath or local.
async fn persistent(
    shared: &Shared,
    disk: &Disk,
    pod: &Pod,
    dir: &Path,
    name: &str,
    claim: &str,
) -> Result<PathBuf, String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), spec::namespace(pod));
    let found = claims.get(claim).await.map_err(|e| format!("error fetching PVC {claim}: {e}"))?;
    let bound = found.spec.and_then(|s| s.volume_name).filter(|v| !v.is_empty());
    let bound = bound.ok_or_else(|| format!("PVC {claim} is not bound"))?;
    let volumes: Api<PersistentVolume> = Api::all(shared.client.clone());
    let volume = volumes.get(&bound).await.map_err(|e| format!("error fetching PV {bound}: {e}"))?;
    let source = volume.spec.unwrap_or_default();
    let path = if let Some(path) = &source.host_path {
        return host::host_path(path);
    } else if let Some(local) = &source.local {
        PathBuf::from(&local.path)
    } else {
        return Err(format!("no volume plugin matched for PV {bound}"));
    };
    let (target, group) = (place(dir, "local-volume", name), group(pod));
    disk.run(move || {
        fs::create_dir_all(&target)?;
        if !host::is_mount_point(&target) {
            host::bind_sub_path(&path, ".", &target)?;
        }
        if let Some(group) = group {
            host::give_to_group(&target, group, false)?;
        }
        Ok(target)
    })
    .await
    .map_err(|e| e.to_string())
}

/// Takes all mounts of a pod away. Files stay until [`remove`].
pub async fn teardown(disk: &Disk, dir: PathBuf) -> io::Result<()> {
    disk.run(move || host::unmount_below(&dir)).await
}

/// Removes a pod's folder once nothing is mounted below it.
pub async fn remove(disk: &Disk, dir: PathBuf) -> io::Result<()> {
    disk.run(move || {
        host::unmount_below(&dir)?;
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_has_begun_is_waited_for_after_its_task_was_aborted() {
        let (disk, mounted) = (Disk::default(), Arc::new(AtomicBool::new(false)));
        let (begun, begins) = std::sync::mpsc::channel();
        let mount = {
            let (disk, mounted) = (disk.clone(), mounted.clone());
            tokio::spawn(async move {
                let work = move || {
                    let _ = begun.send(());
                    std::thread::sleep(Duration::from_millis(100));
                    mounted.store(true, Ordering::SeqCst);
                    Ok(())
                };
                disk.run(work).await
            })
        };
        tokio::task::spawn_blocking(move || begins.recv()).await.unwrap().unwrap();
        mount.abort();
        assert!(mount.await.unwrap_err().is_cancelled());
        let seen = mounted.clone();
        let unmount = disk.run(move || Ok(seen.swap(false, Ordering::SeqCst)));
        assert!(unmount.await.unwrap() && !mounted.load(Ordering::SeqCst));
    }
}
