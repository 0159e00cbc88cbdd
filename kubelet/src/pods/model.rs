//! What the runtime has of a pod, in the shape that planning and status need.

use std::collections::BTreeMap;

use pintle_cri::messages as cri;

/// Labels and annotations that sandboxes and containers carry, so that a restarted kubelet finds its own again.
pub mod label {
    /// Pod name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Pod namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Pod uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Container name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Annotation: hash of what forces a restart when it changes.
    pub const HASH: &str = "io.kubernetes.container.hash";
    /// Annotation: how often the container was restarted.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Annotation: path of the termination message in the container.
    pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Annotation: where the termination message comes from.
    pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// Annotation: the pod's grace period in seconds.
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// Annotation: the grace period of the pod's deletion in seconds, if it is being deleted.
    pub const DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
    /// Annotation: the container's ports as JSON.
    pub const PORTS: &str = "io.kubernetes.container.ports";
}

/// A pod sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// How many sandboxes the pod had before this one.
    pub attempt: u32,
    /// Everything that the sandbox needs is up.
    pub ready: bool,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// The pod's addresses; empty on the host's network.
    pub ips: Vec<String>,
    /// The sandbox is on the host's network.
    pub host_network: bool,
}

/// A container's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Made, never started.
    #[default]
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container, dead or alive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The runtime's id.
    pub id: String,
    /// Name in the pod.
    pub name: String,
    /// How often it was restarted before this one.
    pub restart_count: u32,
    /// The sandbox that it is in.
    pub sandbox_id: String,
    /// State.
    pub state: State,
    /// Nanoseconds since the epoch, each zero if it did not happen.
    pub created_at: i64,
    /// When the process began.
    pub started_at: i64,
    /// When the process ended.
    pub finished_at: i64,
    /// Exit code.
    pub exit_code: i32,
    /// The runtime's word for why it ended, such as `OOMKilled`.
    pub reason: String,
    /// Message of the runtime, or the container's own termination message.
    pub message: String,
    /// The image as the runtime names it.
    pub image: String,
    /// The image's digest reference.
    pub image_ref: String,
    /// The annotation [`label::HASH`].
    pub hash: String,
    /// Path of the log file.
    pub log_path: String,
    /// Host path of the termination message file, if it is mounted.
    pub termination_file: Option<String>,
    /// The annotation [`label::TERMINATION_POLICY`].
    pub termination_policy: String,
    /// uid, gid and groups of the first process, if the runtime tells.
    pub user: Option<(i64, i64, Vec<i64>)>,
}

/// All that the runtime has of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePod {
    /// Sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Containers, newest first.
    pub containers: Vec<Record>,
}

impl RuntimePod {
    /// The newest sandbox.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The newest container of that name, whatever sandbox it is in.
    pub fn latest(&self, name: &str) -> Option<&Record> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The newest container of that name in a sandbox.
    pub fn latest_in(&self, sandbox_id: &str, name: &str) -> Option<&Record> {
        self.containers.iter().find(|c| c.name == name && c.sandbox_id == sandbox_id)
    }

    /// Containers that run.
    pub fn running(&self) -> impl Iterator<Item = &Record> {
        self.containers.iter().filter(|c| c.state == State::Running)
    }

    /// Puts everything in the order that the other methods rely on.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
        self.containers.sort_by_key(|c| std::cmp::Reverse((c.created_at, c.restart_count)));
    }
}

impl Sandbox {
    /// Reads a sandbox's status.
    pub fn from_status(status: &cri::PodSandboxStatus) -> Self {
        let network = status.network.as_ref();
        let first = network.map(|n| n.ip.clone()).filter(|ip| !ip.is_empty());
        let more = network.into_iter().flat_map(|n| n.additional_ips.iter().map(|p| p.ip.clone()));
        let options = status.linux.as_ref().and_then(|l| l.namespaces.as_ref()).and_then(|n| n.options.as_ref());
        Self {
            id: status.id.clone(),
            attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
            ready: status.state == cri::PodSandboxState::Ready as i32,
            created_at: status.created_at,
            ips: first.into_iter().chain(more).collect(),
            host_network: options.is_some_and(|o| o.network == cri::NamespaceMode::Node as i32),
        }
    }
}

impl Record {
    /// Reads a container's status; the sandbox's id is not part of it.
    pub fn from_status(status: &cri::ContainerStatus, sandbox_id: &str) -> Self {
        let annotation = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
        let path = annotation(label::TERMINATION_PATH);
        let mount = status.mounts.iter().find(|m| !path.is_empty() && m.container_path == path);
        let user = status.user.as_ref().and_then(|u| u.linux.as_ref());
        Self {
            id: status.id.clone(),
            name: status.labels.get(label::CONTAINER_NAME).cloned().unwrap_or_default(),
            restart_count: annotation(label::RESTART_COUNT).parse().unwrap_or(0),
            sandbox_id: sandbox_id.to_owned(),
            state: state(status.state),
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            image: status.image.as_ref().map(|i| i.image.clone()).unwrap_or_default(),
            image_ref: status.image_ref.clone(),
            hash: annotation(label::HASH),
            log_path: status.log_path.clone(),
            termination_file: mount.map(|m| m.host_path.clone()),
            termination_policy: annotation(label::TERMINATION_POLICY),
            user: user.map(|u| (u.uid, u.gid, u.supplemental_groups.clone())),
        }
    }
}

/// Reads a container state of the protocol.
pub fn state(number: i32) -> State {
    match cri::ContainerState::try_from(number) {
        Ok(cri::ContainerState::Created) => State::Created,
        Ok(cri::ContainerState::Running) => State::Running,
        Ok(cri::ContainerState::Exited) => State::Exited,
        _ => State::Unknown,
    }
}

/// A label selector for all that belongs to a pod.
pub fn selector(uid: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(label::POD_UID.to_owned(), uid.to_owned())])
}
