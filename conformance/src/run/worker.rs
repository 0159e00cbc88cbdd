//! The e2e.test processes: their command lines, and one of them running.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};

use super::netns::{Netns, within};
use crate::group::Group;

/// A test that takes longer than this is shown as running.
const PROGRESS_AFTER: &str = "--ginkgo.poll-progress-after=3s";
/// How often it is heard of again.
const PROGRESS_INTERVAL: &str = "--ginkgo.poll-progress-interval=15s";

/// What all processes of a run have in common.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The e2e.test binary.
    pub binary: PathBuf,
    /// Where it and the run live.
    pub netns: Option<Netns>,
    /// Flags about the cluster, then the user's own.
    pub flags: Vec<String>,
}

/// One process of several.
#[derive(Clone, Debug)]
pub struct Place {
    /// From 1.
    pub process: usize,
    /// How many the processes believe to be.
    pub total: usize,
    /// Where this one reports.
    pub url: String,
    /// The same for all: their order of tests must be the same.
    pub seed: u32,
}

impl Suite {
    /// The names of all tests.
    pub async fn list(&self) -> anyhow::Result<Vec<String>> {
        let output = Command::new(&self.binary).arg("--list-tests").stdin(Stdio::null()).kill_on_drop(true).output();
        let output = output.await.with_context(|| format!("running {}", self.binary.display()))?;
        let names = super::select::parse_list(&String::from_utf8_lossy(&output.stdout));
        anyhow::ensure!(
            output.status.success() && !names.is_empty(),
            "{} lists no tests: {}",
            self.binary.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(names)
    }

    /// The command line of one process that runs the tests that match `focus`.
    fn arguments(&self, place: &Place, focus: &[String], reports: &Path, timeout: Duration) -> Vec<String> {
        let mut arguments = vec![
            format!("--ginkgo.parallel.process={}", place.process),
            format!("--ginkgo.parallel.total={}", place.total),
            format!("--ginkgo.parallel.host={}", place.url),
            format!("--ginkgo.seed={}", place.seed),
            format!("--ginkgo.timeout={}s", timeout.as_secs()),
            "--ginkgo.no-color".to_owned(),
            PROGRESS_AFTER.to_owned(),
            PROGRESS_INTERVAL.to_owned(),
            format!("--report-dir={}", reports.display()),
        ];
        arguments.extend(focus.iter().map(|expression| format!("--ginkgo.focus={expression}")));
        arguments.extend(self.flags.iter().cloned());
        arguments
    }

    /// Starts one process; it writes what escapes its own capture to `log`.
    pub fn start(
        &self,
        place: &Place,
        focus: &[String],
        reports: &Path,
        timeout: Duration,
        log: &Path,
    ) -> anyhow::Result<Worker> {
        let mut command = Command::new(&self.binary);
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command
            .args(self.arguments(place, focus, reports, timeout))
            .env("GINKGO_PARALLEL_PROTOCOL", "HTTP")
            .current_dir(reports)
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            // A group of its own: an interrupt from the terminal is told to it as an abort, so that it can clean up.
            .process_group(0)
            .kill_on_drop(true);
        let binary = self.binary.display().to_string();
        let child = within(self.netns.as_ref(), move || command.spawn().with_context(|| format!("starting {binary}")))?;
        Ok(Worker { child })
    }
}

/// A running process.
pub struct Worker {
    child: Child,
}

impl Worker {
    /// Waits for its end.
    pub async fn ended(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        self.child.wait().await.context("waiting for a test process")
    }

    /// Its process group, while it runs.
    pub fn group(&self) -> Option<Group> {
        self.child.id().and_then(Group::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_flags_come_last() {
        let suite = Suite {
            binary: "e2e.test".into(),
            netns: None,
            flags: vec!["--num-nodes=2".to_owned(), "--provider=local".to_owned()],
        };
        let place = Place { process: 2, total: 3, url: "http://127.0.0.1:9/2".to_owned(), seed: 5 };
        let focus = ["a$".to_owned(), "b$".to_owned()];
        let arguments = suite.arguments(&place, &focus, Path::new("/out"), Duration::from_secs(60));
        for expected in [
            "--ginkgo.parallel.process=2",
            "--ginkgo.parallel.total=3",
            "--ginkgo.parallel.host=http://127.0.0.1:9/2",
            "--ginkgo.seed=5",
            "--ginkgo.timeout=60s",
            "--report-dir=/out",
            "--ginkgo.focus=a$",
            "--ginkgo.focus=b$",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected} in {arguments:?}");
        }
        assert_eq!(arguments.last().unwrap(), "--provider=local");
    }
}
