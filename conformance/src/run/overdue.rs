//! Tests that take too long. Nobody can end a test from outside but by ending its process: it is told to stop, has some time to
//! clean up, and is started again. The test has failed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::wire::{Failure, ProgressReport, SpecReport};

/// Which tests run, since when, and which were told to stop.
#[derive(Debug)]
pub struct Overdue {
    /// No test may take longer.
    limit: SignedDuration,
    /// How long a test may clean up.
    grace: SignedDuration,
    running: BTreeMap<usize, Running>,
    stopped: BTreeMap<usize, Stopped>,
}

#[derive(Debug)]
struct Running {
    report: ProgressReport,
    since: Timestamp,
}

#[derive(Debug)]
struct Stopped {
    test: Running,
    at: Timestamp,
    /// The test has its result.
    told: bool,
    killed: bool,
}

/// What is to be done about a process.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// It shall clean up and end.
    Stop(usize),
    /// It had its time for that.
    Kill(usize),
}

impl Overdue {
    /// Nothing runs yet.
    pub fn new(limit: Duration, grace: Duration) -> Self {
        let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Self { limit: signed(limit), grace: signed(grace), running: BTreeMap::new(), stopped: BTreeMap::new() }
    }

    /// A process told what it is busy with.
    pub fn heard(&mut self, process: usize, report: &ProgressReport, now: Timestamp) {
        let since = report.spec_start_time.unwrap_or(now);
        match self.running.get(&process) {
            Some(running) if running.report.name() == report.name() => {}
            _ => drop(self.running.insert(process, Running { report: report.clone(), since })),
        }
    }

    /// A test of a process ended. Of one that was told to stop, it gives what that means: the test took too long.
    pub fn ended(&mut self, process: usize, report: SpecReport) -> SpecReport {
        self.running.remove(&process);
        let limit = self.limit;
        match self.stopped.get_mut(&process) {
            // It may have passed in the last moment.
            Some(stopped) if report.state != "passed" && stopped.test.report.name() == report.name() => {
                stopped.told = true;
                timed_out(report, limit)
            }
            _ => report,
        }
    }

    /// What is to be done now.
    pub fn actions(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        for (process, stopped) in &mut self.stopped {
            if !stopped.killed && now.duration_since(stopped.at) > self.grace {
                stopped.killed = true;
                actions.push(Action::Kill(*process));
            }
        }
        let late = |running: &Running| now.duration_since(running.since) > self.limit;
        let overdue: Vec<usize> = self
            .running
            .iter()
            .filter(|(process, running)| late(running) && !self.stopped.contains_key(*process))
            .map(|(process, _)| *process)
            .collect();
        for process in overdue {
            if let Some(test) = self.running.remove(&process) {
                self.stopped.insert(process, Stopped { test, at: now, told: false, killed: false });
                actions.push(Action::Stop(process));
            }
        }
        actions
    }

    /// A process is no more. If it had been told to stop: the report of its test, unless that came from the process itself.
    pub fn exited(&mut self, process: usize) -> Option<Option<SpecReport>> {
        self.running.remove(&process);
        let stopped = self.stopped.remove(&process)?;
        let Running { report, since } = stopped.test;
        let report = SpecReport {
            container_hierarchy_texts: report.container_hierarchy_texts,
            leaf_node_type: "It".to_owned(),
            leaf_node_text: report.leaf_node_text,
            start_time: Some(since),
            run_time: u64::try_from(stopped.at.duration_since(since).as_nanos()).unwrap_or_default(),
            ..SpecReport::default()
        };
        Some((!stopped.told).then(|| timed_out(report, self.limit)))
    }
}

fn timed_out(mut report: SpecReport, limit: SignedDuration) -> SpecReport {
    let failure = report.failure.get_or_insert_with(Failure::default);
    let before = std::mem::take(&mut failure.message);
    failure.message = format!("ended because it took longer than {} s (--test-timeout)\n{before}", limit.as_secs());
    failure.message.truncate(failure.message.trim_end().len());
    report.state = "timedout".to_owned();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(seconds: i64) -> Timestamp {
        START + SignedDuration::from_secs(seconds)
    }

    fn progress(name: &str) -> ProgressReport {
        ProgressReport { leaf_node_text: name.to_owned(), spec_start_time: Some(START), ..ProgressReport::default() }
    }

    fn report(name: &str, state: &str) -> SpecReport {
        SpecReport { leaf_node_text: name.to_owned(), state: state.to_owned(), ..SpecReport::default() }
    }

    fn overdue() -> Overdue {
        let mut overdue = Overdue::new(Duration::from_secs(60), Duration::from_secs(20));
        overdue.heard(2, &progress("a"), at(3));
        overdue
    }

    #[test]
    fn a_test_is_stopped_after_its_time_and_its_process_killed_if_that_does_not_help() {
        let mut overdue = overdue();
        overdue.heard(2, &progress("a"), at(18));
        assert_eq!(overdue.actions(at(60)), []);
        assert_eq!(overdue.actions(at(61)), [Action::Stop(2)]);
        assert_eq!(overdue.actions(at(81)), []);
        assert_eq!(overdue.actions(at(82)), [Action::Kill(2)]);
        assert_eq!(overdue.actions(at(200)), []);
        let report = overdue.exited(2).unwrap().unwrap();
        assert_eq!(
            (report.name().as_str(), report.state.as_str(), report.run_time / 1_000_000_000),
            ("a", "timedout", 61)
        );
        assert!(report.failure.unwrap().message.contains("longer than 60 s"));
        assert!(overdue.exited(2).is_none());
    }

    #[test]
    fn a_test_that_tells_of_its_end_is_told_of_once() {
        let mut overdue = overdue();
        overdue.actions(at(61));
        let ended = overdue.ended(2, report("a", "interrupted"));
        assert_eq!(ended.state, "timedout");
        assert_eq!(overdue.exited(2).map(|report| report.is_some()), Some(false));
    }

    #[test]
    fn tests_that_end_in_time_and_others_are_left_alone() {
        let mut overdue = overdue();
        assert_eq!(overdue.ended(2, report("a", "failed")).state, "failed");
        assert_eq!(overdue.actions(at(100)), []);
        overdue.heard(1, &progress("b"), at(3));
        overdue.actions(at(61));
        assert_eq!(overdue.ended(1, report("b", "passed")).state, "passed");
        assert_eq!(overdue.ended(1, report("c", "interrupted")).state, "interrupted");
    }
}
