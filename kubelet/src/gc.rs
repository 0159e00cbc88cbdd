//! Removal of what is not needed any more: dead containers, sandboxes of pods that are gone, unused images.

use pintle_cri::Client;
use pintle_cri::messages as cri;

use crate::pods::model::RuntimePod;

/// Removes all sandboxes of a pod with their containers.
pub async fn remove_sandboxes(cri: &Client, pod: &RuntimePod) {
    for sandbox in &pod.sandboxes {
        let stop = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
        let stopped = cri.stop_pod_sandbox(stop).await;
        let remove = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
        let removed = match stopped {
            Ok(_) => cri.remove_pod_sandbox(remove).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = removed.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) }) {
            tracing::warn!(sandbox = sandbox.id, %error, "sandbox not removed");
        }
    }
}
