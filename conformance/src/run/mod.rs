//! `pintle conformance run`: drives upstream's e2e.test.
//!
//! The judge is the server that ginkgo's parallel processes report to, so that each result, with its output, is there the moment a
//! test ends, and no ginkgo program is needed. [`suite`] is that server as a state machine, [`server`] its HTTP side, [`worker`] a
//! process, [`round`] some processes with some tests; this module goes through the rounds and keeps the record.

mod binary;
mod display;
mod junit;
mod log;
mod netns;
mod overdue;
mod plan;
mod round;
mod select;
mod server;
mod suite;
#[cfg(test)]
mod tests;
mod wire;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::known::KnownFailures;
use crate::name;
use crate::results::{Progress, RESULTS, Results, RunInfo, State, TestResult};
use display::Display;
use plan::Phase;
use round::{News, Round};
use select::Selection;
use wire::SpecReport;
use worker::Suite;

/// `pintle conformance run`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cluster to judge.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    suite: binary::SuiteArgs,
    /// Only print the names of the tests that would run.
    #[arg(long)]
    list: bool,
    /// Processes for the tests that are not serial; the serial ones run alone afterwards.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    parallel: usize,
    /// A new directory for the results.
    #[arg(long, value_name = "DIR", default_value = "conformance-results")]
    out: PathBuf,
    /// Go on with the interrupted run in this directory: of the tests that were chosen then, those that have no result yet.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "Selection"])]
    resume: Option<PathBuf>,
    /// Run failed tests again, up to this often. By default a flake is a failure.
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry_failed: u32,
    /// Minutes after which the run ends, whatever is left.
    #[arg(long, value_name = "MINUTES", default_value_t = 360)]
    timeout: u64,
    /// A test that takes longer than this (`90s`, `10m`, `1h30m`) is ended and has failed; the others go on.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration)]
    test_timeout: Duration,
    /// Tests that may fail, with reason and issue (YAML). One that passes fails the run: the file may only shrink.
    #[arg(long, value_name = "FILE")]
    known_failures: Option<PathBuf>,
    /// What the cluster keeps its state in; stands in the figures.
    #[arg(long)]
    store: Option<String>,
}

/// Prints the chosen tests' names.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    suite: binary::SuiteArgs,
}

/// `pintle conformance list`
pub async fn list(args: ListArgs) -> anyhow::Result<()> {
    let suite = args.suite.suite(None)?;
    let chosen = args.selection.choose(&suite.list().await?)?;
    anyhow::ensure!(!chosen.is_empty(), "no test was chosen");
    print(&chosen);
    Ok(())
}

fn print(names: &[String]) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A reader that has seen enough is no error.
    let _ = names.iter().try_for_each(|name| writeln!(out, "{name}"));
}

/// Runs the chosen tests. Everything but passing all of them, known failures aside, is an error.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let suite = args.suite.suite(args.kubeconfig.as_deref())?;
    let all = suite.list().await?;
    let earlier = args.resume.as_deref().map(earlier).transpose()?;
    let selected = match &earlier {
        Some(earlier) => earlier.runs.last().map(|run| run.selected.clone()).unwrap_or_default(),
        None => args.selection.choose(&all)?,
    };
    if args.list {
        print(&selected);
        return Ok(());
    }
    anyhow::ensure!(!selected.is_empty(), "no test was chosen");
    let known = args.known_failures.as_deref().map(KnownFailures::load).transpose()?.unwrap_or_default();
    let gone = known.without_test(&all);
    anyhow::ensure!(gone.is_empty(), "known failures that the suite has no test for:\n  {}", gone.join("\n  "));
    let dir = directory(args.resume.as_deref(), &args.out)?;
    let info = RunInfo {
        started: Timestamp::now(),
        ended: None,
        version: args.suite.server_version(&suite, args.kubeconfig.as_deref()).await?,
        store: args.store.clone(),
        processes: args.parallel,
        selected,
    };
    let mut judge = Judge::new(&dir, &info, earlier.unwrap_or_default(), known, args.test_timeout)?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout.saturating_mul(60));
    let end = judge.run(&suite, &info, args.retry_failed, deadline, &shutdown).await;
    judge.display.finish();
    judge.finish(end?)
}

