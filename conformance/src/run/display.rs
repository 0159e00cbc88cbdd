//! What is seen of a run while it goes on: on a terminal a bar with the running tests below it, elsewhere plain lines.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::wire::ProgressReport;
use crate::results::{State, TestResult};

/// Without a terminal, how often to tell that the run lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);
/// Running tests shown.
const SHOWN: usize = 12;

/// The state of what is shown.
pub struct Display {
    terminal: bool,
    drawn: usize,
    spoke: Instant,
    started: Instant,
    run: Run,
}

/// The figures.
struct Run {
    total: usize,
    /// Results of an earlier start of the run.
    before: usize,
    counts: BTreeMap<State, usize>,
    running: BTreeMap<usize, Running>,
}

struct Running {
    test: String,
    since: Timestamp,
    step: String,
}

impl Display {
    /// For `total` tests.
    pub fn new(total: usize) -> Display {
        let terminal = std::io::stderr().is_terminal();
        let run = Run { total, before: 0, counts: BTreeMap::new(), running: BTreeMap::new() };
        Display { terminal, drawn: 0, spoke: Instant::now(), started: Instant::now(), run }
    }

    /// Counts a result of an earlier start.
    pub fn earlier(&mut self, state: State) {
        self.run.before += 1;
        *self.run.counts.entry(state).or_default() += 1;
    }

    /// A line that stays.
    pub fn say(&mut self, line: &str) {
        self.clear();
        pintle_host::complain!("{line}");
        self.draw();
    }

    /// A test ended; `known` is why it was expected to fail.
    pub fn result(&mut self, result: &TestResult, known: Option<&str>) {
        self.run.running.remove(&result.process);
        if result.attempt == 1 {
            *self.run.counts.entry(result.state).or_default() += 1;
        }
        if self.terminal && result.state == State::Passed {
            return self.draw();
        }
        let (done, total) = (self.run.done(), self.run.total);
        let note = known.map(|reason| format!(" (known: {reason})")).unwrap_or_default();
        let state = result.state.text();
        self.say(&format!("[{done:>3}/{total}] {state:<7} {:>6.1} s  {}{note}", result.seconds, result.test));
        if let (State::Failed, Some(failure)) = (result.state, &result.failure) {
            self.say(&format!("    {}: {}", failure.location, first_lines(&failure.message)));
        }
        self.spoke = Instant::now();
    }

    /// A test has been running for some time.
    pub fn running(&mut self, process: usize, report: ProgressReport) {
        let running = Running {
            test: report.name(),
            since: report.spec_start_time.unwrap_or_else(Timestamp::now),
            step: report.current_step_text,
        };
        self.run.running.insert(process, running);
        self.draw();
    }

    /// A second went by.
    pub fn tick(&mut self) {
        self.draw();
        if !self.terminal && self.spoke.elapsed() >= SIGN_OF_LIFE {
            self.spoke = Instant::now();
            for line in self.run.plain(self.started.elapsed(), Timestamp::now()) {
                pintle_host::complain!("{line}");
            }
        }
    }

