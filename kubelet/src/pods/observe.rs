//! Asks the runtime what it has of a pod.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use pintle_cri::messages as cri;
use pintle_cri::{Client, Result};

use super::model::{self, Record, RuntimePod, Sandbox, State, label};

/// Longest termination message in bytes.
const MAX_MESSAGE: u64 = 4096;
/// Longest termination message that is taken from the log, in bytes and lines.
const MAX_LOG_MESSAGE: u64 = 2048;
const MAX_LOG_LINES: usize = 80;

/// Everything of one pod. What cannot have changed since `before` is not asked for again.
pub async fn observe(cri: &Client, uid: &str, before: &RuntimePod) -> Result<RuntimePod> {
    let filter = cri::PodSandboxFilter { label_selector: model::selector(uid), ..cri::PodSandboxFilter::default() };
    let sandboxes = cri.list_pod_sandbox(cri::ListPodSandboxRequest { filter: Some(filter) });
    let filter = cri::ContainerFilter { label_selector: model::selector(uid), ..cri::ContainerFilter::default() };
    let containers = cri.list_containers(cri::ListContainersRequest { filter: Some(filter) });
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    let mut pod = RuntimePod::default();
    for item in sandboxes.items {
        let ready = item.state == cri::PodSandboxState::Ready as i32;
        match before.sandboxes.iter().find(|s| s.id == item.id && s.ready == ready) {
            Some(known) => pod.sandboxes.push(known.clone()),
            None => pod.sandboxes.extend(sandbox(cri, &item.id).await?),
        }
    }
    for item in containers.containers {
        let state = model::state(item.state);
        match before.containers.iter().find(|c| c.id == item.id && c.state == state) {
            Some(known) => pod.containers.push(known.clone()),
            None => pod.containers.extend(container(cri, &item).await?),
        }
    }
    pod.sort();
    Ok(pod)
}

async fn sandbox(cri: &Client, id: &str) -> Result<Option<Sandbox>> {
    let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
    match cri.pod_sandbox_status(request).await {
        Ok(answer) => Ok(answer.status.as_ref().map(Sandbox::from_status)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn container(cri: &Client, item: &cri::Container) -> Result<Option<Record>> {
    let request = cri::ContainerStatusRequest { container_id: item.id.clone(), verbose: false };
    match cri.container_status(request).await {
        Ok(answer) => {
            let mut record = answer.status.as_ref().map(|s| Record::from_status(s, &item.pod_sandbox_id));
            if let Some(record) = record.as_mut().filter(|r| r.state == State::Exited) {
                read_message(record);
            }
            Ok(record)
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds the container's own last words to what the runtime says.
fn read_message(record: &mut Record) {
    let mut text = record.termination_file.as_deref().map(|f| tail(Path::new(f), MAX_MESSAGE)).unwrap_or_default();
    if text.is_empty() && record.termination_policy == "FallbackToLogsOnError" && record.exit_code != 0 {
        text = log_tail(&tail(Path::new(&record.log_path), 4 * MAX_LOG_MESSAGE));
    }
    if !text.is_empty() {
        if record.message.is_empty() {
            record.message = text;
        } else {
            record.message = format!("{}: {text}", record.message);
        }
    }
}

/// The last `limit` bytes of a file.
fn tail(path: &Path, limit: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
}

/// Message text from the end of a log in CRI's format (`time stream P|F text`).
fn log_tail(log: &str) -> String {
    let mut text = String::new();
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(MAX_LOG_LINES)..] {
        let mut fields = line.splitn(4, ' ');
        if let (Some(_), Some(_), Some(tag), Some(content)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        {
            text.push_str(content);
            if !tag.starts_with('P') {
                text.push('\n');
            }
        }
    }
    let from = text.len().saturating_sub(usize::try_from(MAX_LOG_MESSAGE).unwrap_or(usize::MAX));
    let from = (from..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.split_off(from)
}

/// One line of the whole node's list: enough to see that something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Id of a sandbox or container.
    pub id: String,
    /// Its state.
    pub state: i32,
}

/// What the whole node runs, by pod uid.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Marks by uid, sorted by id.
    pub pods: HashMap<String, Vec<Mark>>,
    /// Names of pods by uid: (namespace, name).
    pub names: HashMap<String, (String, String)>,
}

/// Lists all sandboxes and containers of the node that carry a kubelet's labels.
pub async fn list(cri: &Client) -> Result<Listing> {
    let (sandboxes, containers) = tokio::try_join!(
        cri.list_pod_sandbox(cri::ListPodSandboxRequest::default()),
        cri.list_containers(cri::ListContainersRequest::default()),
    )?;
    let mut listing = Listing::default();
    let sandboxes = sandboxes.items.into_iter().map(|s| (s.labels, Mark { id: s.id, state: s.state }));
    let containers = containers.containers.into_iter().map(|c| (c.labels, Mark { id: c.id, state: c.state }));
    for (labels, mark) in sandboxes.chain(containers) {
        let Some(uid) = labels.get(label::POD_UID) else { continue };
        let text = |key| labels.get(key).cloned().unwrap_or_default();
        listing.names.entry(uid.clone()).or_insert_with(|| (text(label::POD_NAMESPACE), text(label::POD_NAME)));
        listing.pods.entry(uid.clone()).or_default().push(mark);
    }
    for marks in listing.pods.values_mut() {
        marks.sort_by(|a, b| a.id.cmp(&b.id));
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_text() {
        let log =
            "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n";
        assert_eq!(log_tail(log), "one\ntwo\n");
        let long = format!("t s F {}\n", "x".repeat(3000));
        assert_eq!(log_tail(&long).len(), 2048);
    }
}
