//! The middle that ginkgo's parallel processes talk to, as a state machine: a request in, a reply and perhaps an event out.
//!
//! Each process gets a base address of its own (`/1`, `/2`, ...), so that every message has a known sender. Processes that
//! are not there count as ended: with a total of two and only process 1 started, a single process reports live as well.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::wire::{ProgressReport, SpecReport};

/// What a process asks or tells.
pub struct Request<'a> {
    /// The sender, from 1.
    pub process: usize,
    /// Posts a body, or else gets.
    pub post: bool,
    /// Without the sender's part, no leading slash.
    pub path: &'a str,
    /// The body of a post.
    pub body: &'a [u8],
}

/// The answers of the protocol.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// 200 without a body.
    Ok,
    /// 200 with JSON.
    Json(Value),
    /// 425: ask again.
    Early,
    /// 410: whoever should have answered is gone; for the abort question: yes.
    Gone,
    /// 400.
    Bad,
    /// 404.
    Unknown,
}

/// What the judge wants to know of it.
#[derive(Debug)]
pub enum Event {
    /// A test or suite node ended, or was passed over.
    Spec(Box<SpecReport>),
    /// A test has been running for a while.
    Progress(ProgressReport),
}

/// An index behind every suite's last test.
const BEHIND_ALL: usize = 1 << 30;

/// The state of one set of processes.
pub struct Suite {
    exited: BTreeSet<usize>,
    /// Processes that shall end though the others go on.
    stopped: BTreeSet<usize>,
    total: usize,
    counter: usize,
    abort: bool,
    before_suite: Option<Value>,
    before_reports: Option<Value>,
    begun: Value,
    ended: Vec<Value>,
}

impl Suite {
    /// For `total` processes, of which only the first `started` exist.
    pub fn new(started: usize, total: usize) -> Self {
        let exited = (started + 1..=total).collect();
        Suite {
            exited,
            stopped: BTreeSet::new(),
            total,
            counter: 0,
            abort: false,
            before_suite: None,
            before_reports: None,
            begun: json!({}),
            ended: Vec::new(),
        }
    }

    /// Tells all processes to clean up and end.
    pub fn abort(&mut self) {
        self.abort = true;
    }

    /// Tells one process to clean up and end.
    pub fn stop(&mut self, process: usize) {
        self.stopped.insert(process);
    }

    /// `process` is there again.
    pub fn restarted(&mut self, process: usize) {
        self.stopped.remove(&process);
        self.exited.remove(&process);
    }

    /// No more tests are given out; process 1 still goes through the serial ones, which it counts by itself.
    pub fn no_more(&mut self) {
        self.counter = BEHIND_ALL;
    }

    /// `process` is no more.
    pub fn exited(&mut self, process: usize) {
        self.exited.insert(process);
    }

    /// Answers one request.
    pub fn handle(&mut self, request: &Request<'_>) -> (Reply, Option<Event>) {
        match (request.post, request.path) {
            (true, "did-run") => event(request.body, |report| Event::Spec(Box::new(report))),
            (true, "progress-report") => event(request.body, Event::Progress),
            // What process 1 prints while it sets up the suite; a failure's message comes with the node's report.
            (true, "emit-output") => (Reply::Ok, None),
            (true, "abort") => {
                // One that was told to stop tells it to nobody else.
                self.abort |= !self.stopped.contains(&request.process);
                (Reply::Ok, None)
            }
            (true, path) => (self.tell(request.process, path, request.body), None),
            (false, path) => (self.ask(request.process, path), None),
        }
    }

