//! The task of one pod: observe → plan → execute, again after every change.
//!
//! One sequence of steps runs at a time, in a task of its own, so that the worker stays responsive: kills, probes and
//! status do not wait for a pull. Everything that happens comes in as a [`Message`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::memory::{Failure, Health, Memory};
use super::model::{Record, RuntimePod};
use super::plan::{self, Action, End, Plan, Termination, View, Waiting};
use super::resize::{self, Pending};
use super::steps::{self, Progress};
use super::writer::{self, Desired, Target};
use super::{kill, observe, spec, status};
use crate::admission::Rejection;
use crate::container::field::Addresses;
use crate::container::resources::{self, PodLimits};
use crate::gc;
use crate::log_rotation;
use crate::probes;
use crate::shared::Shared;
use crate::volumes::{self, Disk, Paths};

/// An image whose pull failed is shown as `ErrImagePull` for so long, then as `ImagePullBackOff`.
const SHOW_PULL_ERROR: SignedDuration = SignedDuration::from_secs(3);
/// A runtime that does not answer is asked again after this time.
const RETRY_OBSERVE: Duration = Duration::from_secs(1);

/// What can happen to a pod.
#[derive(Debug)]
pub enum Message {
    /// A new version of the object, with the resources that the node grants, and why not with others.
    Pod(Arc<Pod>, Option<Pending>),
    /// The object is gone.
    Gone,
    /// The node refuses or ends the pod: (reason, message).
    Fail(String, String),
    /// Something changed at the runtime.
    Changed,
    /// Refresh what volumes contain.
    Refresh,
    /// That is done.
    Refreshed,
    /// A step made progress.
    Progress(Progress),
    /// The steps are done.
    StepsDone,
    /// A kill has ended: container id, and whether it worked.
    Killed(String, bool),
    /// A probe of a container (by id) found something new.
    Health(String, Health),
    /// The API object that shows the pod, for a static one.
    Mirror(Target),
}

/// What the manager keeps of a worker.
#[derive(Clone)]
pub struct Handle {
    /// Where its messages go.
    pub messages: mpsc::UnboundedSender<Message>,
    /// The status that it computed last.
    pub status: watch::Receiver<Desired>,
}

/// Starts the worker of a pod; `on_end` is called when nothing of the pod is left. A pod that the node rejects is failed
/// without being started.
pub fn spawn(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    rejected: Option<Rejection>,
    on_end: impl FnOnce() + Send + 'static,
) -> Handle {
    let (messages, inbox) = mpsc::unbounded_channel();
    let (desired, receiver) = watch::channel(Desired::default());
    let handle = Handle { messages: messages.clone(), status: receiver };
    let termination = rejected.map(|Rejection { reason, message }| {
        shared.events.warning(&spec::reference(&pod), &reason, message.clone());
        Termination {
            end: End::Failed(reason, format!("Pod was rejected: {message}")),
            since: Timestamp::now(),
            grace: 0,
        }
    });
    let group = Some(resources::for_pod(&pod));
    let worker = Worker {
        shared,
        pod,
        messages,
        desired,
        runtime: RuntimePod::default(),
        memory: Memory { group, ..Memory::default() },
        pending: None,
        resized_at: None,
        termination,
        disk: Disk::default(),
        paths: None,
        steps: None,
        refresh: Refresh::default(),
        probes: HashMap::new(),
        last: None,
        wake_at: None,
        seen: Timestamp::now(),
        gone: false,
        observed: false,
        cleaned: false,
        writer: None,
        announced: BTreeMap::new(),
    };
    tokio::spawn(async move {
        worker.run(inbox).await;
        on_end();
    });
    handle
}

struct Worker {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    messages: mpsc::UnboundedSender<Message>,
    desired: watch::Sender<Desired>,
    runtime: RuntimePod,
    memory: Memory,
    /// Other resources are asked for and not granted.
    pending: Option<Pending>,
    /// The generation whose resources were granted last.
    resized_at: Option<i64>,
    termination: Option<Termination>,
    disk: Disk,
    paths: Option<Paths>,
    steps: Option<JoinHandle<()>>,
    refresh: Refresh,
    /// Probe tasks by container id.
    probes: HashMap<String, probes::Probes>,
    last: Option<Arc<PodStatus>>,
    wake_at: Option<Timestamp>,
    seen: Timestamp,
    /// The API object (or file) is gone.
    gone: bool,
    /// The runtime was looked at since it last changed: only then is something started.
    observed: bool,
    /// Mounts and control group of the ended pod are gone.
    cleaned: bool,
    writer: Option<JoinHandle<()>>,
    /// Waiting reasons that an event was written for, by container.
    announced: BTreeMap<String, Waiting>,
}