fn duration(text: &str) -> Result<Duration, String> {
    let read: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(read).ok().filter(|duration| !duration.is_zero()).ok_or_else(|| "it is not positive".to_owned())
}

/// What an interrupted run has come to.
fn earlier(dir: &Path) -> anyhow::Result<Results> {
    Results::load(dir).with_context(|| format!("no run to resume in {}", dir.display()))
}

/// The directory of a new or interrupted run, absolute.
fn directory(resume: Option<&Path>, out: &Path) -> anyhow::Result<PathBuf> {
    if let Some(dir) = resume {
        return dir.canonicalize().with_context(|| format!("no run to resume in {}", dir.display()));
    }
    let taken = out.join(crate::results::PROGRESS).exists();
    anyhow::ensure!(!taken, "{} has the results of a run: --resume it, or give another --out", out.display());
    std::fs::create_dir_all(out.join("logs")).with_context(|| format!("creating {}", out.display()))?;
    Ok(out.canonicalize()?)
}

/// A run going on.
struct Judge<'a> {
    dir: &'a Path,
    progress: Progress,
    known: KnownFailures,
    display: Display,
    /// By test name, of this and of earlier starts.
    results: BTreeMap<String, TestResult>,
    rounds: usize,
    test_timeout: Duration,
}

/// How the run ended, tests aside.
#[derive(Default)]
struct Outcome {
    interrupted: bool,
    troubles: Vec<String>,
}

