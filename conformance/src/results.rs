//! The record of a run: what each test came to. It is written line by line while the run goes on, so that an interruption of
//! any kind loses nothing, and as one JSON document at its end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The growing file.
pub const PROGRESS: &str = "progress.jsonl";
/// The document.
pub const RESULTS: &str = "results.json";

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It did.
    Passed,
    /// An assertion, a panic, or its own time limit.
    Failed,
    /// The test itself found that it does not apply.
    Skipped,
    /// Its process ended without a word about it.
    Lost,
}

impl State {
    /// As people read it.
    pub fn text(self) -> &'static str {
        match self {
            State::Passed => "passed",
            State::Failed => "failed",
            State::Skipped => "skipped",
            State::Lost => "lost",
        }
    }

    /// Counts against the cluster.
    pub fn is_bad(self) -> bool {
        matches!(self, State::Failed | State::Lost)
    }
}

/// What one test came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestResult {
    /// Its full name.
    pub test: String,
    /// What it is about.
    pub area: String,
    /// How it ended.
    pub state: State,
    /// How long it took.
    pub seconds: f64,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<Timestamp>,
    /// The process that ran it.
    pub process: usize,
    /// 1, or more where failures are tried again.
    pub attempt: u32,
    /// Why it failed, or was skipped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<Failure>,
    /// Its output, relative to the run's directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log: Option<String>,
}

impl TestResult {
    /// Passed, but not at once.
    pub fn flaked(&self) -> bool {
        self.state == State::Passed && self.attempt > 1
    }
}

/// Why a test failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Failure {
    /// The assertion.
    pub message: String,
    /// File and line.
    pub location: String,
    /// The test's own description of what it was doing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
    /// The last lines before the failure, and the namespace's events where they were printed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub last: Vec<String>,
}

/// One start of the judge; a resumed run has several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunInfo {
    /// When.
    pub started: Timestamp,
    /// When it ended, if it lived to see it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<Timestamp>,
    /// The version that the API server gives.
    pub version: String,
    /// What the cluster keeps its state in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub store: Option<String>,
    /// Processes for tests that are not serial.
    pub processes: usize,
    /// The tests that were to run.
    pub selected: Vec<String>,
}

/// A line of the growing file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Run(RunInfo),
    Test(TestResult),
    Ended(Timestamp),
}

/// Everything known of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// Each start.
    pub runs: Vec<RunInfo>,
    /// The last result of each test, by name.
    pub tests: Vec<TestResult>,
}

impl Results {
    /// Reads a run's directory, or its `results.json`.
    pub fn load(path: &Path) -> anyhow::Result<Results> {
        let read = || -> anyhow::Result<Results> {
            if !path.is_dir() {
                return Ok(serde_json::from_reader(BufReader::new(File::open(path)?))?);
            }
            let progress = path.join(PROGRESS);
            if !progress.exists() {
                return Ok(serde_json::from_reader(BufReader::new(File::open(path.join(RESULTS))?))?);
            }
            let lines = BufReader::new(File::open(progress)?).lines().collect::<Result<Vec<_>, _>>()?;
            replay(&lines)
        };
        read().with_context(|| format!("reading the results in {}", path.display()))
    }

    /// The names that have a result.
    pub fn done(&self) -> std::collections::BTreeSet<&str> {
        self.tests.iter().map(|result| result.test.as_str()).collect()
    }

    /// The number of tests in `state`.
    pub fn count(&self, state: State) -> usize {
        self.tests.iter().filter(|result| result.state == state).count()
    }

    /// Wall time of all starts together.
    pub fn seconds(&self) -> f64 {
        self.runs.iter().map(|run| run.ended.map_or(0.0, |ended| ended.duration_since(run.started).as_secs_f64())).sum()
    }
}