    fn tell(&mut self, process: usize, path: &str, body: &[u8]) -> Reply {
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return Reply::Bad };
        match path {
            "suite-will-begin" => self.begun = value,
            "report-before-suite-completed" => self.before_reports = Some(value),
            "before-suite-completed" => self.before_suite = Some(value),
            // Process 1 has its own report; it asks for those of the others.
            "suite-did-end" if process != 1 => self.ended.push(value),
            "suite-did-end" => {}
            _ => return Reply::Unknown,
        }
        Reply::Ok
    }

    fn ask(&mut self, process: usize, path: &str) -> Reply {
        let stopped = self.stopped.contains(&process);
        match path {
            "up" => Reply::Ok,
            "counter" if stopped => Reply::Json(json!({"Index": BEHIND_ALL})),
            "counter" => {
                self.counter += 1;
                Reply::Json(json!({"Index": self.counter - 1}))
            }
            "abort" if self.abort || stopped => Reply::Gone,
            "abort" => Reply::Ok,
            "report-before-suite-state" => self.of_first(self.before_reports.as_ref()),
            "before-suite-state" => self.of_first(self.before_suite.as_ref()),
            "have-nonprimary-procs-finished" if self.others_ended() => Reply::Ok,
            "aggregated-nonprimary-procs-report" if self.others_ended() => Reply::Json(self.merged()),
            "have-nonprimary-procs-finished" | "aggregated-nonprimary-procs-report" => Reply::Early,
            _ => Reply::Unknown,
        }
    }

    /// What process 1 told, or will tell, or no longer can tell.
    fn of_first(&self, told: Option<&Value>) -> Reply {
        match told {
            Some(value) => Reply::Json(value.clone()),
            None if self.exited.contains(&1) => Reply::Gone,
            None => Reply::Early,
        }
    }

    fn others_ended(&self) -> bool {
        (2..=self.total).all(|process| self.exited.contains(&process))
    }

    /// The other processes' reports as one. A process that crashed has none; what it ran is in the judge's own records.
    fn merged(&self) -> Value {
        let mut merged = self.begun.clone();
        let of = |key: &str| self.ended.iter().map(|report| report[key].clone()).collect::<Vec<_>>();
        let flat = |values: Vec<Value>| -> Value {
            values.into_iter().filter_map(|value| value.as_array().cloned()).flatten().collect()
        };
        let last = of("EndTime").into_iter().max_by_key(|time| time.as_str().map(str::to_owned));
        merged["EndTime"] = last.unwrap_or_else(|| merged["StartTime"].clone());
        merged["SuiteSucceeded"] = of("SuiteSucceeded").iter().all(|succeeded| *succeeded == true).into();
        merged["SpecialSuiteFailureReasons"] = flat(of("SpecialSuiteFailureReasons"));
        merged["SpecReports"] = flat(of("SpecReports"));
        merged
    }
}

