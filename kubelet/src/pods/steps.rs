//! Carries out the steps of a plan that come one after the other: prepare, sandbox, containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, ResourceRequirements};
use pintle_cri::messages as cri;

use super::memory::Failure;
use super::model::RuntimePod;
use super::plan::{self, Action};
use super::spec::{self, Kind};
use super::{hooks, model};
use crate::container::resources::{self, PodLimits};
use crate::container::{config, env, field, security};
use crate::dns;
use crate::images::Present;
use crate::shared::Shared;
use crate::volumes::{self, Disk, Paths, mounts};

/// A pod that could not be prepared is tried again after this time.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
/// So is one whose sandbox could not be made: mostly the pod network is not there yet.
const RETRY_SANDBOX: SignedDuration = SignedDuration::from_secs(3);
/// And one whose volumes are not there yet.
const RETRY_VOLUMES: SignedDuration = SignedDuration::from_secs(2);

/// What has happened; each is reported as soon as it has.
#[derive(Debug)]
pub enum Progress {
    /// Volumes, folders and control group are there.
    Prepared(Paths, PodLimits),
    /// The pod could not be prepared, or its sandbox not be made.
    Failed(Failure),
    /// There is a new sandbox.
    Sandbox,
    /// A sandbox was stopped.
    Stopped(String),
    /// An attempt to start a container is over.
    Start {
        /// Its name.
        name: String,
        /// It had ended before: the crash back-off grows.
        crashed: bool,
        /// Why it did not start; `None` if it did (and its postStart hook has run).
        failure: Option<Failure>,
    },
    /// A container (by id) has these resources.
    Resources(String, Option<ResourceRequirements>),
    /// An attempt to resize is over.
    Resized(Result<PodLimits, Failure>),
}

/// The work.
pub struct Job {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Steps in order.
    pub actions: Vec<Action>,
    /// What the runtime had when they were planned.
    pub runtime: RuntimePod,
    /// The pod's folder.
    pub disk: Disk,
    /// Volumes, if they were set up before.
    pub paths: Option<Paths>,
}

/// Runs the steps; the report's order is that of the steps.
pub async fn run(shared: &Shared, mut job: Job, report: impl Fn(Progress)) {
    let actions = std::mem::take(&mut job.actions);
    for action in actions {
        let begun = std::time::Instant::now();
        let result = match &action {
            Action::StopSandbox { id } => stop_sandbox(shared, &job.pod, id, &report).await,
            Action::CreateSandbox { attempt } => create_sandbox(shared, &mut job, *attempt, &report).await,
            Action::Start { name, restart_count, crashed } => {
                let failure = start(shared, &mut job, name, *restart_count, &report).await.err();
                report(Progress::Start { name: name.clone(), crashed: *crashed, failure });
                Ok(())
            }
            Action::Resize { containers } => {
                report(Progress::Resized(resize(shared, &job.pod, containers, &report).await));
                Ok(())
            }
            Action::Kill { .. } => Ok(()),
        };
        tracing::debug!(pod = spec::full_name(&job.pod), ?action, took = ?begun.elapsed(), "step");
        if let Err(failure) = result {
            return report(Progress::Failed(failure));
        }
    }
}

async fn stop_sandbox(shared: &Shared, pod: &Pod, id: &str, report: &impl Fn(Progress)) -> Result<(), Failure> {
    let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
    match shared.cri.stop_pod_sandbox(request).await {
        Err(error) if !error.is_not_found() => {
            shared.events.warning(&spec::reference(pod), "FailedKillPod", format!("error killing pod: {error}"));
            Err(failure("KillPodSandboxError", error.to_string(), RETRY))
        }
        _ => {
            report(Progress::Stopped(id.to_owned()));
            Ok(())
        }
    }
}

fn failure(reason: &str, message: String, delay: SignedDuration) -> Failure {
    Failure { reason: reason.to_owned(), message, retry_at: Timestamp::now() + delay, image: None }
}

fn addresses(shared: &Shared, pod: &Pod, runtime: &RuntimePod) -> field::Addresses {
    let host = shared.config.host_ips();
    let own = plan::usable_sandbox(pod, runtime).map(|s| s.ips.clone()).unwrap_or_default();
    field::Addresses { pod: if spec::host_network(pod) { host.clone() } else { own }, host }
}