/// What the lines add up to: a later result of a test replaces an earlier one. A line cut off by a sudden end is passed over.
fn replay(lines: &[String]) -> anyhow::Result<Results> {
    let mut runs: Vec<RunInfo> = Vec::new();
    let mut tests = BTreeMap::new();
    for line in lines {
        let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
        match line {
            Line::Run(run) => runs.push(run),
            Line::Test(result) => {
                let end = result.started.map(|at| at + jiff::SignedDuration::from_secs_f64(result.seconds));
                extend(&mut runs, end);
                tests.insert(result.test.clone(), result);
            }
            Line::Ended(at) => extend(&mut runs, Some(at)),
        }
    }
    anyhow::ensure!(!runs.is_empty(), "no run in it");
    Ok(Results { runs, tests: tests.into_values().collect() })
}

/// A run lasted at least until its last known event.
fn extend(runs: &mut [RunInfo], at: Option<Timestamp>) {
    if let Some(run) = runs.last_mut() {
        run.ended = run.ended.max(at);
    }
}

/// The growing file, open for writing.
pub struct Progress(File);

impl Progress {
    /// Opens a new or an interrupted run's file.
    pub fn open(dir: &Path, run: &RunInfo) -> anyhow::Result<Progress> {
        let path = dir.join(PROGRESS);
        let mut file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.as_mut().map_err(|error| anyhow::anyhow!("opening {}: {error}", path.display()))?;
        let mut progress = Progress(file.try_clone()?);
        // What a sudden end may have cut off stays a line of its own.
        progress.0.write_all(b"\n")?;
        progress.add(&Line::Run(run.clone()))?;
        Ok(progress)
    }

    /// Notes a result.
    pub fn result(&mut self, result: &TestResult) -> anyhow::Result<()> {
        self.add(&Line::Test(result.clone()))
    }

    /// Notes that this start of the run is over.
    pub fn ended(&mut self, at: Timestamp) -> anyhow::Result<()> {
        self.add(&Line::Ended(at))
    }

    fn add(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.0.write_all(text.as_bytes()).context("writing the progress file")
    }
}

/// A result for tests.
#[cfg(test)]
pub fn example(test: &str, state: State, seconds: f64) -> TestResult {
    TestResult {
        test: test.to_owned(),
        area: "Area".to_owned(),
        state,
        seconds,
        started: Some("2026-11-30T10:00:00Z".parse().unwrap()),
        process: 1,
        attempt: 1,
        failure: None,
        log: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(started: &str) -> RunInfo {
        RunInfo {
            started: started.parse().unwrap(),
            ended: None,
            version: "v1.37.2".to_owned(),
            store: None,
            processes: 2,
            selected: vec!["a".to_owned(), "b".to_owned()],
        }
    }

    #[test]
    fn a_run_that_was_cut_off_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut progress = Progress::open(dir.path(), &run("2026-11-30T10:00:00Z")).unwrap();
        progress.result(&example("a", State::Failed, 3.0)).unwrap();
        progress.0.write_all(br#"{"test":{"test":"b","#).unwrap();
        drop(progress);
        assert_eq!(Results::load(dir.path()).unwrap().done().into_iter().collect::<Vec<_>>(), ["a"]);

        let mut progress = Progress::open(dir.path(), &run("2026-11-30T11:00:00Z")).unwrap();
        progress.result(&TestResult { attempt: 2, ..example("a", State::Passed, 1.0) }).unwrap();
        progress.ended("2026-11-30T11:00:07Z".parse().unwrap()).unwrap();
        let results = Results::load(dir.path()).unwrap();
        assert_eq!((results.tests.len(), results.runs.len(), results.seconds()), (1, 2, 10.0));
        assert!(results.tests[0].flaked());

        let file = dir.path().join("copy.json");
        std::fs::write(&file, serde_json::to_vec(&results).unwrap()).unwrap();
        assert_eq!(Results::load(&file).unwrap().count(State::Passed), 1);
    }

    #[test]
    fn a_directory_without_a_run_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Results::load(dir.path()).is_err());
    }
}
