//! One round: some processes run some tests until all have ended, and every result is passed on as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::netns::within;
use super::server::Server;
use super::suite::{self, Event};
use super::wire::{ProgressReport, SpecReport};
use super::worker::{Group, Place, Suite, Worker};

/// How long tests may clean up after an interruption.
const GRACE: Duration = Duration::from_secs(120);

/// What a round does.
pub struct Round<'a> {
    /// `parallel-1`; names its files.
    pub name: &'a str,
    /// The tests to run.
    pub tests: &'a [String],
    /// In how many processes.
    pub processes: usize,
    /// ginkgo keeps all of them for the end: there is no need to go through the others before.
    pub only_serial: bool,
    /// Where process logs and upstream's own report go.
    pub dir: &'a Path,
    /// No test runs longer than that.
    pub deadline: Instant,
}

/// What a round tells while it goes on.
pub enum News {
    /// A test ended.
    Test(usize, Box<SpecReport>),
    /// A test has been running for some time.
    Running(usize, ProgressReport),
    /// A second went by.
    Tick,
}

/// How a round ended.
#[derive(Debug, Default, PartialEq)]
pub struct End {
    /// The user, the time limit, or a suite that could not be set up ended it.
    pub interrupted: bool,
    /// What went wrong outside of tests.
    pub troubles: Vec<String>,
}

/// Runs a round. An interruption lets the running tests clean up; they have no result then.
pub async fn run(
    suite: &Suite,
    round: &Round<'_>,
    shutdown: &CancellationToken,
    mut news: impl FnMut(News) -> anyhow::Result<()>,
) -> anyhow::Result<End> {
    let (sender, mut events) = mpsc::unbounded_channel();
    let listener = within(suite.netns.as_ref(), || {
        std::net::TcpListener::bind("127.0.0.1:0").context("listening for the test processes")
    })?;
    // With a total of one, ginkgo talks to nobody.
    let total = round.processes.max(2);
    let server = Server::start(listener, suite::Suite::new(round.processes, total), sender)?;
    if round.only_serial {
        server.no_more();
    }
    let (mut workers, groups) = start(suite, round, &server, total)?;
    let mut keep = Keep { wanted: round.tests.iter().map(String::as_str).collect(), end: End::default() };
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut limit = round.deadline;
    loop {
        tokio::select! {
            biased;
            Some((process, event)) = events.recv() => {
                if let Some(news_of) = keep.sift(process, event) {
                    news(news_of)?;
                }
                // The rest of the suite is not wanted, and passing over a test takes a while too.
                if keep.wanted.is_empty() {
                    server.no_more();
                }
            }
            ended = workers.join_next() => match ended {
                Some(ended) => {
                    let (process, status) = ended.context("waiting for a test process")?;
                    server.exited(process);
                    keep.exited(process, status?);
                }
                None => break,
            },
            () = shutdown.cancelled(), if !keep.end.interrupted => {
                keep.end.interrupted = true;
                limit = Instant::now() + GRACE;
                server.abort();
            }
            () = tokio::time::sleep_until(limit) => {
                if keep.end.interrupted {
                    groups.values().for_each(|group| group.kill());
                    limit += GRACE;
                } else {
                    keep.end.troubles.push("the time limit was reached".to_owned());
                    keep.end.interrupted = true;
                    limit = Instant::now() + GRACE;
                    server.abort();
                }
            }
            _ = tick.tick() => news(News::Tick)?,
        }
    }
    while let Ok((process, event)) = events.try_recv() {
        if let Some(news_of) = keep.sift(process, event) {
            news(news_of)?;
        }
    }
    Ok(keep.end)
}

type Ended = (usize, anyhow::Result<std::process::ExitStatus>);

fn start(
    suite: &Suite,
    round: &Round<'_>,
    server: &Server,
    total: usize,
) -> anyhow::Result<(JoinSet<Ended>, BTreeMap<usize, Group>)> {
    let reports = round.dir.join(round.name);
    std::fs::create_dir_all(&reports).with_context(|| format!("creating {}", reports.display()))?;
    let focus = super::select::exact(round.tests);
    // Ends after our own limit, which lets tests clean up.
    let timeout = round.deadline.saturating_duration_since(Instant::now()) + 2 * GRACE;
    let seed = rand::random::<u32>() >> 1;
    let (mut workers, mut groups) = (JoinSet::new(), BTreeMap::new());
    for process in 1..=round.processes {
        let place = Place { process, total, url: server.url(process), seed };
        let log = reports.join(format!("process-{process}.log"));
        let mut worker: Worker = suite.start(&place, &focus, &reports, timeout, &log)?;
        groups.extend(worker.group().map(|group| (process, group)));
        workers.spawn(async move { (process, worker.ended().await) });
    }
    Ok((workers, groups))
}

/// Tells results from noise.
struct Keep<'a> {
    /// Tests without a result.
    wanted: BTreeSet<&'a str>,
    end: End,
}

impl Keep<'_> {
    fn sift(&mut self, process: usize, event: Event) -> Option<News> {
        match event {
            Event::Spec(report) if report.is_test() => {
                let ran = match report.state.as_str() {
                    "passed" | "failed" | "panicked" | "timedout" => true,
                    // Without a reason, it was passed over: another process has it, or the end is near.
                    "skipped" => report.failure.is_some(),
                    _ => false,
                };
                (ran && self.wanted.remove(report.name().as_str())).then_some(News::Test(process, report))
            }
            Event::Spec(report) => {
                self.suite_node(&report);
                None
            }
            Event::Progress(progress) => Some(News::Running(process, progress)),
        }
    }

    /// The suite's own set-up can fail too: no test runs then. Upstream's reporting after it is of no interest.
    fn suite_node(&mut self, report: &SpecReport) {
        let bad = matches!(report.state.as_str(), "failed" | "panicked" | "timedout");
        if !bad || report.leaf_node_type.starts_with("ReportAfter") {
            return;
        }
        let message = report.failure.as_ref().map(|failure| failure.message.trim().to_owned()).unwrap_or_default();
        let set_up = report.leaf_node_type.ends_with("BeforeSuite");
        // All processes tell of it.
        if !(set_up && self.end.interrupted) {
            self.end.troubles.push(format!("{}: {message}", report.leaf_node_type));
        }
        self.end.interrupted |= set_up;
    }

    /// 0 and 1 are how Go's test binaries end: all passed, some failed.
    fn exited(&mut self, process: usize, status: std::process::ExitStatus) {
        if !matches!(status.code(), Some(0 | 1)) && !self.end.interrupted {
            self.end.troubles.push(format!("process {process} ended by itself: {status}"));
        }
    }
}