impl<'a> Judge<'a> {
    fn new(
        dir: &'a Path,
        info: &RunInfo,
        earlier: Results,
        known: KnownFailures,
        test_timeout: Duration,
    ) -> anyhow::Result<Judge<'a>> {
        let mut display = Display::new(info.selected.len());
        let wanted: std::collections::BTreeSet<&String> = info.selected.iter().collect();
        earlier.tests.iter().filter(|test| wanted.contains(&test.test)).for_each(|test| display.earlier(test.state));
        let progress = Progress::open(dir, info)?;
        let results = earlier.tests.into_iter().map(|result| (result.test.clone(), result)).collect();
        Ok(Judge { dir, progress, known, display, results, rounds: earlier.runs.len() * 100, test_timeout })
    }

    /// All phases, then those that failed again.
    async fn run(
        &mut self,
        suite: &Suite,
        info: &RunInfo,
        retries: u32,
        deadline: Instant,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        for attempt in 1..=retries.saturating_add(1) {
            let due = |result: Option<&TestResult>| match result {
                None => true,
                Some(result) => attempt > 1 && result.state.is_bad(),
            };
            let todo = info.selected.iter().filter(|test| due(self.results.get(*test))).cloned().collect();
            for phase in plan::phases(todo, info.processes) {
                self.phase(suite, phase, attempt, deadline, shutdown, &mut outcome).await?;
                if outcome.interrupted {
                    return Ok(outcome);
                }
            }
        }
        Ok(outcome)
    }

    /// Rounds until each test of the phase has a result. A process that dies takes its tests with it: they get another round,
    /// and are lost if that does not help.
    async fn phase(
        &mut self,
        suite: &Suite,
        phase: Phase,
        attempt: u32,
        deadline: Instant,
        shutdown: &CancellationToken,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let mut left = phase.tests;
        for first in std::iter::once(true).chain(std::iter::repeat(false)) {
            let (before, processes) = (left.len(), phase.processes.min(left.len()));
            self.rounds += 1;
            let name = format!("{}-{}", phase.name, self.rounds);
            self.display.say(&format!("-- {name}: {before} tests in {processes} processes"));
            let (dir, only_serial) = (self.dir.join("rounds"), first && phase.serial);
            let test_timeout = self.test_timeout;
            let round = Round { name: &name, tests: &left, processes, only_serial, dir: &dir, deadline, test_timeout };
            let end = round::run(suite, &round, shutdown, |news| self.news(news, attempt)).await?;
            outcome.troubles.extend(end.troubles);
            outcome.interrupted = end.interrupted;
            let has_result = |test: &String| self.results.get(test).is_some_and(|result| result.attempt >= attempt);
            left.retain(|test| !has_result(test));
            if end.interrupted || left.is_empty() {
                return Ok(());
            }
            if left.len() == before && !first {
                break;
            }
        }
        left.into_iter().try_for_each(|test| self.lost(test, attempt))
    }

    fn news(&mut self, news: News, attempt: u32) -> anyhow::Result<()> {
        match news {
            News::Test(process, report) => self.ended(process, &report, attempt),
            News::Running(process, report) => {
                self.display.running(process, report);
                Ok(())
            }
            News::Say(text) => {
                self.display.say(&text);
                Ok(())
            }
            News::Tick => {
                self.display.tick();
                Ok(())
            }
        }
    }

    /// A test ended: its log, then its result.
    fn ended(&mut self, process: usize, report: &SpecReport, attempt: u32) -> anyhow::Result<()> {
        let test = report.name();
        let again = if attempt > 1 { format!(".{attempt}") } else { String::new() };
        let file = format!("logs/{}{again}.log", name::slug(&test));
        std::fs::write(self.dir.join(&file), log::text(report)).with_context(|| format!("writing {file}"))?;
        let state = match report.state.as_str() {
            "passed" => State::Passed,
            "skipped" => State::Skipped,
            _ => State::Failed,
        };
        self.note(TestResult {
            test,
            area: name::area(&report.container_hierarchy_texts),
            state,
            seconds: report.run_time as f64 / 1e9,
            started: report.start_time,
            process,
            attempt,
            failure: log::failure(report),
            log: Some(file),
        })
    }

    fn lost(&mut self, test: String, attempt: u32) -> anyhow::Result<()> {
        self.note(TestResult {
            area: name::area(std::slice::from_ref(&test)),
            test,
            state: State::Lost,
            seconds: 0.0,
            started: None,
            process: 0,
            attempt,
            failure: None,
            log: None,
        })
    }

    fn note(&mut self, result: TestResult) -> anyhow::Result<()> {
        self.progress.result(&result)?;
        self.display.result(&result, self.known.get(&result.test).map(|entry| entry.reason.as_str()));
        self.results.insert(result.test.clone(), result);
        Ok(())
    }

    /// Writes the documents, and says how it went.
    fn finish(mut self, outcome: Outcome) -> anyhow::Result<()> {
        self.progress.ended(Timestamp::now())?;
        let results = Results::load(self.dir)?;
        let write = |name: &str, text: String| {
            std::fs::write(self.dir.join(name), text).with_context(|| format!("writing {name}"))
        };
        write(RESULTS, serde_json::to_string_pretty(&results)? + "\n")?;
        let log = |test: &TestResult| std::fs::read_to_string(self.dir.join(test.log.as_ref()?)).ok();
        write("junit.xml", junit::document(&results, log))?;
        let verdict = self.known.judge(&results.tests);
        outcome.troubles.iter().for_each(|trouble| pintle_host::complain!("trouble: {trouble}"));
        let flaked: Vec<&str> = results.tests.iter().filter(|test| test.flaked()).map(|test| &*test.test).collect();
        for (what, tests) in [
            ("failed", verdict.unexpected.iter().map(|result| result.test.as_str()).collect()),
            ("known to fail, but passed: remove it from the file", verdict.stale.clone()),
            ("passed only when tried again", flaked),
        ] {
            tests.iter().for_each(|test: &&str| pintle_host::complain!("{what}: {test}"));
        }
        pintle_host::say!(
            "{} passed, {} failed ({} known), {} skipped, {} lost, in {:.0} s; {}",
            results.count(State::Passed),
            results.count(State::Failed),
            verdict.known.len(),
            results.count(State::Skipped),
            results.count(State::Lost),
            results.seconds(),
            self.dir.display()
        );
        anyhow::ensure!(!outcome.interrupted, "interrupted; go on with --resume {}", self.dir.display());
        anyhow::ensure!(verdict.unexpected.is_empty(), "{} tests failed", verdict.unexpected.len());
        anyhow::ensure!(verdict.stale.is_empty(), "{} known failures passed", verdict.stale.len());
        // Every test has a result, but not all went well: a set-up that failed, a process that died.
        anyhow::ensure!(outcome.troubles.is_empty(), "{}", outcome.troubles.join("; "));
        Ok(())
    }
}