/// Folders, control group and volumes.
async fn prepare(shared: &Shared, job: &mut Job, report: &impl Fn(Progress)) -> Result<(), Failure> {
    if job.paths.is_some() {
        return Ok(());
    }
    let pod = &job.pod;
    let warn = |reason: &str, message: String| shared.events.warning(&spec::reference(pod), reason, message);
    if let Err(error) = shared.cgroups.create(pod) {
        let message = format!("unable to ensure pod container exists: {error}");
        warn("FailedCreatePodContainer", message.clone());
        return Err(failure("ContainerCreating", message, RETRY));
    }
    let dir = shared.config.pod_dir(spec::uid(pod));
    if let Err(error) = std::fs::create_dir_all(dir.join("volumes")) {
        warn("Failed", format!("error making pod data directories: {error}"));
        return Err(failure("ContainerCreating", error.to_string(), RETRY));
    }
    match volumes::setup(shared, &job.disk, pod, &addresses(shared, pod, &job.runtime)).await {
        Ok(paths) => {
            report(Progress::Prepared(paths.clone(), resources::for_pod(pod)));
            job.paths = Some(paths);
            Ok(())
        }
        Err(volumes::Failure { volume, message }) => {
            warn("FailedMount", format!("MountVolume.SetUp failed for volume {volume:?} : {message}"));
            Err(failure("ContainerCreating", String::new(), RETRY_VOLUMES))
        }
    }
}

/// The sandbox's configuration; the same every time for one pod and attempt.
pub fn sandbox_config(shared: &Shared, pod: &Pod, attempt: u32) -> cri::PodSandboxConfig {
    let c = &shared.config;
    let resolv_conf = c.resolv_conf.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
    let node = dns::NodeDns { servers: c.cluster_dns.clone(), domain: c.cluster_domain.clone(), resolv_conf };
    let (hostname, _) = dns::hostname(pod, &c.cluster_domain);
    let limits = resources::for_pod(pod);
    let log_dir = c.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod));
    let parts = config::SandboxParts {
        attempt,
        log_directory: log_dir.to_string_lossy().into_owned(),
        cgroup_parent: shared.cgroups.parent(pod),
        dns: dns::for_pod(pod, &node),
        hostname,
        resources: cri::LinuxContainerResources {
            cpu_shares: limits.shares,
            cpu_quota: limits.quota.unwrap_or(0),
            cpu_period: resources::QUOTA_PERIOD,
            memory_limit_in_bytes: limits.memory.unwrap_or(0),
            ..cri::LinuxContainerResources::default()
        },
        security: security::for_sandbox(pod),
    };
    config::sandbox(pod, parts)
}

async fn create_sandbox(
    shared: &Shared,
    job: &mut Job,
    attempt: u32,
    report: &impl Fn(Progress),
) -> Result<(), Failure> {
    if attempt > 0 {
        let text = "Pod sandbox changed, it will be killed and re-created.";
        shared.events.normal(&spec::reference(&job.pod), "SandboxChanged", text);
    }
    prepare(shared, job, report).await?;
    let failed = |message: String| {
        let text = format!("Failed to create pod sandbox: {message}");
        shared.events.warning(&spec::reference(&job.pod), "FailedCreatePodSandBox", text);
        failure("ContainerCreating", String::new(), RETRY_SANDBOX)
    };
    let config = sandbox_config(shared, &job.pod, attempt);
    std::fs::create_dir_all(&config.log_directory).map_err(|e| failed(e.to_string()))?;
    let handler = shared.runtime_handler(&job.pod).await.map_err(&failed)?;
    let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler };
    let id = shared.cri.run_pod_sandbox(request).await.map_err(|e| failed(e.to_string()))?.pod_sandbox_id;
    let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: false };
    let status = shared.cri.pod_sandbox_status(request).await.map_err(|e| failed(e.to_string()))?.status;
    job.runtime.sandboxes.extend(status.as_ref().map(model::Sandbox::from_status));
    job.runtime.sort();
    report(Progress::Sandbox);
    Ok(())
}

/// Why a container did not start.
struct NotStarted {
    reason: &'static str,
    message: String,
    retry: SignedDuration,
    image: Option<String>,
}

impl NotStarted {
    fn new(reason: &'static str, message: impl ToString) -> Self {
        Self { reason, message: message.to_string(), retry: RETRY, image: None }
    }
}

