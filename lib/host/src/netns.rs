//! Network namespaces: a thread enters one, and what it opens or starts from then on belongs to it.

use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps namespaces.
pub const NAMED: &str = "/run/netns";

/// The file of a namespace: a path, or a name as `ip netns` has it.
pub fn file(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) }
}

/// Moves the calling thread into a namespace. It is of no use to others then: it should be a thread of its own.
///
/// # Errors
/// If there is no such namespace, or it must not be entered.
pub fn enter(file: &Path) -> Result<()> {
    let about = |error: Error| Error::new(error.kind(), format!("network namespace {}: {error}", file.display()));
    let opened = File::open(file).map_err(about)?;
    setns(opened, CloneFlags::CLONE_NEWNET).map_err(|error| about(error.into()))
}

/// Runs `work` on a thread of its own in a namespace.
///
/// # Errors
/// If the namespace can't be entered, or `work` panics.
pub fn within<T: Send>(file: &Path, work: impl FnOnce() -> T + Send) -> Result<T> {
    let inside = || enter(file).map(|()| work());
    let ended = std::thread::scope(|scope| scope.spawn(inside).join());
    ended.map_err(|_| Error::other("the thread in the network namespace panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ip_netns() {
        assert_eq!(file("a"), Path::new("/run/netns/a"));
        assert_eq!(file("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }

    #[test]
    fn a_namespace_that_is_not_there_is_an_error() {
        let error = within(Path::new("/run/netns/no-such-namespace"), || ()).unwrap_err();
        assert!(error.to_string().contains("no-such-namespace"), "{error}");
    }
}
