//! Doing one thing inside another network namespace.

use std::path::PathBuf;

use pintle_host::netns;

/// A network namespace by its name or file.
#[derive(Clone, Debug)]
pub struct Netns(PathBuf);

impl Netns {
    /// `name` as `ip netns` has it, or a path.
    pub fn new(name: &str) -> Netns {
        Netns(netns::file(name))
    }
}

/// Runs `work` in `netns`, if any: sockets made there belong to it, and so do processes started there.
pub fn within<T: Send>(netns: Option<&Netns>, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let Some(Netns(file)) = netns else { return work() };
    let runtime = tokio::runtime::Handle::current();
    netns::within(file, || {
        let _inside = runtime.enter();
        work()
    })?
}
