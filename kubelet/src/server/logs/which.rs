//! Which container's log a request means: the present one's or an earlier one's, by the pod's status.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};

/// The runtime's id (without scheme) of the container whose log is meant, or what to tell the client.
pub(in crate::server) fn container_id(pod: &Pod, container: &str, previous: bool) -> Result<String, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status =
        find(pod, container).ok_or_else(|| format!("container {container:?} in pod {name:?} is not available"))?;
    let none = ContainerState::default();
    let (now, last) = (status.state.as_ref().unwrap_or(&none), status.last_state.as_ref().unwrap_or(&none));
    let ended = |state: &Option<ContainerStateTerminated>| state.as_ref().and_then(|state| id(&state.container_id));
    let terminated = || format!("container {container:?} in pod {name:?} is terminated");
    if previous {
        return ended(&last.terminated)
            .ok_or_else(|| format!("previous terminated container {container:?} in pod {name:?} not found"));
    }
    if now.running.is_some() {
        return id(&status.container_id).ok_or_else(|| waiting(container, name, None));
    }
    if now.terminated.is_some() {
        return ended(&now.terminated).or_else(|| ended(&last.terminated)).ok_or_else(terminated);
    }
    if last.terminated.is_some() {
        return ended(&last.terminated).ok_or_else(terminated);
    }
    Err(waiting(container, name, now.waiting.as_ref().map(|state| state.reason.as_deref().unwrap_or_default())))
}

fn waiting(container: &str, pod: &str, reason: Option<&str>) -> String {
    let reason = match reason {
        None => return format!("container {container:?} in pod {pod:?} is waiting to start - no logs yet"),
        Some("ErrImagePull") => "image can't be pulled",
        Some("ImagePullBackOff") => "trying and failing to pull image",
        Some(reason) => reason,
    };
    format!("container {container:?} in pod {pod:?} is waiting to start: {reason}")
}

fn find<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == container)
}

/// `containerd://abc` → `abc`.
fn id(id: &Option<String>) -> Option<String> {
    let id = id.as_deref()?;
    let id = id.split_once("://").map_or(id, |(_, id)| id);
    (!id.is_empty()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(state: Value, last: Value) -> Pod {
        let status = json!({
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "containerID": "containerd://now", "state": state, "lastState": last,
        });
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}})).unwrap()
    }

    #[test]
    fn the_right_container_is_chosen() {
        let running = || json!({"running": {}});
        let ended = || json!({"terminated": {"exitCode": 1, "containerID": "containerd://old"}});
        let nameless = || json!({"terminated": {"exitCode": 1}});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let cases: Vec<(Value, Value, bool, Result<&str, &str>)> = vec![
            (running(), json!({}), false, Ok("now")),
            (running(), ended(), true, Ok("old")),
            (running(), json!({}), true, Err("previous terminated container \"c\" in pod \"p\" not found")),
            (ended(), json!({}), false, Ok("old")),
            (nameless(), ended(), false, Ok("old")),
            (nameless(), json!({}), false, Err("container \"c\" in pod \"p\" is terminated")),
            (waits("CrashLoopBackOff"), ended(), false, Ok("old")),
            (
                waits("ContainerCreating"),
                json!({}),
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
            ),
            (
                waits("ImagePullBackOff"),
                json!({}),
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image"),
            ),
            (json!({}), json!({}), false, Err("container \"c\" in pod \"p\" is waiting to start - no logs yet")),
        ];
        for (state, last, previous, expected) in cases {
            let found = container_id(&pod(state.clone(), last), "c", previous);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{state}");
        }
        assert_eq!(
            container_id(&pod(running(), json!({})), "x", false),
            Err("container \"x\" in pod \"p\" is not available".into())
        );
    }
}
