//! Calls to a cluster of etcd members: one is used until it fails, then the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::error::{Error, Result};
use crate::grpc::{self, Address, Failure, TlsFiles};

/// etcd's port.
const PORT: u16 = 2379;
/// One member gets this long to answer a read before another is asked.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// A member that takes a write and does not answer within this time is not believed to.
const WRITE_LIMIT: Duration = Duration::from_secs(7);
/// A call is given up after this time over all its attempts: longer than the election of a leader takes.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pauses between attempts, once all members were tried.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The members of a cluster.
#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Channel>,
    /// The one in use.
    current: AtomicUsize,
}

impl Client {
    pub(super) fn new(endpoints: &[String], tls: &TlsFiles) -> Result<Self> {
        let members: Result<Vec<_>> =
            endpoints.iter().map(|url| Address::parse(url, PORT).and_then(|address| address.channel(tls))).collect();
        let members = members?;
        if members.is_empty() {
            return Err(Error::Config("no etcd endpoints".into()));
        }
        Ok(Self { members, current: AtomicUsize::new(0) })
    }

    /// The member in use, and its number for [`Client::give_up`].
    pub(super) fn member(&self) -> (usize, Channel) {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        (at, self.members[at].clone())
    }

    /// Turns to the next member, unless somebody else did already.
    pub(super) fn give_up(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A call that may be done more than once.
    pub(super) async fn read<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: prost::Message + Default + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.attempts(path, READ_LIMIT, request, &mut false).await
    }

    /// A call that is done at most once if it is done at all, because it carries its own condition: repeated while it is
    /// in doubt. `doubt` tells that an attempt before the answer may have been the one that was done.
    pub(super) async fn conditional<Q, A>(&self, path: &'static str, request: Q, doubt: &mut bool) -> Result<A>
    where
        Q: prost::Message + Default + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.attempts(path, WRITE_LIMIT, request, doubt).await
    }

    async fn attempts<Q, A>(&self, path: &'static str, limit: Duration, request: Q, doubt: &mut bool) -> Result<A>
    where
        Q: prost::Message + Default + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        for attempt in 1.. {
            let (member, channel) = self.member();
            let failure = match grpc::unary(channel, path, limit, request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(status)) => return Err(refusal(&status)),
                Err(failure) => failure,
            };
            *doubt |= matches!(failure, Failure::InDoubt(_));
            self.give_up(member);
            let text = failure.text();
            if Instant::now() >= deadline {
                return Err(Error::Storage(format!("etcd: {text}")));
            }
            tracing::debug!(path, member, error = text, "etcd call failed, trying again");
            if attempt % self.members.len() == 0 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        Err(Error::Closed)
    }
}

/// What etcd's refusals mean here.
fn refusal(status: &Status) -> Error {
    let message = status.message();
    match status.code() {
        Code::ResourceExhausted if message.contains("database space exceeded") => Error::ReadOnly(message.into()),
        Code::OutOfRange if message.contains("compacted") => Error::Compacted { requested: 0, oldest: 0 },
        Code::InvalidArgument | Code::ResourceExhausted
            if message.contains("request is too large") || message.contains("larger than max") =>
        {
            Error::TooLarge { what: "request", size: 0, limit: MAX_REQUEST }
        }
        Code::NotFound if message.contains("lease not found") => Error::Storage(LEASE_GONE.into()),
        _ => Error::Storage(format!("etcd: {message}")),
    }
}

/// Largest request unless etcd is told otherwise.
const MAX_REQUEST: usize = 3 << 19;

/// What a write under a lease that is gone gets.
pub(super) const LEASE_GONE: &str = "etcd: requested lease not found";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn members_are_used_in_turn() {
        let urls: Vec<String> = (1..=3).map(|port| format!("http://127.0.0.1:{port}")).collect();
        let client = Client::new(&urls, &TlsFiles::default()).expect("client");
        assert_eq!(client.member().0, 0);
        client.give_up(0);
        client.give_up(0);
        assert_eq!(client.member().0, 1, "two calls that failed together go on to one next member");
        client.give_up(1);
        client.give_up(2);
        assert_eq!(client.member().0, 0);
        assert!(Client::new(&[], &TlsFiles::default()).is_err());
    }
}
