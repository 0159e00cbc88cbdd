//! Moves everything from one store into another, of any engine.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{ListOptions, Revision, Store};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::state::now;

/// Writes that are under way at a time.
const AT_ONCE: usize = 64;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// How many keys.
    pub keys: usize,
    /// Bytes of their values.
    pub bytes: u64,
    /// Revision of the target afterwards.
    pub revision: Revision,
}

/// Writes a snapshot into a store that has no keys under `prefix`: those under `prefix`, each with what is left of its time
/// to live. Revisions are given anew by the target.
pub async fn copy(snapshot: &Snapshot, prefix: &str, target: Arc<dyn Store>) -> Result<Copied> {
    let there = target.list(ListOptions { limit: Some(1), ..ListOptions::prefix(prefix) }).await?;
    if let Some(kv) = there.items.first() {
        return Err(Error::Config(format!("the target is not empty: it has {}", kv.key)));
    }
    let mut running = tokio::task::JoinSet::new();
    let (mut keys, mut bytes) = (0, 0);
    for (key, entry) in snapshot.entries.iter().filter(|(key, _)| key.starts_with(prefix)) {
        let ttl = entry.expires.map(|at| Duration::from_millis(at.saturating_sub(now()).max(1)));
        let (key, value, target) = (key.clone(), entry.value.clone(), target.clone());
        keys += 1;
        bytes += value.len() as u64;
        if running.len() >= AT_ONCE {
            finish(&mut running).await?;
        }
        running.spawn(async move { target.create(&key, value, ttl).await.map(drop) });
    }
    while !running.is_empty() {
        finish(&mut running).await?;
    }
    Ok(Copied { keys, bytes, revision: target.current_revision().await? })
}

async fn finish(running: &mut tokio::task::JoinSet<Result<()>>) -> Result<()> {
    match running.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(Error::Closed),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[tokio::test]
    async fn everything_under_the_prefix_arrives_once() {
        let source = Memory::default();
        for i in 0..200 {
            source.create(&format!("/registry/{i:03}"), i.to_string().into(), None).await.expect("create");
        }
        source.create("/registry/short", "x".into(), Some(Duration::from_millis(300))).await.expect("create");
        source.create("/elsewhere", "x".into(), None).await.expect("create");
        let mut bytes = Vec::new();
        source.snapshot(&mut bytes).await.expect("snapshot");
        let snapshot = Snapshot::read(&bytes[..]).expect("valid");
        let target = Arc::new(Memory::default());
        let copied = copy(&snapshot, "/registry/", target.clone()).await.expect("copy");
        assert_eq!((copied.keys, copied.revision), (201, 202));
        let values =
            |listing: crate::Listing| listing.items.into_iter().map(|kv| (kv.key, kv.value)).collect::<Vec<_>>();
        let options = || ListOptions::prefix("/registry/");
        let wanted = values(source.list(options()).await.expect("list"));
        assert_eq!(values(target.list(options()).await.expect("list")), wanted);
        assert!(matches!(copy(&snapshot, "/registry/", target.clone()).await, Err(Error::Config(_))), "not twice");
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(target.get("/registry/short").await.expect("get").is_none(), "the time to live goes on");
    }
}