async fn start(
    shared: &Shared,
    job: &mut Job,
    name: &str,
    restart_count: u32,
    report: &impl Fn(Progress),
) -> Result<(), Failure> {
    prepare(shared, job, report).await?;
    let pod = job.pod.clone();
    let Some((kind, container)) = spec::container(&pod, name) else { return Ok(()) };
    let started = start_container(shared, job, kind, &container, restart_count, report).await;
    started.map_err(|f| Failure { image: f.image, ..failure(f.reason, f.message, f.retry) })
}

async fn start_container(
    shared: &Shared,
    job: &Job,
    kind: Kind,
    container: &Container,
    restart_count: u32,
    report: &impl Fn(Progress),
) -> Result<(), NotStarted> {
    let pod = &job.pod;
    let about = spec::container_reference(pod, kind, &container.name);
    let warn = |reason: &str, text: String| shared.events.warning(&about, reason, text);
    let Some(sandbox) = plan::usable_sandbox(pod, &job.runtime) else {
        return Err(NotStarted::new("ContainerCreating", "no sandbox"));
    };
    let sandbox_config = sandbox_config(shared, pod, sandbox.attempt);
    let images = pull(shared, pod, container, &sandbox_config, &about).await.inspect_err(|missing| {
        warn("Failed", format!("Error: {}", missing.reason));
    })?;
    let config = container_config(shared, job, kind, container, restart_count, &images).await.map_err(|message| {
        warn("Failed", format!("Error: {message}"));
        NotStarted::new("CreateContainerConfigError", message)
    })?;
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.id.clone(),
        config: Some(config),
        sandbox_config: Some(sandbox_config),
    };
    let log_dir = shared.config.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod));
    let _ = std::fs::create_dir_all(log_dir.join(&container.name));
    let id = match shared.cri.create_container(request).await {
        Ok(answer) => answer.container_id,
        Err(error) => {
            warn("Failed", format!("Error: {error}"));
            return Err(NotStarted::new("CreateContainerError", error));
        }
    };
    report(Progress::Resources(id.clone(), container.resources.clone()));
    shared.events.normal(&about, "Created", "Container created");
    let request = cri::StartContainerRequest { container_id: id.clone() };
    if let Err(error) = shared.cri.start_container(request).await {
        warn("Failed", format!("Error: {error}"));
        let retry = SignedDuration::ZERO;
        return Err(NotStarted { retry, ..NotStarted::new("RunContainerError", error) });
    }
    shared.events.normal(&about, "Started", "Container started");
    let hook = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    if let Some(hook) = hook {
        let ip = addresses(shared, pod, &job.runtime).pod.first().cloned().unwrap_or_default();
        if let Err(message) = hooks::run(shared, pod, container, &id, &ip, hook).await {
            tracing::info!(pod = spec::full_name(pod), container = container.name, message, "postStart hook failed");
            warn("FailedPostStartHook", "PostStartHook failed".to_owned());
            shared.events.normal(&about, "Killing", "FailedPostStartHook");
            let _ = shared.cri.stop_container(&id, spec::grace_period(pod)).await;
            let retry = SignedDuration::ZERO;
            return Err(NotStarted { retry, ..NotStarted::new("PostStartHookError", message) });
        }
    }
    Ok(())
}

/// Puts granted resources into effect: what grows of the pod's control group first, then the containers, then what
/// shrinks.
async fn resize(
    shared: &Shared,
    pod: &Pod,
    containers: &[(String, String)],
    report: &impl Fn(Progress),
) -> Result<PodLimits, Failure> {
    let limits = resources::for_pod(pod);
    let failed = |message: String| failure("Error", message, RETRY);
    let group = |e: std::io::Error| failed(format!("failed to update the pod's control group: {e}"));
    shared.cgroups.grow(pod, limits).map_err(group)?;
    for (id, name) in containers {
        let Some((_, container)) = spec::container(pod, name) else { continue };
        let values = resources::for_container(pod, &container, shared.machine.memory, shared.cgroups.unified());
        fits(shared, id, name, values.memory_limit_in_bytes).await.map_err(failed)?;
        let request = cri::UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(values),
            ..cri::UpdateContainerResourcesRequest::default()
        };
        let updated = shared.cri.update_container_resources(request).await;
        updated.map_err(|e| failed(format!("failed to update resources of container {name:?}: {e}")))?;
        report(Progress::Resources(id.clone(), container.resources.clone()));
    }
    shared.cgroups.set(pod, limits).map_err(group)?;
    Ok(limits)
}

