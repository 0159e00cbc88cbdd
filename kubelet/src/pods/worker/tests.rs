//! A worker alone, with an API and a runtime that do not answer.

use serde_json::json;

use super::*;

/// The volume's contents wait for the API.
#[tokio::test]
async fn a_pod_ends_while_its_volumes_are_refreshed() {
    let dir = tempfile::tempdir().unwrap();
    let shared = crate::shared::silent(dir.path());
    let pod = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"containers": [{"name": "c"}],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}]}});
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
    let mut handle = spawn(shared, pod.clone(), None, || {});
    let send = |message| handle.messages.send(message).unwrap();
    send(Message::Progress(Progress::Prepared(Paths::new(), resources::for_pod(&pod))));
    send(Message::Refresh);
    send(Message::Fail("Evicted".to_owned(), "no room".to_owned()));
    let reason = |desired: &Desired| desired.status.as_ref().and_then(|s| s.reason.clone());
    let told = handle.status.wait_for(|desired| reason(desired).as_deref() == Some("Evicted"));
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("not held up").unwrap();
}