/// Bringing volumes up to date, which may wait for the API for long: a task of its own.
#[derive(Default)]
struct Refresh {
    running: Option<JoinHandle<()>>,
    /// Something changed meanwhile.
    again: bool,
}

impl Worker {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        if !spec::is_static(&self.pod) {
            let pod = &self.pod;
            let target = Target {
                namespace: spec::namespace(pod).to_owned(),
                name: spec::name(pod).to_owned(),
                uid: spec::uid(pod).to_owned(),
            };
            self.write_to(target, self.pod.status.clone());
        }
        tracing::debug!(pod = spec::full_name(&self.pod), "worker begins");
        self.note_deletion();
        self.observe().await;
        loop {
            let over = self.round().await;
            if over {
                break;
            }
            let wake = self.wake_at.map(|at| at.duration_since(Timestamp::now()));
            let wake = wake.map_or(self.shared.config.sync_frequency, |d| d.try_into().unwrap_or(Duration::ZERO));
            tokio::select! {
                () = self.shared.shutdown.cancelled() => break,
                message = inbox.recv() => match message {
                    Some(message) => self.handle_all(message, &mut inbox).await,
                    None => break,
                },
                () = tokio::time::sleep(wake) => {}
            }
        }
        for task in [self.steps.take(), self.refresh.running.take()].into_iter().flatten() {
            task.abort();
        }
        self.shared.probes.forget(spec::namespace(&self.pod), spec::name(&self.pod), spec::uid(&self.pod));
        if let Some(writer) = self.writer.take() {
            writer.abort();
        }
    }

    fn write_to(&mut self, target: Target, first: Option<PodStatus>) {
        if let Some(old) = self.writer.take() {
            old.abort();
        }
        let mut receiver = self.desired.subscribe();
        receiver.mark_changed();
        self.writer = Some(tokio::spawn(writer::run(self.shared.client.clone(), target, first, receiver)));
    }

    /// Takes in all that waits, then looks at the runtime once if anything said that it changed.
    async fn handle_all(&mut self, first: Message, inbox: &mut mpsc::UnboundedReceiver<Message>) {
        let mut look = self.handle(first).await;
        while let Ok(message) = inbox.try_recv() {
            look |= self.handle(message).await;
        }
        if look {
            self.observe().await;
        }
    }

    /// Takes a message in; true if the runtime is to be looked at.
    async fn handle(&mut self, message: Message) -> bool {
        match message {
            Message::Pod(pod, pending) => {
                self.note_resize(&pod, pending);
                let labels = pod.metadata.labels != self.pod.metadata.labels
                    || pod.metadata.annotations != self.pod.metadata.annotations;
                self.pod = pod;
                self.note_deletion();
                if labels {
                    self.refresh();
                }
                false
            }
            Message::Gone => {
                self.gone = true;
                let grace = self.pod.metadata.deletion_grace_period_seconds.filter(|g| *g > 0);
                self.end(End::Deleted, grace.unwrap_or_else(|| spec::grace_period(&self.pod)).max(1));
                false
            }
            Message::Fail(reason, message) => {
                self.end(End::Failed(reason, message), spec::grace_period(&self.pod));
                false
            }
            Message::Changed => true,
            Message::Refresh => {
                self.tidy();
                self.refresh();
                false
            }
            Message::Refreshed => {
                self.refresh.running = None;
                if std::mem::take(&mut self.refresh.again) {
                    self.refresh();
                }
                false
            }
            Message::Progress(progress) => self.progress(progress),
            Message::StepsDone => {
                self.steps = None;
                false
            }
            Message::Killed(id, worked) => {
                self.memory.killing.remove(&id);
                if !worked {
                    self.wake_at = Some(Timestamp::now() + SignedDuration::from_secs(1));
                }
                true
            }
            Message::Health(id, health) => {
                if self.memory.health.contains_key(&id) {
                    self.memory.health.insert(id, health);
                }
                false
            }
            Message::Mirror(target) => {
                self.write_to(target, None);
                false
            }
        }
    }

    fn progress(&mut self, progress: Progress) -> bool {
        let now = Timestamp::now();
        match progress {
            Progress::Resources(id, resources) => {
                self.memory.actuated.insert(id, resources);
                false
            }
            Progress::Resized(outcome) => {
                self.resized(outcome);
                false
            }
            Progress::Prepared(paths, limits) => {
                self.memory.group = Some(limits);
                self.paths = Some(paths);
                self.memory.failure = None;
                false
            }
            Progress::Failed(failure) => {
                self.memory.failure = Some(failure);
                true
            }
            Progress::Sandbox => {
                self.memory.failure = None;
                true
            }
            Progress::Stopped(id) => {
                self.memory.stopped.insert(id);
                true
            }
            Progress::Start { name, crashed, failure } => {
                self.started(name, crashed, failure, now);
                true
            }
        }
    }

    fn started(&mut self, name: String, crashed: bool, failure: Option<Failure>, now: Timestamp) {
        if failure.is_none() {
            self.announced.remove(&name);
        }
        let memory = self.memory.containers.entry(name).or_default();
        if crashed {
            memory.crash.next(now);
        }
        memory.failure = failure;
        match &mut memory.failure {
            None => memory.pull = Default::default(),
            Some(failure) if failure.reason == "ErrImagePull" => {
                memory.pull.next(now);
                failure.retry_at = now + memory.pull.delay();
            }
            Some(_) => {}
        }
    }

    /// Sees what becomes of the resources that a new version of the object asks for.
    fn note_resize(&mut self, pod: &Arc<Pod>, pending: Option<Pending>) {
        let events = &self.shared.events;
        let about = spec::reference(pod);
        if let Some(p) = pending.as_ref().filter(|p| self.pending.as_ref() != Some(*p)) {
            events.warning(&about, &format!("Resize{}", p.reason), format!("Pod resize {}: {}", p.reason, p.message));
        }
        if resize::differs(pod, &self.pod) {
            self.memory.unresized = None;
            self.resized_at = pod.metadata.generation;
            events.normal(&about, "ResizeStarted", format!("Pod resize started: {}", resize::summary(pod)));
        }
        self.pending = pending;
    }

    fn resized(&mut self, outcome: Result<PodLimits, Failure>) {
        let about = spec::reference(&self.pod);
        match outcome {
            Ok(limits) => {
                self.memory.group = Some(limits);
                self.memory.unresized = None;
                if !resize::in_progress(&self.pod, &self.runtime, &self.memory) {
                    let text = format!("Pod resize completed: {}", resize::summary(&self.pod));
                    self.shared.events.normal(&about, "ResizeCompleted", text);
                }
            }
            Err(failure) => {
                self.shared.events.warning(&about, "ResizeError", format!("Pod resize error: {}", failure.message));
                self.memory.unresized = Some(failure);
            }
        }
    }

    /// Sees whether the object asks for the pod's end, or for a quicker one.
    fn note_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace = self.pod.metadata.deletion_grace_period_seconds;
            self.end(End::Deleted, grace.unwrap_or_else(|| spec::grace_period(&self.pod)).max(1));
        }
    }

    fn end(&mut self, end: End, grace: i64) {
        let now = Timestamp::now();
        match &mut self.termination {
            None => {
                self.termination = Some(Termination { end, since: now, grace });
                // A pull, a back-off or a sandbox in the making is of no use any more; a started container will be seen.
                if let Some(steps) = self.steps.take() {
                    steps.abort();
                    let _ = self.messages.send(Message::Changed);
                }
            }
            Some(known)
                if now + SignedDuration::from_secs(grace) < known.since + SignedDuration::from_secs(known.grace) =>
            {
                known.since = now;
                known.grace = grace;
                // Kill again, with less time.
                for id in std::mem::take(&mut self.memory.killing) {
                    self.kill(id, String::new(), grace, String::new(), true);
                }
            }
            Some(_) => {}
        }
    }

    async fn observe(&mut self) {
        match observe::observe(&self.shared.cri, spec::uid(&self.pod), &self.runtime).await {
            Ok(runtime) => {
                self.observed = true;
                self.runtime = runtime;
                self.watch_health();
            }
            Err(error) => {
                tracing::debug!(pod = spec::full_name(&self.pod), %error, "runtime not observed");
                self.observed = false;
                let messages = self.messages.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(RETRY_OBSERVE).await;
                    let _ = messages.send(Message::Changed);
                });
            }
        }
    }

    /// Starts the probes of containers that run, ends those of containers that do not.
    fn watch_health(&mut self) {
        let running: Vec<Record> = self.runtime.running().cloned().collect();
        self.probes.retain(|id, _| running.iter().any(|r| r.id == *id));
        self.memory.health.retain(|id, _| running.iter().any(|r| r.id == *id));
        self.note_resources(&running);
        for record in running {
            if self.memory.health.contains_key(&record.id) {
                continue;
            }
            let Some((kind, container)) = spec::container(&self.pod, &record.name) else { continue };
            let before = self.reported(&record);
            let (health, probes) = probes::start(probes::Subject {
                shared: self.shared.clone(),
                pod: self.pod.clone(),
                kind,
                container: container.into_owned(),
                id: record.id.clone(),
                started_at: record.started_at,
                ip: self.ips().first().cloned().unwrap_or_default(),
                before,
                messages: self.messages.clone(),
            });
            self.memory.health.insert(record.id.clone(), health);
            if let Some(probes) = probes {
                self.probes.insert(record.id, probes);
            }
        }
    }

    /// Notes what running containers have that this process did not start, and forgets those that are gone.
    fn note_resources(&mut self, running: &[Record]) {
        let there = |id: &String| self.runtime.containers.iter().any(|c| c.id == *id);
        self.memory.actuated.retain(|id, _| there(id));
        self.memory.restart.retain(there);
        for record in running.iter().filter(|r| !self.memory.actuated.contains_key(&r.id)).collect::<Vec<_>>() {
            let told = self.shown(record).and_then(|s| s.resources.clone());
            let known = spec::container(&self.pod, &record.name);
            let resources = told.or_else(|| known.and_then(|(_, c)| c.resources.clone()));
            self.memory.actuated.insert(record.id.clone(), resources);
        }
    }

    /// What the API shows of a container.
    fn shown(&self, record: &Record) -> Option<&ContainerStatus> {
        let status = self.pod.status.as_ref()?;
        let lists = [&status.container_statuses, &status.init_container_statuses];
        let id = format!("containerd://{}", record.id);
        lists.into_iter().flatten().flatten().find(|s| s.container_id.as_deref() == Some(&id))
    }

    /// What the API says of a running container: kept over a restart of the kubelet.
    fn reported(&self, record: &Record) -> Option<Health> {
        let found = self.shown(record)?;
        Some(Health { started: found.started == Some(true), ready: found.ready, failed: None })
    }

    fn ips(&self) -> Vec<String> {
        if spec::host_network(&self.pod) {
            return self.shared.config.host_ips();
        }
        plan::usable_sandbox(&self.pod, &self.runtime).map(|s| s.ips.clone()).unwrap_or_default()
    }

    /// One round: plan, start what is to be done, say what is. True if nothing of the pod is left.
    async fn round(&mut self) -> bool {
        let now = Timestamp::now();
        self.check_deadline(now);
        self.age_pull_errors(now);
        let view = View {
            pod: &self.pod,
            runtime: &self.runtime,
            memory: &self.memory,
            termination: self.termination.as_ref(),
            now,
        };
        let plan = plan::plan(view);
        self.wake_at = plan.wake_at;
        if let Some(at) = self.deadline() {
            self.wake_at = Some(self.wake_at.map_or(at, |t| t.min(at)));
        }
        let mut done = plan.done && self.steps.is_none() && self.observed;
        if done && !self.cleaned {
            self.clean().await;
            done = self.cleaned;
        }
        self.publish(&plan, done, now);
        self.announce(&plan);
        self.execute(plan);
        done && self.gone && {
            self.remove().await;
            true
        }
    }

    /// When the pod's active deadline ends it.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = spec::spec(&self.pod).active_deadline_seconds?;
        let start = self.last.as_ref().and_then(|s| s.start_time.clone())?;
        self.termination.is_none().then(|| start.0 + SignedDuration::from_secs(seconds))
    }

    fn check_deadline(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|at| at <= now) {
            let text = "Pod was active on the node longer than the specified deadline";
            self.shared.events.normal(&spec::reference(&self.pod), "DeadlineExceeded", text);
            self.end(End::Failed("DeadlineExceeded".to_owned(), text.to_owned()), spec::grace_period(&self.pod));
        }
    }

    /// Turns a pull error into a back-off after it was shown for a while.
    fn age_pull_errors(&mut self, now: Timestamp) {
        for memory in self.memory.containers.values_mut() {
            let Some(failure) = &mut memory.failure else { continue };
            let since = failure.retry_at - memory.pull.delay();
            if failure.reason == "ErrImagePull" && now >= since + SHOW_PULL_ERROR {
                let image = failure.image.as_deref().unwrap_or_default();
                failure.message = format!("Back-off pulling image {image:?}: ErrImagePull: {}", failure.message);
                failure.reason = "ImagePullBackOff".to_owned();
            }
        }
    }

    /// How far a resize has come.
    fn resize(&self) -> status::Resize<'_> {
        let ends = self.termination.is_some() || plan::finished(&self.pod, &self.runtime, &self.memory);
        let lasts = !ends && resize::in_progress(&self.pod, &self.runtime, &self.memory);
        let trouble = self.memory.unresized.as_ref().map(|f| f.message.as_str()).unwrap_or_default();
        status::Resize {
            pending: self.pending.as_ref().filter(|_| !ends),
            in_progress: lasts.then_some((self.resized_at, trouble)),
        }
    }

    fn publish(&mut self, plan: &Plan, done: bool, now: Timestamp) {
        let status = status::status(status::Facts {
            pod: &self.pod,
            runtime: &self.runtime,
            memory: &self.memory,
            waiting: &plan.waiting,
            termination: self.termination.as_ref(),
            done,
            resize: self.resize(),
            last: self.last.as_deref(),
            host_ips: &self.shared.config.host_ips(),
            seen: self.seen,
            now,
        });
        let status = match &self.last {
            Some(last) if **last == status => last.clone(),
            _ => Arc::new(status),
        };
        let remove = done && self.pod.metadata.deletion_timestamp.is_some() && !spec::is_static(&self.pod);
        self.last = Some(status.clone());
        self.desired.send_if_modified(|desired| {
            let same = desired.status.as_ref().is_some_and(|s| Arc::ptr_eq(s, &status)) && desired.remove == remove;
            if !same {
                *desired = Desired { status: Some(status), remove };
            }
            !same
        });
    }

    /// Events about back-offs, once for each new one.
    fn announce(&mut self, plan: &Plan) {
        for (name, waiting) in &plan.waiting {
            if self.announced.get(name) == Some(waiting) {
                continue;
            }
            let Some((kind, _)) = spec::container(&self.pod, name) else { continue };
            let about = spec::container_reference(&self.pod, kind, name);
            let events = &self.shared.events;
            match waiting.reason.as_str() {
                "CrashLoopBackOff" => {
                    let pod = spec::full_name(&self.pod);
                    events.warning(
                        &about,
                        "BackOff",
                        format!("Back-off restarting failed container {name} in pod {pod}"),
                    );
                }
                "ImagePullBackOff" => {
                    let failure = self.memory.containers.get(name).and_then(|m| m.failure.as_ref());
                    let image = failure.and_then(|f| f.image.as_deref()).unwrap_or_default();
                    events.normal(&about, "BackOff", format!("Back-off pulling image {image:?}"));
                    events.warning(&about, "Failed", "Error: ImagePullBackOff");
                }
                _ => {}
            }
            self.announced.insert(name.clone(), waiting.clone());
        }
        // The change from error to back-off is due even if nothing else happens.
        let shown = plan.waiting.values().any(|w| w.reason == "ErrImagePull");
        if shown {
            let at = Timestamp::now() + SHOW_PULL_ERROR;
            self.wake_at = Some(self.wake_at.map_or(at, |t| t.min(at)));
        }
    }

    fn execute(&mut self, plan: Plan) {
        self.memory.restart.extend(plan.restarts);
        let mut sequence = Vec::new();
        for action in plan.actions {
            match action {
                Action::Kill { id, name, grace, message } => self.kill(id, name, grace, message, false),
                other => sequence.push(other),
            }
        }
        if sequence.is_empty() || self.steps.is_some() || !self.observed {
            return;
        }
        let job = steps::Job {
            pod: self.pod.clone(),
            actions: sequence,
            runtime: self.runtime.clone(),
            disk: self.disk.clone(),
            paths: self.paths.clone(),
        };
        let (shared, messages) = (self.shared.clone(), self.messages.clone());
        self.steps = Some(tokio::spawn(async move {
            steps::run(&shared, job, |progress| {
                let _ = messages.send(Message::Progress(progress));
            })
            .await;
            let _ = messages.send(Message::StepsDone);
        }));
    }

    fn kill(&mut self, id: String, name: String, grace: i64, message: String, again: bool) {
        self.memory.killing.insert(id.clone());
        let ip = self.ips().first().cloned().unwrap_or_default();
        let order = kill::Order { pod: self.pod.clone(), id: id.clone(), name, ip, grace, message, again };
        let (shared, messages) = (self.shared.clone(), self.messages.clone());
        tokio::spawn(async move {
            let outcome = kill::run(&shared, &order).await;
            if let Err(error) = &outcome {
                tracing::warn!(pod = spec::full_name(&order.pod), container = order.name, %error, "container not stopped");
            }
            let _ = messages.send(Message::Killed(id, outcome.is_ok()));
        });
    }

    /// Removes containers that are not needed any more, and rotates logs.
    fn tidy(&self) {
        let (cri, runtime) = (self.shared.cri.clone(), self.runtime.clone());
        tokio::spawn(async move {
            gc::prune(&cri, &runtime).await;
            log_rotation::rotate(&cri, &runtime).await;
        });
    }

    /// Brings the contents of volumes up to date.
    fn refresh(&mut self) {
        if self.paths.is_none() || self.termination.is_some() {
            return;
        }
        if self.refresh.running.is_some() {
            self.refresh.again = true;
            return;
        }
        let addresses = Addresses { pod: self.ips(), host: self.shared.config.host_ips() };
        let (shared, pod, messages) = (self.shared.clone(), self.pod.clone(), self.messages.clone());
        let disk = self.disk.clone();
        self.refresh.running = Some(tokio::spawn(async move {
            if let Err(failure) = volumes::setup(&shared, &disk, &pod, &addresses).await {
                let text = format!("MountVolume.SetUp failed for volume {:?} : {}", failure.volume, failure.message);
                shared.events.warning(&spec::reference(&pod), "FailedMount", text);
            }
            let _ = messages.send(Message::Refreshed);
        }));
    }

    /// The pod has ended: gives back its mounts and its control group.
    async fn clean(&mut self) {
        if let Some(refresh) = self.refresh.running.take() {
            refresh.abort();
        }
        let dir = self.shared.config.pod_dir(spec::uid(&self.pod));
        match volumes::teardown(&self.disk, dir).await {
            Ok(()) => {
                self.cleaned = true;
                self.paths = None;
                self.shared.cgroups.remove(spec::uid(&self.pod));
                self.shared.objects.forget(spec::uid(&self.pod));
                self.shared.certificates.forget(spec::uid(&self.pod));
            }
            Err(error) => {
                tracing::warn!(pod = spec::full_name(&self.pod), %error, "volumes not taken down");
                self.wake_at = Some(Timestamp::now() + SignedDuration::from_secs(1));
            }
        }
    }

    /// The object is gone as well: removes containers, sandboxes, logs and the folder.
    async fn remove(&mut self) {
        let uid = spec::uid(&self.pod).to_owned();
        gc::remove_sandboxes(&self.shared.cri, &self.runtime).await;
        let dir = self.shared.config.pod_dir(&uid);
        if let Err(error) = volumes::remove(&self.disk, dir).await {
            tracing::warn!(pod = spec::full_name(&self.pod), %error, "pod folder not removed");
        }
        let logs = self.shared.config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), &uid);
        let _ = tokio::fs::remove_dir_all(logs).await;
        self.shared.cgroups.remove(&uid);
    }
}

#[cfg(test)]
mod tests;
