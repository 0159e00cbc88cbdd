//! A program with what it started: a process group that is ended as one.

use pintle_host::process;

/// The process group of a child that leads one.
#[derive(Clone, Copy, Debug)]
pub struct Group(i32);

impl Group {
    /// Of the child with this process id.
    pub fn of(id: u32) -> Option<Self> {
        i32::try_from(id).ok().map(Self)
    }

    /// Ends it at once.
    pub fn kill(self) {
        process::kill_group(self.0);
    }
}
