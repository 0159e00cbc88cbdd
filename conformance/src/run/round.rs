//! One round: some processes run some tests until all have ended, and every result is passed on as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::netns::within;
use super::overdue::{Action, Overdue};
use super::server::Server;
use super::suite::{self, Event};
use super::wire::{ProgressReport, SpecReport};
use super::worker::{Place, Suite, Worker};
use crate::group::Group;

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
    /// No test runs longer than until then,
    pub deadline: Instant,
    /// and none takes longer than that.
    pub test_timeout: Duration,
}

/// What a round tells while it goes on.
pub enum News {
    /// A test ended.
    Test(usize, Box<SpecReport>),
    /// A test has been running for some time.
    Running(usize, ProgressReport),
    /// Something that the user should know.
    Say(String),
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
    let mut going = Going::start(suite, round, sender)?;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut limit = round.deadline;
    loop {
        tokio::select! {
            biased;
            Some((process, event)) = events.recv() => going.event(process, event).map_or(Ok(()), &mut news)?,
            ended = going.workers.join_next() => match ended {
                Some(ended) => {
                    let (process, status) = ended.context("waiting for a test process")?;
                    // What it told comes before its end.
                    while let Ok((process, event)) = events.try_recv() {
                        going.event(process, event).map_or(Ok(()), &mut news)?;
                    }
                    going.exited(process, status?)?.map_or(Ok(()), &mut news)?;
                }
                None => break,
            },
            () = shutdown.cancelled(), if !going.keep.end.interrupted => {
                let seconds = GRACE.as_secs();
                news(News::Say(format!("the running tests clean up, for at most {seconds} s; a second interrupt ends them at once")))?;
                limit = going.interrupt();
            }
            () = tokio::time::sleep_until(limit) => {
                if going.keep.end.interrupted {
                    going.groups.values().for_each(|group| group.kill());
                    limit += GRACE;
                } else {
                    going.keep.end.troubles.push("the time limit was reached".to_owned());
                    limit = going.interrupt();
                }
            }
            _ = tick.tick() => {
                going.end_overdue();
                news(News::Tick)?;
            }
        }
    }
    Ok(going.keep.end)
}

type Ended = (usize, anyhow::Result<std::process::ExitStatus>);

/// A round going on.
struct Going<'a> {
    suite: &'a Suite,
    round: &'a Round<'a>,
    server: Server,
    keep: Keep<'a>,
    overdue: Overdue,
    workers: JoinSet<Ended>,
    groups: BTreeMap<usize, Group>,
    /// How many the processes believe to be.
    total: usize,
    /// The same order of tests for all of them.
    seed: u32,
    /// Processes that were started, again ones included.
    started: usize,
}

impl<'a> Going<'a> {
    fn start(
        suite: &'a Suite,
        round: &'a Round<'a>,
        sender: mpsc::UnboundedSender<(usize, Event)>,
    ) -> anyhow::Result<Going<'a>> {
        let listener = within(suite.netns.as_ref(), || {
            std::net::TcpListener::bind("127.0.0.1:0").context("listening for the test processes")
        })?;
        // With a total of one, ginkgo talks to nobody.
        let total = round.processes.max(2);
        let server = Server::start(listener, suite::Suite::new(round.processes, total), sender)?;
        if round.only_serial {
            server.no_more();
        }
        let keep = Keep { wanted: round.tests.iter().map(String::as_str).collect(), end: End::default() };
        let mut going = Going {
            suite,
            round,
            server,
            keep,
            overdue: Overdue::new(round.test_timeout, GRACE),
            workers: JoinSet::new(),
            groups: BTreeMap::new(),
            total,
            seed: rand::random::<u32>() >> 1,
            started: 0,
        };
        (1..=round.processes).try_for_each(|process| going.start_process(process))?;
        Ok(going)
    }

    fn start_process(&mut self, process: usize) -> anyhow::Result<()> {
        let reports = self.round.dir.join(self.round.name);
        std::fs::create_dir_all(&reports).with_context(|| format!("creating {}", reports.display()))?;
        self.started += 1;
        let again = if self.started > self.round.processes { format!("-{}", self.started) } else { String::new() };
        let log = reports.join(format!("process-{process}{again}.log"));
        // Ends after our own limit, which lets tests clean up.
        let timeout = self.round.deadline.saturating_duration_since(Instant::now()) + 2 * GRACE;
        let focus = super::select::exact(self.round.tests);
        let place = Place { process, total: self.total, url: self.server.url(process), seed: self.seed };
        let mut worker: Worker = self.suite.start(&place, &focus, &reports, timeout, &log)?;
        self.groups.extend(worker.group().map(|group| (process, group)));
        self.workers.spawn(async move { (process, worker.ended().await) });
        Ok(())
    }

    fn event(&mut self, process: usize, event: Event) -> Option<News> {
        let event = match event {
            Event::Spec(report) if report.is_test() => Event::Spec(Box::new(self.overdue.ended(process, *report))),
            Event::Progress(progress) if self.keep.wanted.contains(progress.name().as_str()) => {
                self.overdue.heard(process, &progress, Timestamp::now());
                Event::Progress(progress)
            }
            other => other,
        };
        let news = self.keep.sift(process, event);
        // The rest of the suite is not wanted, and passing over a test takes a while too.
        if self.keep.wanted.is_empty() {
            self.server.no_more();
        }
        news
    }

    /// A process ended. One that had been stopped starts again if there is something to do, but for the first one: it ends last,
    /// and what is left then is for another round.
    fn exited(&mut self, process: usize, status: std::process::ExitStatus) -> anyhow::Result<Option<News>> {
        self.server.exited(process);
        self.groups.remove(&process);
        let Some(report) = self.overdue.exited(process) else {
            self.keep.exited(process, status);
            return Ok(None);
        };
        let news = report.and_then(|report| self.keep.sift(process, Event::Spec(Box::new(report))));
        if process > 1 && !self.keep.wanted.is_empty() && !self.keep.end.interrupted {
            self.server.restarted(process);
            self.start_process(process)?;
        }
        Ok(news)
    }

    fn end_overdue(&mut self) {
        for action in self.overdue.actions(Timestamp::now()) {
            match action {
                Action::Stop(process) => self.server.stop(process),
                Action::Kill(process) => {
                    if let Some(group) = self.groups.get(&process) {
                        group.kill();
                    }
                }
            }
        }
    }

    /// Tells all to clean up and end; gives the time until when they may.
    fn interrupt(&mut self) -> Instant {
        self.keep.end.interrupted = true;
        self.server.abort();
        Instant::now() + GRACE
    }
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
