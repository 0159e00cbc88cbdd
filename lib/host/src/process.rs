//! Processes that outlive this one: started detached, found again by pid file, stopped by their own id.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process known by its pid and by when it began, so that a reused pid is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pid: i32,
    started: u64,
}

impl Handle {
    /// The process of the given pid, if it runs.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started: start_time(pid)? })
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The process that a pid file names, if that process still runs.
    pub fn read(file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let handle = Self { pid: pid.parse().ok()?, started: started.parse().ok()? };
        handle.alive().then_some(handle)
    }

    /// Writes the pid file, at once as seen by readers.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        crate::file::replace(file, format!("{} {}\n", self.pid, self.started).as_bytes(), 0o644)
    }

    /// True while it runs (a zombie does not).
    pub fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if self.alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// TERM, then after `patience` KILL; returns when it is gone (or cannot be killed within 5 s).
    pub async fn stop(&self, patience: Duration) {
        self.signal(Signal::SIGTERM);
        if !self.gone_within(patience).await {
            self.signal(Signal::SIGKILL);
            self.gone_within(Duration::from_secs(5)).await;
        }
    }

    async fn gone_within(&self, limit: Duration) -> bool {
        let end = tokio::time::Instant::now() + limit;
        while self.alive() {
            if tokio::time::Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }
}

/// Start time in clock ticks since boot; `None` for no process and for a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let fields = stat(pid)?;
    if matches!(fields.first().map(String::as_str), Some("Z" | "X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Fields of `/proc/PID/stat` after the command's name, which is in parentheses and may hold anything.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes whose parent is the given one.
pub fn children(pid: i32) -> Vec<i32> {
    let parent = pid.to_string();
    pids().into_iter().filter(|pid| stat(*pid).is_some_and(|fields| fields.get(1) == Some(&parent))).collect()
}

/// Ends a child that leads a process group, with all that is in it.
pub fn kill_group(pid: i32) {
    // It may have ended by itself.
    let _ = nix::sys::signal::killpg(Pid::from_raw(pid), Signal::SIGKILL);
}

/// Starts a command in a session of its own with its output appended to `log`, and writes its pid file.
pub fn spawn_detached(mut command: Command, log: &Path, pid_file: &Path) -> anyhow::Result<Handle> {
    let out = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening {}", log.display()))?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
    let pid = i32::try_from(child.id())?;
    let handle = Handle::of(pid).with_context(|| format!("{program} ended at once; see {}", log.display()))?;
    handle.write(pid_file)?;
    // Reaped when it ends, so that it does not stay a zombie of this process.
    std::thread::spawn(move || child.wait());
    Ok(handle)
}

/// Every running process whose command line has all the given arguments.
pub fn find(arguments: &[&str]) -> Vec<Handle> {
    pids()
        .into_iter()
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let present: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            arguments.iter().all(|wanted| present.contains(&wanted.as_bytes()))
        })
        .filter_map(Handle::of)
        .collect()
}

/// Runs a command to its end; its error output is the error's text.
pub async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| format!("running {program}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{program} {}: {}: {}", arguments.join(" "), output.status, text.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_detached_process_is_found_again_and_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut command = Command::new("sleep");
        command.arg("61.25");
        let started = spawn_detached(command, &dir.path().join("log"), &pid_file).unwrap();
        assert_eq!(Handle::read(&pid_file), Some(started));
        assert!(find(&["61.25"]).contains(&started));
        started.stop(Duration::from_secs(2)).await;
        assert_eq!(Handle::read(&pid_file), None);
    }
}
