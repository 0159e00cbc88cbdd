//! Removal of what is not needed any more: dead containers, sandboxes of pods that are gone, unused images.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use pintle_cri::Client;
use pintle_cri::messages as cri;

use crate::pods::model::{RuntimePod, State};
use crate::shared::Shared;

/// Time between two looks at the disk.
const IMAGE_PERIOD: Duration = Duration::from_secs(300);

/// Removes all sandboxes of a pod with their containers.
pub async fn remove_sandboxes(cri: &Client, pod: &RuntimePod) {
    for sandbox in &pod.sandboxes {
        remove_sandbox(cri, &sandbox.id).await;
    }
}

async fn remove_sandbox(cri: &Client, id: &str) {
    let stopped = cri.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).await;
    let remove = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
    let removed = match stopped {
        Ok(_) => cri.remove_pod_sandbox(remove).await.map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = removed.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }) {
        tracing::warn!(sandbox = id, %error, "sandbox not removed");
    }
}

/// What a living pod does not need: containers that ended, but for the last of each name, and sandboxes that are down,
/// but for the newest, once they are empty. (container ids with their log files, sandbox ids)
pub fn superfluous(pod: &RuntimePod) -> (Vec<(String, String)>, Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut containers = Vec::new();
    for record in pod.containers.iter().filter(|r| r.state == State::Exited) {
        let newest = pod.latest(&record.name).is_some_and(|n| n.id == record.id);
        // The newest ended one is kept beside a running one: it has the previous log.
        if !newest && !seen.insert(record.name.clone()) {
            containers.push((record.id.clone(), record.log_path.clone()));
        } else if newest {
            seen.insert(record.name.clone());
        }
    }
    let dropped: HashSet<&str> = containers.iter().map(|(id, _)| id.as_str()).collect();
    let used: HashSet<&str> =
        pod.containers.iter().filter(|c| !dropped.contains(c.id.as_str())).map(|c| c.sandbox_id.as_str()).collect();
    let old = pod.sandboxes.iter().skip(1).filter(|s| !s.ready && !used.contains(s.id.as_str()));
    let sandboxes = old.map(|s| s.id.clone()).collect();
    (containers, sandboxes)
}

/// Removes what a living pod does not need.
pub async fn prune(cri: &Client, pod: &RuntimePod) {
    let (containers, sandboxes) = superfluous(pod);
    for (id, log) in containers {
        match cri.remove_container(cri::RemoveContainerRequest { container_id: id.clone() }).await {
            Ok(_) => {
                let _ = tokio::fs::remove_file(log).await;
            }
            Err(error) => tracing::debug!(container = id, %error, "container not removed"),
        }
    }
    for id in sandboxes {
        remove_sandbox(cri, &id).await;
    }
}

/// Removes unused images for ever, whenever the disk is too full.
pub async fn collect_images(shared: &Shared) {
    let mut first_seen: HashMap<String, Instant> = HashMap::new();
    let success = shared.config.telemetry.success("image-garbage-collection");
    loop {
        tokio::time::sleep(IMAGE_PERIOD).await;
        match collect_once(shared, &mut first_seen).await {
            Ok(()) => success.now(),
            Err(error) => tracing::warn!(%error, "image garbage collection failed"),
        }
    }
}

async fn collect_once(shared: &Shared, first_seen: &mut HashMap<String, Instant>) -> pintle_cri::Result<()> {
    let images = shared.cri.list_images(cri::ListImagesRequest::default()).await?.images;
    let containers = shared.cri.list_containers(cri::ListContainersRequest::default()).await?.containers;
    let used: HashSet<String> = containers
        .into_iter()
        .flat_map(|c| [c.image_ref, c.image_id, c.image.map(|i| i.image).unwrap_or_default()])
        .collect();
    let now = Instant::now();
    first_seen.retain(|id, _| images.iter().any(|i| i.id == *id));
    for image in &images {
        first_seen.entry(image.id.clone()).or_insert(now);
    }
    let gc = shared.config.image_gc;
    let disk = shared.machine.disk(&shared.config.root_dir);
    let percent = |used: i64| if disk.total == 0 { 0 } else { used * 100 / disk.total };
    let in_use = disk.total - disk.available;
    if gc.high_percent >= 100 || percent(in_use) < i64::from(gc.high_percent) {
        return Ok(());
    }
    let mut to_free = in_use - disk.total / 100 * i64::from(gc.low_percent);
    let is_used = |i: &cri::Image| {
        used.contains(&i.id) || i.repo_tags.iter().chain(&i.repo_digests).any(|n| used.contains(n)) || i.pinned
    };
    let mut idle: Vec<cri::Image> = images.into_iter().filter(|i| !is_used(i)).collect();
    idle.sort_by_key(|i| shared.images.last_used(&i.id));
    for image in idle {
        let young = first_seen.get(&image.id).is_none_or(|at| at.elapsed() < gc.minimum_age);
        if to_free <= 0 || young {
            continue;
        }
        let spec = cri::ImageSpec { image: image.id.clone(), ..cri::ImageSpec::default() };
        shared.cri.remove_image(cri::RemoveImageRequest { image: Some(spec) }).await?;
        shared.images.forget(&image.id);
        to_free -= i64::try_from(image.size).unwrap_or(0);
    }
    if to_free > 0 {
        let text = format!("Failed to garbage collect required amount of images. Still to free: {to_free} bytes.");
        shared.events.warning(&shared.node_reference(), "FreeDiskSpaceFailed", text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::model::{Record, Sandbox};

    #[test]
    fn the_last_dead_container_of_a_name_is_kept() {
        let record = |id: &str, state, at| Record {
            id: id.to_owned(),
            name: "a".to_owned(),
            sandbox_id: "s".to_owned(),
            state,
            created_at: at,
            ..Record::default()
        };
        let sandbox = |id: &str, ready, at| Sandbox { id: id.to_owned(), ready, created_at: at, ..Sandbox::default() };
        let mut pod = RuntimePod {
            sandboxes: vec![sandbox("s", true, 3), sandbox("old", false, 1)],
            containers: vec![
                record("1", State::Exited, 1),
                record("2", State::Exited, 2),
                record("3", State::Running, 3),
            ],
        };
        pod.sort();
        let ids = |pod: &RuntimePod| {
            let (containers, sandboxes) = superfluous(pod);
            (containers.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), sandboxes)
        };
        assert_eq!(ids(&pod), (vec!["1".to_owned()], vec!["old".to_owned()]));
        pod.containers.remove(0);
        assert_eq!(ids(&pod).0, ["1"]);
    }
}
