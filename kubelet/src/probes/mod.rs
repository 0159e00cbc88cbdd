//! Probes of containers: one task a probe, thresholds counted by a pure [`Counter`], findings sent to the pod's worker.

mod grpc;
pub mod http;
mod metrics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::pods::memory::{Health, ProbeKind};
use crate::pods::spec::{self, Kind};
use crate::pods::worker::Message;
use crate::shared::Shared;

pub use metrics::Metrics;

/// The container that is probed.
pub struct Subject {
    /// The kubelet.
    pub shared: Arc<Shared>,
    /// The pod.
    pub pod: Arc<Pod>,
    /// Kind of the container.
    pub kind: Kind,
    /// The container.
    pub container: Container,
    /// Its runtime id.
    pub id: String,
    /// When it started, in nanoseconds.
    pub started_at: i64,
    /// The pod's address.
    pub ip: String,
    /// What was known of it before the kubelet started.
    pub before: Option<Health>,
    /// Where findings go.
    pub messages: mpsc::UnboundedSender<Message>,
}

/// Running probe tasks; dropping ends them.
pub struct Probes(Vec<JoinHandle<()>>);

impl Drop for Probes {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Health to begin with, and the tasks that will report changes.
pub fn start(subject: Subject) -> (Health, Option<Probes>) {
    let c = &subject.container;
    let probes = [
        (ProbeKind::Startup, c.startup_probe.clone()),
        (ProbeKind::Liveness, c.liveness_probe.clone()),
        (ProbeKind::Readiness, c.readiness_probe.clone()),
    ];
    let probes: Vec<(ProbeKind, Probe)> = probes.into_iter().filter_map(|(k, p)| Some((k, p?))).collect();
    let has = |kind| probes.iter().any(|(k, _)| *k == kind);
    let before = subject.before.clone().unwrap_or_default();
    let health = Health {
        started: !has(ProbeKind::Startup) || before.started,
        ready: !has(ProbeKind::Readiness) || before.ready,
        failed: None,
    };
    if probes.is_empty() || subject.kind == Kind::Ephemeral {
        return (health, None);
    }
    let shared =
        Arc::new(Watched { subject, health: Mutex::new(health.clone()), started: watch::channel(health.started).0 });
    let tasks = probes.into_iter().map(|(kind, probe)| {
        let watched = shared.clone();
        tokio::spawn(async move { watched.probe(kind, probe).await })
    });
    (health, Some(Probes(tasks.collect())))
}

struct Watched {
    subject: Subject,
    health: Mutex<Health>,
    started: watch::Sender<bool>,
}

impl Watched {
    fn update(&self, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock();
        let before = health.clone();
        change(&mut health);
        if *health != before {
            let _ = self.subject.messages.send(Message::Health(self.subject.id.clone(), health.clone()));
        }
    }

    /// One probe until its end: a startup probe ends with success, a liveness probe with failure.
    async fn probe(&self, kind: ProbeKind, probe: Probe) {
        if kind == ProbeKind::Startup && *self.started.borrow() {
            return;
        }
        if kind != ProbeKind::Startup {
            let _ = self.started.subscribe().wait_for(|started| *started).await;
        }
        let began =
            Timestamp::from_nanosecond(i128::from(self.subject.started_at)).unwrap_or_else(|_| Timestamp::now());
        let delay = i64::from(probe.initial_delay_seconds.unwrap_or(0));
        let wait = (began + jiff::SignedDuration::from_secs(delay)).duration_since(Timestamp::now());
        tokio::time::sleep(wait.try_into().unwrap_or(Duration::ZERO)).await;
        let mut counter = Counter::new(&probe);
        let mut every = tokio::time::interval(seconds(probe.period_seconds, 10));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let begun = Instant::now();
            let outcome = self.once(&probe).await;
            let success = matches!(outcome, Outcome::Success | Outcome::Warning(_));
            self.observe(kind, success, begun.elapsed());
            self.tell(kind, &outcome);
            let verdict = counter.count(success);
            match (kind, verdict) {
                (ProbeKind::Startup, Some(true)) => {
                    self.update(|h| h.started = true);
                    self.started.send_replace(true);
                    return;
                }
                (ProbeKind::Readiness, Some(ready)) => self.update(|h| h.ready = ready),
                (ProbeKind::Startup | ProbeKind::Liveness, Some(false)) => {
                    return self.update(|h| h.failed = Some(kind));
                }
                _ => {}
            }
        }
    }

    fn observe(&self, kind: ProbeKind, success: bool, took: Duration) {
        let Subject { shared, pod, container, .. } = &self.subject;
        let (pod, namespace, uid) = (spec::name(pod), spec::namespace(pod), spec::uid(pod));
        shared.probes.observe(metrics::Of { kind, container: &container.name, pod, namespace, uid }, success, took);
    }

    /// The event about a probe that did not succeed.
    fn tell(&self, kind: ProbeKind, outcome: &Outcome) {
        let s = &self.subject;
        let about = || spec::container_reference(&s.pod, s.kind, &s.container.name);
        let word = kind.title();
        match outcome {
            Outcome::Success => {}
            Outcome::Warning(text) => {
                s.shared.events.warning(&about(), "ProbeWarning", format!("{word} probe warning: {text}"));
            }
            Outcome::Failure(text) => {
                s.shared.events.warning(&about(), "Unhealthy", format!("{word} probe failed: {text}"));
            }
        }
    }

