//! Programs that build something, one at a time. An interruption ends the one that runs, with all that it started.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use parking_lot::Mutex;

use crate::group::Group;

/// How much of what a program wrote is part of the error.
const TOLD: usize = 2000;

/// Runs programs until it is stopped; clones are the same runner.
#[derive(Clone, Debug, Default)]
pub struct Runner(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: Option<Group>,
    stopped: bool,
}

impl Runner {
    /// Ends the program that runs; no other one is started.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.stopped = true;
        if let Some(group) = state.running {
            group.kill();
        }
    }

    /// An error once it is stopped.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.0.lock().stopped, "interrupted");
        Ok(())
    }

    /// Runs a command to its end; what it wrote is part of the error.
    pub fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = {
            let mut state = self.0.lock();
            anyhow::ensure!(!state.stopped, "interrupted");
            let child = command.spawn().with_context(|| format!("running {name}"))?;
            state.running = Group::of(child.id());
            child
        };
        let output = child.wait_with_output();
        self.0.lock().running = None;
        self.check()?;
        let output = output.with_context(|| format!("running {name}"))?;
        let told = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{name}: {}: {}", output.status, end(told.trim()));
        Ok(())
    }
}

/// The end of a long text.
fn end(text: &str) -> String {
    let cut = text.char_indices().map(|(at, _)| at).find(|at| text.len() - at <= TOLD).unwrap_or_default();
    if cut == 0 { text.to_owned() } else { format!("…{}", &text[cut..]) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn failures_are_told() {
        let failed =
            |script: &str| Runner::default().run(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(failed("echo no good >&2; exit 3").ends_with("no good"));
        assert!(failed("yes | head -c 9000 >&2; exit 1").len() < 2 * TOLD);
    }

    #[test]
    fn an_interruption_ends_what_runs_and_what_that_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 100 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let runner = Runner::default();
        let other = runner.clone();
        let thread = std::thread::spawn(move || other.run(Command::new("sh").args(["-c", &script])));
        let begin = Instant::now();
        while !file.exists() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        runner.stop();
        assert_eq!(thread.join().unwrap().unwrap_err().to_string(), "interrupted");
        let process = format!("/proc/{}/stat", std::fs::read_to_string(&file).unwrap().trim());
        // A process that was killed may still wait for its parent to notice.
        let gone = || std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
        while !gone() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{process} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(runner.run(&mut Command::new("true")).is_err());
    }
}
