//! Stopping a node and removing what it left in the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pintle_cri::Client;
use pintle_cri::messages::{
    ListContainersRequest, ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest,
};

use crate::paths::Paths;
use crate::routes::{self, Routes, Step, Table};
use crate::{hostports, kernel, net};
use pintle_host::process::{self, Handle};
use pintle_host::{cgroup, owned};

/// How long containers get to end by themselves when the node is stopped.
const POD_GRACE: Duration = Duration::from_secs(10);

/// Stops the node's pods and its containerd. Images and logs stay.
pub async fn node(paths: &Paths) -> anyhow::Result<()> {
    let pid_file = paths.run("containerd.pid");
    if let Some(containerd) = Handle::read(&pid_file) {
        if let Err(error) = tokio::time::timeout(POD_GRACE * 3, stop_pods(paths)).await {
            tracing::warn!(%error, "pods not stopped in time");
        }
        containerd.stop(Duration::from_secs(10)).await;
    }
    // What containerd did not stop: its shims (they reap their containers when they are told to end) and, after them,
    // the processes in the node's cgroups.
    let socket = paths.cri_socket();
    for shim in process::find(&["-address", &socket.to_string_lossy()]) {
        shim.stop(Duration::from_secs(2)).await;
    }
    for pid in cgroup::dirs(&paths.id()).iter().flat_map(|dir| cgroup::pids(dir)) {
        if let Some(handle) = Handle::of(pid) {
            handle.stop(Duration::ZERO).await;
        }
    }
    for stale in ["containerd.pid", "containerd.sock", "containerd.sock.ttrpc", "api.sock", "status.json"] {
        let _ = std::fs::remove_file(paths.run(stale));
    }
    unmount_below(&paths.kubelet())?;
    pintle_proxy::cleanup(&proxy_tables(paths)).await;
    kernel::put_back(&paths.kernel_settings())
}

/// Names of the service proxy's tables of this cluster.
pub fn proxy_tables(paths: &Paths) -> String {
    paths.id()
}

async fn stop_pods(paths: &Paths) -> anyhow::Result<()> {
    let cri = Client::new(&format!("unix://{}", paths.cri_socket().display()))?;
    let sandboxes = cri.list_pod_sandbox(ListPodSandboxRequest::default()).await?.items;
    let containers = cri.list_containers(ListContainersRequest::default()).await?.containers;
    let stops = sandboxes.iter().map(|sandbox| {
        let own: Vec<&str> =
            containers.iter().filter(|c| c.pod_sandbox_id == sandbox.id).map(|c| c.id.as_str()).collect();
        stop_pod(&cri, &sandbox.id, own)
    });
    for outcome in futures::future::join_all(stops).await {
        if let Err(error) = outcome {
            tracing::warn!(%error, "pod not stopped cleanly");
        }
    }
    Ok(())
}

async fn stop_pod(cri: &Client, sandbox: &str, containers: Vec<&str>) -> pintle_cri::Result<()> {
    let grace = i64::try_from(POD_GRACE.as_secs()).unwrap_or(i64::MAX);
    for stopped in futures::future::join_all(containers.iter().map(|id| cri.stop_container(id, grace))).await {
        stopped?;
    }
    cri.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() }).await?;
    cri.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() }).await?;
    Ok(())
}

/// Removes the namespace, cgroups, mounts and files of a stopped cluster.
pub async fn everything(paths: &Paths) -> anyhow::Result<()> {
    unmount_below(paths.root())?;
    if net::namespace_exists(&paths.id()) {
        net::remove_namespace(paths).await?;
        kernel::forget(&paths.kernel_settings())?;
    } else {
        remove_routes(&paths.routes(), routes::make).await?;
        if !kernel::is_shared(&paths.kernel_settings())? {
            hostports::remove_unused().await;
        }
    }
    for dir in cgroup::dirs(&paths.id()) {
        cgroup::remove(&dir);
    }
    owned::remove(paths.root())
}

/// Removes the routes that are on file. Without the file nobody would know of them: what failed must be tried again first.
async fn remove_routes<F>(file: &Path, make: impl Fn(Step) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let removed = Routes::read(file)?.bring(&Table::new(), make).await;
    anyhow::ensure!(removed, "routes to other nodes' pods are left: try again");
    Ok(())
}

/// Unmounts, deepest first, what is mounted below a directory; not what is mounted on it.
fn unmount_below(dir: &Path) -> anyhow::Result<()> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mount table")?;
    for point in mounts_below(&table, dir) {
        if let Err(error) = nix::mount::umount2(&point, nix::mount::MntFlags::MNT_DETACH) {
            tracing::warn!(%error, point = %point.display(), "not unmounted");
        }
    }
    Ok(())
}

fn mounts_below(table: &str, dir: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(dir) && point != dir)
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below_goes_deepest_first() {
        let table = "1 0 0:1 / / rw\n2 1 0:2 / /d rw\n3 1 0:3 / /d/a rw\n4 1 0:4 / /d/a/b\\040c rw\n5 1 0:5 / /da rw\n";
        assert_eq!(mounts_below(table, Path::new("/d")), [Path::new("/d/a/b c"), Path::new("/d/a")]);
    }

    #[tokio::test]
    async fn routes_that_stay_stop_the_removal() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("routes.json");
        remove_routes(&file, routes::make).await.expect("none");
        std::fs::write(&file, r#"{"10.42.1.0/24": "10.0.0.2"}"#).unwrap();
        let busy = |_| std::future::ready(Err(anyhow::anyhow!("busy")));
        assert!(remove_routes(&file, busy).await.is_err());
        assert!(std::fs::read_to_string(&file).unwrap().contains("10.42.1.0/24"), "still known");
        remove_routes(&file, |_| std::future::ready(Ok(()))).await.expect("removed");
        std::fs::write(&file, r#"{"10.42.1.0/24": "10."#).unwrap();
        assert!(remove_routes(&file, busy).await.is_err(), "it may have had routes");
    }
}