fn event<T: serde::de::DeserializeOwned>(body: &[u8], make: impl FnOnce(T) -> Event) -> (Reply, Option<Event>) {
    match serde_json::from_slice(body) {
        Ok(report) => (Reply::Ok, Some(make(report))),
        Err(_) => (Reply::Bad, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(suite: &mut Suite, path: &str) -> Reply {
        suite.handle(&Request { process: 2, post: false, path, body: b"" }).0
    }

    fn post(suite: &mut Suite, process: usize, path: &str, body: &Value) -> Reply {
        suite.handle(&Request { process, post: true, path, body: body.to_string().as_bytes() }).0
    }

    #[test]
    fn indexes_are_given_out_once() {
        let mut suite = Suite::new(2, 2);
        assert_eq!(get(&mut suite, "counter"), Reply::Json(json!({"Index": 0})));
        assert_eq!(get(&mut suite, "counter"), Reply::Json(json!({"Index": 1})));
        suite.no_more();
        assert_eq!(get(&mut suite, "counter"), Reply::Json(json!({"Index": BEHIND_ALL})));
    }

    #[test]
    fn the_others_wait_for_the_first_and_learn_of_its_end() {
        let mut suite = Suite::new(2, 2);
        assert_eq!(get(&mut suite, "before-suite-state"), Reply::Early);
        let state = json!({"Data": "eA==", "State": "passed"});
        assert_eq!(post(&mut suite, 1, "before-suite-completed", &state), Reply::Ok);
        assert_eq!(get(&mut suite, "before-suite-state"), Reply::Json(state));
        assert_eq!(get(&mut suite, "report-before-suite-state"), Reply::Early);
        suite.exited(1);
        assert_eq!(get(&mut suite, "report-before-suite-state"), Reply::Gone);
    }

    #[test]
    fn the_first_gets_the_reports_of_the_others_when_they_ended() {
        let mut suite = Suite::new(3, 3);
        let report = |ok: bool, spec: &str, end: &str| {
            json!({"StartTime": "2026-01-01T00:00:00Z", "EndTime": end, "SuiteSucceeded": ok, "SpecReports": [spec],
                   "SpecialSuiteFailureReasons": null})
        };
        post(&mut suite, 2, "suite-will-begin", &json!({"StartTime": "2026-01-01T00:00:00Z", "SpecReports": null}));
        post(&mut suite, 2, "suite-did-end", &report(true, "a", "2026-01-01T00:00:02Z"));
        suite.exited(2);
        assert_eq!(get(&mut suite, "aggregated-nonprimary-procs-report"), Reply::Early);
        post(&mut suite, 3, "suite-did-end", &report(false, "b", "2026-01-01T00:00:01Z"));
        suite.exited(3);
        assert_eq!(get(&mut suite, "have-nonprimary-procs-finished"), Reply::Ok);
        let Reply::Json(merged) = get(&mut suite, "aggregated-nonprimary-procs-report") else { panic!("no report") };
        assert_eq!(merged["SpecReports"], json!(["a", "b"]));
        assert_eq!((&merged["SuiteSucceeded"], &merged["EndTime"]), (&json!(false), &json!("2026-01-01T00:00:02Z")));
    }

    #[test]
    fn a_lone_process_waits_for_nobody() {
        let mut suite = Suite::new(1, 2);
        post(&mut suite, 1, "suite-will-begin", &json!({"StartTime": "2026-01-01T00:00:00Z"}));
        assert_eq!(get(&mut suite, "have-nonprimary-procs-finished"), Reply::Ok);
        let Reply::Json(merged) = get(&mut suite, "aggregated-nonprimary-procs-report") else { panic!("no report") };
        assert_eq!((&merged["SpecReports"], &merged["EndTime"]), (&json!([]), &json!("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn abort_reaches_everybody() {
        let mut suite = Suite::new(2, 2);
        assert_eq!(get(&mut suite, "abort"), Reply::Ok);
        suite.abort();
        assert_eq!(get(&mut suite, "abort"), Reply::Gone);
    }

    #[test]
    fn one_process_is_stopped_while_the_others_go_on() {
        let mut suite = Suite::new(2, 2);
        suite.stop(2);
        assert_eq!(get(&mut suite, "abort"), Reply::Gone);
        assert_eq!(get(&mut suite, "counter"), Reply::Json(json!({"Index": BEHIND_ALL})));
        assert_eq!(post(&mut suite, 2, "abort", &Value::Null), Reply::Ok);
        let other =
            |suite: &mut Suite, path: &str| suite.handle(&Request { process: 1, post: false, path, body: b"" }).0;
        assert_eq!(other(&mut suite, "abort"), Reply::Ok);
        assert_eq!(other(&mut suite, "counter"), Reply::Json(json!({"Index": 0})));
        suite.exited(2);
        assert_eq!(other(&mut suite, "have-nonprimary-procs-finished"), Reply::Ok);
        suite.restarted(2);
        assert_eq!(other(&mut suite, "have-nonprimary-procs-finished"), Reply::Early);
        assert_eq!(get(&mut suite, "counter"), Reply::Json(json!({"Index": 1})));
    }

    #[test]
    fn wrong_requests_are_answered() {
        let mut suite = Suite::new(2, 2);
        assert_eq!(get(&mut suite, "nothing"), Reply::Unknown);
        assert_eq!(suite.handle(&Request { process: 1, post: true, path: "did-run", body: b"{" }).0, Reply::Bad);
    }
}