/// A limit below what the container uses would end it.
async fn fits(shared: &Shared, id: &str, name: &str, limit: i64) -> Result<(), String> {
    if limit == 0 {
        return Ok(());
    }
    let request = cri::ContainerStatsRequest { container_id: id.to_owned() };
    let stats = shared.cri.container_stats(request).await.map_err(|e| e.to_string())?.stats;
    let usage = stats.and_then(|s| s.memory?.usage_bytes).map_or(0, |v| v.value);
    if u64::try_from(limit).is_ok_and(|limit| limit < usage) {
        return Err(format!(
            "attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})"
        ));
    }
    Ok(())
}

/// The images that a container needs.
struct Pulled {
    /// Its own.
    own: Present,
    /// Those that it mounts, by volume.
    volumes: BTreeMap<String, cri::ImageSpec>,
}

/// Brings the container's image, and those of its image volumes.
async fn pull(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    sandbox: &cri::PodSandboxConfig,
    about: &ObjectReference,
) -> Result<Pulled, NotStarted> {
    let ensure = async |name: &str, policy: Option<&str>| {
        let present = shared.images.ensure(pod, (name, policy), sandbox, about).await;
        present.map_err(|m| NotStarted { image: Some(name.to_owned()), ..NotStarted::new(m.reason, m.message) })
    };
    let mut volumes = BTreeMap::new();
    for volume in spec::spec(pod).volumes.iter().flatten() {
        let Some(source) = &volume.image else { continue };
        if container.volume_mounts.iter().flatten().any(|m| m.name == volume.name) {
            let reference = source.reference.as_deref().unwrap_or_default();
            let present = ensure(reference, source.pull_policy.as_deref()).await?;
            let image = cri::ImageSpec {
                image: present.id,
                user_specified_image: reference.to_owned(),
                ..cri::ImageSpec::default()
            };
            volumes.insert(volume.name.clone(), image);
        }
    }
    let name = container.image.as_deref().unwrap_or_default();
    Ok(Pulled { own: ensure(name, container.image_pull_policy.as_deref()).await?, volumes })
}

async fn container_config(
    shared: &Shared,
    job: &Job,
    kind: Kind,
    container: &Container,
    restart_count: u32,
    images: &Pulled,
) -> Result<cri::ContainerConfig, String> {
    let pod = &job.pod;
    let image = &images.own;
    security::verify_non_root(pod, container, &image.user)?;
    let addresses = addresses(shared, pod, &job.runtime);
    let needs = env::needs(container);
    let objects = shared.objects.fetch(spec::namespace(pod), &needs).await.map_err(|e| e.to_string())?;
    let services = shared.services_for(spec::namespace(pod));
    let sources = env::Sources {
        pod,
        objects: &objects,
        services: &services,
        addresses: &addresses,
        allocatable: shared.allocatable(),
    };
    let env = env::environment(container, &sources)?;
    let dir = shared.config.pod_dir(spec::uid(pod));
    let hosts = dir.join("etc-hosts");
    mounts::write_hosts(&hosts, &hosts_text(shared, pod, &addresses)).map_err(|e| e.to_string())?;
    let none = Paths::new();
    let mounts = mounts::mounts(
        container,
        &mounts::Sources {
            dir: &dir,
            volumes: job.paths.as_ref().unwrap_or(&none),
            images: &images.volumes,
            env: &env,
            hosts: Some(&hosts),
            restart_count,
        },
    )?;
    let target = (kind == Kind::Ephemeral).then(|| spec::target_container(pod, &container.name)).flatten();
    let target = target.and_then(|name| job.runtime.latest(name)).map(|r| r.id.clone());
    let prepared = config::Prepared {
        env,
        mounts,
        image_ref: image.id.clone(),
        resources: resources::for_container(pod, container, shared.machine.memory, shared.cgroups.unified()),
        security: security::for_container(pod, container, &image.user, target),
        restart_count,
    };
    Ok(config::container(pod, container, prepared))
}

fn hosts_text(shared: &Shared, pod: &Pod, addresses: &field::Addresses) -> String {
    if spec::host_network(pod) {
        let own = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        return dns::hosts_file_of_node(pod, &own);
    }
    let (host, domain) = dns::hostname(pod, &shared.config.cluster_domain);
    dns::hosts_file(pod, &addresses.pod, &host, &domain)
}