    async fn once(&self, probe: &Probe) -> Outcome {
        let s = &self.subject;
        let limit = seconds(probe.timeout_seconds, 1);
        if let Some(exec) = &probe.exec {
            return run_exec(s, exec.command.clone().unwrap_or_default(), limit).await;
        }
        if let Some(action) = &probe.http_get {
            return match http::get(action, &s.container, &s.ip, "kube-probe/1.37", limit).await {
                Ok(answer) if answer.elsewhere => {
                    Outcome::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
                }
                Ok(answer) if (200..400).contains(&answer.status.as_u16()) => Outcome::Success,
                Ok(answer) => {
                    Outcome::Failure(format!("HTTP probe failed with statuscode: {}", answer.status.as_u16()))
                }
                Err(error) => Outcome::Failure(error),
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(&s.ip);
            return match http::port(&s.container, &action.port) {
                Ok(port) => connect(host, port, limit).await,
                Err(error) => Outcome::Failure(error),
            };
        }
        if let Some(action) = &probe.grpc {
            let port = u16::try_from(action.port).unwrap_or(0);
            return grpc::check(&s.ip, port, action.service.as_deref().unwrap_or_default(), limit).await;
        }
        Outcome::Failure("missing probe handler".to_owned())
    }
}

/// What one attempt found.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Success,
    /// Success, but something is odd.
    Warning(String),
    Failure(String),
}

async fn run_exec(s: &Subject, command: Vec<String>, limit: Duration) -> Outcome {
    let shown = command.join(" ");
    match s.shared.cri.exec_sync(&s.id, command, limit).await {
        Ok(answer) if answer.exit_code == 0 => Outcome::Success,
        Ok(answer) => {
            let output = [answer.stdout, answer.stderr].concat();
            Outcome::Failure(String::from_utf8_lossy(&output[..output.len().min(10 << 10)]).into_owned())
        }
        Err(error) if error.code() == pintle_cri::Code::DeadlineExceeded => Outcome::Failure(format!(
            "command timed out: {shown:?} timed out after {}",
            crate::pods::plan::go_duration(i64::try_from(limit.as_secs()).unwrap_or(0))
        )),
        Err(error) => Outcome::Failure(error.to_string()),
    }
}

async fn connect(host: &str, port: u16, limit: Duration) -> Outcome {
    let address = http::authority(host, port);
    match tokio::time::timeout(limit, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Outcome::Success,
        Ok(Err(error)) => Outcome::Failure(format!("dial tcp {address}: {}", http::connect_error(&error))),
        Err(_) => Outcome::Failure(format!("dial tcp {address}: i/o timeout")),
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default))
}

/// Counts outcomes in a row against the thresholds.
#[derive(Clone, Debug)]
struct Counter {
    successes: u32,
    failures: u32,
    in_a_row: u32,
    last: Option<bool>,
}

impl Counter {
    fn new(probe: &Probe) -> Self {
        let threshold =
            |v: Option<i32>, default| v.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default);
        Self {
            successes: threshold(probe.success_threshold, 1),
            failures: threshold(probe.failure_threshold, 3),
            in_a_row: 0,
            last: None,
        }
    }

    /// Takes in an outcome; the verdict once it came often enough in a row.
    fn count(&mut self, success: bool) -> Option<bool> {
        self.in_a_row = if self.last == Some(success) { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(success);
        let threshold = if success { self.successes } else { self.failures };
        (self.in_a_row >= threshold).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_count_in_a_row() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(2), ..Probe::default() };
        let mut counter = Counter::new(&probe);
        let outcomes = [true, true, false, true, false, false, false, true, true];
        let verdicts: Vec<_> = outcomes.iter().map(|o| counter.count(*o)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, yes, None, None, None, no, no, None, yes]);
    }

    #[tokio::test]
    async fn what_probes_find_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let shared = crate::shared::silent(dir.path());
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}}))
                .unwrap();
        // Nobody listens on the port of nobody's container.
        let container = serde_json::json!({"name": "c", "readinessProbe": {"tcpSocket": {"port": "none"}}});
        let subject = Subject {
            shared: shared.clone(),
            pod: Arc::new(pod),
            kind: Kind::App,
            container: serde_json::from_value(container).unwrap(),
            id: "id".into(),
            started_at: 0,
            ip: "127.0.0.1".into(),
            before: None,
            messages: mpsc::unbounded_channel().0,
        };
        let (_, _probes) = start(subject);
        let line = "result=\"failed\",pod_uid=\"u\"} 1\n";
        for _ in 0..500 {
            if shared.probes.registry.render().contains(line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{}", shared.probes.registry.render());
    }

    #[tokio::test]
    async fn tcp() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(connect("127.0.0.1", port, Duration::from_secs(5)).await, Outcome::Success);
        drop(listener);
        let text = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(connect("127.0.0.1", port, Duration::from_secs(5)).await, Outcome::Failure(text));
    }
}
