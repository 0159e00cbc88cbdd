//! A program with what it started: a process group that is ended as one.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The process group of a child that leads one.
#[derive(Clone, Copy, Debug)]
pub struct Group(Pid);

impl Group {
    /// Of the child with this process id.
    pub fn of(id: u32) -> Option<Self> {
        i32::try_from(id).ok().map(|id| Self(Pid::from_raw(id)))
    }

    /// Ends it at once.
    pub fn kill(self) {
        // It may have ended by itself.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}
