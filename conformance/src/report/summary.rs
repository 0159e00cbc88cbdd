//! What the reports say, as values: counts by group and area, failures, the slowest tests, changes from an earlier run.

use std::collections::{BTreeMap, BTreeSet};

use crate::name;
use crate::results::{Results, State, TestResult};

/// The slowest tests that are shown.
const SLOWEST: usize = 25;
/// A test is slower than before if it takes this many times as long ...
const SLOWER_FACTOR: f64 = 2.0;
/// ... and at least this many seconds more.
const SLOWER_SECONDS: f64 = 10.0;

/// Counts of some tests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub lost: usize,
    pub skipped: usize,
    pub seconds: f64,
}

impl Tally {
    fn add(&mut self, result: &TestResult) {
        let count = match result.state {
            State::Passed => &mut self.passed,
            State::Failed => &mut self.failed,
            State::Lost => &mut self.lost,
            State::Skipped => &mut self.skipped,
        };
        *count += 1;
        self.seconds += result.seconds;
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.passed + self.bad() + self.skipped
    }

    /// Those that count against the cluster.
    pub fn bad(&self) -> usize {
        self.failed + self.lost
    }
}

/// What differs from an earlier run.
#[derive(Debug, Default, PartialEq)]
pub struct Changes<'a> {
    /// Passed then, and now don't.
    pub broken: Vec<&'a str>,
    /// Did not pass then, and now do.
    pub fixed: Vec<&'a str>,
    /// Only in this run.
    pub added: Vec<&'a str>,
    /// Only in the earlier run.
    pub removed: Vec<&'a str>,
    /// Name, seconds then, seconds now.
    pub slower: Vec<(&'a str, f64, f64)>,
}

impl<'a> Changes<'a> {
    /// The lists of names that have any, with their titles.
    pub fn lists(&self) -> impl Iterator<Item = (&'static str, &[&'a str])> {
        let lists = [
            ("Broken", &self.broken),
            ("Fixed", &self.fixed),
            ("Only in this run", &self.added),
            ("Only in the earlier run", &self.removed),
        ];
        lists.into_iter().filter(|(_, tests)| !tests.is_empty()).map(|(title, tests)| (title, tests.as_slice()))
    }
}

/// A run, summed up.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The results that it was made from.
    pub results: &'a Results,
    /// All tests.
    pub all: Tally,
    /// By sig.
    pub sigs: BTreeMap<&'a str, Tally>,
    /// By sig and area.
    pub areas: BTreeMap<(&'a str, &'a str), Tally>,
    /// Those that count against the cluster, by name.
    pub failures: Vec<&'a TestResult>,
    /// Slowest first.
    pub slowest: Vec<&'a TestResult>,
    /// Selected, but the run ended before.
    pub missing: Vec<&'a str>,
    /// Against an earlier run.
    pub changes: Option<Changes<'a>>,
    /// What leads from the report to the run's directory.
    pub logs: String,
}

impl<'a> Summary<'a> {
    /// Sums up `results`.
    pub fn new(results: &'a Results, earlier: Option<&'a Results>) -> Summary<'a> {
        let mut summary = Summary {
            results,
            all: Tally::default(),
            sigs: BTreeMap::new(),
            areas: BTreeMap::new(),
            failures: Vec::new(),
            slowest: results.tests.iter().collect(),
            missing: missing(results),
            changes: earlier.map(|earlier| changes(results, earlier)),
            logs: String::new(),
        };
        for result in &results.tests {
            let sig = name::sig(&result.test);
            summary.all.add(result);
            summary.sigs.entry(sig).or_default().add(result);
            summary.areas.entry((sig, &result.area)).or_default().add(result);
            if result.state.is_bad() {
                summary.failures.push(result);
            }
        }
        summary.slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        summary.slowest.truncate(SLOWEST);
        summary
    }

    /// `3 of 4 passed`; tests without a result count too.
    pub fn title(&self) -> String {
        format!("{} of {} passed", self.all.passed, self.all.total() + self.missing.len())
    }

    /// The version that the server gave last.
    pub fn version(&self) -> &'a str {
        self.results.runs.last().map_or("unknown", |run| &run.version)
    }

    /// What the cluster keeps its state in.
    pub fn store(&self) -> Option<&'a str> {
        self.results.runs.iter().rev().find_map(|run| run.store.as_deref())
    }
}

