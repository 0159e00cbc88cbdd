//! Doing one thing inside another network namespace.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";

/// A network namespace by its name or file.
#[derive(Clone, Debug)]
pub struct Netns(PathBuf);

impl Netns {
    /// `name` as `ip netns` has it, or a path.
    pub fn new(name: &str) -> Netns {
        Netns(if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) })
    }
}

/// Runs `work` on a thread that is in `netns`, if any: sockets made there belong to it, and so do processes started there. A
/// thread of its own, as a thread that changed its namespace is of no more use to others.
pub fn within<T: Send + 'static>(
    netns: Option<&Netns>,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let Some(Netns(path)) = netns.cloned() else { return work() };
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::spawn(move || {
        let _inside = runtime.enter();
        let file = File::open(&path).with_context(|| format!("opening the network namespace {}", path.display()))?;
        setns(&file, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {}", path.display()))?;
        work()
    });
    thread.join().map_err(|_| anyhow::anyhow!("the thread in the network namespace panicked"))?
}