    /// Nothing is drawn any more.
    pub fn finish(&mut self) {
        self.clear();
        self.terminal = false;
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            // To the first drawn line, and erase from there.
            let _ = write!(std::io::stderr(), "\x1b[{}A\r\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }

    fn draw(&mut self) {
        if !self.terminal {
            return;
        }
        self.clear();
        let lines = self.run.frame(self.started.elapsed(), Timestamp::now(), width());
        self.drawn = lines.len();
        let mut stderr = std::io::stderr().lock();
        for line in lines {
            // A terminal that is gone is no reason to stop.
            let _ = writeln!(stderr, "{line}");
        }
    }
}

impl Run {
    fn done(&self) -> usize {
        self.counts.values().sum()
    }

    fn count(&self, state: State) -> usize {
        self.counts.get(&state).copied().unwrap_or_default()
    }

    /// From the rate so far.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let (done, left) = (self.done() - self.before, self.total.saturating_sub(self.done()));
        (done > 0).then(|| elapsed.mul_f64(left as f64 / done as f64))
    }

    fn summary(&self, elapsed: Duration) -> String {
        let bad = self.count(State::Failed) + self.count(State::Lost);
        let left = self.left(elapsed).map(|left| format!(", about {} left", minutes(left))).unwrap_or_default();
        format!(
            "{}/{} passed {} failed {bad} skipped {} {}{left}",
            self.done(),
            self.total,
            self.count(State::Passed),
            self.count(State::Skipped),
            minutes(elapsed)
        )
    }

    fn frame(&self, elapsed: Duration, now: Timestamp, width: usize) -> Vec<String> {
        let summary = self.summary(elapsed);
        let bar = bar(&self.parts(), self.total, width.saturating_sub(summary.chars().count() + 2).min(40));
        let mut lines = vec![format!("{bar} {summary}")];
        let running = self.running.iter().take(SHOWN).map(|(process, running)| running.line(*process, now));
        lines.extend(running.map(|line| cut(&line, width)));
        lines
    }

    fn parts(&self) -> [(usize, &'static str); 2] {
        let bad = self.count(State::Failed) + self.count(State::Lost);
        [(self.done() - bad, "\x1b[32m"), (bad, "\x1b[31m")]
    }

    fn plain(&self, elapsed: Duration, now: Timestamp) -> Vec<String> {
        let running = self.running.iter().map(|(process, running)| running.line(*process, now));
        std::iter::once(format!("-- {}", self.summary(elapsed))).chain(running).collect()
    }
}

impl Running {
    fn line(&self, process: usize, now: Timestamp) -> String {
        let time = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        let step = if self.step.is_empty() { String::new() } else { format!(" · {}", self.step.replace('\n', " ")) };
        format!("  {process:>2} {:>6} {}{step}", minutes(time), self.test)
    }
}

/// A bar of `width` cells with coloured parts out of `total`.
fn bar(parts: &[(usize, &str)], total: usize, width: usize) -> String {
    let (mut text, mut sum, mut drawn) = (String::new(), 0, 0);
    for (count, colour) in parts {
        sum += count;
        let end = (sum * width).checked_div(total).unwrap_or(0).min(width);
        text += &format!("{colour}{}", "█".repeat(end - drawn));
        drawn = end;
    }
    text + "\x1b[2m" + &"░".repeat(width - drawn) + "\x1b[0m"
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn first_lines(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), 300)
}

fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(100, |size| usize::from(size.ws_col).max(40))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &str) -> String {
        let mut text = String::new();
        let mut parts = line.split('\x1b');
        text += parts.next().unwrap();
        parts.for_each(|part| text += part.split_once('m').unwrap().1);
        text
    }

    #[test]
    fn a_frame_shows_counts_and_running_tests() {
        let mut run = Run {
            total: 10,
            before: 1,
            counts: BTreeMap::from([(State::Passed, 4), (State::Failed, 1)]),
            running: BTreeMap::new(),
        };
        let since: Timestamp = "2026-11-30T10:00:00Z".parse().unwrap();
        run.running.insert(3, Running { test: "[sig-x] t".to_owned(), since, step: "waiting\nlong".to_owned() });
        let now: Timestamp = "2026-11-30T10:01:05Z".parse().unwrap();
        let frame = run.frame(Duration::from_secs(40), now, 80);
        let summary = "5/10 passed 4 failed 1 skipped 0 0:40, about 0:50 left";
        let width = 80 - summary.len() - 2;
        let expected = format!("{}{} {summary}", "█".repeat(width / 2), "░".repeat(width - width / 2));
        assert_eq!(plain(&frame[0]), expected);
        assert_eq!(frame[1], "   3   1:05 [sig-x] t · waiting long");
        assert_eq!(run.frame(Duration::from_secs(40), now, 20)[1], "   3   1:05 [sig-x]…");
    }

    #[test]
    fn bars_are_never_too_long() {
        for (done, total, width) in [(0, 0, 10), (3, 3, 10), (5, 3, 10), (1, 3, 0)] {
            let bar = plain(&bar(&[(done, "\x1b[32m")], total, width));
            assert_eq!(bar.chars().count(), width);
        }
    }

    #[test]
    fn times_are_short() {
        assert_eq!(minutes(Duration::from_secs(3723)), "1:02:03");
        assert_eq!(minutes(Duration::from_secs(59)), "0:59");
    }
}