fn missing(results: &Results) -> Vec<&str> {
    let done = results.done();
    let selected: BTreeSet<&str> =
        results.runs.iter().flat_map(|run| run.selected.iter().map(String::as_str)).collect();
    selected.into_iter().filter(|test| !done.contains(test)).collect()
}

fn changes<'a>(now: &'a Results, then: &'a Results) -> Changes<'a> {
    let before: BTreeMap<&str, &TestResult> = then.tests.iter().map(|test| (test.test.as_str(), test)).collect();
    let done = now.done();
    let mut changes =
        Changes { removed: before.keys().copied().filter(|test| !done.contains(test)).collect(), ..Changes::default() };
    for test in &now.tests {
        let name = test.test.as_str();
        let Some(before) = before.get(name) else {
            changes.added.push(name);
            continue;
        };
        match (before.state == State::Passed, test.state == State::Passed) {
            (true, false) => changes.broken.push(name),
            (false, true) => changes.fixed.push(name),
            (true, true) if is_slower(before.seconds, test.seconds) => {
                changes.slower.push((name, before.seconds, test.seconds));
            }
            _ => {}
        }
    }
    changes.slower.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
    changes
}

fn is_slower(before: f64, now: f64) -> bool {
    now > before * SLOWER_FACTOR && now > before + SLOWER_SECONDS
}

#[cfg(test)]
pub mod tests {
    //! Also what the writers' tests use.

    use super::*;
    use crate::results::{Failure, RunInfo, example};

    /// A complete run.
    pub fn run(tests: Vec<TestResult>) -> Results {
        let run = RunInfo {
            started: "2026-11-30T10:00:00Z".parse().unwrap(),
            ended: Some("2026-11-30T10:10:05Z".parse().unwrap()),
            version: "v1.37.2".to_owned(),
            store: Some("embedded".to_owned()),
            processes: 4,
            selected: tests.iter().map(|test| test.test.clone()).collect(),
        };
        Results { runs: vec![run], tests }
    }

    /// One test of each state.
    pub fn mixed() -> Results {
        let failure = Failure {
            message: "expected <1>, got 2 | 3\nmore".to_owned(),
            location: "test/e2e/a.go:7".to_owned(),
            step: Some("waiting".to_owned()),
            last: vec!["one & two".to_owned()],
        };
        run(vec![
            example("[sig-a] one [Conformance]", State::Passed, 3.0),
            TestResult { failure: Some(failure), ..example("[sig-a] two <b> [Conformance]", State::Failed, 30.0) },
            example("[sig-b] three [Conformance]", State::Lost, 0.0),
            example("[sig-b] four [Conformance]", State::Skipped, 0.5),
        ])
    }

    #[test]
    fn counts_are_by_sig_and_area() {
        let results = mixed();
        let summary = Summary::new(&results, None);
        assert_eq!(summary.sigs["sig-a"], Tally { passed: 1, failed: 1, seconds: 33.0, ..Tally::default() });
        assert_eq!(summary.areas[&("sig-b", "Area")].bad(), 1);
        assert_eq!((summary.all.total(), summary.all.bad(), summary.failures.len()), (4, 2, 2));
        assert_eq!(summary.slowest[0].seconds, 30.0);
        assert!(summary.missing.is_empty());
    }

    #[test]
    fn tests_without_a_result_are_missing() {
        let mut results = mixed();
        results.tests.remove(0);
        assert_eq!(Summary::new(&results, None).missing, ["[sig-a] one [Conformance]"]);
    }

    #[test]
    fn runs_are_compared() {
        let then = run(vec![
            example("a", State::Passed, 5.0),
            example("b", State::Failed, 1.0),
            example("c", State::Passed, 2.0),
            example("gone", State::Passed, 2.0),
        ]);
        let now = run(vec![
            example("a", State::Passed, 25.0),
            example("b", State::Passed, 1.0),
            example("c", State::Lost, 0.0),
            example("new", State::Failed, 2.0),
        ]);
        assert_eq!(
            Summary::new(&now, Some(&then)).changes.unwrap(),
            Changes {
                broken: vec!["c"],
                fixed: vec!["b"],
                added: vec!["new"],
                removed: vec!["gone"],
                slower: vec![("a", 5.0, 25.0)],
            }
        );
    }
}
