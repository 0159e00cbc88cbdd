//! Times to live. etcd deletes the keys of a lease when the lease ends; a lease for each key would be a heavy load, so keys
//! that end at about the same time share one: a lease lives a little longer than asked for, and is used for further keys
//! as long as it still outlives them.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::client::Client;
use crate::error::Result;
use crate::messages::{LeaseGrantRequest, LeaseGrantResponse};

/// Most keys under one lease: they are deleted in one step.
const MAX_KEYS: usize = 1000;
/// A lease outlives the time asked for by at most this part of it, and at most this long.
const REUSE_PART: u32 = 20;
const MAX_REUSE: Duration = Duration::from_secs(60);

/// Gives out leases.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Option<Shared>>);

/// The lease that keys are put under at present.
#[derive(Debug)]
struct Shared {
    id: i64,
    ends: Instant,
    keys: usize,
}

impl Shared {
    /// It may hold one more key that has to live for `ttl` from `now`, and not much longer.
    fn suits(&self, ttl: Duration, now: Instant) -> bool {
        let left = self.ends.saturating_duration_since(now);
        self.keys < MAX_KEYS && left >= ttl && left <= ttl + reuse(ttl) + Duration::from_secs(1)
    }
}

/// How much longer than asked for a lease lives.
fn reuse(ttl: Duration) -> Duration {
    (ttl / REUSE_PART).min(MAX_REUSE)
}

/// etcd counts in seconds.
fn seconds(ttl: Duration) -> i64 {
    i64::try_from((ttl + reuse(ttl)).as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1)
}

impl Leases {
    /// A lease for a key that is written now.
    pub(super) async fn get(&self, client: &Client, ttl: Option<Duration>) -> Result<i64> {
        let Some(ttl) = ttl else { return Ok(0) };
        let mut shared = self.0.lock().await;
        let now = Instant::now();
        if let Some(lease) = shared.as_mut().filter(|lease| lease.suits(ttl, now)) {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let request = LeaseGrantRequest { ttl: seconds(ttl) };
        let granted: LeaseGrantResponse = client.read("/etcdserverpb.Lease/LeaseGrant", request).await?;
        let ends = now + Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        *shared = Some(Shared { id: granted.id, ends, keys: 1 });
        tracing::trace!(id = granted.id, ttl = granted.ttl, "lease granted");
        Ok(granted.id)
    }

    /// Gives out another lease from now on: that one is gone.
    pub(super) async fn forget(&self, id: i64) {
        let mut shared = self.0.lock().await;
        if shared.as_ref().is_some_and(|lease| lease.id == id) {
            *shared = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_a_lease_while_it_suits() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let ends = now + hour + Duration::from_secs(60);
        let lease = |keys| Shared { id: 1, ends, keys };
        let after = |seconds| now + Duration::from_secs(seconds);
        assert!(lease(1).suits(hour, now) && lease(1).suits(hour, after(60)));
        assert!(!lease(1).suits(hour, after(61)), "it would end too early");
        assert!(!lease(MAX_KEYS).suits(hour, now), "it is full");
        assert!(!lease(1).suits(Duration::from_secs(60), now), "the key would live much too long");
    }

    #[test]
    fn lives_are_in_whole_seconds_and_never_too_short() {
        for (ttl, wanted) in [(1, 1), (999, 2), (1000, 2), (10_000, 11), (3_600_000, 3660)] {
            assert_eq!(seconds(Duration::from_millis(ttl)), wanted, "{ttl} ms");
        }
    }
}
